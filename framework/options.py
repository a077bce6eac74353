"""Every setting of a node, a client or a cluster: default, unit, range and meaning in ONE table.

Owns the values and their checks. The table is the body of `Options`: the reference page is generated
from it. It must not know where values come from (files, environment, arguments) or who reads them.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
from sojourn.errors import NotConfigured
from sojourn.lease import LeaseSettings

__all__ = ["SETTINGS", "Options", "Setting", "options_table"]

KIB = 1024
MIB = 1024 * KIB
DAY_MS = 24 * 3600 * 1000
QUEUED_JOBS_PER_PROCESSOR = 128


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: the unit of its value, its range (both ends allowed) and what it means.

    For text the range is that of its length in UTF-8 bytes. `zero` says what 0 (or empty text) means
    where that is a value of its own beside the range.
    """

    unit: str
    low: int
    high: int
    doc: str
    zero: str | None = None

    @property
    def allowed(self) -> str:
        """The range as people read it."""
        span = f"{self.low} to {self.high} {self.unit}".rstrip()
        if self.unit == "yes/no":
            return "true or false"
        if self.zero is None:
            return span
        empty = "empty" if self.unit == "bytes of text" else "0"
        return f"{empty} ({self.zero}) or {span}"

    def problem(self, value: object, expected: type) -> str | None:
        """Why `value` is not allowed, or None."""
        if type(value) is not expected:
            return f"has the type {type(value).__name__}, not {expected.__name__}"
        if isinstance(value, str):
            try:
                measure = len(value.encode("utf-8"))
            except UnicodeEncodeError:
                return "is not valid Unicode text"
        else:
            assert isinstance(value, int)
            measure = value
        if self.unit == "yes/no" or self.low <= measure <= self.high:
            return None
        if measure == 0 and self.zero is not None:
            return None
        return "is out of range"


class _OptionsMeta(msgspec.StructMeta):
    """Lets a wrong name in `Options(...)` be told of as everywhere else, with the nearest right one."""

    if not TYPE_CHECKING:  # type checkers go by the fields

        def __call__(cls, *args: Any, **values: Any) -> Any:
            if args:
                raise NotConfigured("options are named: write Options(request_timeout_ms=5000)")
            _check_names(values)
            return super().__call__(**values)


def _check_names(values: Iterable[object]) -> None:
    for name in values:
        if name not in SETTINGS:
            near = difflib.get_close_matches(str(name), SETTINGS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(SETTINGS)}"
            raise NotConfigured(f"unknown option {name!r}: {hint}")


