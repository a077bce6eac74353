"""Small pieces are joined, large ones pass as they are."""

from __future__ import annotations

import pytest
from sojourn.pieces import join_small


@pytest.mark.parametrize(
    ("lengths", "joined"),
    [
        ([], []),
        ([1], [1]),
        ([1, 2, 3], [6]),
        ([4], [4]),
        ([1, 2, 4, 5, 3, 1], [3, 4, 5, 4]),
        ([5, 1], [5, 1]),
        ([0, 4, 0], [0, 4, 0]),
    ],
)
def test_neighbours_below_the_limit_become_one_piece(lengths: list[int], joined: list[int]) -> None:
    parts = [bytes((number,)) * length for number, length in enumerate(lengths)]
    pieces = join_small(parts, 4)
    assert [len(piece) for piece in pieces] == joined
    assert b"".join(pieces) == b"".join(parts)
    assert [piece for piece in pieces if any(piece is part for part in parts if len(part) >= 4)] == [
        part for part in parts if len(part) >= 4
    ]
