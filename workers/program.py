"""The user's program: how a worker process finds the `App` that its launcher holds.

Owns the reference that travels from launcher to worker, how it is made from an `App`, how it is loaded, and
the errors that tell a user what to write where a worker cannot follow. It must not know processes or sockets.
"""

from __future__ import annotations

import importlib
import os
import runpy
import sys
import traceback
from collections.abc import Mapping
from multiprocessing import process, spawn
from types import ModuleType
from typing import TYPE_CHECKING, Any

import msgspec
from sojourn.errors import NotConfigured

if TYPE_CHECKING:
    from sojourn.spots.app import App

__all__ = [
    "ProgramReference",
    "app_of",
    "enter_worker",
    "load_program",
    "parse_reference",
    "reference_for",
    "refuse_in_worker",
]

GUARD = 'if __name__ == "__main__":'


class ProgramReference(msgspec.Struct, frozen=True, kw_only=True):
    """Where an `App` lives. Either `module` is imported, or the main program is loaded as `__mp_main__`.

    `main_path` is the file of a script, `main_module` the name given to `python -m`; both empty = `module`.
    `directory`, `sys_path` and `argv` make imports and module-level code see what the launcher saw.
    """

    attribute: str
    module: str = ""
    main_path: str = ""
    main_module: str = ""
    directory: str = ""
    sys_path: list[str] = []
    argv: list[str] = []

    def __str__(self) -> str:
        return f"{self.module or self.main_module or self.main_path}:{self.attribute}"


def parse_reference(text: str) -> ProgramReference:
    """The reference that `module:attribute` names, seen from the current directory.

    Raises:
        NotConfigured: not of that form.
    """
    module, colon, attribute = text.partition(":")
    names = [*module.split("."), *attribute.split(".")]
    if not colon or not all(name.isidentifier() for name in names):
        raise NotConfigured(f"{text!r} does not name an app: write module:attribute, for example arena:app")
    return _here(ProgramReference(attribute=attribute, module=module))


def reference_for(app: App) -> ProgramReference:
    """The reference under which worker processes find `app`.

    Raises:
        NotConfigured: workers cannot: the app has no module-level name, or lives in a main program that no
            other process can import (standard input, `-c`, an interactive session, `python -m package`).
    """
    for module_name, attribute in _names_of(app):
        if module_name != "__main__":
            return _here(ProgramReference(attribute=attribute, module=module_name))
        return _here(_main_reference(app, attribute))
    where = "your program" if app.module == "__main__" else f"the module {app.module}"
    raise NotConfigured(
        f"the app {app.name!r} has no module-level name, so worker processes cannot find it: write "
        f"`app = sj.App({app.name!r}, ...)` at the top level of {where}, not inside a function or class"
    )


def _names_of(app: App) -> list[tuple[str, str]]:
    """Every module-level name of an app; importable modules first, its own module before others."""
    places: Mapping[str, ModuleType | None] = dict(sys.modules)
    found = [
        (name, attribute)
        for name, module in places.items()
        for attribute, value in list(getattr(module, "__dict__", {}).items())
        if value is app and name != "__mp_main__"
    ]
    return sorted(found, key=lambda place: (place[0] == "__main__", place[0] != app.module))


def _main_reference(app: App, attribute: str) -> ProgramReference:
    main = sys.modules["__main__"]
    specification = getattr(main, "__spec__", None)
    if specification is not None and specification.name:
        name = specification.name
        if name == "__main__" or name.endswith(".__main__"):
            package = name.removesuffix("__main__").rstrip(".") or os.path.basename(sys.argv[0])
            raise _unreachable(
                app,
                f"the __main__.py that `python -m {package}` runs",
                f"Move it to a module of its own, for example {package}/app.py with `{attribute} = sj.App(...)`, "
                f"and write `from {package}.app import {attribute}` in __main__.py.",
            )
        return ProgramReference(attribute=attribute, main_module=name)
    path = getattr(main, "__file__", None)
    if path is not None and os.path.isfile(path):
        return ProgramReference(attribute=attribute, main_path=os.path.abspath(path))
    raise _unreachable(
        app,
        _kind_of_main(),
        f"Write it to a file, for example arena.py with `{attribute} = sj.App(...)` at its top level and `{GUARD}` "
        f"before the part that runs, then start `python arena.py`; or import the app from such a file.",
    )


def _kind_of_main() -> str:
    if sys.argv[:1] == ["-c"]:
        return "a program given with `python -c`"
    if hasattr(sys, "ps1") or sys.flags.interactive:
        return "an interactive session"
    return "a program read from standard input"


def _unreachable(app: App, where: str, remedy: str) -> NotConfigured:
    return NotConfigured(
        f"the app {app.name!r} is defined in {where}, which worker processes cannot import. {remedy}"
    )


