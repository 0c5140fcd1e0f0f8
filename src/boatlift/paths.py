"""Checks of paths that users give: of folders and files, not of object stores."""

from __future__ import annotations

import os
import re
from pathlib import Path

from boatlift.errors import InvalidError

__all__ = ["refuse_file", "refuse_url"]

# `Path` has made one slash of two by the time that some callers see it. One letter would be a drive of Windows.
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.*)")


def refuse_url(path: str | Path, whose: str) -> None:
    """Refuse a URL, which would otherwise silently become a folder called `s3:`.

    Args:
        path: The path that the user gave.
        whose: The owner of the path, for the message: `a store`.

    Raises:
        InvalidError: `[BAD_OPTION]` the path is a URL.
    """
    url = _URL.fullmatch(str(path))
    if url is not None:
        raise InvalidError(
            "BAD_OPTION",
            f"{whose} cannot be at {url[1]}://{url[2]}: give a path of a local disk, or of one that all machines mount",
        )


def refuse_file(path: Path, whose: str) -> None:
    """Refuse a path at which there can be no folder, because a file or a broken link is in the way.

    Args:
        path: The path that the user gave.
        whose: The owner of the path, for the message: `a store`.

    Raises:
        InvalidError: `[BAD_OPTION]` the path, or a part of it, is no folder.
    """
    there = next((each for each in (path, *path.parents) if os.path.lexists(each)), None)
    if there is not None and not there.is_dir():
        raise InvalidError(
            "BAD_OPTION", f"{whose} cannot be at {path}, because {there} is no folder: give another path"
        )
