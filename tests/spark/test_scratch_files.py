"""What goes from scratch, and what stays."""

from __future__ import annotations

from pathlib import Path

from boatlift.spark.jobs.jobs import ScratchFiles


def there(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def files(folder: Path, *names: str) -> ScratchFiles:
    for name in names:
        (folder / name).touch()
    made = ScratchFiles(folder)
    made.made(f"runs/{name}" for name in names)
    return made


def test_what_nobody_names_goes(tmp_path: Path) -> None:
    made = files(tmp_path, "a", "b")
    made.delivered(["runs/a", "runs/b"])
    made.discard({"runs/a"})
    assert there(tmp_path) == {"a"}


def test_what_was_made_since_somebody_looked_stays(tmp_path: Path) -> None:
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
