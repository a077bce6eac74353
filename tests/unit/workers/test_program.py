"""References to a user's app: how they are made and what they refuse."""

from __future__ import annotations

import os
import sys
import types
from pathlib import Path

import pytest
from sojourn.errors import NotConfigured
from sojourn.spots.app import App
from sojourn.workers import program
from sojourn.workers.program import ProgramReference, parse_reference, reference_for, refuse_in_worker

app = App("here")


def test_an_app_of_an_importable_module() -> None:
    reference = reference_for(app)
    assert (reference.module, reference.attribute) == (__name__, "app")
    assert reference.directory == os.getcwd()
    assert str(reference) == f"{__name__}:app"


def test_an_importable_module_is_preferred_to_main(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "application", app, raising=False)
    assert reference_for(app).module == __name__


def test_an_app_of_the_main_script(monkeypatch: pytest.MonkeyPatch) -> None:
    main = types.ModuleType("__main__")
    main.__file__ = __file__
    own = App("own")
    main.own = own  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "__main__", main)
    reference = reference_for(own)
    assert (reference.main_path, reference.main_module, reference.attribute) == (__file__, "", "own")


def test_an_interactive_session_is_told_to_write_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    main = types.ModuleType("__main__")
    own = App("own")
    main.own = own  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    monkeypatch.setattr(sys, "argv", [""])  # pytest-xdist starts its workers with -c
    with pytest.raises(NotConfigured, match="defined in an interactive session"):
        reference_for(own)


def test_an_app_without_a_name_is_refused() -> None:
    with pytest.raises(NotConfigured, match=r"`app = sj.App\('local'"):
        reference_for(App("local"))


@pytest.mark.parametrize("text", ["arena", "arena:", ":app", "are-na:app", "arena.py:app:x", "a b:app", ""])
def test_references_of_another_form_are_refused(text: str) -> None:
    with pytest.raises(NotConfigured, match="write module:attribute"):
        parse_reference(text)


def test_a_reference_by_name() -> None:
    reference = parse_reference("games.arena:apps.main")
    assert (reference.module, reference.attribute) == ("games.arena", "apps.main")


def test_only_workers_refuse_to_start_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_in_worker("LocalCluster(...)")
    monkeypatch.setattr(program, "_guarding", [])
    with pytest.raises(NotConfigured, match="under a main guard"):
        refuse_in_worker("LocalCluster(...)")
    assert program._guarding == ["LocalCluster(...)"]


def test_a_program_that_is_not_here_is_told_from_one_that_lacks_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lacking_arena.py").write_text("import certainly_not_installed\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(
        NotConfigured, match=r"nowhere:app cannot be imported from .* in the folder that holds nowhere"
    ):
        program.load_program(here_only("nowhere:app"))
    with pytest.raises(
        NotConfigured, match=r"No module named 'certainly_not_installed', which it needs\. Install it"
    ):
        program.load_program(here_only("lacking_arena:app"))


def here_only(text: str) -> ProgramReference:
    """A reference that changes neither folder nor path nor arguments of this process."""
    module, _, attribute = text.partition(":")
    return ProgramReference(attribute=attribute, module=module)
