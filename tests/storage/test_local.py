"""The store in a folder: the laws of all stores, then what can go wrong on a disk."""

from __future__ import annotations

import errno
import functools
import os
import re
import stat
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from boatlift.errors import DataError, FencedError, InvalidError, UnavailableError
from boatlift.storage.filesystem import FileSystem
from boatlift.storage.local import LocalStore
from storage.conformance import Opener, StoreLaws


class TestLocalStore(StoreLaws):
    @pytest.fixture
    def opener(self, tmp_path: Path) -> Opener:
        return functools.partial(LocalStore.open, tmp_path / "parent" / "store", create=True)


# --- opening ---


def test_a_store_that_is_absent_or_empty_is_made_only_when_asked(tmp_path: Path) -> None:
    for root in (tmp_path / "absent", tmp_path):
        with pytest.raises(InvalidError, match=r"\[STORE_NOT_FOUND\].*" + str(root)):
            LocalStore.open(root, create=False)
    assert list(tmp_path.iterdir()) == []
    LocalStore.open(tmp_path / "a" / "b", create=True).create("x", b"1")
    assert LocalStore.open(tmp_path / "a" / "b", create=False).read("x") == b"1"


@pytest.mark.parametrize("path", ["file", "file/store", "file/of/many", "broken/store"])
def test_a_file_where_a_folder_should_be_is_refused(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    blocking = tmp_path / path.partition("/")[0]
    said = f"[BAD_OPTION] a store cannot be at {tmp_path / path}, because {blocking} is no folder: give another path"
    with pytest.raises(InvalidError, match=re.escape(said)):
        LocalStore.open(tmp_path / path, create=True)
    with pytest.raises(InvalidError, match=r"\[STORE_NOT_FOUND\]"):
        LocalStore.open(tmp_path / path, create=False)
    assert (tmp_path / "file").read_bytes() == b""
    assert not (tmp_path / "nowhere").exists()


def test_a_store_may_be_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there")
    LocalStore.open(tmp_path / "link" / "store", create=True).create("x", b"1")
    assert (tmp_path / "there" / "store" / "x").read_bytes() == b"1"


def test_a_store_opened_by_a_relative_path_stays_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = LocalStore.open(Path("store"), create=True)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    store.create("a", b"1")
    assert (tmp_path / "store" / "a").read_bytes() == b"1"


def test_the_stores_own_folders_are_no_names(tmp_path: Path) -> None:
    store = LocalStore.open(tmp_path, create=True)
    for name in ("tmp/a", "scratch/a", "tmp", "scratch"):
        with pytest.raises(InvalidError, match=r"\[BAD_NAME\]"):
            store.create(name, b"")


def test_an_object_is_never_a_folder_of_another(tmp_path: Path) -> None:
    store = LocalStore.open(tmp_path, create=True)
    store.create("a", b"")
    with pytest.raises(InvalidError, match=r"\[BAD_NAME\]"):
        store.create("a/b", b"")
    store.create("b", b"the store goes on: nothing failed on the disk")


# --- a disk that fails ---


class Failing(FileSystem):
    """A real file system on which the nth call of one act fails with a real error number.

    Attributes:
        calls: The acts so far, in order.
    """

    def __init__(self, act: str, error: int, after: bool = False) -> None:
        self.act, self.error, self.after = act, error, after
        self.calls: list[str] = []
        self.armed = False

    def _around(self, act: str, function: Callable[[], None]) -> None:
        self.calls.append(act)
        due = self.armed and act == self.act
        if due and not self.after:
            raise OSError(self.error, os.strerror(self.error))
        function()
        if due:
            raise OSError(self.error, os.strerror(self.error))

    def write_new(self, path: Path, content: Iterable[bytes]) -> None:
        self._around("write_new", lambda: super(Failing, self).write_new(path, content))

    def sync_file(self, path: Path) -> None:
        self._around("sync_file", lambda: super(Failing, self).sync_file(path))

    def link(self, source: Path, target: Path) -> None:
        self._around("link", lambda: super(Failing, self).link(source, target))

    def sync_folder(self, path: Path) -> None:
        self._around("sync_folder", lambda: super(Failing, self).sync_folder(path))

    def unlink(self, path: Path) -> None:
        self._around("unlink", lambda: super(Failing, self).unlink(path))

    def make_folder(self, path: Path, *, private: bool = False) -> None:
        self._around("make_folder", lambda: super(Failing, self).make_folder(path, private=private))


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EROFS])
@pytest.mark.parametrize("act", ["write_new", "sync_file", "link", "sync_folder", "unlink", "make_folder"])
@pytest.mark.parametrize("after", [False, True])
def test_after_a_failed_act_every_write_is_refused(tmp_path: Path, act: str, error: int, after: bool) -> None:
    files = Failing(act, error, after)
    store = LocalStore.open(tmp_path / "store", create=True, filesystem=files)
    store.create("log/1", b"before")
    run = tmp_path / "run"
    run.write_bytes(b"rows")

    files.armed = True
    name, content = ("log/2", b"x") if act in {"write_new", "unlink"} else ("runs/2", run)
    with pytest.raises(UnavailableError, match=r"\[STORE_FAILED\].*" + os.strerror(error)):
        store.create(name, content)

    files.armed = False  # the disk is well again: the store must not believe it
    calls = len(files.calls)
    for write in (
        lambda: store.create("log/3", b"later"),
        lambda: store.create("runs/3", run),
        lambda: store.delete("log/1"),
        lambda: store.discard_scratch(1),
        lambda: store.scratch(1),
    ):
        with pytest.raises(UnavailableError, match=r"\[STORE_FAILED\].*takes no more writes.*" + os.strerror(error)):
            write()
    assert files.calls[calls:] == [], "not one more act on the disk"
    assert store.read("log/1") == b"before", "reading goes on"

    again = LocalStore.open(tmp_path / "store", create=False)
    assert again.read("log/1") == b"before"
    assert [again.read(name) for name in again.list("runs/")] in ([], [b"rows"]), "whole or not at all"
    again.create("log/3", b"later")


