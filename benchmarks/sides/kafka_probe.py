"""The time of a message through a dataflow.

`python -m benchmarks.sides.kafka_probe SERVERS FROM TO WARM_UP MESSAGES PAUSE` produces messages one by one, at a
steady pace once the first has come out, and reads the other topic as a consumer of committed messages. A message's
value is the time at which it was produced, and its number. The output is the milliseconds of each message, without
those of the warm-up.
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

_SENT = re.compile(rb"(\d{20}) (\d+)")
"""What a message is sent as, so that a later one is greater as text; it may come out within other text."""


def main() -> None:
    """Measure, and print a list."""
    servers, before, after, warm_up, messages, pause = sys.argv[1:]
    count = int(warm_up) + int(messages)
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

    def send(number: int) -> None:
        producer.produce(before, b"%020d %d" % (time.monotonic_ns(), number), b"%d" % number)
        producer.poll(0)

    def produce() -> None:
        send(0)
        if not begun.wait(PATIENCE):
            return  # then nothing comes out, which is told
        due = time.monotonic()
        for number in range(1, count):
            send(number)
            due += float(pause)
            time.sleep(max(0.0, due - time.monotonic()))
        producer.flush(PATIENCE)

    threading.Thread(target=produce, daemon=True).start()
    took: dict[int, float] = {}
    until = time.monotonic() + 2 * PATIENCE + count * float(pause)
    while len(took) < count:
        message = consumer.poll(0.05)
        if time.monotonic() > until:
            raise RuntimeError(f"{count - len(took)} messages did not come out")
        if message is not None and message.error() is None:
            found = _SENT.search(message.value() or b"")
            if found is None:
                raise RuntimeError(f"not a message of this probe: {message.value()!r}")
            began, number = map(int, found.groups())
            begun.set()
            took.setdefault(number, (time.monotonic_ns() - began) / 1e6)
    print(json.dumps([each for number, each in sorted(took.items()) if number >= int(warm_up)]))


if __name__ == "__main__":
    main()
