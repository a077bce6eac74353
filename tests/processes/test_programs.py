"""A user's program, however it is started: it works, or one typed error says what to write."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.processes.programs import APP, GUARDED, SCRIPT, run_program, sojourn_command

PYTHON = sys.executable
WORKS = SCRIPT.format(then="pass")


def test_a_script_with_its_classes_in_main(tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text(WORKS + GUARDED)
    done = run_program([PYTHON, "example.py"], tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("answer 5\npids")
    store = Path(done.stdout.rpartition("directory ")[2].strip())
    assert not store.parent.exists()


def test_a_module_run_by_name(tmp_path: Path) -> None:
    (tmp_path / "games").mkdir()
    (tmp_path / "games" / "__init__.py").write_text("")
    (tmp_path / "games" / "arena.py").write_text(WORKS + GUARDED)
    done = run_program([PYTHON, "-m", "games.arena"], tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("answer 5\n")


def test_a_package_run_by_name_says_where_to_put_the_app(tmp_path: Path) -> None:
    (tmp_path / "games").mkdir()
    (tmp_path / "games" / "__init__.py").write_text("")
    (tmp_path / "games" / "__main__.py").write_text(WORKS + GUARDED)
    done = run_program([PYTHON, "-m", "games"], tmp_path)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("sojourn.errors.NotConfigured: the app 'arena' is defined in the __main__.py that")
    assert "from games.app import app" in last


@pytest.mark.parametrize(
    ("command", "source", "words"),
    [
        ([PYTHON, "-"], WORKS + GUARDED, "a program read from standard input"),
        ([PYTHON, "-c", WORKS + GUARDED], None, "a program given with `python -c`"),
    ],
    ids=["stdin", "-c"],
)
def test_a_program_without_a_file_says_to_write_one(
    tmp_path: Path, command: list[str], source: str | None, words: str
) -> None:
    done = run_program(command, tmp_path, source=source)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"sojourn.errors.NotConfigured: the app 'arena' is defined in {words}")
    assert "Write it to a file, for example arena.py" in last


def test_a_missing_main_guard_is_named(tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text(WORKS + "\nasyncio.run(main())\n")
    done = run_program([PYTHON, "example.py"], tmp_path)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "ran LocalCluster(...) again. Put the part that runs under a main guard:" in done.stderr
    assert 'if __name__ == "__main__":' in done.stderr
    assert done.stderr.count("Traceback") == 1


def test_a_missing_main_guard_is_named_even_when_its_error_is_swallowed(tmp_path: Path) -> None:
    swallowing = "\ntry:\n    asyncio.run(main())\nexcept Exception as error:\n    print(error)\n"
    (tmp_path / "example.py").write_text(WORKS + swallowing)
    done = run_program([PYTHON, "example.py"], tmp_path)
    assert "under a main guard" in done.stdout


def test_an_app_inside_a_function_says_to_move_it(tmp_path: Path) -> None:
    text = (
        "import asyncio\nimport sojourn as sj\nfrom sojourn.workers.local_cluster import LocalCluster\n"
        "async def main():\n    app = sj.App('arena')\n    async with LocalCluster(app):\n        pass\n"
    )
    (tmp_path / "example.py").write_text(text + GUARDED)
    done = run_program([PYTHON, "example.py"], tmp_path)
    assert done.returncode == 1
    assert "has no module-level name" in done.stderr
    assert "at the top level of your program" in done.stderr


def test_an_import_that_fails_in_the_worker_shows_the_users_lines(tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text(
        "if __name__ != '__main__':\n    raise OSError('only here')\n" + WORKS + GUARDED
    )
    done = run_program([PYTHON, "example.py"], tmp_path)
    assert done.returncode == 1
    assert "cannot be imported by a worker process: OSError: only here" in done.stderr
    assert 'example.py", line 2, in <module>' in done.stderr


def test_modules_beside_the_program_shadow_nothing_of_ours(tmp_path: Path) -> None:
    for name in ("store", "workers", "spots", "framework", "frames", "control"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('taken for a module of sojourn')\n")
    (tmp_path / "example.py").write_text(WORKS + GUARDED)
    done = run_program([PYTHON, "example.py"], tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_sojourn_run_calls_main(tmp_path: Path) -> None:
    (tmp_path / "arena.py").write_text(
        APP + "async def main(cluster):\n"
        "    print(await cluster.client.spot(Device, 'd').request(Device.add, 2), len(cluster.nodes))\n    return 7\n"
    )
    done = run_program(sojourn_command("run", "arena:app", "--nodes", "2", "--workers", "1"), tmp_path)
    assert (done.stdout, done.stderr, done.returncode) == ("2 2\n", "", 7)
