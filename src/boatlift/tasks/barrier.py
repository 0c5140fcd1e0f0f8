"""The exchange between barrier tasks: the tasks of one job that run at the same time.

A task sends a message to the driver's relay (`spark/jobs/barrier.py`) and gets the messages of all tasks back. A
message holds a few rows, or names files in scratch with many rows. A file is deleted at the next exchange, because a
task begins an exchange only after it has read its rows of the last one.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa

from boatlift.decoders import packed_decoder
from boatlift.errors import UnavailableError
from boatlift.kernels.network.node import ZSet, concat
from boatlift.state.arrangement.arranged import key_hashes
from boatlift.state.key_groups import Share, residues
from boatlift.storage.remote_files import fetched, removed, writing
from boatlift.tasks.stage import fresh_run


class RelayAddress(msgspec.Struct, frozen=True, array_like=True):
    """The address of a relay.

    Attributes:
        secret: Tasks prove that they know it.
    """

    host: str
    port: int
    secret: bytes


@contextmanager
def connected(address: RelayAddress, number: int, attempt: int) -> Iterator[Connection]:
    """Connect to a relay for as long as a task runs.

    Args:
        number: The task's number at the relay.
        attempt: Spark's application-wide number of this task's attempt.

    Raises:
        UnavailableError: `[TASK_LOST]` the relay does not answer.
    """
    try:
        connection = Client((address.host, address.port), authkey=address.secret)
    except (OSError, EOFError, AuthenticationError) as error:
        raise lost(error) from error
    try:
        without_delay(connection)
        connection.send_bytes(f"{number} {attempt}".encode())
        yield connection
    finally:
        connection.close()


def without_delay(connection: Connection) -> None:
    """Send short messages at once, even if an earlier one is not acknowledged, which takes up to 40 ms."""
    with suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as end:
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def lost(error: BaseException) -> UnavailableError:
    """Return the error of a task whose relay is gone."""
    return UnavailableError("TASK_LOST", f"another task of this step has ended, or its driver has: {error!r}")


IN_MESSAGE = 1 << 18
"""The largest number of bytes for one task in a message; more bytes go to a file."""


class _Parcel(msgspec.Struct, frozen=True, array_like=True):
    """Rows for one task: as bytes, or in a file."""

    rows: bytes = b""
    file: str = ""


class _TaskMessage(msgspec.Struct, frozen=True, array_like=True):
    """A task's message: a parcel for each task, and numbers."""

    parcels: list[_Parcel] = []
    numbers: list[int] = []


_MESSAGES = packed_decoder(list[_TaskMessage])


@contextmanager
def joined(address: RelayAddress, share: Share, folder: Path, token: int, attempt: int) -> Iterator[BarrierExchange]:
    """Join the barrier for as long as a task runs.

    Args:
        share: The key groups of this task, whose residue is its number.
        attempt: The attempt of this task, in Spark's numbering of all tasks' attempts.

    Raises:
        UnavailableError: `[TASK_LOST]` the relay does not answer.
    """
    with connected(address, share.residue, attempt) as connection:
        exchange = BarrierExchange(connection, share, folder, token)
        try:
            yield exchange
        finally:
            exchange.close()


@dataclass(slots=True)
class BarrierExchange:
    """A task's side of the barrier."""

    connection: Connection
    share: Share
    folder: Path
    token: int
    _files: list[Path] = field(default_factory=list)

    def divided(self, rows: ZSet | None, keys: tuple[int, ...] | None) -> ZSet | None:
        """Return the rows of all tasks in this task's key groups; see `Exchange.divided`."""
        mine: ZSet | None = None
        parcels, sent = [_Parcel() for _ in range(self.share.modulus)], list[Path]()
        if rows is not None:
            columns = rows.columns if keys is None else [rows.columns[place] for place in keys]
            targets = residues(key_hashes(columns, len(rows)), self.share.modulus)
            for number in range(self.share.modulus):
                chosen = np.flatnonzero(targets == np.uint64(number))
                if not len(chosen):
                    continue
                if number == self.share.residue:
                    mine = rows.take(chosen)
                else:
                    parcels[number] = self._packed(rows.take(chosen), sent)
        messages = self._swap(_TaskMessage(parcels), sent)
        found = [
            mine if number == self.share.residue else _unpacked(message.parcels[self.share.residue])
            for number, message in enumerate(messages)
        ]
        return concat([each for each in found if each is not None])

    def greatest(self, numbers: Sequence[int]) -> list[int]:
        """Return the greatest of each number over all tasks; see `Exchange.greatest`."""
        messages = self._swap(_TaskMessage(numbers=[int(each) for each in numbers]), [])
        return [max(each) for each in zip(*(message.numbers for message in messages), strict=True)]

    def close(self) -> None:
        """Leave the barrier."""
        self.connection.close()
        self._remove()

    def _swap(self, message: _TaskMessage, sent: list[Path]) -> list[_TaskMessage]:
        try:
            self.connection.send_bytes(msgspec.msgpack.encode(message))
            answer = self.connection.recv_bytes()
        except (OSError, EOFError) as error:
            raise lost(error) from error
        self._remove()  # all tasks have begun this exchange, so they have read the files of the last one
        self._files = sent
        messages: list[_TaskMessage] = _MESSAGES.decode(answer)
        return messages

    def _packed(self, rows: ZSet, sent: list[Path]) -> _Parcel:
        names = [f"c{number}" for number in range(len(rows.columns))]
        batch = pa.RecordBatch.from_arrays([*rows.columns, pa.array(rows.weights)], names=[*names, "weight"])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        packed = sink.getvalue()
        if packed.size <= IN_MESSAGE:
            return _Parcel(packed.to_pybytes())
        file = self.folder / fresh_run(self.token)
        sent.append(file)
        try:
            with writing(file):
                file.write_bytes(packed)
        except OSError as error:
            raise UnavailableError("STORE_FAILED", f"cannot write {file}: {error}") from error
        return _Parcel(file=str(file))

    def _remove(self) -> None:
        removed(self._files)
        self._files = []


def _unpacked(parcel: _Parcel) -> ZSet | None:
    if not parcel.rows and not parcel.file:
        return None
    try:
        packed = parcel.rows or Path(fetched(parcel.file)).read_bytes()
    except OSError as error:
        raise UnavailableError("STORE_FAILED", f"cannot read {parcel.file}: {error}") from error
    (batch,) = pa.ipc.open_stream(packed)
    return ZSet(tuple(batch.columns[:-1]), batch.column("weight").to_numpy())
