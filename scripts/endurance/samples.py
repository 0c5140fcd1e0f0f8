"""What a process and its folders hold at a moment: resident memory by kind of process, and bytes and files on disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

__all__ = ["Sample", "headings", "sample_of"]

PAGE = os.sysconf("SC_PAGE_SIZE")
MEBIBYTE = 2**20


@dataclass(frozen=True, slots=True)
class Sample:
    """One moment.

    Attributes:
        minute: Minutes since the beginning.
        life: The number of the process, from 1.
        driver, jvm, workers: Resident memory in MiB: of the Python driver, the JVM, and all Python workers.
        store, scratch: MiB in the store without its scratch, and in scratch.
        files: Files in the store, scratch included.
        pushed, filed: Rows that were acknowledged, and rows in files, since the beginning.
    """

    minute: float
    life: int
    driver: float
    jvm: float
    workers: float
    store: float
    scratch: float
    files: int
    pushed: int
    filed: int

    def line(self) -> str:
        """Return the moment as a row of a table."""
        cells = [getattr(self, field.name) for field in fields(self)]
        return "| " + " | ".join(f"{cell:.1f}" if isinstance(cell, float) else f"{cell:,}" for cell in cells) + " |"


def headings() -> str:
    """Return the head of the table."""
    names = [field.name for field in fields(Sample)]
    return "| " + " | ".join(names) + " |\n" + "|---" * len(names) + "|"


def sample_of(driver: int, store: Path, *, minute: float, life: int, pushed: int, filed: int) -> Sample:
    """Return what is held now.

    Args:
        driver: The process id of the driver; the JVM and the workers are of its session.
        store: The folder of the store.
        minute, life, pushed, filed: As `Sample` has them.
    """
    memory = {"driver": 0.0, "jvm": 0.0, "workers": 0.0}
    for pid, name in _processes_of_session(driver):
        kind = "driver" if pid == driver else "jvm" if name == "java" else "workers"
        memory[kind] += _long_running(pid)
    sizes = list(_sizes(store))
    scratch = sum(size for path, size in sizes if "scratch" in path.relative_to(store).parts)
    whole = sum(size for _, size in sizes)
    disk = {"store": (whole - scratch) / MEBIBYTE, "scratch": scratch / MEBIBYTE}
    return Sample(minute=minute, life=life, **memory, **disk, files=len(sizes), pushed=pushed, filed=filed)


def _processes_of_session(leader: int) -> Iterator[tuple[int, str]]:
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            name, _, rest = (entry / "stat").read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue  # it has just ended
        if int(rest.split()[3]) == leader:
            yield int(entry.name), name


def _long_running(pid: int) -> float:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE / MEBIBYTE
    except OSError:
        return 0.0  # it has just ended


def _sizes(folder: Path) -> Iterator[tuple[Path, int]]:
    for path in folder.rglob("*"):
        try:
            if path.is_file():
                yield path, path.stat().st_size
        except OSError:
            continue  # it was deleted meanwhile
