"""What goes from scratch, and what stays."""

from __future__ import annotations

from pathlib import Path

from boatlift.spark.jobs.jobs import ScratchFiles
from boatlift.storage.object_store import BucketOptions, ObjectStore
from boatlift.storage.remote_files import writing
from boatlift.testing.object_server import ObjectServer
from support.waiting import until


def there(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def files(folder: Path, *names: str) -> ScratchFiles:
    for name in names:
        (folder / name).touch()
    made = ScratchFiles(folder)
    made.made(f"runs/{name}" for name in names)
    return made


def test_objects_without_a_name_are_deleted(tmp_path: Path) -> None:
    made = files(tmp_path, "a", "b")
    made.delivered(["runs/a", "runs/b"])
    made.discard({"runs/a"})
    assert there(tmp_path) == {"a"}


def test_objects_made_since_the_listing_stay(tmp_path: Path) -> None:
    """A job may end between the question of what is needed and the answer's use."""
    made = files(tmp_path, "a", "b")
    made.delivered(["runs/a"])
    assert made.fresh == {"runs/b"}
    made.discard(set())
    assert there(tmp_path) == {"b"}
    made.delivered(["runs/b"])
    made.discard(set())
    assert not there(tmp_path)


def test_files_that_it_did_not_make_are_none_of_its_business(tmp_path: Path) -> None:
    (tmp_path / "receipts").touch()
    files(tmp_path, "a").discard(set())
    assert there(tmp_path) == {"a", "receipts"}


def test_objects_of_runs_that_a_checkpoint_names_are_the_stores_to_delete(
    tmp_path: Path, object_server: ObjectServer
) -> None:
    """Tasks have uploaded all three: of one no checkpoint was made, one was kept, and one was adopted."""
    options = BucketOptions(uploads_scratch=True)
    store = ObjectStore.open(object_server.url(tmp_path.name), tmp_path, options, create=True)
    store.create("dataflow", b"one")
    folder = store.scratch(7)
    dropped, kept, adopted = names = [f"{7:012}-{number:032x}.arrow" for number in range(3)]
    for name in names:
        with writing(folder / name):
            (folder / name).write_bytes(b"rows")
    made = ScratchFiles(folder, [f"runs/{adopted}"])
    made.made([f"runs/{dropped}", f"runs/{kept}"])
    made.delivered([f"runs/{dropped}", f"runs/{kept}"])
    made.kept([f"runs/{kept}"])
    made.discard(set())
    until(lambda: list(store.list("runs/")) == [f"runs/{kept}", f"runs/{adopted}"])
    assert not any((folder / name).exists() for name in names)
