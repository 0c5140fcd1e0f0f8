"""The time of a message through a dataflow.

`python -m benchmarks.sides.kafka_probe SERVERS FROM TO WARM_UP MESSAGES RATE KEYS` produces messages one by one, so
many a second once the first has come out, and reads the other topic as a consumer of committed messages. A message's
value is the time at which it was produced, and its number; a time of zero is that of a backlog. FROM may be several
topics with a comma between, each of which gets every message. The output is the milliseconds of each message, without
those of the warm-up. With KEYS above 0 the result of a key, which is a message's number modulo KEYS, shows its latest
message alone: this makes all of its messages up to that one visible.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time

from confluent_kafka import Consumer, Producer, TopicPartition

__all__ = ["main"]

PATIENCE = 120.0

MOST_MESSAGES = 500
"""The number of messages that the consumer takes at once, if there are so many."""

SHORTEST_SLEEP = 0.0005
"""Seconds: a shorter sleep lasts longer than was asked."""

_SENT = re.compile(rb"(\d{20}) (\d+)")
"""What a message is sent as, so that a later one is greater as text; it may come out within other text."""


def main() -> None:
    """Measure, and print a list."""
    servers, before, after, warm_up, messages, rate, keys = sys.argv[1:]
    count, pause, by_key = int(warm_up) + int(messages), 1 / float(rate), int(keys)
    settings = {"bootstrap.servers": servers, "log_level": 0}
    consumer = Consumer(
        {
            **settings,
            "group.id": "probe",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 5,
            "fetch.error.backoff.ms": 1,
        }
    )
    partitions = consumer.list_topics(after, PATIENCE).topics[after].partitions
    ends = {n: consumer.get_watermark_offsets(TopicPartition(after, n), PATIENCE)[1] for n in partitions}
    consumer.assign([TopicPartition(after, n, end) for n, end in ends.items()])
    producer = Producer({**settings, "linger.ms": 0})

    begun = threading.Event()

    sent_at: dict[int, int] = {}

    def send(number: int) -> None:
        sent_at[number] = time.monotonic_ns()
        key = number % by_key if by_key else number  # messages of one key keep their order
        for topic in before.split(","):
            producer.produce(topic, b"%020d %d" % (sent_at[number], number), b"%d" % key)
        producer.poll(0)

    def produce() -> None:
        send(0)
        if not begun.wait(PATIENCE):
            return  # then nothing comes out, which is told
        due = time.monotonic()
        for number in range(1, count):
            send(number)
            due += pause
            if (early := due - time.monotonic()) > SHORTEST_SLEEP:
                time.sleep(early)
        producer.flush(PATIENCE)

    threading.Thread(target=produce, daemon=True).start()
    took: dict[int, float] = {}
    next_of = {key: key for key in range(by_key)}
    until = time.monotonic() + 2 * PATIENCE + count * pause
    while len(took) < count:
        if time.monotonic() > until:
            raise RuntimeError(f"{count - len(took)} messages did not come out")
        first = consumer.poll(0.05)
        for message in [] if first is None else [first, *consumer.consume(MOST_MESSAGES, 0)]:
            if message.error() is not None or message.value() is None:
                continue  # a deletion
            found = _SENT.search(message.value() or b"")
            if found is None:
                raise RuntimeError(f"not a message of this probe: {message.value()!r}")
            began, number = map(int, found.groups())
            if not began:
                continue  # of a backlog before the probe
            now = time.monotonic_ns()
            begun.set()
            if not by_key:
                took.setdefault(number, (now - began) / 1e6)
                continue
            key = number % by_key
            for seen in range(next_of[key], number + 1, by_key):
                took[seen] = (now - sent_at[seen]) / 1e6
            next_of[key] = max(next_of[key], number + by_key)
    print(json.dumps([each for number, each in sorted(took.items()) if number >= int(warm_up)]))


if __name__ == "__main__":
    main()
