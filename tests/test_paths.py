"""A URL where a path belongs is refused, and nothing is made of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import boatlift as bl
from boatlift.storage.local import LocalStore

PLACES: dict[str, Callable[[str], object]] = {
    "source": lambda path: bl.files(path, format="csv", schema="a INT"),
    "parquet": bl.parquet,
    "sqlite": lambda path: bl.sqlite(path, table="t", key=["k"]),
    "store": lambda path: LocalStore.open(Path(path), create=True),
    "store to look into": lambda path: LocalStore.open(Path(path), create=False),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("url", ["s3:/bucket/folder", "s3a://bucket", "file:///tmp/x", "hdfs://name:8020/x"])
def test_a_url_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, url: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        bl.InvalidError, match=r"\[BAD_OPTION\] a .* cannot be at [a-z0-9]+://.*: give a path"
    ) as raised:
        PLACES[place](url)
    assert url.replace("///", "//").replace("s3:/b", "s3://b") in str(raised.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", ["a:b", "data/2024:01/x", "c:/x", "/s3:/x", "./s3:/x"])
def test_a_path_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.chdir(tmp_path)
    PLACES["source"](path)
    PLACES["parquet"](path)
