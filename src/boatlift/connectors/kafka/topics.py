"""Requests to a cluster about topics: their names and ids, and the ends of their partitions."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from boatlift.connectors.kafka.access import ADMINS, TIMEOUT, Access, Admin, of_asking
from boatlift.connectors.kafka.offsets import Found, Range
from boatlift.errors import DataError, InvalidError, UnavailableError

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import OffsetSpec

LOOK_AGAIN_SECONDS = 1.0
"""Seconds for which the last answer about topics and partitions is reused."""

PAUSE = 0.05
"""Seconds between retries of a request."""

KNOWN_SECONDS = 2.0
"""Seconds after which all brokers know a topic that was made before the first of them was asked."""

SOON = 5.0
"""Seconds for the answer to a request before a run."""

Answer = TypeVar("Answer")

Partition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class _Known:
    """The cluster's last answer, replaced as a whole, because several threads use it.

    Attributes:
        ids: Topic to id.
        lows: Partition to its first available offset.
    """

    at: float
    ids: Mapping[str, str]
    lows: Mapping[Partition, int]


class Topics:
    """Asks about the topics of a source.

    Args:
        names: The topics; None: those whose names match.
        committed: Whether readable offsets end where the first open transaction begins.

    Attributes:
        named: The names of the topics, or their pattern, for errors and for the program's identity.
        made: Whether the topics are known to exist: a broker that does not know them yet is asked again.
    """

    def __init__(
        self,
        access: Access,
        names: Sequence[str] | None,
        matching: re.Pattern[str] | None,
        *,
        committed: bool,
        written: bool = False,
    ) -> None:
        self.access, self._names, self._matching = access, names, matching
        self.named = ", ".join(names) if names is not None else f"/{getattr(matching, 'pattern', '')}/"
        self._cluster = f"the cluster at {access.servers}"
        self.committed, self._written = committed, written
        self.made = False
        self._known: _Known | None = None

    def found(self, *, anew: bool = False) -> list[Found]:
        """Return all partitions. Their ends are current; their number and first offsets may be a second old."""
        known = self._known
        if anew or known is None or time.monotonic() - known.at >= LOOK_AGAIN_SECONDS:
            known = self._look()
        highs = self.ends(known.lows)
        return [Found(topic, known.ids[topic], n, low, highs[topic, n]) for (topic, n), low in known.lows.items()]

    def verify(self, ranges: Sequence[Range]) -> None:
        """Prove that the topics of ranges are the same, and that their offsets are still available."""
        for each, end in self._deleted_of(ranges):
            raise DataError(
                "INPUT_MISSING",
                f"offsets {each.start} to {end - 1} of topic {each.topic}, partition {each.partition}, were deleted, "
                "and a recorded step needs them: keep topics longer than a recovery may need",
            )

    def verify_past(self, ranges: Sequence[Range]) -> None:
        """Prove that the topics of ranges are the same, and that all messages that their offsets had are there.

        Raises:
            DataError: `[HISTORY_GONE]` messages were deleted, or may have been compacted away; as `verify`.
        """
        for each, end in self._deleted_of(ranges):
            raise DataError(
                "HISTORY_GONE",
                f"offsets {each.start} to {end - 1} of topic {each.topic}, partition {each.partition}, were deleted, "
                "and all rows since the first one are needed: choose --change NAME=now for what changes, or keep the "
                "topic longer",
            )
        for topic in self.compacted({each.topic for each in ranges}):
            raise DataError(
                "HISTORY_GONE",
                f"topic {topic} is compacted, and all rows since the first one are needed, not the newest of each "
                "key: choose --change NAME=now for what changes",
            )

    def _deleted_of(self, ranges: Sequence[Range]) -> Iterator[tuple[Range, int]]:
        """Yield each range whose first offsets are gone, and the end of these."""
        now = self._look()  # after the rows were read, so no earlier answer will do
        for each in ranges:
            known = now.ids.get(each.topic)
            if known is None:
                raise DataError(
                    "INPUT_MISSING", f"topic {each.topic} is gone, and a recorded step needs it: restore it"
                )
            if known != each.id:
                raise DataError(
                    "INPUT_CHANGED",
                    f"topic {each.topic} was deleted and made again (its id was {each.id} and is {known}), and a "
                    "recorded step needs its rows: begin with a new store",
                )
            low = now.lows.get((each.topic, each.partition), each.end)
            if each.start < min(low, each.end):
                yield each, min(low, each.end)

    def compacted(self, topics: Iterable[str]) -> list[str]:
        """Return those of some topics that are compacted now."""
        from confluent_kafka.admin import ConfigResource, ResourceType

        asked = {topic: ConfigResource(ResourceType.TOPIC, topic) for topic in sorted(topics)}

        def ask() -> list[str]:
            admin = self.access.admin()
            answers = admin.client.describe_configs([*asked.values()], request_timeout=TIMEOUT)
            found = {topic: self._result(admin, answers[each], f"topic {topic}") for topic, each in asked.items()}
            return [topic for topic, config in found.items() if "compact" in config["cleanup.policy"].value]

        return self._retried(ask) if asked else []

    def ends(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Return the ends of the readable offsets of partitions."""
        from confluent_kafka.admin import OffsetSpec

        return self._offsets(partitions, OffsetSpec.latest())

    def refuse_missing(self, timeout: float = KNOWN_SECONDS) -> bool:
        """Raise if the cluster lacks a named topic; return False if it does not answer soon.

        Args:
            timeout: Seconds after which a missing topic is an error: brokers learn of a new topic with a delay.
        """
        from confluent_kafka import KafkaError, KafkaException

        until = time.monotonic() + timeout
        while True:
            try:
                there = self.access.admin().client.list_topics(timeout=SOON).topics
            except KafkaException:
                return False  # the run says why the cluster cannot be reached
            missing = [name for name in self._names or () if name not in there]
            if not missing:
                return True
            if time.monotonic() > until:
                what = f"topic {missing[0]} of {self._cluster}"
                raise of_asking(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), what, sink=self._written)
            time.sleep(PAUSE)

    def id_of(self, topic: str) -> str:
        """Return the id of a topic. A later topic of the same name has another id."""
        return self._described([topic])[0][topic]

    def has_rows(self, topic: str) -> bool:
        _, partitions = self._described([topic])
        return any(self.ends(partitions).values())

    def ends_asked(self, topic: str) -> Callable[[], dict[int, int]]:
        """Ask where the partitions of a topic end; return a function that waits for the answer."""
        from confluent_kafka.admin import OffsetSpec

        known = self._known or self._look()
        here = [partition for partition in known.lows if partition[0] == topic]
        asked = self._asked(here, OffsetSpec.latest())

        def ends() -> dict[int, int]:
            try:
                found = asked()
            except UnavailableError:  # a partition may have no leader for a moment
                found = self.ends(here)
            return {number: end for (_, number), end in found.items()}

        return ends

    def partitions_of(self, topic: str) -> list[int]:
        return [number for _, number in self._described([topic])[1]]

    def begins(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Return the first available offset of each partition."""
        from confluent_kafka.admin import OffsetSpec

        return self._offsets(partitions, OffsetSpec.earliest())

    def at(self, partitions: Iterable[Partition], when: datetime) -> dict[Partition, int]:
        """Return the first offset of each partition at or after a moment; without one, the partition's end."""
        from confluent_kafka.admin import OffsetSpec

        some = list(partitions)
        found = self._offsets(some, OffsetSpec.for_timestamp(round(when.timestamp() * 1000)), least=-1)
        ends = self.ends(some)
        return {partition: ends[partition] if offset < 0 else offset for partition, offset in found.items()}

    def _look(self) -> _Known:
        """Ask about topics and, at the same time, about the known partitions, which are mostly all."""
        from confluent_kafka.admin import OffsetSpec

        now, before = time.monotonic(), self._known
        names = self._names if self._names is not None else self._matching_names()
        lows_of_before = None if before is None else self._asked(before.lows, OffsetSpec.earliest())
        ids, partitions = self._described(names) if names else ({}, [])
        lows: Mapping[Partition, int] | None = None
        if before and lows_of_before and ids == before.ids and {*partitions} == before.lows.keys():
            with suppress(InvalidError, UnavailableError):  # asked again below, with retries
                lows = lows_of_before()
        if lows is None:
            lows = self._offsets(partitions, OffsetSpec.earliest())
        self._known = _Known(now, ids, lows)
        return self._known

    def _described(self, names: Sequence[str]) -> tuple[dict[str, str], list[Partition]]:
        from confluent_kafka import TopicCollection

        def ask() -> dict[str, Any]:
            admin = self.access.admin()
            answers = admin.client.describe_topics(TopicCollection(list(names)), request_timeout=TIMEOUT)
            return {name: self._result(admin, answer, f"topic {name}") for name, answer in answers.items()}

        topics = self._retried(ask)
        partitions = [(name, partition.id) for name, topic in topics.items() for partition in topic.partitions]
        return {name: str(topic.topic_id) for name, topic in topics.items()}, partitions

    def _matching_names(self) -> list[str]:
        from confluent_kafka import KafkaException

        assert self._matching is not None
        admin = self.access.admin()
        try:
            listed = admin.client.list_topics(timeout=TIMEOUT)
        except KafkaException as error:
            heard = admin.complaints.or_else(error, admin.client)
            raise of_asking(heard, self._cluster, sink=self._written) from error
        return sorted(name for name in listed.topics if self._matching.fullmatch(name) and not name.startswith("__"))

    def _offsets(self, partitions: Iterable[Partition], spec: OffsetSpec, *, least: int = 0) -> dict[Partition, int]:
        some = list(partitions)

        def ask() -> dict[Partition, int]:
            return self._asked(some, spec, least=least)()

        return self._retried(ask)

    def _asked(
        self, partitions: Iterable[Partition], spec: OffsetSpec, *, least: int = 0
    ) -> Callable[[], dict[Partition, int]]:
        """Ask for offsets of partitions; return a function that waits for the answer."""
        from confluent_kafka import IsolationLevel, TopicPartition

        asked: Mapping[Any, Any] = {TopicPartition(*partition): spec for partition in partitions}
        if not asked:
            return dict
        level = IsolationLevel.READ_COMMITTED if self.committed else IsolationLevel.READ_UNCOMMITTED
        admin = self.access.admin()
        answers = admin.client.list_offsets(asked, isolation_level=level, request_timeout=TIMEOUT)

        def found() -> dict[Partition, int]:
            return {
                (here.topic, here.partition): self._offset(admin, here, each, least) for here, each in answers.items()
            }

        return found

    def _retried(self, ask: Callable[[], Answer]) -> Answer:
        """Retry a request until it is answered: a partition may have no leader for a moment."""
        until = time.monotonic() + TIMEOUT
        while True:
            try:
                return ask()
            except (InvalidError, UnavailableError) as error:
                passes = isinstance(error, UnavailableError) or (
                    self.made and error.condition in ("NO_INPUT", "NO_TOPIC")
                )
                if not passes or time.monotonic() > until:
                    raise
                time.sleep(PAUSE)

    def _offset(self, admin: Admin, here: TopicPartition, answer: Future[Any], least: int = 0) -> int:
        """Wait for an offset of a partition.

        Args:
            least: The least valid offset; -1 for a request by time, if no row is so late.

        Raises:
            UnavailableError: `[INPUT_UNAVAILABLE]`, `[SINK_FAILED]`, also for an answer without an offset: librdkafka
                returns -1001 and no error if the request to a leader failed, and a leader without the log returns -1.
        """
        what = f"topic {here.topic}, partition {here.partition}"
        offset: int = self._result(admin, answer, what).offset
        if offset < least:
            raise of_asking(None, f"{what} of {self._cluster}", sink=self._written)
        return offset

    def _result(self, admin: Admin, answer: Future[Any], what: str) -> Any:
        """Wait for an answer.

        The client must stay referenced until then, though another thread may replace it meanwhile: requests of a client
        without references are never answered.
        """
        from confluent_kafka import KafkaError, KafkaException

        try:
            result = answer.result(TIMEOUT + 5)
        except KafkaException as error:
            heard = admin.complaints.or_else(error, admin.client)
            if heard.code() in (KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH):
                ADMINS.drop(admin)  # it keeps outdated leaders for minutes
            raise of_asking(heard, f"{what} of {self._cluster}", sink=self._written) from error
        except TimeoutError as error:
            raise of_asking(admin.complaints.last, f"{what} of {self._cluster}", sink=self._written) from error
        admin.complaints.last = None  # the reports before this answer are out of date
        return result
