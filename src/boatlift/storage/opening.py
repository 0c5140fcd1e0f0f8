"""Opening a store by its place: a folder, or the URL of an object store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from boatlift.paths import IN_STORE, refuse_place, scratch_named
from boatlift.storage.local import LocalStore
from boatlift.storage.object_store import BucketOptions, ObjectStore
from boatlift.storage.store import Store

StorePlace = str | Path | LocalStore | ObjectStore
"""A folder, a URL such as `s3://bucket/flows/delays`, or a store that is open."""


def open_store(
    place: StorePlace, *, create: bool, scratch: str | Path | None = None, options: BucketOptions | None = None
) -> LocalStore | ObjectStore:
    """Open the store at a place.

    Args:
        create: Make it, if there is none.
        scratch: For an object store: the folder for files of running tasks, which every task sees; by default one of
            this machine, below `BOATLIFT_SCRATCH`, or the user's folder of caches.
        options: For an object store.

    Raises:
        InvalidError: `[BAD_OPTION]` the place is none; `[STORE_NOT_FOUND]`; as `LocalStore.open` and
            `ObjectStore.open`.
        UnavailableError: `[STORE_FAILED]`.
    """
    if not isinstance(place, str | Path):
        return place
    if isinstance(place, str) and place.startswith("s3://"):
        refuse_place(place)
        folder, uploads = scratch_named(scratch)
        options = replace(options or BucketOptions(), uploads_scratch=uploads)
        return ObjectStore.open(place, folder, options, create=create)
    return LocalStore.open(Path(place), create=create)


def reopened(store: Store) -> Store:
    """Return the same store, without a failure after which it refuses all writes; others are returned as they are."""
    match store:
        case LocalStore():
            return LocalStore.open(store.root, create=False)
        case ObjectStore():
            return store.reopened()
    return store


def suited_to(store: Store, master: str) -> Store:
    """Return a store whose scratch suits the machines of Spark's tasks, if no other was named."""
    if not isinstance(store, ObjectStore):
        return store
    one_machine, uploads = master.startswith("local"), store.options.uploads_scratch
    if one_machine and uploads:
        return store.used(replace(store.options, one_machine=True))
    if not one_machine and uploads is None:
        folder, _ = scratch_named(IN_STORE)
        return ObjectStore(store.url, folder, replace(store.options, uploads_scratch=True))
    return store
