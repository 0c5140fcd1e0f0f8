"""How programs of Kafka's jars are started: which jars, which Java, and an archive of loaded classes that saves seconds."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

import xxhash

from boatlift.errors import UnavailableError
from boatlift.spark.session.java import check_java

__all__ = ["KafkaJava"]

_ENVIRONMENT = "BOATLIFT_KAFKA_JARS"
_DEFAULT_FOLDER = Path(".kafka/libs")


class KafkaJava:
    """Kafka's jars with a Java to run them.

    Loading a broker's classes takes longer than anything else of its start. Java can keep them in an archive, which it
    writes when a process ends that was asked to, and ignores when it comes from another Java or from other jars.

    Args:
        java: The program.
        jars: All jars, in the order of the class path: an archive is good for that order only.
        archive: Where loaded classes are kept.
    """

    def __init__(self, java: str, jars: Sequence[Path], archive: Path) -> None:
        self._java = java
        self._jars = jars
        self._archive = archive

    @classmethod
    def find(cls, folder: Path | str | None = None) -> Self:
        """Finds the jars: in `folder`, else where BOATLIFT_KAFKA_JARS points, else in .kafka/libs of the current folder.

        Raises:
            InvalidError: `[NO_JAVA]` there is no Java that could run them.
            UnavailableError: `[BROKER_FAILED]` they are not there.
        """
        chosen = Path(folder or os.environ.get(_ENVIRONMENT) or _DEFAULT_FOLDER).absolute()
        jars = sorted(chosen.glob("*.jar"))
        if not any(re.fullmatch(r"kafka_[\d.]+-[\d.]+\.jar", jar.name) for jar in jars):
            raise UnavailableError(
                "BROKER_FAILED",
                f"{chosen} holds no Kafka broker: make kafka-jars fetches one to {_DEFAULT_FOLDER}, and {_ENVIRONMENT} "
                "may name another folder",
            )
        check_java()
        home = os.environ.get("JAVA_HOME")
        java = Path(f"{home}/bin/java" if home else shutil.which("java") or "java").resolve()
        # Java checks the same: a name for each only lets two of them keep an archive side by side.
        state = [f"{path} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in (java, *jars)]
        name = xxhash.xxh3_64_hexdigest("\n".join(state).encode())
        return cls(str(java), jars, chosen / f"classes-{name}.jsa")

    @property
    def has_archive(self) -> bool:
        """Whether loaded classes are kept already."""
        return self._archive.exists()

    def command(
        self, main_class: str, *arguments: str, options: Sequence[str] = (), write_archive: Path | None = None
    ) -> list[str]:
        """Gives the command that runs a class.

        Args:
            main_class: Which.
            arguments: Its own.
            options: Java's.
            write_archive: Where it writes, at its end, an archive for others. None: it uses the one that is kept, if any.
        """
        archive = []
        if write_archive is not None:
            archive = [f"-XX:ArchiveClassesAtExit={write_archive}"]
        elif self.has_archive:
            archive = [f"-XX:SharedArchiveFile={self._archive}"]
        # An archive that does not fit is no news, and the classes that do not go into one are hundreds of lines.
        quiet = ["-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-XX:-UsePerfData", "-Dorg.apache.logging.log4j.level=WARN"]
        start = [self._java, *archive, *quiet, "-XX:+UseSerialGC", *options, "-cp", self._class_path]
        return [*start, main_class, *arguments]

    def keep_archive(self, written: Path) -> None:
        """Takes over the archive that a process has written at its end, if it has: whole or not at all.

        Java dies of an archive that is cut off. So it is tried first, and gets its name when it is on the disk.
        """
        if not written.exists():
            return
        # A name of its own, as several brokers may end at once; each is as good as the other.
        whole = self._archive.with_name(f"{self._archive.name}.{os.getpid()}-{id(self)}")
        try:
            shutil.copyfile(written, whole)
            with whole.open("rb+") as file:
                os.fsync(file.fileno())
            if self._can_use(whole, written.parent):
                whole.replace(self._archive)
        except OSError:  # a folder that may not be written: the next start is as slow as this one
            pass
        finally:
            with suppress(OSError):
                whole.unlink()

    def _can_use(self, archive: Path, report: Path) -> bool:
        """Whether Java runs with an archive; a report of its death goes to the folder `report`."""
        options = [f"-XX:SharedArchiveFile={archive}", "-Xshare:on", "-XX:+VerifySharedSpaces", "-XX:+UseSerialGC"]
        command = [self._java, *options, "-cp", self._class_path, "-version"]
        return subprocess.run(command, capture_output=True, cwd=report, check=False).returncode == 0

    @property
    def _class_path(self) -> str:
        return os.pathsep.join(map(str, self._jars))
