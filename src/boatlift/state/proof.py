"""The bytes of a mapped run, each block proved when this process first reads it."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from boatlift.errors import RESTORE, DataError
from boatlift.state.column import Ints
from boatlift.state.group import ranges
from boatlift.storage.blocks import BLOCK_BYTES, BlockTable
from boatlift.storage.remote_files import opened_sparse, refetched

_SHIFT = BLOCK_BYTES.bit_length() - 1
_madvise = ctypes.CDLL(None).madvise
_madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_WILL_NEED = 3

_ARROW = b"ARROW1\0\0"
_PREFIX = struct.Struct("<Ii")
"""The beginning of a message in an Arrow file: a marker, and the length of the head that follows."""

_NEARLY_ALL = 16
"""An array with at most one unproved block in this many is proved completely, so that it needs no further checks."""

_MANY = 4
"""An array is proved completely if at least this many times its blocks are requested at once."""


class Proof:
    """The proved and unproved blocks of a run. Threads may share it: at worst a block is proved twice.

    The table has the checksums of the blocks, and is proved already.
    """

    def __init__(self, name: str, whole: pa.Buffer, table: BlockTable, covered: int) -> None:
        if len(table) != -(-covered // BLOCK_BYTES):
            raise ValueError("the table of checksums is not of so many blocks")
        self.covered = covered
        self._name, self._table, self._size = name, table, whole.size
        self._sparse = opened_sparse(name)
        self._address = whole.address
        self._blocks = memoryview(whole).cast("B")[:covered]
        self._pending = np.ones(len(table), np.bool_)

    def place(self, buffer: pa.Buffer) -> int:
        """Return the begin of a buffer in the file.

        Raises:
            ValueError: it is not within the blocks.
        """
        begin: int = buffer.address - self._address
        if begin < 0 or begin + buffer.size > self.covered:
            raise ValueError("a column is not where rows are")
        return begin

    def prove(self, begins: Ints, ends: Ints) -> bool:
        """Prove ranges of bytes; return whether a block was unproved.

        Raises:
            DataError: `[CORRUPT]` a block is damaged.
        """
        first, last = begins >> _SHIFT, (ends - 1) >> _SHIFT
        numbers = first if np.array_equal(first, last) else ranges(first, np.maximum(last + 1, first))
        pending = numbers[self._pending[numbers]]
        if not len(pending):
            return False
        wanted = np.unique(pending)
        self._read_ahead(wanted)
        damaged = [number for number in wanted.tolist() if not self._is_proved(number)]
        if damaged:
            starts = [number << _SHIFT for number in damaged]
            if refetched(self._name, [(start, start + BLOCK_BYTES) for start in starts], self._size, self._sparse):
                damaged = [number for number in damaged if not self._is_proved(number)]
            if damaged:
                start = damaged[0] << _SHIFT
                raise DataError(
                    "CORRUPT",
                    f"the run {self._name} is damaged: bytes {start} to {min(start + BLOCK_BYTES, self.covered) - 1} "
                    f"have another checksum than its table records: {RESTORE}",
                )
        self._pending[wanted] = False
        return True

    def _is_proved(self, number: int) -> bool:
        start = number << _SHIFT
        return self._table.proves(number, self._blocks[start : start + BLOCK_BYTES])

    def _read_ahead(self, numbers: Ints) -> None:
        """Let the system read some ascending blocks ahead; otherwise each would wait for the disk.

        Without this hint the system also reads many blocks around each.
        """
        ends = np.flatnonzero(np.diff(numbers) > 1)
        firsts, lasts = numbers[[0, *(ends + 1)]].tolist(), numbers[[*ends, -1]].tolist()
        for first, last in zip(firsts, lasts, strict=True):
            start, length = self._address + (first << _SHIFT), (last + 1 - first) << _SHIFT
            _madvise(start, length, _WILL_NEED)  # a failure costs only time

    def prove_heads(self, starts: Iterable[int]) -> None:
        """Prove the heads of record batches, which locate their columns, and Arrow's schema before the first.

        Args:
            starts: The begins of the record batches; the schema belongs to the first.

        Raises:
            DataError: `[CORRUPT]` a head is damaged.
        """
        for start in starts:
            end = start
            for before in (len(_ARROW), 0) if start == 0 else (0,):
                end += before
                self.prove(np.array([start]), np.array([end + _PREFIX.size]))
                _, length = _PREFIX.unpack_from(self._blocks, end)
                end += _PREFIX.size + length
            self.prove(np.array([start]), np.array([end]))

    def pending(self, begin: int, end: int) -> tuple[int, int]:
        """Return the number of unproved blocks in a range of bytes, and of all its blocks."""
        blocks = self._pending[begin >> _SHIFT : ((end - 1) >> _SHIFT) + 1]
        return int(np.count_nonzero(blocks)), len(blocks)


class MappedArray:
    """An Arrow array in a run's file, whose rows are proved before they are read: a damaged one raises `[CORRUPT]`.

    A nested array is proved completely when any row is read.

    Raises:
        ValueError: a buffer of the array is not within the run's blocks.
    """

    def __init__(self, proof: Proof, array: pa.Array) -> None:
        if array.offset:
            raise ValueError("a column does not begin where its buffers do")
        self._proof, self._rows = proof, len(array)
        buffers = array.buffers()
        stretches = [(proof.place(each), int(each.size)) for each in buffers if each is not None and each.size]
        self._stretches = [(begin, begin + size) for begin, size in stretches]
        self._fixed: list[tuple[int, int]] = []  # the first bit, and the bits per row
        self._text: tuple[npt.NDArray[np.signedinteger], int] | None = None
        self._blocks = sum(end - begin for begin, end in self._stretches) // BLOCK_BYTES
        kind = array.type
        is_long = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
        is_text = is_long or pa.types.is_string(kind) or pa.types.is_binary(kind)
        self._nested = not is_text and (kind.num_fields > 0 or len(buffers) > 2)
        self.is_proved = not self._stretches
        if self.is_proved or self._nested:
            return
        if buffers[0] is not None:
            self._fixed.append((proof.place(buffers[0]) * 8, 1))
        if is_text:
            word = np.dtype(np.int64 if is_long else np.int32)
            self._fixed.append((proof.place(buffers[1]) * 8, word.itemsize * 8))
            data = 0 if buffers[2] is None or not buffers[2].size else proof.place(buffers[2])
            self._text = np.frombuffer(buffers[1], word)[: self._rows + 1], data
        elif buffers[1] is not None:
            self._fixed.append((proof.place(buffers[1]) * 8, kind.bit_width))

    def prove_at(self, places: Ints) -> None:
        if not self.is_proved:
            self.prove(places, places + 1)

    def prove(self, first: Ints, last: Ints) -> None:
        """Prove ranges of rows: first[i] to last[i], which is exclusive."""
        if self.is_proved or not len(first):
            return
        if self._nested or len(first) >= _MANY * (self._blocks + 1):
            self.prove_all()
            return
        behind = 0 if self._text is None else 1  # a text extends from its own offset to the next
        anew = False
        for begin, bits in self._fixed:
            anew |= self._proof.prove((begin + first * bits) >> 3, (begin + (last + behind) * bits + 7) >> 3)
        if self._text is not None:
            offsets, data = self._text
            begins, ends = offsets[first].astype(np.int64), offsets[last].astype(np.int64)
            filled = begins < ends
            anew |= self._proof.prove(data + begins[filled], data + ends[filled])
        if anew:
            counts = [self._proof.pending(begin, end) for begin, end in self._stretches]
            if sum(left for left, _ in counts) * _NEARLY_ALL <= sum(blocks for _, blocks in counts):
                self.prove_all()

    def prove_all(self) -> None:
        if not self.is_proved:
            begins, ends = zip(*self._stretches, strict=True)
            self._proof.prove(np.array(begins, np.int64), np.array(ends, np.int64))
            self.is_proved = True