def test_a_failed_delete_is_reported(tmp_path: Path) -> None:
    files = Failing("unlink", errno.EIO)
    store = LocalStore.open(tmp_path, create=True, filesystem=files)
    store.create("a", b"")
    files.armed = True
    with pytest.raises(UnavailableError, match=r"\[STORE_FAILED\] deleting a "):
        store.delete("a")


def test_a_folder_sync_that_failed_on_one_thread_is_not_acknowledged_on_another(tmp_path: Path) -> None:
    """The system tells a failed sync once; who syncs the same folder afterwards is told that all is well."""
    first_fails, second_waits = threading.Event(), threading.Event()

    class TellsOnce(FileSystem):
        def sync_folder(self, path: Path) -> None:
            if path.name == "log" and not first_fails.is_set():
                first_fails.set()
                second_waits.wait(timeout=30)
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            super().sync_folder(path)

        def link(self, source: Path, target: Path) -> None:
            super().link(source, target)
            if target.name == "2":
                second_waits.set()

    LocalStore.open(tmp_path, create=True).create("log/0", b"")
    store = LocalStore.open(tmp_path, create=True, filesystem=TellsOnce())
    errors: dict[str, BaseException] = {}

    def create(name: str) -> None:
        try:
            store.create(name, b"")
        except UnavailableError as error:
            errors[name] = error

    one = threading.Thread(target=create, args=("log/1",))
    one.start()
    assert first_fails.wait(timeout=30)
    two = threading.Thread(target=create, args=("log/2",))
    two.start()
    one.join()
    two.join()
    assert set(errors) == {"log/1", "log/2"}


