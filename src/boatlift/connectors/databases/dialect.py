"""What the sink of a table asks of a kind of database server: a dialect of SQL, and of its errors and locks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import xxhash

from boatlift.errors import BoatliftError, UnavailableError

if TYPE_CHECKING:
    import pyarrow as pa

    from boatlift.connectors.databases.ledger import LedgerTables
    from boatlift.connectors.databases.table import SinkTable
    from boatlift.dataflow.contracts import SinkContext

LONGEST_LABEL = 63
"""The bytes of a name that each server keeps whole."""


class ResultRows(Protocol):
    """The result of a statement."""

    def fetchone(self) -> Any:
        """Return the next row; None after the last."""

    def fetchall(self) -> Any:
        """Return all rows that are left."""


class Session(Protocol):
    """A connection to a server."""

    @property
    def closed(self) -> bool:
        """Whether it can be used no more."""

    def execute(self, statement: str, values: Sequence[Any] | None = None, /) -> ResultRows:
        """Execute a statement, in which `%s` stands for a value."""

    def close(self) -> None:
        """End it."""


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A table as a program asks for it.

    Attributes:
        name: As SQL has it: quoted.
        place: As messages name it.
        key: The key columns; None: rows are appended.
        fields: The user's columns, the key's among them.
        weighted: Whether rows have a weight.
        unique: Whether a second row of a key is refused; otherwise it replaces the first.
    """

    name: str
    place: str
    key: list[str] | None
    fields: Sequence[pa.Field]
    weighted: bool
    unique: bool


_S = TypeVar("_S")


class Dialect(Protocol[_S]):
    """A kind of server, at an address."""

    @property
    def kind(self) -> str:
        """Its name in a sink's description."""

    @property
    def ledger(self) -> LedgerTables:
        """The statements for its ledger."""

    @property
    def ddl_commits(self) -> bool:
        """Whether a statement that makes or alters a table ends the transaction around it."""

    @property
    def address(self) -> object:
        """The database, whose `str` is its name in messages: without a secret."""

    @property
    def error(self) -> type[Exception]:
        """The base of the client's errors."""

    def is_passing(self, error: Any) -> bool:
        """Return whether the same transaction may succeed later."""

    def error_of(self, error: Any, place: str) -> BoatliftError:
        """Return Boatlift's error for one that does not pass."""

    def connect(self, limit: float) -> _S:
        """Return a connection that waits for so many seconds for an answer."""

    def begin(self, session: _S, name: str, writes: bool, lock_timeout: float, runs: float) -> None:
        """Begin a transaction, READ COMMITTED, that newer owners know by its name.

        Args:
            runs: Seconds for which a statement may run, and for which the client may do nothing.
        """

    def check_server(self, session: _S) -> None:
        """Raise `[SINK_UNSUITABLE]` if the server is too old, or may forget what it has committed."""

    def qualified(self, session: _S, table: str) -> str:
        """Return the quoted name of a table, with its schema where there are schemas."""

    def columns_of(self, session: _S, name: str) -> dict[str, str]:
        """Return name and type of each column of an ordinary table; empty if there is none of that name."""

    def is_taken(self, session: _S, name: str) -> bool:
        """Return whether a table, a view or the like has a name."""

    def is_marked(self, session: _S, name: str) -> bool:
        """Return whether a sink has made a table."""

    def table(self, session: _S, spec: TableSpec) -> SinkTable[_S]:
        """Return the statements for a table."""

    def end_older_owners(self, session: _S, context: SinkContext) -> list[int]:
        """End the transactions of older owners of a sink, and of this one's lost connections; return their sessions.

        A transaction of another role stays, unless the role of the connection may end it.
        """

    def locked(self, session: _S, place: str, table: str, waited: float) -> UnavailableError:
        """Return the error for a lock that somebody holds, with the statement that ends each holder."""


def label_of(context: SinkContext) -> str:
    """Return the part of a transaction's name that all owners of a sink share; the token follows it."""
    label = f"boatlift {context.dataflow}/{context.sink} "
    if label.isascii() and len(label) + 20 <= LONGEST_LABEL:
        return label
    return f"boatlift {xxhash.xxh3_128_hexdigest(label.encode())} "


def quoted(name: str, quote: str = '"') -> str:
    """Return a name as SQL has it."""
    return quote + name.replace(quote, 2 * quote) + quote
