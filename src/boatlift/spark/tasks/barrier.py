"""The exchange between the tasks of a job that run at once: barrier tasks.

A task sends a message to the driver's relay (`spark/jobs/barrier_relay.py`) and gets the messages of all tasks back.
Few rows travel in the message, many in files of scratch that the message names. A file is removed at the next
exchange, which a task begins only after it has read what was meant for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa

from boatlift.decoders import packed_decoder
from boatlift.errors import UnavailableError
from boatlift.kernels.network.node import ZSet, concat
from boatlift.spark.tasks.relay_connection import RelayAddress, connected, lost
from boatlift.spark.tasks.stage import fresh_run
from boatlift.state.arrangement.arranged import key_hashes
from boatlift.state.key_groups import Share, residues

IN_MESSAGE = 1 << 18
"""More bytes than this for one task go by a file."""


class _Parcel(msgspec.Struct, frozen=True, array_like=True):
    """Rows on their way to one task: as bytes, or in a file."""

    rows: bytes = b""
    file: str = ""


class _Laid(msgspec.Struct, frozen=True, array_like=True):
    """A task's message: a parcel for each task, and numbers."""

    parcels: list[_Parcel] = []
    numbers: list[int] = []


_ALL_LAID = packed_decoder(list[_Laid])


@contextmanager
def joined(address: RelayAddress, share: Share, folder: Path, token: int, attempt: int) -> Iterator[BarrierExchange]:
    """Join a gang for as long as a task runs.

    Args:
        share: The key groups of this task, whose residue is its number.
        attempt: The attempt of this task, as Spark numbers those of all tasks.

    Raises:
        UnavailableError: `[TASK_LOST]` the hub does not answer.
    """
    with connected(address, share.residue, attempt) as connection:
        exchange = BarrierExchange(connection, share, folder, token)
        try:
            yield exchange
        finally:
            exchange.close()


@dataclass(slots=True)
class BarrierExchange:
    """A task's side of a gang.

    Attributes:
        share: The key groups of this task.
    """

    connection: Connection
    share: Share
    folder: Path
    token: int
    _files: list[Path] = field(default_factory=list)

    def divided(self, rows: ZSet | None, keys: tuple[int, ...] | None) -> ZSet | None:
        """Return the rows of all tasks whose keys are of this task's key groups; see `Exchange.divided`."""
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
        messages = self._swap(_Laid(parcels), sent)
        found = [
            mine if number == self.share.residue else _unpacked(message.parcels[self.share.residue])
            for number, message in enumerate(messages)
        ]
        return concat([each for each in found if each is not None])

    def greatest(self, numbers: Sequence[int]) -> list[int]:
        """Return for each of some numbers the greatest that any task has; see `Exchange.greatest`."""
        messages = self._swap(_Laid(numbers=[int(each) for each in numbers]), [])
        return [max(each) for each in zip(*(message.numbers for message in messages), strict=True)]

    def close(self) -> None:
        """Leave the gang."""
        self.connection.close()
        self._remove()

    def _swap(self, message: _Laid, sent: list[Path]) -> list[_Laid]:
        try:
            self.connection.send_bytes(msgspec.msgpack.encode(message))
            answer = self.connection.recv_bytes()
        except (OSError, EOFError) as error:
            raise lost(error) from error
        self._remove()  # all tasks have begun this exchange, and so have read what the last one brought
        self._files = sent
        messages: list[_Laid] = _ALL_LAID.decode(answer)
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
            file.write_bytes(packed)
        except OSError as error:
            raise UnavailableError("STORE_FAILED", f"cannot write {file}: {error}") from error
        return _Parcel(file=str(file))

    def _remove(self) -> None:
        for file in self._files:
            file.unlink(missing_ok=True)
        self._files = []


def _unpacked(parcel: _Parcel) -> ZSet | None:
    if not parcel.rows and not parcel.file:
        return None
    try:
        packed = parcel.rows or Path(parcel.file).read_bytes()
    except OSError as error:
        raise UnavailableError("STORE_FAILED", f"cannot read {parcel.file}: {error}") from error
    (batch,) = pa.ipc.open_stream(packed)
    return ZSet(tuple(batch.columns[:-1]), batch.column("weight").to_numpy())
