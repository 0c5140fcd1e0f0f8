"""Opening a store by its place: a folder, or the URL of an object store."""

from __future__ import annotations

import os
from pathlib import Path

from boatlift.paths import refuse_place, refuse_url
from boatlift.storage.bucket_client import RETRY_FOR
from boatlift.storage.local import LocalStore
from boatlift.storage.object_store import ObjectStore
from boatlift.storage.store import Store

StorePlace = str | Path | LocalStore | ObjectStore
"""A folder, a URL such as `s3://bucket/flows/delays`, or a store that is open."""


def open_store(
    place: StorePlace,
    *,
    create: bool,
    scratch: str | Path | None = None,
    endpoint: str | None = None,
    retry_for: float = RETRY_FOR,
    linger: float = 0.0,
) -> LocalStore | ObjectStore:
    """Open the store at a place.

    Args:
        create: Make it, if there is none.
        scratch: For an object store: the folder for files of running tasks, which every task sees; by default one of
            this machine, below `BOATLIFT_SCRATCH`, or the user's folder of caches.
        endpoint, retry_for, linger: As for `ObjectStore`.

    Raises:
        InvalidError: `[BAD_OPTION]` the place is none; `[STORE_NOT_FOUND]`; as `LocalStore.open` and
            `ObjectStore.open`.
        UnavailableError: `[STORE_FAILED]`.
    """
    if not isinstance(place, str | Path):
        return place
    if isinstance(place, str) and place.startswith("s3://"):
        refuse_place(place)
        if scratch is not None:
            refuse_url(scratch, "scratch")
        folder = Path(scratch or scratch_of_this_machine()).absolute()
        return ObjectStore.open(place, folder, create=create, endpoint=endpoint, retry_for=retry_for, linger=linger)
    return LocalStore.open(Path(place), create=create)


def reopened(store: Store) -> Store:
    """Return the same store, without a failure after which it refuses all writes; others are returned as they are."""
    match store:
        case LocalStore():
            return LocalStore.open(store.root, create=False)
        case ObjectStore():
            return store.reopened()
    return store


def scratch_of_this_machine() -> Path:
    """Return the folder below which stores of objects have their scratch, if none is named."""
    given = os.environ.get("BOATLIFT_SCRATCH")
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(given) if given else Path(caches) / "boatlift"
