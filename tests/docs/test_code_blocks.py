"""Every code block in README.md, CONTRIBUTING.md and docs/ does what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.blocks import Runner, blocks_of, matches
from tests.tidy.sources import ROOT, all_files

PAGES = [
    path
    for path in all_files()
    if path.suffix == ".md" and (path.parent == ROOT or path.relative_to(ROOT).parts[0] == "docs")
]


@pytest.mark.timeout(180)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page(page: Path, tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    try:
        for block in blocks_of(page):
            runner.run(block)
    finally:
        runner.close()


GOOD = """
```python file=shop.py part
PRICE = 3
```
```python
import shop
assert shop.PRICE == 3
```
```console
$ python -c 'print("sold 1 at", 3.5)'
sold ... at 3...
$ make test
```
```console exit=3
$ exit 3
```
```console until=ready
$ python -c 'import signal, sys; signal.signal(2, lambda *_: sys.exit()); print("ready", flush=True); signal.pause()'
```
```console stay=ready
$ python -c 'import signal, sys; signal.signal(2, lambda *_: sys.exit()); print("ready", flush=True); signal.pause()'
```
```toml file=shop.toml
price = 3
```
```console
$ cat shop.toml
price = 3
```
```json
{"a": 1}
```
```text
anything
```
"""
BAD = {
    "exit code": "```python\nraise SystemExit(2)\n```",
    "another output": "```console\n$ echo one\ntwo\n```",
    "unknown kind": "```sh\necho\n```",
    "unknown target": "```console\n$ make coffee\n```",
    "no command": "```console\none\n```",
    "never there": "```console stay=ready\n$ echo gone\n```",
    "ends badly": "```console stay=ready\n$ python -c 'print(\"ready\", flush=True); exit(3)'\n```",
    "never ready": "```console until=ready\n$ echo gone\n```",
}


def run_page(text: str, folder: Path) -> None:
    page = folder / "page.md"
    page.write_text(text)
    runner = Runner(folder)
    try:
        for block in blocks_of(page):
            runner.run(block)
    finally:
        runner.close()


def test_good_blocks_pass(tmp_path: Path) -> None:
    run_page(GOOD, tmp_path)


@pytest.mark.parametrize("text", BAD.values(), ids=BAD.keys())
def test_bad_blocks_fail(text: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"page\.md:1"):
        run_page(text, tmp_path)


def test_output_is_compared_by_lines_and_dots() -> None:
    assert matches("moved 3 objects in 1.2 ms\n", ["moved 3 objects in ... ms"])
    assert matches("a\nb\nc\n", ["a", "...", "c"])
    assert not matches("moved 3\n", ["moved 4"])
