"""Run the tests with branch coverage, child processes included, and print a table for each folder.

Exit code 1 when a folder is below its threshold. Further arguments go to pytest.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
THRESHOLDS = {"framework": 98, "spots": 93, "store": 98, "workers": 91}
"""Least percentage of lines and branches together."""


def coverage(*arguments: str) -> int:
    return subprocess.run([sys.executable, "-m", "coverage", *arguments], cwd=ROOT).returncode


def main(pytest_arguments: list[str]) -> int:
    # Children may run in another folder; they find the settings and the place for data by these.
    os.environ["COVERAGE_RCFILE"] = str(ROOT / "pyproject.toml")
    os.environ["COVERAGE_FILE"] = str(ROOT / ".coverage")
    coverage("erase")
    failed = ["tests"] if coverage("run", "-m", "pytest", "-n", "auto", *pytest_arguments) else []
    coverage("combine", "-q")
    for folder, least in THRESHOLDS.items():
        print(f"== {folder}/ (at least {least} %)", flush=True)
        if coverage("report", f"--include={folder}/*", f"--fail-under={least}") not in (0, 1):
            failed.append(folder)
    print("coverage: " + (f"failed: {', '.join(failed)}" if failed else "every folder reaches its threshold"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
