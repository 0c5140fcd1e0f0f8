"""Scratch in the store: what a task writes on one machine, tasks of another one read."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from boatlift.errors import DataError, FencedError, InvalidError
from boatlift.paths import scratch_named
from boatlift.storage import object_cache, remote_files
from boatlift.storage.object_cache import DIVIDED
from boatlift.storage.object_store import BucketOptions, ObjectStore
from boatlift.storage.opening import open_store, suited_to
from boatlift.storage.remote_files import fetched, fetched_folder, is_there, removed, writing
from boatlift.testing.fault_proxy import FaultProxy, ProxyFault
from boatlift.testing.object_server import ObjectServer
from support.waiting import until

RUN = f"{7:012}-{5:032x}.arrow"


@pytest.fixture
def store(object_server: ObjectServer, tmp_path: Path) -> ObjectStore:
    made = ObjectStore.open(
        object_server.url(tmp_path.name), tmp_path / "scratch", BucketOptions(uploads_scratch=True), create=True
    )
    made.create("dataflow", b"one")
    return made


def write(path: Path, content: bytes = b"rows") -> Path:
    with writing(path):
        path.write_bytes(content)
    return path


def on_another_machine(path: Path) -> Path:
    """Lose the file, as a machine that never had it."""
    path.unlink()
    return path


@pytest.mark.parametrize("name", [RUN, f"{DIVIDED}1", "given-2", "read-3/4-5-6"])
def test_what_one_machine_writes_another_one_reads(store: ObjectStore, name: str) -> None:
    path = write(store.scratch(7) / name)
    assert on_another_machine(fetched(path)).exists() is False
    assert is_there(path)
    assert fetched(path).read_bytes() == b"rows"
    removed([path])
    until(lambda: not is_there(path))
    with pytest.raises(DataError, match=r"\[MISSING_OBJECT\]"):
        fetched(path)


def test_tasks_of_one_machine_upload_runs_alone(store: ObjectStore, object_server: ObjectServer) -> None:
    here = suited_to(store, "local[2]")
    assert isinstance(here, ObjectStore)
    here.discard_scratch(7)
    divided, run = (write(here.scratch(7) / name) for name in (f"{DIVIDED}1", RUN))
    on_another_machine(run)
    assert fetched(run).read_bytes() == b"rows"
    assert divided.read_bytes() == b"rows"
    on_another_machine(divided)
    assert not is_there(divided)
    cluster = suited_to(store, "spark://driver:7077")  # this machine becomes one of a cluster
    assert is_there(on_another_machine(write(cluster.scratch(8) / f"{DIVIDED}2")))


def test_a_run_has_its_final_name_at_once(store: ObjectStore) -> None:
    path = write(store.scratch(7) / RUN)
    assert list(store.list("runs/")) == [f"runs/{RUN}"]
    store.create(f"runs/{RUN}", path)  # as a checkpoint does
    assert store.read(f"runs/{RUN}") == b"rows"
    assert fetched(str(store.local_path(f"runs/{RUN}"))) == str(path), "the machine that wrote it fetches nothing"
    on_another_machine(path)
    assert fetched(store.local_path(f"runs/{RUN}")).read_bytes() == b"rows"


@pytest.mark.parametrize("uploads", [True, False])
def test_a_run_that_nothing_uploaded_is_not_taken_for_durable(store: ObjectStore, uploads: bool) -> None:
    """The file in scratch is gone, and the path is that of the cache."""
    options = BucketOptions(uploads_scratch=uploads)
    here = ObjectStore.open(store.url, store._root.parent, options, create=True)
    with pytest.raises(DataError, match=r"\[MISSING_OBJECT\]"):
        here.create(f"runs/{RUN}", here.local_path(f"runs/{RUN}"))


def test_a_file_that_was_not_written_is_not_uploaded(store: ObjectStore) -> None:
    with writing(store.scratch(7) / RUN):
        pass
    with suppress(ZeroDivisionError), writing(store.scratch(7) / RUN):
        (store.scratch(7) / RUN).write_bytes(b"ha")
        raise ZeroDivisionError
    assert list(store.list("")) == ["dataflow"]


def test_a_folder_of_another_machine_is_made_and_older_ones_go(store: ObjectStore) -> None:
    older, newer = (store.scratch(owner) for owner in (6, 7))
    (older / "left").write_bytes(b"x")
    newer.rmdir()
    write(newer / RUN)
    assert not older.exists()
    assert (newer / RUN).exists()


def test_a_machine_that_starts_again_believes_no_file_of_its_last_life(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create("runs/1", b"state")
    paths = [write(store.scratch(7) / name) for name in (RUN, f"{DIVIDED}1")]
    paths.append(fetched(store.local_path("runs/1")))
    contents = [path.read_bytes() for path in paths]
    for path in paths:
        path.unlink()
        path.write_bytes(bytes(len(contents[0])))  # torn, of the right size
    assert all(not any(fetched(path).read_bytes()) for path in paths)
    for module in (object_cache, remote_files):
        monkeypatch.setattr(module, "boot_of_computer", lambda: "another start")
    for path in paths:
        os.utime(path, (1, 1))
    remote_files._looked_at.cache_clear()  # as in a new process
    assert [fetched(path).read_bytes() for path in paths] == contents


def test_scratch_that_another_user_may_write_to_is_refused(store: ObjectStore) -> None:
    write(store.scratch(7) / RUN)
    private = store.scratch(7).parents[2]
    shutil.rmtree(store.scratch(7).parents[1])
    private.chmod(0o777)
    with pytest.raises(InvalidError, match=r"\[BAD_OPTION\] scratch cannot be in .*written to by.*store:FOLDER"):
        write(store.local_path("runs/1").parents[2] / "scratch" / "7" / RUN)
    private.chmod(0o700)


def test_a_folder_has_the_files_of_all_machines(store: ObjectStore) -> None:
    folder = store.scratch(7) / "read-1"
    for name in ("0-0-0", "0-1-0"):
        on_another_machine(write(folder / name, name.encode()))
    write(folder / "0-2-0", b"0-2-0")
    assert sorted(each.read_bytes().decode() for each in fetched_folder(folder)) == ["0-0-0", "0-1-0", "0-2-0"]
    assert fetched_folder(store.scratch(7) / "read-2") == []


def test_a_new_owner_discards_what_older_ones_uploaded(store: ObjectStore) -> None:
    for owner in (6, 7, 8):
        write(store.scratch(owner) / "given-1")
    store.discard_scratch(before=8)
    shutil.rmtree(store.scratch(8).parent)
    there = [is_there(store.scratch(owner) / "given-1") for owner in (6, 7, 8)]
    assert there == [False, False, True]


def test_a_file_that_a_newer_owner_discarded_is_not_uploaded(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, upload = store.scratch(7) / RUN, remote_files._upload

    def late(remote: remote_files.RemoteFile, file: Path) -> None:
        file.unlink()
        upload(remote, file)

    monkeypatch.setattr(remote_files, "_upload", late)
    with pytest.raises(FencedError, match=r"\[FENCED\] a newer process has discarded"):
        write(path)


@pytest.fixture
def faults(object_server: ObjectServer, tmp_path: Path) -> Iterator[tuple[ObjectStore, FaultProxy]]:
    with ExitStack() as stack:
        proxy = stack.enter_context(FaultProxy(object_server.port))
        options = BucketOptions(f"http://127.0.0.1:{proxy.port}", uploads_scratch=True)
        yield ObjectStore.open(object_server.url(tmp_path.name), tmp_path / "s", options, create=True), proxy


@pytest.mark.parametrize("fault", [each for each in ProxyFault if each.name in ("REFUSED", "REFUSED_AFTER", "RESET")])
def test_uploads_are_sent_again(faults: tuple[ObjectStore, FaultProxy], fault: ProxyFault) -> None:
    store, proxy = faults
    seen: list[str] = []

    def once(method: str, path: str) -> ProxyFault:
        seen.append(f"{method} {path}")
        return fault if len(seen) == 1 else ProxyFault.NONE

    path = store.scratch(7) / RUN
    proxy.fault = once
    write(path)
    assert len(seen) > 1
    assert store.read(f"runs/{RUN}") == b"rows"


def test_scratch_on_machines_keeps_to_the_bound_of_the_cache(store: ObjectStore) -> None:
    scratch = store.scratch(7)
    object_cache.limit_cache(scratch.parents[1], 2_100_000)
    (scratch / "soft-checkpoints").write_bytes(bytes(3_000_000))
    names = [f"{7:012}-{number:032x}.arrow" for number in range(11)]
    with writing(scratch / names[10]):
        (scratch / names[10]).write_bytes(bytes(500_000))
        os.utime(scratch / names[10], (1, 1))  # the oldest, but it is being written
        paths = [write(scratch / name, bytes(500_000)) for name in names[:10]]
        object_cache.trim_cache(scratch.parents[1], 2_000_000)
        assert 1 <= sum(map(Path.exists, paths)) <= 4
        assert (scratch / names[10]).exists()
    assert is_there(scratch / names[10])
    assert (scratch / "soft-checkpoints").exists()
    assert len(fetched(paths[0]).read_bytes()) == 500_000


def test_what_scratch_may_be(object_server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BOATLIFT_SCRATCH", raising=False)
    assert scratch_named()[1] is None
    assert scratch_named("here") == (Path("here").absolute(), False)
    assert scratch_named("store")[1] is True
    assert scratch_named("store:/mnt/x") == (Path("/mnt/x"), True)
    monkeypatch.setenv("BOATLIFT_SCRATCH", f"store:{tmp_path}")
    assert scratch_named() == (tmp_path, True)
    for named in ("s3://bucket/x", "store:s3://bucket/x"):
        with pytest.raises(InvalidError, match=r"\[BAD_OPTION\] scratch cannot be at s3://bucket/x"):
            scratch_named(named)
    url = object_server.url(tmp_path.name)
    monkeypatch.delenv("BOATLIFT_SCRATCH")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    unnamed = open_store(url, create=True)
    assert suited_to(unnamed, "local[2]") is unnamed
    assert suited_to(unnamed, "spark://host:7077").requests.by_tasks
    named = open_store(url, create=True, scratch=tmp_path / "x")
    assert suited_to(named, "spark://host:7077") is named
    assert not named.requests.by_tasks
