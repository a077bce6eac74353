"""The command behind `make sim`."""

from __future__ import annotations

import pytest

from tests.simulation.__main__ import main, seeds_of


def test_seeds_are_a_range_or_one() -> None:
    assert seeds_of("3:6") == range(3, 6)
    assert seeds_of("17") == range(17, 18)
    assert not any(seeds_of(text) for text in ("abc", "5:2", "5:", ":5", "", "1:2:3"))


def test_a_range_without_seeds_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["simulation", "--seeds", "5:2"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "TO greater than FROM" in capsys.readouterr().err


def test_one_seed_tells_its_story(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["simulation", "--seeds", "17"])
    assert main() == 0
    told = capsys.readouterr().out.splitlines()
    assert any("RecordArrived(" in line for line in told)
    assert told[-1].startswith("1 seeds, ")