def _here(reference: ProgramReference) -> ProgramReference:
    directory = os.getcwd()
    return msgspec.structs.replace(
        reference,
        directory=directory,
        sys_path=[os.path.abspath(entry) if entry else directory for entry in sys.path],
        argv=list(sys.argv),
    )


# in the worker

_guarding: list[str] | None = None
"""None outside workers; in a worker, what its program tried to start while it was imported."""


def enter_worker() -> None:
    """From now on this process is a worker: its program may not start clusters (see `refuse_in_worker`)."""
    global _guarding
    _guarding = []


def refuse_in_worker(what: str) -> None:
    """Called by whatever starts nodes or clients, so that a missing main guard ends in an error, not in a flood.

    Raises:
        NotConfigured: this process is a worker.
    """
    if _guarding is not None:
        _guarding.append(what)
        raise _missing_guard(what, getattr(sys.modules.get("__main__"), "__file__", None))


def _missing_guard(what: str, path: object) -> NotConfigured:
    return NotConfigured(
        f"a worker process imported the program{f' {path}' if path else ''} to find its app, and that ran {what} "
        f"again. Put the part that runs under a main guard:\n\n    {GUARD}\n        asyncio.run(main())\n"
    )


def load_program(reference: ProgramReference) -> App:
    """Import the user's program in this worker process and return its app.

    Raises:
        NotConfigured: it cannot be imported (with the traceback), starts a cluster when imported, has no such
            attribute, or the attribute is no `App`.
    """
    _look_like_launcher(reference)
    target = reference.module or reference.main_module or reference.main_path
    current = process.current_process()
    # While this is set, multiprocessing refuses to start processes: the main guard may be missing.
    current._inheriting = True  # type: ignore[attr-defined]
    try:
        module = _import(reference)
    except (Exception, SystemExit) as error:
        if _guarding:
            raise _missing_guard(_guarding[0], reference.main_path or None) from None
        if isinstance(error, ModuleNotFoundError) and reference.module:
            raise missing_module(reference, error) from None
        raise NotConfigured(
            f"the program {target} cannot be imported by a worker process: {type(error).__name__}: {error}",
            remote_traceback=_own_traceback(error),
        ) from error
    finally:
        del current._inheriting  # type: ignore[attr-defined]
    if _guarding:
        raise _missing_guard(_guarding[0], reference.main_path or None)
    return app_of(module, reference, target)


def missing_module(reference: ProgramReference, error: ModuleNotFoundError) -> NotConfigured:
    """What to say when a program named as MODULE:APP cannot be imported: it is not here, or what it needs is not."""
    top = reference.module.partition(".")[0]
    if error.name in (top, reference.module):
        return NotConfigured(
            f"{reference} cannot be imported from {os.getcwd()}: {error}. Start the command in the folder that "
            f"holds {top}"
        )
    return NotConfigured(
        f"{reference} cannot be imported: {error}, which it needs. Install it for {sys.executable}"
    )


def _look_like_launcher(reference: ProgramReference) -> None:
    if reference.directory:
        os.chdir(reference.directory)
    if reference.sys_path:
        sys.path[:] = reference.sys_path
    if reference.argv:
        sys.argv[:] = reference.argv


def _import(reference: ProgramReference) -> ModuleType:
    if reference.module:
        return importlib.import_module(reference.module)
    # The names of multiprocessing's own hand-over: classes pickled as `__main__.X` resolve afterwards.
    if reference.main_module:
        spawn.prepare({"init_main_from_name": reference.main_module})
    else:
        spawn.prepare({"init_main_from_path": reference.main_path})
    return sys.modules["__main__"]


def app_of(module: ModuleType, reference: ProgramReference, target: str) -> App:
    """The app that a reference names in its imported module.

    Raises:
        NotConfigured: no such attribute, or no `App`.
    """
    from sojourn.spots.app import App  # a supervisor passes references on and needs no App

    found: Any = module
    for name in reference.attribute.split("."):
        found = getattr(found, name, None)
        if found is None:
            apps = [key for key, value in vars(module).items() if isinstance(value, App)]
            hint = f"it has: {', '.join(apps)}" if apps else "it has no App at its top level"
            raise NotConfigured(
                f"{target} has no app {reference.attribute!r}; {hint}. Write "
                f"`{reference.attribute} = sj.App(...)` at its top level, outside of the main guard"
            )
    if not isinstance(found, App):
        raise NotConfigured(f"{reference} is a {type(found).__name__}, not a sojourn App")
    return found


def _own_traceback(error: BaseException) -> str:
    """The traceback from the user's program on, without the import machinery above it."""
    frames = traceback.extract_tb(error.__traceback__)
    machinery = {__file__, importlib.__file__, spawn.__file__, runpy.__file__}
    kept = [
        frame
        for frame in frames
        if frame.filename not in machinery and not frame.filename.startswith("<frozen ")
    ]
    lines = traceback.format_list(kept) + traceback.format_exception_only(error)
    return "Traceback (most recent call last):\n" + "".join(lines)
