"""Compressed files of text: which ones Spark reads, and how the driver reads them.

Spark chooses the codec by the file's name. `.gz`, `.bz2` and `.zst` files are the same for every tool. Other names are
refused: Hadoop has its own formats `.lz4` and `.snappy`, and reading common files as these can exhaust the memory of an
executor.
"""

from __future__ import annotations

import bz2
import codecs
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from boatlift.connectors.kit.object_place import InputFile
from boatlift.errors import DataError, InvalidError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_READ = (".gz", ".bz2", ".zst")
_REFUSED = (".7z", ".br", ".deflate", ".lz4", ".lzo", ".snappy", ".xz", ".z", ".zip")
_CHUNK = 1 << 20
_GZIP = 16 + zlib.MAX_WBITS  # zlib then expects the header and the trailer of gzip

DAMAGE = (OSError, EOFError, zlib.error)
"""The errors of bytes that cannot be decompressed."""


def is_compressed(path: InputFile) -> bool:
    """Return whether a file's name says that it is compressed in a way that is read."""
    return path.suffix in _READ


def length_of_bom(path: InputFile) -> int:
    """Return the length of the byte order mark of a file of UTF-8; 0 if it has none."""
    with path.open("rb") as file:
        return len(codecs.BOM_UTF8) if file.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8 else 0


def refuse_unreadable(path: InputFile) -> None:
    """Raise if a file's name says that it is compressed in a way that is not read."""
    suffix = path.suffix
    if suffix.lower() in _REFUSED or (suffix.lower() in _READ and suffix not in _READ):
        raise InvalidError("BAD_NAME", f"file {path} ends in {suffix}: compress it as .gz, .bz2 or .zst, or not at all")


class _Members(io.RawIOBase):
    """The decompressed bytes of a gzip file. Zeros behind the last member are an error, as in Spark."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._rest = b""
        self._member: zlib._Decompress | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        into = memoryview(buffer)
        while True:
            rest = self._rest or self._file.read(_CHUNK)
            if self._member is None or self._member.eof:
                if not rest:
                    return 0
                self._member = zlib.decompressobj(_GZIP)
            elif not rest:
                raise EOFError("the file ends within a member of gzip")
            made = self._member.decompress(rest, len(into))
            self._rest = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
            if made:
                into[: len(made)] = made
                return len(made)


@contextmanager
def opened(path: InputFile) -> Iterator[IO[bytes]]:
    """Open a file for its decompressed bytes; reading raises `DAMAGE` if they cannot be decompressed."""
    if path.suffix == ".gz":
        with path.open("rb") as file:
            yield io.BufferedReader(_Members(file), _CHUNK)
    elif path.suffix == ".bz2":
        with path.open("rb") as packed, bz2.open(packed) as file:
            yield io.BufferedReader(file)
    elif path.suffix == ".zst":
        import pyarrow as pa

        with path.open("rb") as packed, pa.input_stream(packed, compression="zstd") as stream:
            yield io.BufferedReader(stream)
    else:
        with path.open("rb") as file:
            yield file


def exceeds(path: InputFile, most: int) -> bool:
    """Return whether a file has more than `most` bytes after decompression; no more than that is read."""
    if not is_compressed(path):
        return path.stat().st_size > most
    size = 0
    try:
        with opened(path) as file:
            while size <= most and (chunk := file.read(_CHUNK)):
                size += len(chunk)
    except DAMAGE as error:
        if (damage := damage_of(path)) is not None:
            raise DataError("BAD_ROW", damage) from error
        raise
    return size > most


def damage_of(path: InputFile) -> str | None:
    """Return, in words, why a file cannot be decompressed to its end; None if it can, or is not compressed."""
    if not is_compressed(path):
        return None
    try:
        with opened(path) as file:
            while file.read(_CHUNK):
                pass
    except DAMAGE as error:
        if isinstance(error, OSError) and error.errno is not None:  # the file itself cannot be read
            raise
        return f"{path} cannot be decompressed ({error}); put a whole file in its place"
    return None
