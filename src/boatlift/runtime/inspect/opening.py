"""Opening a store to read it."""

from __future__ import annotations

from pathlib import Path

from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log


def store_at(path: Path) -> LocalStore:
    """Return the store in a folder.

    Raises:
        DataError: `[STORE_NOT_FOUND]` the folder holds no store.
    """
    return LocalStore.open(path, create=False)


def log_at(path: Path) -> Log:
    """Return the log of the store in a folder, whichever dataflow it belongs to.

    Raises:
        DataError: the folder holds no store, or its log cannot be read.
    """
    return Log.open(store_at(path), None)
