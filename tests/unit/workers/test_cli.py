"""Command lines: what is understood, and the one line that says what is wrong."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from sojourn import __version__
from sojourn.workers import cli
from sojourn.workers.node_control import NodeConfig

SECRET = "a secret of 16 bytes and more"


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOJOURN_SECRET", SECRET)


def config_of(*words: str) -> NodeConfig:
    chosen = cli._parser().parse_args(["node", *words])
    return cli._node_config(chosen, cli._read_file(chosen.config) if chosen.config else {})


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        cli.main(["--version"])
    assert done.value.code == 0
    assert capsys.readouterr().out == f"sojourn {__version__}\n"


def test_options_of_a_node() -> None:
    config = config_of(
        *("arena:app", "--rid", "n1", "--listen", "[::1]:7000", "--store", "redis://localhost:6379/0"),
        *("--cluster", "games", "--weight", "5", "--wave", "blue", "--workers", "3", "--log-level", "DEBUG"),
        *("--option", "worker_unresponsive_s=9", "--option", "allow_pickle=false"),
    )
    assert (config.rid, config.host, config.port) == ("n1", "::1", 7000)
    assert (config.weight, config.wave, config.workers, config.log_level) == (5, "blue", 3, "DEBUG")
    assert (config.options.cluster, config.options.store_url) == ("games", "redis://localhost:6379/0")
    assert (config.options.worker_unresponsive_s, config.options.allow_pickle) == (9, False)
    assert config.options.secret == SECRET
    assert (config.program.module, config.program.attribute) == ("arena", "app")


def test_a_file_gives_what_the_command_line_leaves_out(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("another secret of the file\n")
    (tmp_path / "node.toml").write_text(
        f'program = "arena:app"\nrid = "n7"\nstore = "sqlite:///{tmp_path}/s.db"\nsecret_file = "{tmp_path}/secret"\n'
        "workers = 4\nweight = 0\n[options]\nstop_deadline_ms = 700\n"
    )
    config = config_of("--config", str(tmp_path / "node.toml"), "--rid", "n8")
    assert (config.rid, config.workers, config.weight) == ("n8", 4, 0)
    assert (config.options.stop_deadline_ms, config.options.secret) == (700, "another secret of the file")


def test_a_node_behind_another_address_may_listen_on_every_one(tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text('listen = "0.0.0.0:7000"\nadvertise = "node-1.example:17000"\n')
    named = ("arena:app", "--store", "redis://localhost:6379/0", "--config", str(tmp_path / "node.toml"))
    config = config_of(*named)
    assert (config.host, config.port, config.advertise) == ("0.0.0.0", 7000, "node-1.example:17000")
    assert config_of(*named, "--advertise", "10.0.0.9:0").advertise == "10.0.0.9:0"


BASE = ("node", "arena:app", "--store", "sqlite:///s.db")
WRONG = {
    "nothing": ((), "the following arguments are required: COMMAND"),
    "command": (("walk",), "invalid choice: 'walk'"),
    "option": ((*BASE, "--colour", "red"), "unrecognized arguments: --colour red"),
    "number": ((*BASE, "--weight", "much"), "argument --weight: invalid int value: 'much'"),
    "negative": ((*BASE, "--weight", "-1"), "weight = -1 must be a whole number from 0 on"),
    "level": ((*BASE, "--log-level", "LOUD"), "invalid choice: 'LOUD'"),
    "program": (("node", "arena", "--store", "x"), "'arena' does not name an app: write module:attribute"),
    "no program": (("node", "--store", "sqlite:///s.db"), "name the program: sojourn node MODULE:APP"),
    "no store": (("node", "arena:app"), "a node needs a store that all nodes share"),
    "address": ((*BASE, "--listen", "7000"), "'7000' is no address to listen on: write HOST:PORT"),
    "every address": ((*BASE, "--listen", "0.0.0.0:7000"), "'0.0.0.0:7000' is every address of this machine"),
    "every address, IPv6": ((*BASE, "--listen", "[::]:7000"), "name the one at which they reach it"),
    "advertise": ((*BASE, "--advertise", "here"), "'here' is no address to be reached at: write HOST:PORT"),
    "advertise every": ((*BASE, "--advertise", "0.0.0.0:1"), "is every address of this machine"),
    "memory": (("node", "arena:app", "--store", "memory://x"), "memory:// lives in one process"),
    "port": ((*BASE, "--listen", "localhost:70000"), "'localhost:70000' is no address"),
    "setting": ((*BASE, "--option", "worker_silnt_ms=5"), "did you mean worker_silent_ms?"),
    "pair": ((*BASE, "--option", "worker_silent_ms"), "--option worker_silent_ms: write NAME=VALUE"),
    "type": ((*BASE, "--option", "worker_silent_ms=soon"), "worker_silent_ms takes a value of type int"),
    "range": ((*BASE, "--option", "worker_silent_ms=1"), "option worker_silent_ms = 1 is out of range"),
    "rid": ((*BASE, "--rid", "x" * 256), "1 to 255 bytes"),
    "secret file": ((*BASE, "--secret-file", "/nowhere/s"), "the secret file /nowhere/s cannot be read"),
    "file": (
        ("node", "--config", "/nowhere/n.toml"),
        "the configuration file /nowhere/n.toml cannot be read",
    ),
    "module": (
        ("run", "nowhere_to_be_found:app"),
        "No module named 'nowhere_to_be_found'. Start the command in",
    ),
    "app": (("run", "json:app"), "json has no app 'app'; it has no App at its top level"),
    "not an app": (("run", "json:loads"), "json:loads is a function, not a sojourn App"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_told_in_one_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    words, expected = WRONG[name]
    assert cli.main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert expected in captured.err
    assert captured.err.startswith("sojourn: ")
    assert "NotConfigured" not in captured.err
    assert "InvalidOperation" not in captured.err
    assert captured.err.count("\n") == 1


def test_a_missing_secret_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SOJOURN_SECRET")
    assert cli.main(BASE) == 2
    assert "--secret-file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("colour = 1", "unknown setting 'colour'"),
        ("options = 1", "write [options]"),
        ("= 1", "is not valid TOML"),
        ('program = "a:b"\nwave = 3', "wave = 3 must be text"),
        ('program = "a:b"\nlog_level = "LOUD"', "log_level = 'LOUD' must be one of"),
    ],
)
def test_a_wrong_file_is_told(
    tmp_path: Path, text: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "node.toml").write_text(text)
    assert cli.main(["node", "--config", str(tmp_path / "node.toml"), "--store", "sqlite:///s.db"]) == 2
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("async def main(): ...", "main is called with the running cluster: write `async def main(cluster)`"),
        ("async def main(cluster, more): ...", "main is called with the running cluster"),
        ("def main(cluster): ...", "main must be `async def main(cluster)`"),
    ],
)
def test_a_main_that_does_not_take_the_cluster(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    text: str,
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "wrong_main", raising=False)
    (tmp_path / "wrong_main.py").write_text(f"import sojourn as sj\napp = sj.App('wrong')\n{text}\n")
    assert cli.main(["run", "wrong_main:app"]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "node"])
def test_an_unknown_option_points_at_the_help_of_its_command(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([command, "arena:app", "--port", "3"]) == 2
    expected = f"sojourn: unrecognized arguments: --port 3 (see `sojourn {command} --help`)\n"
    assert capsys.readouterr().err == expected
