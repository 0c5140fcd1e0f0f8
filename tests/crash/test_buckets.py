"""A dataflow from bucket to bucket, with its store in the bucket too: its process dies at requests of every kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from boatlift.processes.warm_jvm import WarmJvm
from boatlift.storage.opening import open_store
from boatlift.storage.verify import verify
from boatlift.testing.crash import CrashPoint
from boatlift.testing.object_server import ObjectServer
from support.crash.requests import die_at_requests
from support.crash.tests import EVERY_POINT, Place, Victim, show

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(3600)]

REQUESTS = 5 if EVERY_POINT else 41
"""The driver, or a task of it, is about to send so many requests between two deaths."""

FILES, ROWS = 4, 120


@pytest.fixture
def jvm(object_server: ObjectServer) -> Iterator[WarmJvm]:
    """A JVM whose tasks have the credentials."""
    del object_server
    with WarmJvm() as made:
        yield made


def test_what_is_in_the_bucket_is_the_truth_after_every_death(
    jvm: WarmJvm,
    object_server: ObjectServer,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from support.crash.buckets import make_objects

    victim = Victim(
        flow="support.crash.buckets:flow",
        judge=lambda _folder, _undisturbed: None,
        middle=CrashPoint("sink.commit(kept)", "after", 2),
        acts=(),
        points=0,
        again=(),
        outcome="equal to the truth",
        make_input=make_objects,
        store=lambda folder: object_server.url(f"{folder.name}/store"),
    )

    def judge(place: Place) -> None:
        def rows_in(sink: str) -> list[dict[str, Any]]:
            objects = open_store(object_server.url(f"{place.folder.name}/{sink}"), create=False)
            contents = objects.read_all([*objects.list("")])
            return [row for content in contents for row in pq.read_table(pa.BufferReader(content)).to_pylist()]

        ids = range(FILES * ROWS)
        kept = Counter((row["id"], row["k"]) for row in rows_in("kept"))
        assert kept == Counter((each, each % ROWS % 7) for each in ids)
        tagged = Counter((row["id"], row["tag"]) for row in rows_in("tagged"))
        assert tagged == Counter((1_000_000 + each, str((1_000_000 + each) % 3)) for each in ids)
        totals = Counter[tuple[int, int, int]]()
        for row in rows_in("changes"):
            totals[row["k"], row["n"], row["total"]] += row["_weight"]
        mine = {key: [each for each in ids if each % ROWS % 7 == key] for key in range(7)}
        assert +totals == Counter({(key, len(some), sum(some)): 1 for key, some in mine.items()})
        assert min(totals.values()) == 0, "what was replaced is taken back, once"
        assert list(verify(open_store(victim.store(place.folder), create=False))) == []

    died = die_at_requests(victim, object_server, tmp_path_factory.mktemp, jvm, monkeypatch, REQUESTS, judge)
    assert len(died) >= 5
    assert {"before", "after"} == {each.when for each in died}
    show(f"{victim.flow} at requests", died, victim.outcome)
