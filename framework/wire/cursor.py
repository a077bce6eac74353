"""Where a codec stands in its input or output: offset, open length-prefixed regions and field path.

Owns the turning of a mistake into a `WireError` with offset and path. Knows no field and no layout.
"""

from __future__ import annotations

from typing import NoReturn

from sojourn.wire.errors import WireError, Word

__all__ = ["Buffer", "Reader", "Writer", "path_text"]

Buffer = bytes | memoryview
"""What the codec reads and what it hands out for large blobs."""

BY_REFERENCE_BYTES_MIN = 4096
"""Smaller blobs are copied into the surrounding piece: one more piece would cost more than the copy."""


def path_text(path: list[str]) -> str:
    """A field path as people read it: names joined by dots, indices glued on."""
    return ".".join(path).replace(".[", "[")


class Reader:
    """A position in one input, with the path of the field being read.

    A region is the body of a union or versioned envelope, whose length was declared. Running out of
    bytes inside a region means that the declared length is wrong; running out of bytes of the whole
    input means that the input was cut short.
    """

    __slots__ = ("data", "depth", "end", "offset", "path", "trace", "waiting")

    def __init__(
        self,
        data: bytes | bytearray | memoryview,
        trace: dict[str, int] | None = None,
        path: list[str] | None = None,
        waiting: list[Buffer] | None = None,
    ) -> None:
        self.data = memoryview(data).cast("B")
        self.offset = 0
        self.end = len(self.data)
        self.depth = 0
        self.path: list[str] = [] if path is None else path
        self.trace = trace
        """When given, every field's offset is noted here under its path."""
        self.waiting: list[Buffer] = [] if waiting is None else waiting
        """Further parts of a multi-part record, not yet read."""

    @property
    def remaining(self) -> int:
        """Bytes left in the innermost region."""
        return self.end - self.offset

    def enter(self, name: str) -> None:
        """Begin a field."""
        self.path.append(name)
        if self.trace is not None:
            self.trace[path_text(self.path)] = self.offset

    def leave(self) -> None:
        """End the field begun last."""
        self.path.pop()

    def advance(self, length: int) -> int:
        """Take `length` bytes and return the offset at which they begin."""
        start = self.offset
        if length > self.end - start:
            self.fail_short(length)
        self.offset = start + length
        return start

    def open_region(self, length: int) -> int:
        """Begin a region of declared length; returns what `close_region` needs."""
        if length > self.remaining:
            self.fail_short(length)
        outer = self.end
        self.end = self.offset + length
        self.depth += 1
        return outer

    def close_region(self, outer: int) -> None:
        """End a region, which must be used up."""
        if self.offset != self.end:
            self.fail(
                Word.INVALID_BODY_LENGTH,
                f"the declared length has {self.remaining} bytes more than the content",
            )
        self.end = outer
        self.depth -= 1

    def finish(self) -> None:
        """Refuse bytes behind the last field."""
        if self.offset != self.end:
            self.fail(Word.TRAILING_BYTE, f"{self.remaining} bytes left after the last field")

    def fail_short(self, length: int) -> NoReturn:
        """Report that `length` bytes are needed and fewer are there."""
        word = Word.INVALID_BODY_LENGTH if self.depth else Word.TRUNCATED_FIELD
        self.fail(word, f"needs {length} bytes, {self.remaining} are left")

    def fail(
        self, word: Word, detail: str, *, offset: int | None = None, name: str | None = None
    ) -> NoReturn:
        """Raise the error for the current field, or for the field `name` below it."""
        path = self.path if name is None else [*self.path, name]
        raise WireError(word, self.offset if offset is None else offset, path_text(path), detail)


class Writer:
    """Collects the bytes of one output, large blobs by reference, with the path of the field being written."""

    __slots__ = ("_length", "_pieces", "_tail", "further", "path", "trace")

    def __init__(
        self, base: int = 0, path: list[str] | None = None, trace: dict[str, int] | None = None
    ) -> None:
        self._pieces: list[Buffer] = []
        self._tail = bytearray()
        self._length = base
        self.path: list[str] = [] if path is None else path
        self.trace = trace
        self.further: list[bytes] = []
        """Further parts of a multi-part record, in order."""

    @property
    def offset(self) -> int:
        """Offset of the next byte in the whole output."""
        return self._length + len(self._tail)

    def enter(self, name: str) -> None:
        """Begin a field."""
        self.path.append(name)
        if self.trace is not None:
            self.trace[path_text(self.path)] = self.offset

    def leave(self) -> None:
        """End the field begun last."""
        self.path.pop()

    def put(self, data: Buffer) -> None:
        """Append small bytes."""
        self._tail += data

    def put_blob(self, data: Buffer) -> None:
        """Append bytes that may be large; a large blob is kept by reference until the output is joined."""
        if len(data) < BY_REFERENCE_BYTES_MIN:
            self._tail += data
            return
        self._flush()
        self._pieces.append(data)
        self._length += len(data)

    def nested(self, header_length: int) -> Writer:
        """A writer for a body whose header, of that length, can only be written once the body is known."""
        return Writer(self.offset + header_length, self.path, self.trace)

    def splice(self, body: Writer) -> None:
        """Append a nested body, after its header."""
        for piece in body.pieces():
            self.put_blob(piece)

    def pieces(self) -> list[Buffer]:
        """The output in order, in as few pieces as large blobs allow."""
        self._flush()
        return self._pieces

    def joined(self) -> bytes:
        """The output as one `bytes`."""
        pieces = self.pieces()
        return bytes(pieces[0]) if len(pieces) == 1 else b"".join(pieces)

    def fail(
        self, word: Word, detail: str, *, offset: int | None = None, name: str | None = None
    ) -> NoReturn:
        """Raise the error for the current field, or for the field `name` below it."""
        path = self.path if name is None else [*self.path, name]
        raise WireError(word, self.offset if offset is None else offset, path_text(path), detail)

    def _flush(self) -> None:
        if self._tail:
            self._pieces.append(bytes(self._tail))
            self._length += len(self._tail)
            self._tail = bytearray()