class Options(msgspec.Struct, frozen=True, kw_only=True, metaclass=_OptionsMeta):
    """All settings. Numbers are whole; the unit stands in the table and, for durations and sizes, in the name.

    Constructing one checks it.

    Raises:
        NotConfigured: a name is unknown, a value is out of its range, or two values do not fit together; the
            text names the option, its value and what is allowed.
    """

    cluster: Annotated[
        str, Setting("bytes of text", 1, 64, "Name of the cluster: nodes of other names are refused.")
    ] = "sojourn"
    secret: Annotated[
        str,
        Setting(
            "bytes of text",
            16,
            1024,
            "Cluster secret that nodes and clients prove to each other. Use 32 random bytes, written as hex.",
            "loopback only, no authentication",
        ),
    ] = ""
    store_url: Annotated[
        str,
        Setting(
            "bytes of text",
            1,
            2048,
            "Location and Relocation Store: `sqlite:///absolute/path`, `redis://host:port/db` or `memory://name`.",
            "chosen by the launcher",
        ),
    ] = ""
    store_timeout_ms: Annotated[
        int, Setting("ms", 10, 60_000, "Longest wait for one store call; then its outcome is unknown (B6.1).")
    ] = 5_000
    workers: Annotated[int, Setting("processes", 1, 1024, "Worker processes of a node.")] = 1

    relocation_chunk_bytes: Annotated[
        int,
        Setting(
            "bytes", 1 * KIB, 64 * MIB, "RelocationPayloadChunkLimit: largest chunk of state sent (R4.2.5)."
        ),
    ] = 256 * KIB
    relocation_cutover_wait_ms: Annotated[
        int,
        Setting(
            "ms",
            10,
            60_000,
            "RelocationCutoverWaitTimeout: how long a target waits for the cutover (R4.4.5).",
        ),
    ] = 1_000
    relocation_in_flight_bytes: Annotated[
        int,
        Setting(
            "bytes", 1 * KIB, 2**40, "RelocationInFlightPayloadBudget for each peer connection (R5.4).", "off"
        ),
    ] = 16 * MIB
    relocation_node_in_flight_bytes: Annotated[
        int,
        Setting(
            "bytes", 1 * KIB, 2**40, "RelocationNodeInFlightPayloadBudget of the whole node (R5.4).", "off"
        ),
    ] = 0
    relocation_commit_reserve_ms: Annotated[
        int,
        Setting(
            "ms", 100, 600_000, "Time a target has beyond the source's deadline to finish a move (B8.2)."
        ),
    ] = 10_000
    relocation_seal_reserve_ms: Annotated[
        int,
        Setting("ms", 0, 600_000, "No unit is sealed with less time than this left to its deadline (B8.2)."),
    ] = 2_000
    ended_identity_keep_ms: Annotated[
        int,
        Setting(
            "ms", 1_000, 3_600_000, "How long past its deadline an ended relocation is remembered (B8.6)."
        ),
    ] = 60_000
    move_deadline_ms: Annotated[int, Setting("ms", 100, 3_600_000, "Deadline of a single move (B8.2).")] = (
        30_000
    )
    host_move_deadline_ms: Annotated[
        int, Setting("ms", 100, 86_400_000, "Deadline of emptying a whole node (B10.1).")
    ] = 30_000
    join_timeout_ms: Annotated[int, Setting("ms", 100, 3_600_000, "Deadline of a join (B2.5).")] = 5_000
    stop_deadline_ms: Annotated[
        int, Setting("ms", 100, 3_600_000, "Time a stopping node gives its running work (B10.5).")
    ] = 30_000

    follow_duration_ms: Annotated[
        int, Setting("ms", 100, 3_600_000, "How long a former owner follows an object with messages (B9.1).")
    ] = 30_000
    route_cache_age_ms: Annotated[
        int,
        Setting(
            "ms", 10, 3_600_000, "Age of a cached route; at least 5 s less than the follow duration (B9.1)."
        ),
    ] = 15_000
    marker_limit_ms: Annotated[
        int,
        Setting(
            "ms", 10, 60_000, "Longest wait for a path marker before the path is switched anyway (B9.4)."
        ),
    ] = 2_000

    request_timeout_ms: Annotated[
        int,
        Setting("ms", 1, 86_400_000, "Default deadline of a request (B3.1); per call: `ref.with_timeout`."),
    ] = 30_000
    admission_timeout_ms: Annotated[
        int, Setting("ms", 1, 3_600_000, "Longest wait for the local outbound admission (B3.1).")
    ] = 1_000
    max_queued_jobs: Annotated[
        int,
        Setting("records", 16, 2**31, "Permits of the node's job queue (B5.1).", "128 for each processor"),
    ] = 0
    max_retained_bytes: Annotated[
        int,
        Setting(
            "bytes", 1 * MIB, 2**40, "Holds, backlogs and outbound queues above this grant no credit (B5.3)."
        ),
    ] = 256 * MIB
    max_frame_bytes: Annotated[
        int, Setting("bytes", 4 * KIB, 64 * MIB, "Largest application record (wire.md section 10).")
    ] = 1 * MIB

    lease_ttl_ms: Annotated[
        int, Setting("ms", 50, 3_600_000, "How long an owner lease lives after its last renewal (B6.4).")
    ] = 15_000
    lease_renew_ms: Annotated[int, Setting("ms", 5, 3_600_000, "Interval of lease renewals (B6.4).")] = 5_000
    lease_renew_timeout_ms: Annotated[
        int, Setting("ms", 5, 3_600_000, "Longest wait for one renewal (B6.4).")
    ] = 3_000
    lease_margin_ms: Annotated[
        int,
        Setting("ms", 5, 3_600_000, "A node stops admitting work this long before its lease ends (B6.4)."),
    ] = 5_000

    session_seal_timeout_ms: Annotated[
        int, Setting("ms", 100, 600_000, "SessionRelocationSealTimeout: then the session is closed (B11.5).")
    ] = 3_000

    hook_deadline_ms: Annotated[
        int, Setting("ms", 1, 86_400_000, "Deadline of a lifecycle, capture or restore hook (B2.9).")
    ] = 30_000
    handler_deadline_ms: Annotated[
        int, Setting("ms", 1, 86_400_000, "Deadline of a message or timer handler (B2.9).", "none")
    ] = 0
    worker_silent_ms: Annotated[
        int, Setting("ms", 10, 3_600_000, "A worker silent this long has its stack logged (B2.9).")
    ] = 1_000
    worker_unresponsive_s: Annotated[
        int, Setting("s", 1, 86_400, "A worker silent this long is killed (B2.9).")
    ] = 30

    handshake_timeout_ms: Annotated[
        int, Setting("ms", 10, 600_000, "Longest time a connection may stay unauthenticated.")
    ] = 5_000
    handshake_max_bytes: Annotated[
        int, Setting("bytes", 512, 1 * MIB, "Most bytes read from a connection before it is authenticated.")
    ] = 8 * KIB
    handshake_max_connections: Annotated[
        int, Setting("connections", 1, 65_536, "Most unauthenticated connections at one time.")
    ] = 64
    allow_pickle: Annotated[
        bool,
        Setting(
            "yes/no",
            0,
            1,
            "Accept and send pickled payloads between authenticated nodes; never from sessions.",
        ),
    ] = True
    reply_retention_ms: Annotated[
        int, Setting("ms", 1_000, 30 * DAY_MS, "How long the Relocation Store keeps a blob (B7.1).")
    ] = DAY_MS

    def __post_init__(self) -> None:
        self.validate()

    def validate(self) -> None:
        """Check every value against its range, and the pairs that depend on each other (B6.4, B9.1)."""
        for name, (expected, setting) in SETTINGS.items():
            value = getattr(self, name)
            problem = setting.problem(value, expected)
            if problem is not None:
                raise NotConfigured(
                    f"option {name} = {_shown(name, value)} {problem}: allowed is {setting.allowed}"
                )
        if not (self.cluster.isascii() and self.cluster.isprintable()) or {"{", "}"} & set(self.cluster):
            raise NotConfigured(
                f"option cluster = {self.cluster!r} must be printable ASCII without braces: it becomes part of store keys"
            )
        self.lease.check()
        if self.route_cache_age_ms + ROUTE_CACHE_GAP_MS > self.follow_duration_ms:
            raise NotConfigured(
                f"option route_cache_age_ms = {self.route_cache_age_ms} must be at least {ROUTE_CACHE_GAP_MS} ms "
                f"less than follow_duration_ms = {self.follow_duration_ms} (B9.1)"
            )
        if self.worker_silent_ms > self.worker_unresponsive_s * 1000:
            raise NotConfigured(
                f"option worker_silent_ms = {self.worker_silent_ms} must not be more than "
                f"worker_unresponsive_s = {self.worker_unresponsive_s}: the stack is logged before the kill"
            )

    @property
    def lease(self) -> LeaseSettings:
        """The four lease settings as the lease clock takes them."""
        return LeaseSettings(
            ttl_ms=self.lease_ttl_ms,
            renew_ms=self.lease_renew_ms,
            renew_timeout_ms=self.lease_renew_timeout_ms,
            margin_ms=self.lease_margin_ms,
        )

    def queued_jobs(self, processors: int) -> int:
        """Permits of the node's job queue on a machine with this many processors (B5.1)."""
        return self.max_queued_jobs or QUEUED_JOBS_PER_PROCESSOR * max(1, processors)

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Options:
        """Options from names and values, for example of a TOML table.

        Raises:
            NotConfigured: a name is unknown (the nearest known one is named), or a value is not allowed.
        """
        _check_names(values)  # here too: a key of a table may be no text
        return cls(**values)

    def to_mapping(self, *, with_secret: bool = True) -> dict[str, Any]:
        """The values by name, as `from_mapping` takes them. Workers need no secret."""
        values = {name: getattr(self, name) for name in SETTINGS}
        if not with_secret:
            values["secret"] = ""
        return values

    def __repr__(self) -> str:
        changed = ", ".join(
            f"{name}={_shown(name, getattr(self, name))}"
            for name in SETTINGS
            if getattr(self, name) != _DEFAULTS[name]
        )
        return f"Options({changed})"

    def __rich_repr__(self) -> Any:
        for name in SETTINGS:
            if getattr(self, name) != _DEFAULTS[name]:
                yield name, "…" if name == "secret" else getattr(self, name)


