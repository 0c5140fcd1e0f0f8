"""A memory file system that is full after a few pages."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_memory(folder: Path, size: int) -> Iterator[None]:
    """Mount a memory file system of so many bytes on a folder; a user who may not skips the test."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "boatlift-test", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("this user may mount no small file system")
    try:
        yield
    finally:
        # Lazily: a worker that ends may have a run mapped still.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
