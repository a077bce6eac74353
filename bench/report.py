"""Puts the figures beside their references and aims, and prints them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from rich.console import Console
from rich.table import Table

__all__ = ["Figure", "print_figures", "to_json"]


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One measured value."""

    name: str
    value: float
    unit: str
    aim: float | None = None
    """What is wanted: at most this, or at least this when `more_is_better`."""
    more_is_better: bool = False
    raw: float | None = None
    """The raw uvloop reference."""
    bare: float | None = None
    """The bare processes in the same topology."""

    @property
    def reached(self) -> bool | None:
        """Whether the aim is met; None without one."""
        if self.aim is None:
            return None
        return self.value >= self.aim if self.more_is_better else self.value <= self.aim

    def ratio(self, reference: float | None) -> float | None:
        """How many times worse than a reference: below 1 is better than it."""
        if not reference or not self.value:
            return None
        return reference / self.value if self.more_is_better else self.value / reference


class _Row(msgspec.Struct):
    name: str
    value: float
    unit: str
    aim: float | None
    more_is_better: bool
    reached: bool | None
    raw: float | None
    times_raw: float | None
    bare: float | None
    times_bare: float | None


def to_json(figures: Sequence[Figure]) -> str:
    """The figures for programs."""
    rows = [
        _Row(
            figure.name,
            round(figure.value, 3),
            figure.unit,
            figure.aim,
            figure.more_is_better,
            figure.reached,
            figure.raw,
            _rounded(figure.ratio(figure.raw)),
            figure.bare,
            _rounded(figure.ratio(figure.bare)),
        )
        for figure in figures
    ]
    return msgspec.json.format(msgspec.json.encode(rows), indent=2).decode()


def print_figures(figures: Sequence[Figure], console: Console) -> None:
    """The figures for people. `× raw` and `× bare` say how many times worse than the reference."""
    table = Table(title="Sojourn on this machine", title_justify="left")
    table.add_column("what")
    for name in ("measured", "aim", "", "raw uvloop", "× raw", "bare processes", "× bare"):
        table.add_column(name, justify="right")
    for figure in figures:
        aim = "" if figure.aim is None else f"{'≥' if figure.more_is_better else '≤'} {_shown(figure.aim)}"
        table.add_row(
            figure.name,
            f"{_shown(figure.value)} {figure.unit}",
            aim,
            {True: "reached", False: "missed", None: ""}[figure.reached],
            _shown(figure.raw),
            _times(figure.ratio(figure.raw)),
            _shown(figure.bare),
            _times(figure.ratio(figure.bare)),
        )
    console.print(table)


def _shown(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.3g}"


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def _rounded(ratio: float | None) -> float | None:
    return None if ratio is None else round(ratio, 3)
