"""What must work wherever Sojourn is installed. Run by an environment's own Python, away from the checkout."""

from __future__ import annotations

import importlib
import pkgutil
import shutil
import subprocess
import sys
from importlib.metadata import entry_points, version
from importlib.resources import files
from pathlib import Path

import sojourn


def every_module() -> list[str]:
    names = [module.name for module in pkgutil.walk_packages(sojourn.__path__, "sojourn.")]
    for name in names:
        if not name.endswith("__main__"):
            importlib.import_module(name)
    return names


def main() -> None:
    home = Path(sojourn.__file__).parent
    names = every_module()
    assert {
        "sojourn.spots",
        "sojourn.store",
        "sojourn.workers",
        "sojourn.wire",
        "sojourn.handoff",
        "sojourn.session",
    } <= set(names)
    assert sojourn.__version__ == version("sojourn")
    assert files("sojourn").joinpath("py.typed").is_file()
    scripts = sorted(path.name for path in home.glob("store/**/*.lua"))
    commands = [
        point.name for point in entry_points(group="console_scripts") if point.value.startswith("sojourn.")
    ]
    assert commands == ["sojourn"], commands
    if "sojourn.workers.cli" in names:
        command = shutil.which("sojourn", path=str(Path(sys.executable).parent))
        assert command is not None
        subprocess.run([command, "--help"], check=True, stdout=subprocess.DEVNULL)
    print(home)
    print(*sorted(names))
    print(*scripts)


if __name__ == "__main__":
    main()
