"""Octets in several pieces: what is worth a copy is joined, what is large passes as it is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

__all__ = ["join_small"]

_Piece: TypeAlias = bytes | memoryview


def join_small(parts: Iterable[_Piece], large: int) -> list[_Piece]:
    """The same octets in order: neighbours of less than `large` octets joined, the others uncopied."""
    pieces: list[_Piece] = []
    small: list[_Piece] = []
    for part in parts:
        if len(part) < large:
            small.append(part)
            continue
        if small:
            pieces.append(b"".join(small))
            small = []
        pieces.append(part)
    if small:
        pieces.append(b"".join(small))
    return pieces
