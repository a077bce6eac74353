"""Size of modules and functions, docstrings, public names, words that are not used."""

from __future__ import annotations

import ast
import keyword
import re
from pathlib import Path

import pytest

from tests.tidy.sources import FOLDERS, ROOT, Module, all_files, modules, python_files

MODULE_LINES_MAX = 600
FUNCTION_LINES_MAX = 60
MODULE_NAMES_NOT_USED = {"base", "common", "core", "helper", "helpers", "misc", "tools", "util", "utils"}
CLASS_WORDS_NOT_USED = ("Manager", "Handler", "Service", "Helper")
NAMES_NOT_USED = {"src", "dst", "mgr", "cfg", "req", "resp", "msg", "idx", "tmp", "cnt", "buf", "val"}
FOREVER_S = 10
UNFINISHED = re.compile(r"\b(T[O]DO|F[I]XME|X[X]X|H[A]CK)\b|raise NotImplementedError")


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


each_module = pytest.mark.parametrize("module", modules(), ids=lambda module: module.name)


@each_module
def test_module_size(module: Module) -> None:
    lines = len(module.text.splitlines())
    assert lines <= MODULE_LINES_MAX, f"{module.where} has {lines} lines; split it"


@pytest.mark.parametrize("path", python_files("tests", "bench", "examples"), ids=relative)
def test_file_size(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= MODULE_LINES_MAX, f"{path.relative_to(ROOT)} has {lines} lines; split it"


@each_module
def test_function_size(module: Module) -> None:
    long = [
        f"{module.where}:{node.lineno} {node.name} has {lines} lines"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES_MAX
    ]
    assert not long, "\n".join(long)


@each_module
def test_docstring(module: Module) -> None:
    assert ast.get_docstring(module.tree), f"{module.where} has no docstring that says what it owns"


@each_module
def test_public_names_are_listed(module: Module) -> None:
    """A public module says in __all__ what it offers, and what it lists exists."""
    if module.path.stem.startswith("_") and module.path.stem != "__init__":
        return
    listed = _listed_names(module.tree)
    defined = _defined_names(module.tree)
    public = {name for name, kind in defined.items() if not name.startswith("_") and kind == "definition"}
    if listed is None:
        assert not public, f"{module.where} defines {sorted(public)} and has no __all__"
        return
    has_lazy_names = "__getattr__" in defined
    unknown = [name for name in listed if name not in defined]
    assert not unknown or has_lazy_names, f"{module.where}: __all__ names {unknown}, which do not exist"
    assert len(listed) == len(set(listed)), f"{module.where}: __all__ names something twice"


def _listed_names(tree: ast.Module) -> list[str] | None:
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            value = getattr(node, "value", None)
            if isinstance(value, ast.List | ast.Tuple):
                return [str(item.value) for item in value.elts if isinstance(item, ast.Constant)]
            return []
    return None


def _defined_names(tree: ast.Module) -> dict[str, str]:
    """Names at module level, by kind: definition, value or import."""
    names: dict[str, str] = {}
    pending = list(tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names[node.name] = "definition"
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                names[(alias.asname or alias.name).split(".")[0]] = "import"
        elif isinstance(node, ast.If | ast.Try):
            pending += [*node.body, *node.orelse]
            pending += [child for handler in getattr(node, "handlers", []) for child in handler.body]
        else:
            for child in ast.walk(node):
                if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
                    names[child.id] = "value"
    return names


@pytest.mark.parametrize("path", python_files(*FOLDERS, "examples", "bench", "tests"), ids=relative)
def test_words(path: Path) -> None:
    where = path.relative_to(ROOT)
    assert path.stem not in MODULE_NAMES_NOT_USED, f"{where}: name the module for what it holds"
    wrong = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef) and node.name.endswith(CLASS_WORDS_NOT_USED):
            wrong.append(f"{where}:{node.lineno} class {node.name}")
        if where.parts[0] in FOLDERS:
            name = node.arg if isinstance(node, ast.arg) else None
            name = node.id if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else name
            if name in NAMES_NOT_USED or (name or "").strip("_") in NAMES_NOT_USED:
                wrong.append(f"{where}:{getattr(node, 'lineno', 0)} name {name}: write the word out")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("path", python_files(*FOLDERS, "examples", "bench"), ids=relative)
def test_nothing_unfinished(path: Path) -> None:
    """No notes to be done later, no method that only says it is missing, no exception that vanishes."""
    text = path.read_text(encoding="utf-8")
    wrong = [
        f"{path.relative_to(ROOT)}:{number} {line.strip()}"
        for number, line in enumerate(text.splitlines(), 1)
        if UNFINISHED.search(line)
    ]
    wrong += [
        f"{path.relative_to(ROOT)}:{node.lineno} swallows every exception"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ExceptHandler) and _catches_all(node) and isinstance(node.body[0], ast.Pass)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("path", python_files("tests"), ids=relative)
def test_no_test_sleeps(path: Path) -> None:
    """A test waits for something to happen, not for some time to pass. (Very long sleeps stand for "forever".)"""
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno} sleeps"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "sleep"
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id in ("asyncio", "time")
        and node.args
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, int | float)
        and 0 < node.args[0].value < FOREVER_S
    ]
    assert not wrong, "\n".join(wrong)


def _catches_all(node: ast.ExceptHandler) -> bool:
    return node.type is None or (
        isinstance(node.type, ast.Name) and node.type.id in ("Exception", "BaseException")
    )


def test_file_names() -> None:
    """Python files can be imported under their names."""
    wrong = [
        str(path.relative_to(ROOT))
        for path in all_files()
        if path.suffix == ".py" and (not path.stem.isidentifier() or keyword.iskeyword(path.stem))
    ]
    assert not wrong