class FullDisk(FileSystem):
    """Writes where the system itself says that no space is left."""

    def write_new(self, path: Path, content: Iterable[bytes]) -> None:
        path.symlink_to("/dev/full")
        with path.open("wb", buffering=0) as file:
            for part in content:
                file.write(part)


def test_a_full_disk_is_reported_in_the_words_of_the_system(tmp_path: Path) -> None:
    store = LocalStore.open(tmp_path, create=True, filesystem=FullDisk())
    with pytest.raises(UnavailableError, match=r"\[STORE_FAILED\].*No space left on device"):
        store.create("log/1", b"x" * 100)
    assert list(store.list("")) == []
    assert list((tmp_path / "tmp").iterdir()) == [], "a full disk gets the space back"


def test_a_file_cut_short_by_a_limit_of_the_system_is_no_object(tmp_path: Path) -> None:
    """The kernel writes the first 100 kB of the object, then refuses: a torn write that is real."""
    program = f"""
        import resource
        from pathlib import Path
        from boatlift.errors import UnavailableError
        from boatlift.storage.local import LocalStore
        store = LocalStore.open(Path({str(tmp_path)!r}), create=True)
        store.create("log/1", b"small")
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        try:
            store.create("log/2", b"x" * 1_000_000)
        except UnavailableError as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True)
    assert "[STORE_FAILED]" in done.stdout
    assert "File too large" in done.stdout
    store = LocalStore.open(tmp_path, create=False)
    assert list(store.list("")) == ["log/1"]
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_failed_read_is_reported_and_does_not_stop_the_store(tmp_path: Path) -> None:
    class BadSector(FileSystem):
        def read(self, path: Path, start: int, length: int | None) -> bytes:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    store = LocalStore.open(tmp_path, create=True, filesystem=BadSector())
    store.create("a", b"1")
    with pytest.raises(UnavailableError, match=r"\[STORE_FAILED\] a in .* could not be read"):
        store.read("a")
    store.create("b", b"1")


def test_a_file_on_another_disk_is_copied(tmp_path: Path) -> None:
    class OtherDisk(FileSystem):
        """Links as the system does between two file systems: not at all, unless from the store's own."""

        def link(self, source: Path, target: Path) -> None:
            if source == elsewhere:
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(source), None, str(target))
            super().link(source, target)

    elsewhere = tmp_path / "run"
    elsewhere.write_bytes(os.urandom(20_000_000))
    store = LocalStore.open(tmp_path / "store", create=True, filesystem=OtherDisk())
    store.create("runs/1", elsewhere)
    assert store.read("runs/1") == elsewhere.read_bytes()
    with pytest.raises(FencedError, match=r"\[OBJECT_EXISTS\]"):
        store.create("runs/1", elsewhere)
    assert list((tmp_path / "store" / "tmp").iterdir()) == []


# --- an owner that was paused ---


class Paused(FileSystem):
    """Stops just before an act until a newer owner has done its first acts."""

    def __init__(self, act: str, meanwhile: Callable[[], None]) -> None:
        self.act, self.meanwhile = act, meanwhile

    def _pause(self, act: str) -> None:
        if act == self.act:
            self.act = ""
            self.meanwhile()

    def link(self, source: Path, target: Path) -> None:
        self._pause("link")
        super().link(source, target)
        self._pause("linked")

    def sync_file(self, path: Path) -> None:
        self._pause("sync_file")
        super().sync_file(path)


def test_a_paused_owner_whose_files_were_discarded_is_fenced(tmp_path: Path) -> None:
    def newer() -> None:
        store = LocalStore.open(tmp_path, create=True)
        store.create("log/2", b"newer")
        store.discard_scratch(before=2)

    old = LocalStore.open(tmp_path, create=True, filesystem=Paused("link", newer))
    with pytest.raises(FencedError, match=r"\[OBJECT_EXISTS\] log/2"):
        old.create("log/2", b"older")
    assert old.read("log/2") == b"newer"


