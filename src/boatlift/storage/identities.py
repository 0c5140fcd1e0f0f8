"""The identity objects of a store, and the marks of clean shutdowns. They reveal losses that the log alone cannot.

The identities have the dataflow's name and the store's id. `dataflow` alone is a store whose first claim was
interrupted; `begun` means that a claim was made, `truncated` that the log begins with a manifest. So a store that lost
its log or its manifest differs from a new one.

The mark of a clean shutdown has the number of the log's last object at that shutdown. A reader takes the object with
the greatest number for the log's end, so a log that lost its last objects looks like one that ended earlier; the mark
contradicts it. The mark is written once that object is durable, so no crash leaves a wrong mark. A crash may leave no
mark: then a reader knows as much as after any crash.
"""

from __future__ import annotations

import re
import secrets

from boatlift.errors import RESTORE, DataError, FencedError
from boatlift.storage.records.codec import StoreIdentity, decode_identity, encode_identity
from boatlift.storage.store import Store

IDENTITY = "dataflow"  # has the name of the store's dataflow; created before the first claim
BEGUN = "begun"  # there was a claim; created after the first, before any other object
TRUNCATED = "truncated"  # the log begins with a manifest; created before the first truncation
IDENTITIES = (IDENTITY, BEGUN, TRUNCATED)

SECRET = "secret"  # noqa: S105 - a name
"""The object with the secret by which processes of the store's dataflow know each other."""

SECRET_BYTES = 32
STORE_ID_BYTES = 16


def secret_of(store: Store, *, create: bool = False) -> bytes | None:
    """Return the secret of a store; None if it has none. Each user that may read the store's rows may read it.

    Args:
        create: Draw one if there is none.
    """
    if create and store.size(SECRET) is None:
        try:
            store.create(SECRET, secrets.token_bytes(SECRET_BYTES))
        except FencedError as error:
            if error.condition != "OBJECT_EXISTS":
                raise
    return None if store.size(SECRET) is None else store.read(SECRET)


class Identities:
    """The identity objects of one store, and the marks of clean shutdowns, which have the same form.

    Attributes:
        store_id: The id of the store and its copies; empty before the first claim.
    """

    def __init__(self, store: Store, dataflow: str) -> None:
        self._store = store
        self.dataflow, self.store_id = dataflow, ""

    def exists(self, name: str) -> bool:
        return self._store.size(name) is not None

    def create(self, name: str) -> None:
        """Create an identity object unless it exists, and check it.

        Raises:
            DataError: As `check`.
            UnavailableError: `[STORE_FAILED]`.
        """
        if not self.exists(name):
            # If a faster process makes the store, its id is read below, and the one drawn here is dropped.
            store = self.store_id or secrets.token_hex(STORE_ID_BYTES)
            try:
                self._store.create(name, encode_identity(StoreIdentity(self.dataflow, name, store)))
            except FencedError as error:
                if error.condition != "OBJECT_EXISTS":
                    raise
        self.check(name)

    def check(self, name: str) -> None:
        """Refuse an identity object that is missing, damaged, misplaced or another store's.

        Raises:
            DataError: `[MISSING_OBJECT]`, `[CORRUPT]`, `[STORE_OF_ANOTHER_DATAFLOW]`.
        """
        if not self.exists(name):
            raise DataError("MISSING_OBJECT", f"{name} is not there, though the store holds a log: {RESTORE}")
        identity = decode_identity(self._store.read(name), name)
        if identity.role != name:
            raise DataError("CORRUPT", f"{name} is a copy of {identity.role}: {RESTORE}")
        self.dataflow = self.dataflow or identity.dataflow
        if identity.dataflow != self.dataflow:
            raise DataError(
                "STORE_OF_ANOTHER_DATAFLOW",
                f"the store belongs to dataflow {identity.dataflow}, not {self.dataflow}: give each its own",
            )
        if name == IDENTITY:
            self.store_id = identity.store
        if identity.store != self.store_id:
            raise DataError("CORRUPT", f"{name} is of store {identity.store}, not {self.store_id}: {RESTORE}")


STOPS = "stopped/"


def mark_of(number: int) -> str:
    """Return the name of the mark of a clean shutdown that is recorded in an object."""
    return f"{STOPS}{number:012}"


def newest_mark(store: Store) -> str | None:
    """Return the name of the newest mark; None if there is none.

    Raises:
        DataError: `[CORRUPT]` no mark has such a name.
    """
    newest = max(store.list(STOPS), default=None)
    if newest is not None and re.fullmatch(rf"{STOPS}[0-9]{{12}}", newest) is None:
        raise DataError("CORRUPT", f"{newest} is no mark of a clean shutdown: move it away")
    return newest


def last_mark(store: Store) -> int:
    """Return the number of the log's last object at the newest clean shutdown; 0 without a mark."""
    newest = newest_mark(store)
    return 0 if newest is None else int(newest.removeprefix(STOPS))


def drop_older_marks(store: Store, number: int) -> None:
    """Delete the marks before one, which the newer mark implies."""
    if older := [name for name in store.list(STOPS) if name < mark_of(number)]:
        store.delete(*older)
