"""Checks of users' paths, which must be local folders and files; and the folder of scratch."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from boatlift.errors import InvalidError

# `Path` turns two slashes into one before some callers get it. One letter would be a drive of Windows.
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.*)")


IN_STORE = "store"
"""Scratch of machines that share no folder."""


def refuse_url(path: str | Path, whose: str, else_give: str = "") -> None:
    """Refuse a URL, which would otherwise silently become a folder called `s3:`.

    Args:
        path: The user's path.
        whose: The path's purpose, for the message, such as `a store`.
        else_give: What may be given in place of a path.

    Raises:
        InvalidError: `[BAD_OPTION]` the path is a URL.
    """
    url = _URL.fullmatch(str(path))
    if url is not None:
        raise InvalidError(
            "BAD_OPTION",
            f"{whose} cannot be at {url[1]}://{url[2]}: give a path of a disk that all machines see{else_give}",
        )


def refuse_place(place: str | Path, whose: str = "a store") -> None:
    """Refuse a place that is neither a folder nor below a prefix of a bucket, without a look at an object store.

    Args:
        whose: The place's purpose, for the message.

    Raises:
        InvalidError: `[BAD_OPTION]`.
    """
    if isinstance(place, str) and place.startswith("s3://"):
        bucket, _, prefix = place.removeprefix("s3://").rstrip("/").partition("/")
        if not bucket or not prefix:
            raise InvalidError("BAD_OPTION", f"{whose} cannot be at {place}: give s3://BUCKET/PREFIX")
        return
    refuse_url(place, whose, ", or an s3:// URL, as text")
    refuse_file(Path(place), whose)


def refuse_file(path: Path, whose: str) -> None:
    """Refuse a path that cannot be a folder, because a file or a broken link is in its way; see `refuse_url`."""
    there = next((each for each in (path, *path.parents) if os.path.lexists(each)), None)
    if there is not None and not there.is_dir():
        raise InvalidError(
            "BAD_OPTION", f"{whose} cannot be at {path}, because {there} is no folder: give another path"
        )


def scratch_named(scratch: str | Path | None = None) -> tuple[Path, bool | None]:
    """Return the folder of scratch for a store in a bucket, and whether tasks upload their files.

    Args:
        scratch: A folder, `store` or `store:FOLDER`; by default that of `BOATLIFT_SCRATCH`. If nothing is named, it is
            a folder in the user's cache, and None.

    Raises:
        InvalidError: `[BAD_OPTION]` a URL is named.
    """
    named = scratch or os.environ.get("BOATLIFT_SCRATCH")
    if not named:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "boatlift", None
    if named == IN_STORE:
        return Path(tempfile.gettempdir()) / f"boatlift-{os.getuid()}", True
    uploads = str(named).startswith(f"{IN_STORE}:")
    folder = str(named).removeprefix(f"{IN_STORE}:") if uploads else named
    refuse_url(folder, "scratch")
    return Path(folder).absolute(), uploads
