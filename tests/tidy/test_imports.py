"""Imports run one way: workers → spots → framework, workers → store → framework."""

from __future__ import annotations

import pytest

from tests.tidy.sources import Module, imports, modules

MAY_IMPORT = {
    "framework": {"framework"},
    "spots": {"spots", "framework"},
    "store": {"store", "framework"},
    "workers": {"workers", "spots", "store", "framework"},
}
IMPURE = [
    "_thread",
    "asyncio",
    "concurrent",
    "http",
    "multiprocessing",
    "os",
    "queue",
    "random",
    "secrets",
    "select",
    "selectors",
    "signal",
    "socket",
    "socketserver",
    "ssl",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "urllib",
    "uvloop",
    "redis",
    "sqlite3",
    "aiomultiprocess",
]
"""framework/ is without input and output, clock and randomness."""
PROCESSES_AND_SOCKETS = [
    "aiomultiprocess",
    "http",
    "multiprocessing",
    "redis",
    "select",
    "socket",
    "sqlite3",
    "ssl",
    "subprocess",
]
NEVER = {"framework": set(IMPURE), "spots": set(PROCESSES_AND_SOCKETS), "store": set(), "workers": set()}
FACE = "sojourn"
"""The lazy public face is the one module of framework/ that names the others."""


def folder_of(name: str) -> str | None:
    """The folder a name of the package lives in."""
    if name != "sojourn" and not name.startswith("sojourn."):
        return None
    part = [*name.split("."), ""][1]
    return part if part in ("spots", "store", "workers") else "framework"


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.name)
def test_import_direction(module: Module) -> None:
    wrong = []
    for line, name in imports(module):
        folder = folder_of(name)
        if folder is not None and folder not in MAY_IMPORT[module.folder] and module.name != FACE:
            wrong.append(f"{module.where}:{line} imports {name}: {module.folder}/ may not import {folder}/")
        if name.split(".")[0] in NEVER[module.folder]:
            wrong.append(f"{module.where}:{line} imports {name}: not in {module.folder}/")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", ["spots", "store", "workers"])
def test_no_module_of_framework_hides_a_folder(name: str) -> None:
    assert not [
        module.where
        for module in modules()
        if module.folder == "framework" and module.name.split(".")[1:2] == [name]
    ]


def test_no_folder_is_imported_by_its_bare_name() -> None:
    wrong = [
        f"{module.where}:{line} imports {name}"
        for module in modules()
        for line, name in imports(module)
        if name.split(".")[0] in MAY_IMPORT
    ]
    assert not wrong, "\n".join(wrong)
