"""Runs whose files this machine does not have, or not whole: a read fetches the blocks that it needs."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

from boatlift.errors import DataError, UnavailableError
from boatlift.kernels.aggregate import AggregateColumn, AggregateKernel, Layout
from boatlift.kernels.aggregate.partials import PartialsCodec
from boatlift.state.opened import OpenRun, forget_runs, open_run, prove_run
from boatlift.storage import object_cache, remote_files
from boatlift.storage.object_store import BucketOptions, ObjectStore
from boatlift.storage.records.records import RunRef
from boatlift.testing.fault_proxy import FaultProxy, ProxyFault
from boatlift.testing.object_server import ObjectServer
from support.rows.keyed_state import record_batch, run_of, spread_hash, take_step

pytestmark = pytest.mark.objects

I64 = pa.int64()
LAYOUT = Layout((("k", I64),), (AggregateColumn("sum", "x", "s", I64, I64),))
CODEC = PartialsCodec(LAYOUT)
KEYS = 200_000


@dataclass
class Remote:
    """A run in a bucket, and a machine that has not got it.

    Attributes:
        fetched: The requests for the run's bytes.
        fault: What becomes of the next ones.
    """

    run: RunRef
    content: bytes
    store: ObjectStore
    fetched: list[str] = field(default_factory=list)
    fault: ProxyFault = ProxyFault.NONE

    @property
    def path(self) -> Path:
        return self.store.local_path(self.run.name)

    @property
    def sparse(self) -> Path:
        return self.path.with_name(f"{self.path.name}.part")

    def open(self) -> OpenRun[object]:
        return open_run(self.path, self.run, codec=CODEC)


@pytest.fixture
def remote(object_server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Remote]:
    monkeypatch.setattr(remote_files, "WHOLE", 1 << 20)
    monkeypatch.setattr(remote_files, "_STRETCH", 1 << 16)
    forget_runs()
    rows = [{"k": key, "x": key} for key in range(KEYS)]
    made = run_of(
        take_step(
            AggregateKernel(LAYOUT, "sums"), [record_batch(LAYOUT, rows, spread_hash)], [], tmp_path / "run", time=5
        )
    )
    content = Path(made.name).read_bytes()
    assert len(content) > 4 << 20
    url = object_server.url(tmp_path.name)
    writer = ObjectStore.open(url, tmp_path / "writer", create=True)
    writer.create("runs/1", Path(made.name))
    with ExitStack() as stack:
        proxy = stack.enter_context(FaultProxy(object_server.port))
        reader = ObjectStore.open(
            url, tmp_path / "reader", BucketOptions(f"http://127.0.0.1:{proxy.port}"), create=False
        )
        remote = Remote(RunRef("runs/1", 5, 5, 1, 0, KEYS, made.size, made.digest, tail=made.tail), content, reader)

        def asked(method: str, path: str) -> ProxyFault:
            if method == "GET" and path.endswith("runs/1"):
                remote.fetched.append(path)
                return remote.fault
            return ProxyFault.NONE

        proxy.fault = asked
        yield remote


def bytes_there(path: Path) -> int:
    return path.stat().st_blocks * 512


def read(opened: OpenRun[object], count: int) -> int:
    """Read some rows of the first segment, and return how many there are."""
    segment = opened.segments[0]
    return len(segment.cut(CODEC, 0, count))


def test_a_large_run_is_fetched_as_far_as_it_is_read(remote: Remote) -> None:
    opened = remote.open()
    assert bytes_there(remote.sparse) < len(remote.content) // 3, "the tail and the heads"
    before = len(remote.fetched)
    assert read(opened, 100) == 100
    assert len(remote.fetched) > before
    assert bytes_there(remote.sparse) < len(remote.content) // 2
    again = len(remote.fetched)
    assert read(opened, 100) == 100
    assert len(remote.fetched) == again, "what is there is not fetched again"
    prove_run(remote.path, remote.run)
    assert remote.sparse.read_bytes() == remote.content
    assert not remote.path.exists()


def test_a_small_run_is_fetched_whole(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_files, "WHOLE", len(remote.content))
    remote.open()
    assert remote.path.read_bytes() == remote.content
    assert not remote.sparse.exists()


def _read_whole(path: Path, run: RunRef) -> None:
    prove_run(path, run)


def test_processes_share_what_they_have_fetched(remote: Remote) -> None:
    spawn = multiprocessing.get_context("spawn")
    others = [spawn.Process(target=_read_whole, args=(remote.path, remote.run)) for _ in range(2)]
    for each in others:
        each.start()
    for each in others:
        each.join(60)
    assert [each.exitcode for each in others] == [0, 0]
    count = len(remote.fetched)
    prove_run(remote.path, remote.run)
    assert len(remote.fetched) == count


@pytest.mark.parametrize("place", [0.2, 0.5, 0.999])
@pytest.mark.parametrize("whole", [False, True])
def test_a_damaged_file_of_the_cache_is_mended(
    remote: Remote, monkeypatch: pytest.MonkeyPatch, place: float, whole: bool
) -> None:
    if whole:
        monkeypatch.setattr(remote_files, "WHOLE", len(remote.content))
    prove_run(remote.path, remote.run)
    file = remote.path if whole else remote.sparse
    with file.open("r+b") as damaged:
        damaged.seek(int(place * len(remote.content)))
        damaged.write(bytes(range(1, 101)))
    forget_runs()
    prove_run(remote.path, remote.run)
    assert file.read_bytes() == remote.content


@pytest.mark.parametrize("size", [0, 1000])
@pytest.mark.parametrize("whole", [False, True])
def test_a_file_of_the_cache_that_was_cut_is_fetched_again(
    remote: Remote, monkeypatch: pytest.MonkeyPatch, size: int, whole: bool
) -> None:
    if whole:
        monkeypatch.setattr(remote_files, "WHOLE", len(remote.content))
    prove_run(remote.path, remote.run)
    os.truncate(remote.path if whole else remote.sparse, size)
    forget_runs()
    assert read(remote.open(), 10) == 10
    prove_run(remote.path, remote.run)


def test_an_object_that_is_damaged_is_refused(remote: Remote, tmp_path: Path) -> None:
    half = len(remote.content) // 2
    remote.store.delete("runs/1")
    remote.store.create("runs/1", remote.content[:half] + b"x" * 100 + remote.content[half + 100 :])
    remote.store.forget("runs/1")
    with pytest.raises(DataError, match=r"\[CORRUPT\].*is damaged: bytes \d+"):
        prove_run(remote.path, remote.run)
    assert tmp_path.exists()


def test_an_object_that_is_gone_is_refused(remote: Remote) -> None:
    remote.store.delete("runs/1")
    with pytest.raises(DataError, match=r"\[MISSING_OBJECT\] runs/1 is not in s3://"):
        remote.open()


def test_a_run_that_left_the_cache_while_it_is_open_is_read_on(remote: Remote) -> None:
    opened = remote.open()
    remote.store.forget("runs/1")
    segment = opened.segments[0]
    assert len(segment.cut(CODEC, 0, len(segment))) == len(segment)
    assert not remote.sparse.exists()
    forget_runs()
    prove_run(remote.path, remote.run)


@pytest.mark.parametrize("fault", [ProxyFault.REFUSED, ProxyFault.RESET_AFTER, ProxyFault.TORN])
def test_blocks_are_asked_for_again(remote: Remote, fault: ProxyFault) -> None:
    opened = remote.open()
    remote.fault = fault
    count = len(remote.fetched)

    def answered(path: str) -> None:
        remote.fault = ProxyFault.NONE

    class Once(list[str]):
        def append(self, path: str) -> None:
            super().append(path)
            if len(self) > count + 1:
                answered(path)

    remote.fetched = Once(remote.fetched)
    segment = opened.segments[0]
    assert len(segment.cut(CODEC, 0, len(segment))) == len(segment)
    assert len(remote.fetched) > count + 1


def test_a_full_disk_is_reported(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = remote.open()

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(os, "pwrite", full)
        with pytest.raises(UnavailableError, match=r"\[STORE_FAILED\] fetching runs/1.*No space left.*--scratch"):
            read(opened, KEYS)
    segment = opened.segments[0]
    assert len(segment.cut(CODEC, 0, len(segment))) == len(segment)


def test_the_cache_keeps_to_its_bound(remote: Remote) -> None:
    folder = remote.path.parents[2]
    object_cache.limit_cache(folder, 3_000_000)
    names = [f"runs/{number}" for number in range(2, 12)]
    for name in names:
        remote.store.create(name, os.urandom(1_000_000))
    kept = [name for name in names if remote.store.local_path(name).exists()]
    assert kept == names[-len(kept) :]
    assert 1 <= len(kept) <= 3
    for name in names:
        assert len(remote_files.fetched(remote.store.local_path(name)).read_bytes()) == 1_000_000
    there = sum(each.stat().st_blocks * 512 for each in (folder / "cache").rglob("*") if each.is_file())
    assert there <= 3_500_000


def test_a_path_of_no_object_is_left_alone(tmp_path: Path) -> None:
    assert remote_files.remote_of(tmp_path / "runs" / "1") is None
    assert remote_files.fetched(tmp_path / "x") == tmp_path / "x"
    assert not remote_files.is_there(tmp_path / "x")


def test_is_there_asks_the_store(remote: Remote) -> None:
    assert remote_files.is_there(remote.path)
    assert not remote.path.exists()
    assert not remote_files.is_there(remote.path.with_name("2"))
