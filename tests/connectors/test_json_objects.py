"""The elements of a file that is one JSON array, and what is told of a file that is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boatlift.connectors.files.formats import json as json_module
from boatlift.connectors.files.formats.json import JsonFileFormat, objects_in
from boatlift.connectors.kit.text_forms import TextForms

LEAVES = st.none() | st.booleans() | st.integers() | st.text(st.sampled_from('a"\\[]{},: \nü'), max_size=6)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('k"]', max_size=2), inner, max_size=3),
    max_leaves=8,
)


def texts(path: Path, content: bytes) -> list[bytes]:
    path.write_bytes(content)
    found = list(objects_in(path))
    assert all(content[offset:].startswith(text) for offset, text in found)
    return [text for _, text in found]


def is_json(text: bytes | str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


@given(values=st.lists(VALUES, max_size=4), indent=st.sampled_from([None, 0, 2]), ascii_only=st.booleans())
def test_an_array_has_its_elements(
    tmp_path_factory: pytest.TempPathFactory, values: list[Any], indent: int | None, ascii_only: bool
) -> None:
    content = json.dumps(values, indent=indent, ensure_ascii=ascii_only).encode()
    found = texts(tmp_path_factory.getbasetemp() / "a.json", b"\xef\xbb\xbf\r\n" + content + b" \n")
    assert [json.loads(each) for each in found] == values


@settings(max_examples=2000)
@given(text=st.text(st.sampled_from('[]{},:"\\ 1a'), max_size=12))
def test_what_is_no_array_has_a_text_that_is_no_value(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    found = texts(tmp_path_factory.getbasetemp() / "a.json", text.encode())
    assert all(map(is_json, found)) == is_json(text)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", [""]),
        (" \n", [""]),
        ("[]", []),
        ("[ \n]", []),
        ('{"a": [1]} ', ['{"a": [1]}']),
        ('{"a": 1}\n{"a": 2}', ['{"a": 1}\n{"a": 2}']),
        ("[1,,2]", ["1", ",", "2"]),
        ("[1,]", ["1", ","]),
        ("[,1]", [",", "1"]),
        ("[,]", [",", ","]),
        ("[1, 2", ["1", "2", "["]),
        ("[1, ", ["1", "["]),
        ("[1] 2", ["1", "] 2"]),
        ("[1} ", ["1", "}"]),
        ("[}", ["}"]),
        ('[{"a": 1}}, 2]', ['{"a": 1}', "}, 2]"]),
        ("['x,]', 2]", ["'x,]'", "2"]),
        ("[{'a': \"it's\"}, 2]", ["{'a': \"it's\"}", "2"]),
        ("[1]]", ["1", "]]"]),
        ('[1, {"a": [2}, 3]', ["1", '{"a": [2}, 3]', "["]),
        ('[1, {"a": "2}, 3]', ["1", '{"a": "2}, 3]', "["]),
        ("[1 2, 3]", ["1 2", "3"]),
    ],
)
def test_of_each_kind_of_text(tmp_path: Path, content: str, expected: list[str]) -> None:
    assert [each.decode() for each in texts(tmp_path / "a.json", content.encode())] == expected


def test_many_elements_come_some_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_module, "_AT_ONCE", 100)
    (tmp_path / "a.json").write_text(json.dumps(list(range(1000, 2000))))
    parts = list(JsonFileFormat(True, TextForms()).texts_in(tmp_path / "a.json"))
    assert len(parts) == 41
    assert [int(text) for _, texts in parts for text in texts] == list(range(1000, 2000))
