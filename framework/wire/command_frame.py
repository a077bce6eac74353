"""Framing of commands: the five bytes before every body, and the table of commands.

Owns which command ids exist and how many parts a record has. Knows no field of any command.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sojourn.wire.commands import (
    RelocationCutover,
    RelocationData,
    RelocationFailed,
    RelocationPrepare,
    RelocationReady,
    RelocationState,
    SessionRelocationRoute,
    SessionRelocationSeal,
    SessionRelocationSealed,
)
from sojourn.wire.companion_commands import (
    ActorJoinReply,
    ActorJoinRequest,
    MessageFollow,
    ReplyRelay,
    ReplyRelayAck,
)
from sojourn.wire.cursor import Buffer, Reader, Writer
from sojourn.wire.errors import WireError, Word
from sojourn.wire.primitives import U8, fail_json
from sojourn.wire.quick import read_quickly, write_quickly
from sojourn.wire.structure import block

__all__ = [
    "COMMANDS",
    "HEAD_BYTES",
    "Command",
    "command_from_json",
    "command_head",
    "command_name",
    "command_to_json",
    "decode_command",
    "encode_command",
]

MAGIC = b"\x5a\x4d"
MAJOR = 1
HEAD_BYTES = 5
"""Magic, major, command id, flags."""
_COMMAND_AT = 3

Command = (
    ActorJoinReply
    | ActorJoinRequest
    | MessageFollow
    | RelocationCutover
    | RelocationData
    | RelocationFailed
    | RelocationPrepare
    | RelocationReady
    | RelocationState
    | ReplyRelay
    | ReplyRelayAck
    | SessionRelocationRoute
    | SessionRelocationSeal
    | SessionRelocationSealed
)

COMMANDS: dict[int, type[Command]] = {
    cls.COMMAND: cls
    for cls in (
        ActorJoinReply,
        ActorJoinRequest,
        RelocationReady,
        RelocationData,
        ReplyRelay,
        RelocationCutover,
        RelocationPrepare,
        SessionRelocationSeal,
        SessionRelocationSealed,
        SessionRelocationRoute,
        ReplyRelayAck,
        MessageFollow,
        RelocationState,
        RelocationFailed,
    )
}
"""Command id to class. Every other id is unknown on receipt and never sent."""


def command_name(cls: type[Command]) -> str:
    """A command's name in the contract: `relocationReady`."""
    return cls.__name__[0].lower() + cls.__name__[1:]


def decode_command(
    frame: bytes | bytearray | memoryview,
    extra_parts: Sequence[Buffer] = (),
    trace: dict[str, int] | None = None,
) -> Command:
    """Decode one command from frame 0 and the parts behind it.

    Roles, flags, ranges and exact use of every byte are checked; whether the command fits the phase and
    comes from the right peer is not. With `trace`, the offset of every field is noted there under its path.

    Raises:
        WireError: malformed.
    """
    if trace is None and not extra_parts:
        quick = _decode_quickly(frame)
        if quick is not None:
            return quick
    reader = Reader(frame, trace, waiting=list(extra_parts))
    cls = _read_head(reader)
    command: Command = block(cls).read(reader)
    reader.finish()
    if reader.waiting:
        part = len(extra_parts) - len(reader.waiting) + 1
        detail = f"{command_name(cls)} has no such part"
        reader.fail(Word.TRAILING_BYTE, detail, offset=0, name=f"part[{part}]")
    return command


def _decode_quickly(frame: bytes | bytearray | memoryview) -> Command | None:
    cls = COMMANDS.get(frame[_COMMAND_AT]) if len(frame) > HEAD_BYTES else None
    if cls is None or frame[:HEAD_BYTES] != command_head(cls):
        return None
    command: Command | None = read_quickly(
        block(cls), memoryview(frame) if isinstance(frame, bytearray) else frame, HEAD_BYTES
    )
    return command


def command_head(cls: type[Command]) -> bytes:
    """The five bytes before the body of a command."""
    return MAGIC + bytes((MAJOR, cls.COMMAND, 0))


def _read_head(reader: Reader) -> type[Command]:
    reader.enter("magic")
    start = reader.advance(2)
    if reader.data[start : start + 2] != MAGIC:
        reader.fail(Word.INVALID_MAGIC, "must be 5A 4D", offset=start)
    reader.leave()
    major = _head_byte(reader, "major")
    if major != MAJOR:
        raise WireError(Word.UNSUPPORTED_MAJOR, 2, "major", f"{major} is not {MAJOR}")
    number = _head_byte(reader, "command")
    cls = COMMANDS.get(number)
    if cls is None:
        raise WireError(Word.UNKNOWN_COMMAND, 3, "command", f"{number} is reserved or unknown")
    flags = _head_byte(reader, "flags")
    if flags:
        raise WireError(
            Word.FORBIDDEN_FLAG, 4, "flags", f"{command_name(cls)} has no flags, not {flags:#04x}"
        )
    return cls


def _head_byte(reader: Reader, name: str) -> int:
    reader.enter(name)
    value = U8.read(reader)
    reader.leave()
    return value


def encode_command(command: Command) -> list[bytes]:
    """Encode a command into its parts: frame 0, then the application payload if it has one.

    A record inside command 31 is taken as it is: its bytes were checked when they were made or received.

    Raises:
        WireError: a value out of range, or a rule of the command is broken.
    """
    codec: Any = block(type(command))
    head = command_head(type(command))
    pieces = write_quickly(codec, command, head)
    if pieces is not None:
        return [b"".join(pieces)]
    writer = Writer()
    writer.put(head)
    codec.write(writer, command)
    return [writer.joined(), *writer.further]


def command_to_json(command: Command) -> dict[str, Any]:
    """A command in JSON: number, name and fields."""
    codec: Any = block(type(command))
    return {"command": command.COMMAND, "name": command_name(type(command)), **codec.to_json(command)}


def command_from_json(value: Any) -> Command:
    """The command that JSON stands for; `name` may be left out.

    Raises:
        WireError: no such command, or a field that is missing, unknown or of the wrong type.
    """
    if not isinstance(value, dict):
        raise fail_json([], "an object is needed")
    given = dict(value)
    number = given.pop("command", None)
    cls = COMMANDS.get(number) if type(number) is int else None
    if cls is None:
        raise WireError(Word.UNKNOWN_COMMAND, 0, "command", f"{number!r} is reserved or unknown")
    if given.pop("name", command_name(cls)) != command_name(cls):
        raise fail_json(["name"], f"command {number} is {command_name(cls)}")
    command: Command = block(cls).from_json(given, [])
    return command