def test_a_paused_owner_that_loses_its_scratch_is_fenced(tmp_path: Path) -> None:
    def newer() -> None:
        LocalStore.open(tmp_path, create=True).discard_scratch(before=2)

    for act in ("sync_file", "link"):
        old = LocalStore.open(tmp_path, create=True, filesystem=Paused(act, newer))
        file = old.scratch(1) / "run"
        file.write_bytes(b"rows")
        with pytest.raises(FencedError, match=r"\[FENCED\]"):
            old.create("runs/1", file)


def test_a_temporary_file_that_another_process_tidied_away_is_written_again(tmp_path: Path) -> None:
    def other() -> None:
        LocalStore.open(tmp_path, create=True).discard_scratch(before=1)

    store = LocalStore.open(tmp_path, create=True, filesystem=Paused("link", other))
    store.create("log/3", b"newest")
    assert store.read("log/3") == b"newest"


def test_only_what_older_owners_left_is_discarded(tmp_path: Path) -> None:
    store = LocalStore.open(tmp_path, create=True)
    for owner in (3, 12, 20):
        (store.scratch(owner) / "run").write_bytes(b"rows")
    foreign = [tmp_path / "scratch" / "thesis" / "draft", tmp_path / "tmp" / "my notes.txt"]
    for path in foreign:
        path.parent.mkdir(exist_ok=True)
        path.write_text("of the user")
    store.discard_scratch(before=12)
    left = sorted(path.name for path in (tmp_path / "scratch").iterdir())
    assert left == ["12", "20", "thesis"]
    assert all(path.exists() for path in foreign)


def test_a_discarded_temporary_file_of_an_object_that_is_there_is_no_matter(tmp_path: Path) -> None:
    def newer() -> None:
        LocalStore.open(tmp_path, create=True).discard_scratch(before=2)

    old = LocalStore.open(tmp_path, create=True, filesystem=Paused("linked", newer))
    old.create("log/1", b"older")
    assert old.read("log/1") == b"older"


def test_a_file_that_never_was_is_no_fence(tmp_path: Path) -> None:
    store = LocalStore.open(tmp_path, create=True)
    with pytest.raises(UnavailableError, match=r"\[STORE_FAILED\].*No such file"):
        store.create("runs/1", store.scratch(1) / "forgotten")


def test_a_store_that_was_deleted_under_its_owner_is_no_fence(tmp_path: Path) -> None:
    store = LocalStore.open(tmp_path / "store", create=True)
    store.create("log/1", b"")
    (tmp_path / "store" / "log" / "1").unlink()
    (tmp_path / "store" / "log").rmdir()
    with pytest.raises(UnavailableError, match=r"\[STORE_FAILED\]"):
        store.create("log/2", b"")
    with pytest.raises(DataError, match=r"\[MISSING_OBJECT\]"):
        store.read("log/1")


@pytest.mark.parametrize(
    "ask", [lambda s: s.size("runs/a"), lambda s: list(s.list("runs/")), lambda s: s.read("runs/a")]
)
def test_what_cannot_be_read_is_said_with_its_condition(tmp_path: Path, ask: Callable[[LocalStore], object]) -> None:
    store = LocalStore.open(tmp_path / "store", create=True)
    (store.root / "runs").symlink_to("runs")  # a loop: no such thing can be opened, whoever asks
    with pytest.raises(UnavailableError, match=r"STORE_FAILED.*symbolic links"):
        ask(store)


def test_a_store_is_its_users_alone_unless_its_folder_was_there(tmp_path: Path) -> None:
    umask = os.umask(0o022)
    try:
        made = LocalStore.open(tmp_path / "above" / "made", create=True)
        (tmp_path / "shared").mkdir(0o755)
        shared = LocalStore.open(tmp_path / "shared", create=True)
    finally:
        os.umask(umask)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (made.root, made.root.parent, shared.root)]
    assert modes == [0o700, 0o755, 0o755]
