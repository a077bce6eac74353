"""The field tables of docs/reference/wire.md, taken from the codec's declarations.

`python -m tests.golden.wire_tables` writes them between the markers of that page; a test compares.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sojourn.wire import (
    blocks,
    commands,
    companion_commands,
    envelope,
    payload,
    record,
    record_bodies,
    results,
)
from sojourn.wire.command_frame import COMMANDS, command_name
from sojourn.wire.primitives import (
    BOOL8,
    I64,
    LOGICAL_LENGTH,
    NZ64,
    ORDINAL,
    RID,
    TEXT8,
    TEXT16,
    Blob,
    Codec,
    Enumeration,
    Number,
    Text,
)
from sojourn.wire.record import RawRecord
from sojourn.wire.structure import (
    Block,
    Choice,
    ExtraPart,
    Optional,
    Union,
    Vector,
    VersionedEnvelope,
    block,
    camel_case,
)

__all__ = ["PAGE", "page_with_tables"]

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "wire.md"

_NAMED: dict[int, str] = {
    id(BOOL8): "bool8",
    id(NZ64): "nonzero-u64",
    id(ORDINAL): "ordinal",
    id(RID): "rid",
    id(TEXT8): "text8",
    id(TEXT16): "text16",
    id(I64): "version",
    id(LOGICAL_LENGTH): "u64, at most 274,877,906,944",
    id(blocks.OBJECT_IDENTITY): "object identity",
    id(blocks.ROUTE_FENCE): "route",
    id(record.SOURCE): "source",
    id(payload.METADATA): "metadata frame",
    id(payload.APPLICATION_PAYLOAD): "payload envelope",
    id(record_bodies.ACTOR_CONTROL): "actor control",
    id(record_bodies.INSTANCE_ROUTE): "instance route",
    id(record_bodies.SEND_READY_DESTINATION): "destination",
    id(commands.ROUTE_UPDATE): "route update",
    id(companion_commands.JOIN_RESULT): "join result",
    id(companion_commands.REPLY_CONTEXT): "reply context",
    id(companion_commands.ACTIVATION_COMPLETION): "activation completion",
}

_CHOICES = {"reply_route_id": "reply route (below)", "body": "body of the kind (below)"}

_SECTIONS: dict[str, tuple[type[Any], ...]] = {
    "blocks": (
        blocks.RelocationId,
        blocks.CoordinatorFence,
        blocks.TargetFence,
        blocks.RequestSourceFence,
        blocks.RelocationIdentity,
        blocks.ActorRef,
        blocks.SpotRef,
        blocks.ActorRouteFence,
        blocks.SpotRouteFence,
        companion_commands.GenerationFence,
        companion_commands.MessageFollowEnvelope,
        record_bodies.Membership,
    ),
    "envelope": (
        envelope.Envelope,
        envelope.ApplicationState,
        envelope.SavedWork,
        envelope.TimerRegistration,
        envelope.PendingTimerTick,
    ),
    "record": (record.FrozenRecord,),
}
_UNIONS: dict[str, tuple[Union[Any], ...]] = {
    "object": (blocks.OBJECT_IDENTITY, blocks.ROUTE_FENCE),
    "source": (record.SOURCE,),
    "record-unions": (
        record_bodies.ACTOR_CONTROL,
        record_bodies.SEND_READY_DESTINATION,
        record_bodies.INSTANCE_ROUTE,
    ),
    "command-unions": (
        commands.ROUTE_UPDATE,
        companion_commands.JOIN_RESULT,
        companion_commands.REPLY_CONTEXT,
        companion_commands.ACTIVATION_COMPLETION,
    ),
}


def _words(name: str) -> str:
    return re.sub(r"(?<!^)([A-Z])", lambda found: " " + found.group(1).lower(), name[0].lower() + name[1:])


def _number(codec: Number) -> str:
    width = f"u{8 * codec.minimum}"
    if codec.low == codec.high:
        return f"{width} = {codec.low}"
    whole = codec.low == 0 and codec.high == 2 ** (8 * codec.minimum) - 1
    return width if whole else f"{width}, {codec.low}..{codec.high:,}"


def _enumeration(codec: Enumeration[Any]) -> str:
    width = f"u{8 * codec.minimum}"
    members = sorted(codec.allowed or codec.members.values())
    if codec.name in ("TerminalResult", "FailureCode"):
        return f"{width} {_words(codec.name)}{', not 0' if codec.allowed else ''}"
    listed = ", ".join(f"{int(member)} {camel_case(member.name.lower())}" for member in members)
    return f"{width}: {listed}"


def _optional(codec: Optional[Any]) -> str:
    length = "" if codec.length is None else f", u{8 * codec.length.minimum} length"
    flag = "bool8" if codec.flag is None else f"`{codec.flag}` bool8"
    return f"{flag}{length}, when 1: {_type(codec.inner)}"


def _type(codec: Codec[Any]) -> str:
    named = _NAMED.get(id(codec))
    if named is not None:
        return named
    match codec:
        case Number():
            return _number(codec)
        case Enumeration():
            return _enumeration(codec)
        case Text():
            return f"u{8 * codec.length.minimum} length + UTF-8, {codec.low}..{codec.high} bytes"
        case Blob():
            limit = "" if codec.high >= 2**63 else f", at most {codec.high:,}"
            return f"u{8 * codec.length.minimum} length + bytes{limit}"
        case RawRecord():
            return "frozen record"
        case Optional():
            return _optional(codec)
        case ExtraPart():
            return f"further part, may be absent: {_type(codec.inner)}"
        case VersionedEnvelope():
            return f"u8 = 1, u{8 * codec.length.minimum} length ≤ {codec.length.high:,}, {_type(codec.inner)}"
        case Vector():
            return f"u{8 * codec.count.minimum} count × {_type(codec.item)}"
        case Block():
            return _words(codec.cls.__name__)
        case _:
            raise AssertionError(codec)


def _shown(codec: Codec[Any] | Choice, attribute: str) -> str:
    return _CHOICES[attribute] if isinstance(codec, Choice) else _type(codec)


def _fields(cls: type[Any]) -> str:
    return ", ".join(f"`{field.name}` {_shown(field.codec, field.attribute)}" for field in block(cls).fields)


def _rows(cls: type[Any]) -> list[str]:
    lines = [f"**{_words(cls.__name__)}**", "", "| # | field | type |", "|---|---|---|"]
    for number, field in enumerate(block(cls).fields, 1):
        lines.append(f"| {number} | `{field.name}` | {_shown(field.codec, field.attribute)} |")
    return [*lines, ""]


def _union(union: Union[Any]) -> list[str]:
    tag, length = f"u{8 * union.tag.minimum}", f"u{8 * union.length.minimum}"
    lines = [
        f"**{_NAMED[id(union)]}**: `tag` {tag}, {length} length, case",
        "",
        "| tag | case | fields |",
        "|---|---|---|",
    ]
    lines += [f"| {case.tag} | {case.kind} | {_fields(cls)} |" for cls, case in union.classes.items()]
    return [*lines, ""]


def _commands() -> list[str]:
    lines: list[str] = []
    for number, cls in sorted(COMMANDS.items()):
        lines += [f"**{number} {command_name(cls)}**", "", "| # | field | type |", "|---|---|---|"]
        for place, field in enumerate(block(cls).fields, 1):
            lines.append(f"| {place} | `{field.name}` | {_shown(field.codec, field.attribute)} |")
        lines.append("")
    return lines


def _record_kinds() -> list[str]:
    lines = [
        "| kind | name | body | operation kind | operation id | metadata | source |",
        "|---|---|---|---|---|---|---|",
    ]
    words = {True: "nonzero", False: "zero", None: "nonzero exactly when the operation kind is"}
    for kind, rule in record._RULES.items():
        name = camel_case(record.RecordKind(kind).name.lower())
        operations = sorted(rule.operation_kinds)
        shown = "1..15" if operations == list(range(1, 16)) else ", ".join(map(str, operations))
        columns = (
            str(kind),
            name,
            _fields(rule.body),
            shown,
            words[rule.operation_id],
            "may" if rule.takes_metadata else "never",
            "node" if rule.node_only else "any",
        )
        lines.append(f"| {' | '.join(columns)} |")
    return [*lines, ""]


def _numbers() -> list[str]:
    operations = ", ".join(f"{int(kind)} {camel_case(kind.name.lower())}" for kind in record.OperationKind)
    lines = [f"Operation kinds: {operations}.", "", "| result | name | failure codes |", "|---|---|---|"]
    for result in results.TerminalResult:
        codes = [code for code, owner in results.RESULT_OF_FAILURE.items() if owner == result]
        listed = ", ".join(f"{int(code)} {camel_case(code.name.lower())}" for code in codes) or "0"
        lines.append(f"| {int(result)} | {camel_case(result.name.lower())} | {listed} |")
    return [*lines, ""]


def tables() -> dict[str, str]:
    """Marker name to table."""
    found = {name: [line for cls in classes for line in _rows(cls)] for name, classes in _SECTIONS.items()}
    found |= {name: [line for union in unions for line in _union(union)] for name, unions in _UNIONS.items()}
    found |= {"commands": _commands(), "record-kinds": _record_kinds(), "numbers": _numbers()}
    return {name: "\n".join(lines) for name, lines in found.items()}


def page_with_tables(page: str) -> str:
    """The page with every table between its markers written anew."""
    for name, table in tables().items():
        start, end = f"<!-- table: {name} -->\n", "<!-- end -->"
        before, found, rest = page.partition(start)
        assert found, name
        page = f"{before}{start}\n{table}\n{end}{rest.partition(end)[2]}"
    return page


if __name__ == "__main__":
    PAGE.write_text(page_with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
