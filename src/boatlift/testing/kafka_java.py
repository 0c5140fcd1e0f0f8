"""The commands that start programs of Kafka's jars, with an archive of loaded classes that saves seconds."""

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
from boatlift.spark.session.settings import check_java

_ENVIRONMENT = "BOATLIFT_KAFKA_JARS"
_DEFAULT_FOLDER = Path(".kafka/libs")


class KafkaJava:
    """Kafka's jars with a Java to run them.

    Most of a broker's start is the loading of classes. Java can keep them in an archive: a process writes the archive
    at its end if an option asks for it. Java ignores an archive that comes from another Java or from other jars.

    Args:
        java: The path of the program.
        jars: All jars, in the order of the class path: an archive serves for that order only.
        archive: The file of the archive.
    """

    def __init__(self, java: str, jars: Sequence[Path], archive: Path) -> None:
        self._java = java
        self._jars = jars
        self._archive = archive

    @classmethod
    def find(cls, folder: Path | str | None = None) -> Self:
        """Return the jars in a folder: by default that of BOATLIFT_KAFKA_JARS, else .kafka/libs of the current folder.

        Raises:
            InvalidError: `[NO_JAVA]` there is no Java that could run them.
            UnavailableError: `[BROKER_FAILED]` the folder has no jars of a broker.
        """
        chosen = Path(folder or os.environ.get(_ENVIRONMENT) or _DEFAULT_FOLDER).absolute()
        jars = sorted(chosen.glob("*.jar"))
        if not any(re.fullmatch(r"kafka_[\d.]+-[\d.]+\.jar", jar.name) for jar in jars):
            raise UnavailableError(
                "BROKER_FAILED",
                f"{chosen} holds no Kafka broker: fetch one to {_DEFAULT_FOLDER} by `make kafka-jars`, or name "
                f"another folder in {_ENVIRONMENT}",
            )
        check_java()
        home = os.environ.get("JAVA_HOME")
        java = Path(f"{home}/bin/java" if home else shutil.which("java") or "java").resolve()
        # Java checks the same things; with a name for each state, two archives can be kept side by side.
        state = [f"{path} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in (java, *jars)]
        name = xxhash.xxh3_64_hexdigest("\n".join(state).encode())
        return cls(str(java), jars, chosen / f"classes-{name}.jsa")

    @property
    def has_archive(self) -> bool:
        return self._archive.exists()

    def command(
        self, main_class: str, *arguments: str, options: Sequence[str] = (), write_archive: Path | None = None
    ) -> list[str]:
        """Return the command that runs a class.

        Args:
            main_class: The class.
            options: The options of Java.
            write_archive: The file that the process writes an archive to at its end. None: it uses the archive, if
                there is one.
        """
        archive = []
        if write_archive is not None:
            archive = [f"-XX:ArchiveClassesAtExit={write_archive}"]
        elif self.has_archive:
            archive = [f"-XX:SharedArchiveFile={self._archive}"]
        # Else Java reports an archive that does not fit, and hundreds of classes that do not go into one.
        quiet = ["-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-XX:-UsePerfData", "-Dorg.apache.logging.log4j.level=WARN"]
        start = [self._java, *archive, *quiet, "-XX:+UseSerialGC", *options, "-cp", self._class_path]
        return [*start, main_class, *arguments]

    def keep_archive(self, written: Path) -> None:
        """Keep the archive that a process has written at its end, if there is one: whole or not at all.

        Java dies of an archive that is cut off. So the archive is tried first, and renamed once it is on the disk.
        """
        if not written.exists():
            return
        # A name of its own, because several brokers may end at once; one archive is as good as another.
        whole = self._archive.with_name(f"{self._archive.name}.{os.getpid()}-{id(self)}")
        try:
            shutil.copyfile(written, whole)
            with whole.open("rb+") as file:
                os.fsync(file.fileno())
            if self._can_use(whole, written.parent):
                whole.replace(self._archive)
        except OSError:  # the folder is read-only: the next start is as slow as this one
            pass
        finally:
            with suppress(OSError):
                whole.unlink()

    def _can_use(self, archive: Path, report: Path) -> bool:
        """Return True if Java runs with an archive; a report of a crash goes to the folder `report`."""
        options = [f"-XX:SharedArchiveFile={archive}", "-Xshare:on", "-XX:+VerifySharedSpaces", "-XX:+UseSerialGC"]
        command = [self._java, *options, "-cp", self._class_path, "-version"]
        return subprocess.run(command, capture_output=True, cwd=report, check=False).returncode == 0

    @property
    def _class_path(self) -> str:
        return os.pathsep.join(map(str, self._jars))
