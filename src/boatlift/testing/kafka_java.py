"""Programs of Kafka's jars: their commands, a broker's settings, and the console consumer, an independent reader.

An archive of loaded classes saves seconds of each start.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple, Self

import xxhash

from boatlift.errors import InvalidError, UnavailableError
from boatlift.processes.settings import check_java

_ENVIRONMENT = "BOATLIFT_KAFKA_JARS"
_DEFAULT_FOLDER = Path(".kafka/libs")

Isolation = Literal["read_committed", "read_uncommitted"]

# The separators of the consumer's output are control characters that no test has in its data: tabs and new lines may be
# data.
_ROW, _PART, _HEADER, _NULL = "\x1e", "\x1f", "\x1d", "\x1c"

_TIMEOUT = 120.0
"""Seconds for the consumer's start and end, beside its wait for rows."""


class KafkaJava:
    """Kafka's jars with a Java to run them.

    Most of a broker's start is the loading of classes. Java can keep them in an archive: a process writes the archive
    at its end if an option asks for it. Java ignores an archive that comes from another Java or from other jars.

    Args:
        jars: All jars, in the order of the class path: an archive serves for that order only.
    """

    def __init__(self, java: str, jars: Sequence[Path], archive: Path) -> None:
        self._java, self._archive = java, archive
        self._class_path = os.pathsep.join(map(str, jars))

    @classmethod
    def find(cls, folder: Path | str | None = None) -> Self:
        """Return the jars in a folder: by default that of BOATLIFT_KAFKA_JARS, else .kafka/libs of this folder."""
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
            options = [f"-XX:SharedArchiveFile={whole}", "-Xshare:on", "-XX:+VerifySharedSpaces", "-XX:+UseSerialGC"]
            command = [self._java, *options, "-cp", self._class_path, "-version"]
            # Java writes reports of its crashes into the folder.
            if subprocess.run(command, capture_output=True, cwd=written.parent, check=False).returncode == 0:
                whole.replace(self._archive)
        except OSError:  # the folder is read-only: the next start is as slow as this one
            pass
        finally:
            with suppress(OSError):
                whole.unlink()


def one_node(port: int, controller_port: int, data: str) -> dict[str, str]:
    """Return the settings of a node that is a whole cluster."""
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
        "log.dirs": data,
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        "log.cleaner.dedupe.buffer.size": "16777216",
        # By default the broker's own topics have three copies, and fifty partitions to open.
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        # A killed broker comes back only after the end of its session: 9 s by default.
        "broker.heartbeat.interval.ms": "500",
        "broker.session.timeout.ms": "2000",
        # By default transactions that take too long are looked for every 10 s, and compacted topics every 15 s.
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
        "log.cleaner.backoff.ms": "500",
    }


def secured(plain: Mapping[str, str], port: int, users: Mapping[str, str]) -> dict[str, str]:
    """Return the settings with one more listener, where users log in and may do what access control lists allow."""
    quoted = {name: password.replace("\\", "\\\\").replace('"', '\\"') for name, password in users.items()}
    known = " ".join(f'user_{name}="{password}"' for name, password in quoted.items())
    return {
        **plain,
        "listeners": f"{plain['listeners']},SECURED://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURED:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secured.plain.sasl.jaas.config": (
            f"org.apache.kafka.common.security.plain.PlainLoginModule required {known};"
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        # Clients of the other listeners have no name.
        "super.users": "User:ANONYMOUS",
    }


def check_users(users: Mapping[str, str]) -> None:
    """Raise if a name or a password cannot be written into the settings."""
    for name, password in users.items():
        if not re.fullmatch(r"[A-Za-z0-9_]+", name):
            raise InvalidError("BAD_OPTION", f"{name!r} is no name of a broker's user: use letters, digits and _")
        if not password.isprintable():
            raise InvalidError(
                "BAD_OPTION", f"the password of the broker's user {name} cannot be printed on one line: choose another"
            )


def as_properties(settings: Mapping[str, str]) -> str:
    """Return settings as Java reads them from a file: in ASCII, with Java's escapes."""
    return "".join(f"{_escaped(name, ' =:#!')}={_escaped(value, '')}\n" for name, value in settings.items())


def _escaped(text: str, special: str) -> str:
    marked = re.sub(rf"[\\{special}]|^ ", lambda found: "\\" + found[0], text).replace("\n", "\\n").replace("\r", "\\r")
    units = marked.encode("utf-16-be")
    pairs = (int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2))
    return "".join(chr(pair) if pair < 128 else f"\\u{pair:04x}" for pair in pairs)


class ConsoleRow(NamedTuple):
    """One row of a topic.

    Attributes:
        headers: Names and values, in their order; a name must not have a colon.
    """

    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def read_by_console(
    java: KafkaJava, bootstrap: str, topic: str, isolation: Isolation, max_messages: int | None, timeout: float
) -> list[ConsoleRow]:
    """Return the rows of a topic from its beginning; see `KafkaBroker.console`."""
    properties = {
        "print.partition": "true",
        "print.headers": "true",
        "print.key": "true",
        "key.separator": _PART,
        "headers.separator": _HEADER,
        "line.separator": _ROW,
        "null.literal": _NULL,
    }
    # fmt: off
    command = java.command(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        "--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning", "--isolation-level", isolation,
        "--timeout-ms", str(int(timeout * 1000)),
        *([] if max_messages is None else ["--max-messages", str(max_messages)]),
        *(part for name, value in properties.items() for part in ("--formatter-property", f"{name}={value}")),
        options=["-XX:TieredStopAtLevel=1"],
    )
    # fmt: on
    try:
        answer = subprocess.run(command, capture_output=True, timeout=_TIMEOUT + timeout, check=False)
    except subprocess.TimeoutExpired as error:
        raise UnavailableError("BROKER_FAILED", f"the console consumer of {topic} did not end in time") from error
    # The exit status is always 0, but the sum is printed only at the end of a complete run.
    printed = answer.stderr.decode(errors="replace")
    if answer.returncode != 0 or "Processed a total of" not in printed:
        raise UnavailableError("BROKER_FAILED", f"the console consumer of {topic} failed: {printed[-2000:]}")
    return parse_rows(answer.stdout)


def parse_rows(printed: bytes) -> list[ConsoleRow]:
    """Return the rows in the output of the console consumer."""
    rows = []
    for row in printed.split(_ROW.encode())[:-1]:
        partition, headers, key, value = row.split(_PART.encode())
        named = [] if headers == b"NO_HEADERS" else headers.split(_HEADER.encode())
        parts = (each.partition(b":") for each in named)
        pairs = tuple((name.decode(), _bytes(content)) for name, _, content in parts)
        rows.append(ConsoleRow(int(partition.removeprefix(b"Partition:")), _bytes(key), _bytes(value), pairs))
    return rows


def _bytes(printed: bytes) -> bytes | None:
    return None if printed == _NULL.encode() else printed
