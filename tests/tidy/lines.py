"""Prints lines of code (no blanks, comments, docstrings) for each folder, and the modules that outgrew the aim: `make lines`."""

from __future__ import annotations

from statistics import median

from tests.tidy.sources import FOLDERS, code_lines, modules, python_files

__all__ = ["table"]

LINES_AIM = 300


def table() -> list[str]:
    rows = [f"{'folder':<12}{'files':>6}{'code':>8}{'median':>8}{'largest':>9}"]
    product = tests = 0
    for folder in (*FOLDERS, "examples", "bench", "tests"):
        counts = [code_lines(path) for path in python_files(folder)]
        if not counts:
            continue
        rows.append(f"{folder:<12}{len(counts):>6}{sum(counts):>8}{median(counts):>8.0f}{max(counts):>9}")
        product += sum(counts) if folder in FOLDERS else 0
        tests += sum(counts) if folder == "tests" else 0
    rows += [
        f"over {LINES_AIM} lines: {module.where} ({lines})"
        for module in modules()
        if (lines := len(module.text.splitlines())) > LINES_AIM
    ]
    rows.append(f"tests for each line of the package: {tests / max(product, 1):.2f}")
    return rows


if __name__ == "__main__":
    print("\n".join(table()))
