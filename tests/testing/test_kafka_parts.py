"""The parts of the broker's test kit that need no broker: settings, printed rows, ports, the archive of classes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from boatlift.errors import InvalidError
from boatlift.testing import loopback
from boatlift.testing.kafka_broker import KafkaBroker
from boatlift.testing.kafka_java import ConsoleRow, KafkaJava, as_properties, parse_rows
from boatlift.testing.loopback import ReservedPort


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("plain", "a=b: c#d", "plain=a=b: c#d"),
        ("back", "a\\b", "back=a\\\\b"),
        ("lines", "a\nb\r", "lines=a\\nb\\r"),
        ("first", "  a ", "first=\\  a "),
        ("far", "ü😀", "far=\\u00fc\\ud83d\\ude00"),
        ("a b=c:d", "", "a\\ b\\=c\\:d="),
    ],
)
def test_settings_are_written_as_java_reads_them(name: str, value: str, line: str) -> None:
    assert as_properties({name: value}) == line + "\n"


@pytest.mark.parametrize("users", [{"a b": "x"}, {"": "x"}, {"a": "x\ny"}])
def test_users_that_cannot_be_written_into_settings_are_refused(users: dict[str, str]) -> None:
    with pytest.raises(InvalidError, match="BAD_OPTION"):
        KafkaBroker(users=users)


def test_printed_rows_are_taken_apart() -> None:
    printed = b"Partition:3\x1fNO_HEADERS\x1f\x1c\x1fa\tb\n\x1ePartition:0\x1fa:1:2\x1db:\x1c\x1f\x1f\x1c\x1e"
    assert parse_rows(printed) == [
        ConsoleRow(3, None, b"a\tb\n", ()),
        ConsoleRow(0, b"", None, (("a", b"1:2"), ("b", None))),
    ]
    assert parse_rows(b"") == []


RESERVING = """
import sys
from boatlift.errors import UnavailableError
from boatlift.testing import loopback

loopback._candidates = lambda: range(int(sys.argv[1]), int(sys.argv[1]) + 1)
try:
    loopback.ReservedPort()
except UnavailableError:
    print("taken")
else:
    print("free")
"""


def test_no_other_process_gets_a_reserved_port_until_it_is_released() -> None:
    def seen_by_another(number: int) -> str:
        return subprocess.check_output([sys.executable, "-c", RESERVING, str(number)], text=True).strip()

    with ReservedPort() as port:
        assert port.number in loopback._candidates()
        assert seen_by_another(port.number) == "taken"
    assert seen_by_another(port.number) == "free"


def java_of(folder: Path, *, archives_are_good: bool = True) -> KafkaJava:
    """Stands for a Java that finds archives good or bad."""
    program = shutil.which("true" if archives_are_good else "false")
    assert program is not None
    return KafkaJava(program, [folder / "a.jar", folder / "b.jar"], folder / "kept" / "classes.jsa")


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """The folder where an archive is kept."""
    folder = tmp_path / "kept"
    folder.mkdir()
    return folder


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """An archive that a broker has written."""
    path = tmp_path / "written"
    path.write_bytes(b"classes")
    return path


def test_an_archive_of_classes_is_taken_over_and_used_from_then_on(tmp_path: Path, kept: Path, written: Path) -> None:
    java = java_of(tmp_path)
    assert not any("Archive" in part for part in java.command("Main"))
    assert java.command("Main", write_archive=written)[1] == f"-XX:ArchiveClassesAtExit={written}"

    java.keep_archive(written)

    [archive] = kept.iterdir()
    assert archive.read_bytes() == b"classes"
    assert java.command("Main")[1] == f"-XX:SharedArchiveFile={archive}"
    # Who began without it writes its own all the same: Java refuses to be told both.
    assert not any("SharedArchiveFile" in part for part in java.command("Main", write_archive=written))
    assert java.command("Main", "x")[-4:] == ["-cp", f"{tmp_path}/a.jar:{tmp_path}/b.jar", "Main", "x"]


def test_an_archive_that_was_never_written_is_not_kept(tmp_path: Path, kept: Path) -> None:
    java_of(tmp_path).keep_archive(tmp_path / "never-written")
    assert list(kept.iterdir()) == []


def test_an_archive_that_java_finds_bad_is_not_kept(tmp_path: Path, kept: Path, written: Path) -> None:
    java_of(tmp_path, archives_are_good=False).keep_archive(written)
    assert list(kept.iterdir()) == []


def test_an_archive_that_cannot_be_kept_is_no_error(tmp_path: Path, written: Path) -> None:
    java_of(tmp_path).keep_archive(written)
    assert [path.name for path in tmp_path.iterdir()] == ["written"]
