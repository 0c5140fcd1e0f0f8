"""The settings of a Kafka broker on loopback, as its `server.properties`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from boatlift.errors import InvalidError


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
    known = " ".join(f'user_{name}="{_quoted(password)}"' for name, password in users.items())
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
    """Raise if a name or a password cannot be written into the settings.

    Raises:
        InvalidError: `[BAD_OPTION]` a name has other characters than letters, digits and _, or a password is not
            printable on one line.
    """
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


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
