"""CRC-32C (Castagnoli), the only checksum of the contract.

Owns nothing but the name: the arithmetic is the `crc32c` package's. On the wire it is a u32.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
from collections.abc import Callable
from typing import Any

from sojourn.wire.cursor import Buffer

__all__ = ["Checksum", "checksum"]


def _find() -> Callable[[Any, int], int]:
    """The compiled function alone. The package around it also imports its command line and the metadata of what
    is installed, a twentieth of the start of every process."""
    package = importlib.util.find_spec("crc32c")
    places = package.submodule_search_locations if package is not None else None
    compiled = importlib.machinery.PathFinder.find_spec("crc32c._crc32c", places)
    if compiled is not None and compiled.loader is not None:
        module: Any = importlib.util.module_from_spec(compiled)
        compiled.loader.exec_module(module)
    else:
        import crc32c as module  # another build of it keeps the function elsewhere
    found: Callable[[Any, int], int] = module.crc32c
    return found


_crc32c = _find()


def checksum(data: Buffer | bytearray, before: int = 0) -> int:
    """CRC-32C of `data`; with `before`, of the bytes that gave `before` followed by `data`.

    The empty input has 0, ``b"123456789"`` has 0xE3069283.
    """
    return _crc32c(data, before)


class Checksum:
    """CRC-32C of bytes that come in pieces: the relayed records before a cutover, the chunks of a stream."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def update(self, data: Buffer | bytearray) -> None:
        """Append bytes."""
        self.value = checksum(data, self.value)