ROUTE_CACHE_GAP_MS = 5_000
"""How much shorter than the follow duration the route cache age is, at least (B9.1)."""


def _read_table() -> dict[str, tuple[type, Setting]]:
    table: dict[str, tuple[type, Setting]] = {}
    for name, hint in get_type_hints(Options, include_extras=True).items():
        assert get_origin(hint) is Annotated, f"option {name} has no line in the table"
        expected, setting = get_args(hint)
        table[name] = (expected, setting)
    return table


SETTINGS: dict[str, tuple[type, Setting]] = _read_table()
"""Name to type and description of every setting, in the order of the table."""

_DEFAULTS: dict[str, Any] = dict(zip(Options.__struct_fields__, Options.__struct_defaults__, strict=True))


def _shown(name: str, value: object) -> str:
    if name == "secret" and value:
        return "(not shown)"
    return repr(value) if len(repr(value)) <= 80 else repr(value)[:77] + "..."


def options_table() -> str:
    """The Markdown table of `docs/reference/options.md`."""
    lines = ["| option | default | allowed | meaning |", "|---|---|---|---|"]
    for name, (_, setting) in SETTINGS.items():
        shown = _DEFAULTS[name]
        if isinstance(shown, bool):
            shown = "true" if shown else "false"
        elif shown == "":
            shown = "(empty)"
        lines.append(f"| `{name}` | {shown} | {setting.allowed} | {setting.doc} |")
    return "\n".join(lines) + "\n"
