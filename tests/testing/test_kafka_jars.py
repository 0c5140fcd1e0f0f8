"""`make kafka-jars` leaves a whole folder or none, however many run at once and whichever are killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.kafka_jars import ROOT
from support.waiting import until

# Stands for Maven: writes one half, waits for a sign, writes the other.
MAVEN = """#!/bin/sh
for argument in "$@"; do
    case $argument in -DoutputDirectory=*) into=${argument#*=} ;; esac
done
echo called >> calls
mkdir -p "$into"
echo half > "$into/first.jar"
while [ ! -e go-on ]; do sleep 0.02; done
[ ! -e fail ] || exit 1
echo half > "$into/second.jar"
"""

PROVIDE = (
    "import sys, pathlib, scripts.kafka_jars as jars; jars.provide(pathlib.Path('pom.xml'), pathlib.Path('kafka'))"
)


class Workshop:
    """A folder with a pom and a Maven."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pom = folder / "pom.xml"
        self.pom.write_text("one")
        self.tools = folder / "tools"
        self.tools.mkdir()
        (self.tools / "mvn").write_text(MAVEN)
        (self.tools / "mvn").chmod(0o755)

    def start(self) -> subprocess.Popen[str]:
        environment = os.environ | {"PATH": f"{self.tools}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
        return subprocess.Popen(
            [sys.executable, "-c", PROVIDE], cwd=self.folder, env=environment, stderr=subprocess.PIPE, text=True
        )

    def sign(self, name: str) -> None:
        (self.folder / name).touch()

    @property
    def calls(self) -> int:
        path = self.folder / "calls"
        return len(path.read_text().splitlines()) if path.exists() else 0

    @property
    def jars(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "kafka" / "libs").glob("*.jar"))


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, said = process.communicate(timeout=60)
    return process.returncode, said


def wait_for_a_half(workshop: Workshop) -> None:
    until((workshop.folder / "kafka" / "making" / "first.jar").exists)


def test_two_at_once_fetch_once(workshop: Workshop) -> None:
    both = [workshop.start(), workshop.start()]
    wait_for_a_half(workshop)
    assert workshop.jars == []
    workshop.sign("go-on")
    assert [ended(process) for process in both] == [(0, ""), (0, "")]
    assert workshop.calls == 1
    assert workshop.jars == ["first.jar", "second.jar"]


def test_a_killed_fetch_leaves_nothing_that_looks_whole(workshop: Workshop) -> None:
    killed = workshop.start()
    wait_for_a_half(workshop)
    killed.kill()
    killed.wait()
    assert workshop.jars == []

    # Its Maven still writes, and is waited for.
    successor = workshop.start()
    workshop.sign("go-on")
    assert ended(successor) == (0, "")
    assert workshop.calls == 2
    assert workshop.jars == ["first.jar", "second.jar"]
    assert sorted(path.name for path in (workshop.folder / "kafka").iterdir()) == ["libs", "lock"]


def test_another_pom_has_other_jars(workshop: Workshop) -> None:
    workshop.sign("go-on")
    assert ended(workshop.start()) == (0, "")
    (workshop.folder / "kafka" / "libs" / "old.jar").touch()
    workshop.pom.write_text("another")
    assert ended(workshop.start()) == (0, "")
    assert ended(workshop.start()) == (0, "")
    assert workshop.calls == 2
    assert workshop.jars == ["first.jar", "second.jar"]


def test_a_maven_that_fails_is_reported_and_keeps_the_old_jars(workshop: Workshop) -> None:
    workshop.sign("go-on")
    assert ended(workshop.start()) == (0, "")
    workshop.pom.write_text("another")
    workshop.sign("fail")
    code, said = ended(workshop.start())
    assert code == 1
    assert "Maven could not fetch the jars" in said
    assert workshop.jars == ["first.jar", "second.jar"]


def test_a_missing_maven_is_reported_with_the_line_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    from scripts import kafka_jars

    monkeypatch.setattr(kafka_jars, "as_root", lambda: None)
    monkeypatch.setattr("shutil.which", lambda tool: "/usr/bin/apt-get" if tool == "apt-get" else None)
    with pytest.raises(SystemExit, match=r"no mvn\. Type: sudo apt-get install -y maven"):
        kafka_jars.require_maven()
