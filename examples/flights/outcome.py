"""The result of a run: the numbers, as a table for people and as JSON for programs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec
from rich.table import Table

from examples.flights.fleet import Emptied, Move
from examples.flights.verifier import Comparison

__all__ = ["Interruption", "MoveCounts", "Outcome", "build_outcome", "percentile"]


class Interruption(msgspec.Struct, frozen=True):
    """Seal to first turn on the target, in milliseconds."""

    p50_ms: float
    p99_ms: float
    max_ms: float


class MoveCounts(msgspec.Struct, frozen=True):
    """How the moves ended."""

    single: int
    """Aircraft moved one by one."""
    by_emptying: int
    """Aircraft moved because their node was emptied."""
    failed: int
    """Refused or failed; the aircraft stayed and served on."""
    in_doubt: int
    nodes_emptied: int
    nodes_blocked: int
    failure_reasons: dict[str, int]


class Outcome(msgspec.Struct, frozen=True):
    """Everything a run found out."""

    passed: bool
    sent: int
    handled: int
    failed: int
    lost: int
    duplicated: int
    out_of_order: int
    altered: int
    """Aircraft whose totals or digest differ from the direct computation."""
    aircraft: int
    timer_ticks: int
    timer_faults: int
    moves: MoveCounts
    interruption: Interruption | None
    seconds: float
    messages_per_second: float
    skipped_without_tailnum: int
    cancelled_flights: int
    failures: dict[str, int]
    """Failed messages by kind of error."""
    faults: list[str]
    """One line for each aircraft that differs; at most 20."""

    def to_json(self) -> str:
        """The same for programs."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2).decode()

    def to_table(self) -> Table:
        """The same for people."""
        table = Table(title="Flights", show_header=False, title_justify="left")
        table.add_column(justify="left")
        table.add_column(justify="right")
        for name, value in self._rows():
            table.add_row(name, value)
        return table

    def _rows(self) -> list[tuple[str, str]]:
        rows = [
            ("messages sent", f"{self.sent:,}"),
            ("handled", f"{self.handled:,}"),
            ("failed", f"{self.failed:,}"),
            ("lost", f"{self.lost:,}"),
            ("duplicated", f"{self.duplicated:,}"),
            ("out of order", f"{self.out_of_order:,}"),
            ("aircraft", f"{self.aircraft:,}"),
            ("aircraft altered", f"{self.altered:,}"),
            ("timer ticks", f"{self.timer_ticks:,}"),
            ("timer ticks lost or repeated", f"{self.timer_faults:,}"),
            ("moves, one by one", f"{self.moves.single:,}"),
            ("moves, by emptying a node", f"{self.moves.by_emptying:,}"),
            ("moves failed / in doubt", f"{self.moves.failed:,} / {self.moves.in_doubt:,}"),
            ("nodes emptied / blocked", f"{self.moves.nodes_emptied} / {self.moves.nodes_blocked}"),
        ]
        if self.interruption is not None:
            found = self.interruption
            rows.append(
                (
                    "interruption p50 / p99 / max",
                    f"{found.p50_ms:.2f} / {found.p99_ms:.2f} / {found.max_ms:.2f} ms",
                )
            )
        rows.append(("messages per second", f"{self.messages_per_second:,.0f}"))
        rows.append(("comparison with the file", "passed" if self.passed else "FAILED"))
        return rows


def build_outcome(
    comparison: Comparison,
    *,
    sent: int,
    failures: Mapping[str, int],
    singles: Sequence[Move],
    emptied: Sequence[Emptied],
    seconds: float,
    skipped: int = 0,
    cancelled: int = 0,
) -> Outcome:
    """Put the numbers of a run together."""
    interruptions = [move.interruption_s for move in singles if move.interruption_s is not None]
    for node in emptied:
        interruptions.extend(node.interruptions_s)
    return Outcome(
        passed=comparison.passed,
        sent=sent,
        handled=comparison.handled,
        failed=sum(failures.values()),
        lost=comparison.lost,
        duplicated=comparison.duplicated,
        out_of_order=comparison.out_of_order,
        altered=comparison.altered,
        aircraft=comparison.aircraft,
        timer_ticks=comparison.ticks,
        timer_faults=comparison.tick_faults,
        moves=_count_moves(singles, emptied),
        interruption=_interruption(sorted(interruptions)),
        seconds=round(seconds, 3),
        messages_per_second=round(sent / seconds, 1) if seconds > 0 else 0.0,
        skipped_without_tailnum=skipped,
        cancelled_flights=cancelled,
        failures=dict(failures),
        faults=[verdict.describe() for verdict in comparison.faults[:20]],
    )


def percentile(ordered: Sequence[float], part: float) -> float:
    """The nearest-rank percentile of ordered values; `part` is 0 to 1."""
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]


def _interruption(ordered: Sequence[float]) -> Interruption | None:
    if not ordered:
        return None
    return Interruption(
        p50_ms=round(percentile(ordered, 0.50) * 1000, 3),
        p99_ms=round(percentile(ordered, 0.99) * 1000, 3),
        max_ms=round(ordered[-1] * 1000, 3),
    )


def _count_moves(singles: Sequence[Move], emptied: Sequence[Emptied]) -> MoveCounts:
    ends = [*singles, *(move for node in emptied for move in node.stayed)]
    outcomes = Counter(move.outcome for move in ends)
    reasons = Counter(move.reason for move in ends if move.outcome in ("failed", "in doubt"))
    reasons.update(f"node: {node.reason}" for node in emptied if node.outcome != "Relocated")
    return MoveCounts(
        single=sum(move.outcome == "moved" for move in singles),
        by_emptying=sum(node.moved for node in emptied),
        failed=outcomes["failed"],
        in_doubt=outcomes["in doubt"],
        nodes_emptied=sum(node.outcome == "Relocated" for node in emptied),
        nodes_blocked=sum(node.outcome != "Relocated" for node in emptied),
        failure_reasons=dict(reasons),
    )
