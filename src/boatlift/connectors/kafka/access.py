"""How a cluster is reached (addresses, security settings, clients), and its errors in words that say what to do."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from boatlift.errors import BoatliftError, DataError, InvalidError, UnavailableError

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
    from confluent_kafka.admin import AdminClient

    from boatlift.connectors.kafka.offsets import Range

logger = logging.getLogger("boatlift.kafka")

TIMEOUT = 30.0
"""Seconds after which a cluster without an answer is an error."""

KEEP, MOST_ADMINS = 4, 16
"""The idle consumers, and the admin clients, that a process keeps."""

_OURS = {
    "acks",
    "auto.offset.reset",
    "bootstrap.servers",
    "enable.auto.commit",
    "enable.idempotence",
    "enable.partition.eof",
    "group.id",
    "isolation.level",
    "partitioner",
    "transactional.id",
}
"""Settings that exactly-once delivery needs: the user may not change them."""


@dataclass(frozen=True, slots=True)
class Access:
    """The address of a cluster, and the settings to reach it. An access goes into tasks, and is never written down.

    Attributes:
        settings: The user's settings of librdkafka. They may hold credentials, so `repr` leaves them out.
    """

    servers: str
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def brokers(self) -> tuple[str, ...]:
        """The servers, each once and in one order and spelling."""
        return tuple(sorted({server.strip().lower() for server in self.servers.split(",")}))

    def consumer(self, settings: Mapping[str, Any]) -> Consumer:
        """Return a consumer that never commits by itself and never jumps to another offset."""
        from confluent_kafka import Consumer

        fixed = {"enable.auto.commit": False, "auto.offset.reset": "error", "group.id": "boatlift"}
        return Consumer(self._with({**fixed, **settings}))

    def producer(self, settings: Mapping[str, Any]) -> Producer:
        """Return a producer that partitions keys as Java's does."""
        from confluent_kafka import Producer

        return Producer(self._with({"partitioner": "murmur2_random", **settings}))

    def admin(self) -> Admin:
        """Return the admin client that the requests of this process to the cluster share."""
        return ADMINS.of(self)

    def new_admin(self) -> Admin:
        from confluent_kafka.admin import AdminClient

        complaints = Complaints()
        return Admin(AdminClient(self._with({"error_cb": complaints})), complaints)

    def _with(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        return {"bootstrap.servers": self.servers, "logger": _Quietly(), **self.settings, **settings}


class Complaints:
    """The errors that a client reports while it retries; the final exception only says that no answer came."""

    def __init__(self) -> None:
        self.last: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        self.last = error

    def or_else(self, raised: KafkaException, client: AdminClient | Producer | None) -> KafkaError:
        """Return the error that was raised; for an error of the client itself the last report, which says more."""
        cause: KafkaError = raised.args[0]
        if cause.code() >= 0:
            return cause
        if client is not None:
            client.poll(0)  # a client reports only when it is polled
        return self.last or cause


class Admin(NamedTuple):
    """A client for questions about topics, groups and offsets, and its complaints; threads may share it."""

    client: AdminClient
    complaints: Complaints


class Admins:
    """The shared admin clients of a process; beyond `MOST_ADMINS` the one that was not used for longest is dropped.

    A new client connects first, and at times waits a second or three for that.
    """

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._admins: list[tuple[Access, Admin]] = []

    def of(self, access: Access) -> Admin:
        with self._changing:
            found = [each for each in self._admins if each[0] == access] or [(access, access.new_admin())]
            self._admins = [*(each for each in self._admins if each[0] != access), *found][-MOST_ADMINS:]
            return found[0][1]

    def drop(self, admin: Admin) -> None:
        """Let later requests use a new client; threads share one, and only the first of them replaces it."""
        with self._changing:
            self._admins = [each for each in self._admins if each[1] is not admin]


ADMINS = Admins()


class _Quietly:
    """Passes log lines of clients on at level debug: without a cluster, a client logs many lines a second."""

    def log(self, _level: int, message: str, *values: Any) -> None:
        logger.debug(message, *values)


def access_to(servers: str, options: Mapping[str, Any] | None) -> Access:
    """Check the options by which a cluster is to be reached."""
    try:
        from confluent_kafka import KafkaException
    except ImportError as error:
        raise InvalidError("MISSING_EXTRA", "Kafka needs confluent-kafka: pip install 'boatlift[kafka]'") from error
    if not servers or any(":" not in server for server in servers.split(",")):
        raise InvalidError("BAD_OPTION", f"servers are {servers!r}: give host:port, several separated by commas")
    settings = {name.removeprefix("kafka."): value for name, value in (options or {}).items()}
    for name in settings:
        if name in _OURS:
            raise InvalidError("BAD_OPTION", f"option {name} is not the user's to set: leave it out")
    access = Access(servers, settings)
    try:
        access.new_admin()  # checks the settings, and does not connect yet
    except KafkaException as error:
        raise InvalidError(
            "BAD_OPTION", f"the client refuses its options ({error.args[0].str()}): correct them"
        ) from error
    return access


def of_reading(error: KafkaError | None, source: str, each: Range) -> BoatliftError:
    """Return the error for a failed read of a range."""
    from confluent_kafka import KafkaError

    where = f"topic {each.topic}, partition {each.partition}"
    if error is not None and error.code() in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET):
        return DataError(
            "INPUT_MISSING",
            f"offsets {each.start} to {each.end - 1} of {where} are gone, and a recorded step needs them: keep topics "
            "longer than a recovery may need",
        )
    return of_asking(error, f"{where} of {source}")


def of_asking(error: KafkaError | None, what: str, *, sink: bool = False) -> BoatliftError:
    """Return the error for a failed request to a cluster.

    Args:
        error: The cluster's error; None: no answer came.
        sink: Whether a sink made the request, and not a source.
    """
    from confluent_kafka import KafkaError

    if error is None:
        message = f"{what} does not answer: run again when it does"
        return UnavailableError("SINK_FAILED" if sink else "INPUT_UNAVAILABLE", message)
    code, said = error.code(), error.str()
    if code in (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._SSL):
        return InvalidError(
            "NOT_ADMITTED", f"{what} does not let this client in ({said}): correct the security options"
        )
    if is_of_permission(error):
        return InvalidError("NOT_PERMITTED", f"{what} may not be used by this client ({said}): have it allowed")
    if code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION):
        message = f"{what} is not there: make it, or correct its name"
        return InvalidError("NO_TOPIC" if sink else "NO_INPUT", message)
    message = f"{what} cannot be reached ({said}): run again when it can"
    return UnavailableError("SINK_FAILED" if sink else "INPUT_UNAVAILABLE", message)


def is_of_permission(error: KafkaError) -> bool:
    """Return whether the cluster does not let this client's user do something."""
    from confluent_kafka import KafkaError

    return error.code() in (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    )


def is_of_group(error: KafkaError | None) -> bool:
    """Return whether the cluster refuses a consumer its group, of which a consumer of given offsets needs nothing."""
    from confluent_kafka import KafkaError

    return error is not None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED


def is_of_fencing(error: KafkaError) -> bool:
    """Return whether another producer has taken the transactional id over."""
    from confluent_kafka import KafkaError

    fenced = (KafkaError._FENCED, KafkaError._FATAL, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED)
    return error.code() in fenced
