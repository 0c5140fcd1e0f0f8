"""The files of objects on one machine: their bound, and what a start of the computer may have torn.

The folder of a store in scratch has, beside what tasks write (`remote_files`), the files of objects in `cache/` and in
a `cache-OPENING/` of each opening of the store. Files are not synced, and any of them may be deleted at any time.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
from contextlib import suppress
from itertools import chain
from pathlib import Path

from boatlift.storage.filesystem import boot_of_computer, last_start_of_computer
from boatlift.storage.store import SCRATCH

CACHE = "cache"
"""The folder of the files of objects, in the folder of a store's identity."""

CACHE_BYTES = 10 << 30
"""The default bound of the cache, in bytes."""

CACHE_VARIABLE = "BOATLIFT_CACHE"
"""The variable with the bound of the cache in the tasks of a run."""

DIVIDED = "divided-"
"""The beginning of the name of a file with the divided rows of a step."""

UPLOADED_MODE = 0o400
"""The mode of a file in scratch that is uploaded: only then may the cache drop it."""

UPLOADED = "-uploaded"
"""The end of the name of a store's folder whose scratch is uploaded."""

RUN_NAME = re.compile(r"(?P<owner>\d{12})-[0-9a-f]{32}\.arrow")
"""The name of the file of a run."""

_LIMIT, _BOOT = "cache-bytes", "boot"
_LOOK_EVERY = 64 << 20  # bytes that a process fetches between two looks at the size of the cache
_added: dict[Path, int] = {}


def limit_cache(folder: Path, most: int) -> None:
    """Let the cache in a store's folder have at most so many bytes. Its processes on this machine keep to it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _LIMIT).write_text(str(most), encoding="ascii")


def trim_cache(folder: Path, fetched_bytes: int, added: Path | None = None) -> None:
    """Delete the files that were not used for longest, until the cache is within its bound.

    Args:
        fetched_bytes: The bytes that were added since the last call; the disk is looked at now and then.
        added: The file that was added, which stays.
    """
    grown = _added[folder] = _added.get(folder, 0) + fetched_bytes
    try:
        most = int(os.environ.get(CACHE_VARIABLE) or (folder / _LIMIT).read_text(encoding="ascii"))
    except (OSError, ValueError):
        most = CACHE_BYTES
    if grown < min(_LOOK_EVERY, most // 8):
        return
    _added[folder] = 0
    files: list[tuple[int, int, Path]] = []
    walks = [*map(os.walk, caches_of(folder)), os.walk(folder / SCRATCH) if folder.name.endswith(UPLOADED) else ()]
    for parent, _, names in chain.from_iterable(walks):
        for path in (Path(parent) / name for name in names):
            in_scratch = path.is_relative_to(folder / SCRATCH)
            if in_scratch and not is_large(path.name):
                continue
            with suppress(FileNotFoundError):
                found = path.stat()
                if not in_scratch or stat.S_IMODE(found.st_mode) == UPLOADED_MODE:
                    files.append((found.st_mtime_ns, found.st_blocks * 512, path))
    left = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if left <= most:
            break
        if path == added:
            continue
        path.unlink(missing_ok=True)
        left -= size


def is_large(name: str) -> bool:
    """Return whether a file of scratch is a run or divided rows, which are written once, and may be dropped."""
    return name.startswith(DIVIDED) or RUN_NAME.fullmatch(name) is not None


def keep_to_this_boot(folder: Path) -> None:
    """Remove the files of a store's folder that were written before this computer started: they may be torn.

    An owner calls it when it claims the store, and each process of a machine with a folder of its own does at first.
    """
    boot, mark = boot_of_computer(), folder / _BOOT
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{_BOOT}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if boot and mark.exists() and mark.read_text(encoding="ascii") == boot:
            return
        # A machine that shares the folder, against advice, loses none of what it is writing.
        began = last_start_of_computer()
        scratch = [folder / SCRATCH] if folder.name.endswith(UPLOADED) and boot else []
        for parent, _, names in chain.from_iterable(map(os.walk, [*caches_of(folder), *scratch])):
            for path in (Path(parent, name) for name in names):
                with suppress(FileNotFoundError):
                    if path.stat().st_mtime < began:
                        path.unlink()
        mark.write_text(boot, encoding="ascii")


def caches_of(folder: Path) -> list[Path]:
    """Return the folders of files of objects in the folder of a store's identity."""
    return [path for path in folder.glob(f"{CACHE}*") if path.is_dir()]
