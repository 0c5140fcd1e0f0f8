"""Types of msgspec are looked up at import: two threads that use one first at the same moment crash the process."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCES = sorted((Path(__file__).parents[1] / "src" / "boatlift").rglob("*.py"))


def calls(tree: ast.AST, name: str) -> list[ast.Call]:
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == name
    ]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_no_type_is_looked_up_when_it_is_first_decoded(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert not [
        ast.unparse(call) for call in calls(tree, "decode") if any(each.arg == "type" for each in call.keywords)
    ]
    known = {ast.unparse(kind) for call in calls(tree, "look_up") for kind in call.args}
    converted = [call for call in calls(tree, "convert") if ast.unparse(call.func) == "msgspec.convert"]
    for call in converted:
        names = {node.id for node in ast.walk(call.args[1]) if isinstance(node, ast.Name)} - {"dict", "str"}
        assert names <= known | {"self"}, f"{ast.unparse(call)}: name {names - known} in look_up(…), at import"


def test_types_are_looked_up_by_the_import_of_their_module() -> None:
    """Outside of functions, where one thread is at work."""
    for path in SOURCES:
        tree = ast.parse(path.read_text())
        inside = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
        for function in inside:
            assert not [*calls(function, "look_up"), *calls(function, "packed_decoder")], f"{path}: {function.name}"
