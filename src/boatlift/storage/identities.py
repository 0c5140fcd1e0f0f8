"""The identity objects of a store: they name its dataflow and its id, and record how far the store has come.

`dataflow` alone is a store whose first claim was interrupted; `begun` means that a claim was made, `truncated` that the
log begins with a manifest. So a store that lost its log, or its manifest, is told from a new one.
"""

from __future__ import annotations

import secrets

from boatlift.errors import DataError, FencedError
from boatlift.storage.records.codec import StoreIdentity, decode_identity, encode_identity
from boatlift.storage.records.damage import RESTORE
from boatlift.storage.store import Store

__all__ = ["BEGUN", "IDENTITIES", "IDENTITY", "TRUNCATED", "Identities"]

IDENTITY = "dataflow"
"""The object that names the store's dataflow; created before the first claim."""
BEGUN = "begun"
"""The object that records that there was a claim; created after the first, before anything rests on it."""
TRUNCATED = "truncated"
"""The object that records that the log begins with a manifest; created before the first truncation."""
IDENTITIES = (IDENTITY, BEGUN, TRUNCATED)

STORE_ID_BYTES = 16


class Identities:
    """The identity objects of one store, and the marks of stops, which have the same form.

    Args:
        store: The store.
        dataflow: The dataflow that the store must belong to; empty takes the store's own.

    Attributes:
        dataflow: The dataflow's name; empty until it is read from the store.
        store_id: The id of the store and its copies; empty before the first claim of a new one.
    """

    def __init__(self, store: Store, dataflow: str) -> None:
        self._store = store
        self.dataflow, self.store_id = dataflow, ""

    def exists(self, name: str) -> bool:
        """Return whether the store has an identity object."""
        return self._store.size(name) is not None

    def create(self, name: str) -> None:
        """Create an identity object unless it exists, and check it.

        Raises:
            DataError: As `check`.
            UnavailableError: `[STORE_FAILED]`.
        """
        if not self.exists(name):
            # A faster process may make the store: its id is then read below, and the one drawn here is dropped.
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
