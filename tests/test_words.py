"""One name, one idea: a class of the package shares its name with no other class, and with no type alias."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import boatlift

SOURCES = Path(boatlift.__file__).parent

ALLOWED = {"Columns"}
"""Of a declared schema in the kit of connectors, which their authors know; of compiled rows in `spark/compile`."""


def aliases_of(tree: ast.Module) -> set[str]:
    """The type aliases of a module: `Name = A | B`, `Name = tuple[…]`."""
    return {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp | ast.Subscript)
        for target in node.targets
        if isinstance(target, ast.Name) and not target.id.isupper()
    }


def test_no_class_has_the_name_of_another_type() -> None:
    classes, aliases = defaultdict(list), defaultdict(list)
    for path in sorted(SOURCES.rglob("*.py")):
        tree, place = ast.parse(path.read_text()), str(path.relative_to(SOURCES))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                classes[node.name].append(place)
        for name in aliases_of(tree):
            aliases[name].append(place)
    assert len(classes) > 100
    assert len(aliases) > 10
    places = {name: [*found, *aliases[name]] for name, found in classes.items()}
    assert {name: found for name, found in places.items() if len(found) > 1}.keys() == ALLOWED
