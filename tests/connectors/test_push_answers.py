"""Clients that wait for the answer to what they push: one answer each, the same after every failure."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import boatlift as bl
from boatlift.connectors.push.answers import PushAnswers
from boatlift.errors import BoatliftError, InvalidError, UnavailableError
from support.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def flow_at(folder: Path, listen: str = "127.0.0.1:0", **options: Any) -> tuple[bl.Dataflow, Any]:
    """Return a dataflow that squares, and counts what it has squared; and its source."""
    source = bl.push("id STRING, n BIGINT", listen=listen, ack="answer", key="id", **options)
    flow = bl.Dataflow("asked")
    asked = flow.source("questions", source)

    def squared(df: DataFrame) -> DataFrame:
        return df.where("n >= 0").selectExpr("id", "n", "n * n AS square")

    answers = asked.transform("answers", squared)
    answers.sink("replies", bl.reply(source, folder / "answers.db"))
    answers.group_by("n").agg("counted", F.count("*").alias("times")).sink(
        "counts", bl.sqlite(folder / "counts.db", table="counts", key=["n"])
    )
    return flow, source


@contextmanager
def running(folder: Path, spark: SparkSession, **options: Any) -> Iterator[str]:
    """Run the dataflow; yield the URL of the source."""
    flow, source = flow_at(folder, **options)
    run = bl.start(flow, folder / "store", spark=spark)
    try:
        yield source.url
    finally:
        run.stop()


def ask(url: str, n: int | None, key: str | None, **more: Any) -> tuple[int, Any]:
    """Push a question, or with no number look an answer up; return status and body."""
    headers = {} if key is None else {"Idempotency-Key": key}
    body = None if n is None else json.dumps({"n": n, **more}).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


@pytest.mark.spark
def test_each_request_gets_the_answer_with_its_key_and_again_the_same(spark: SparkSession, tmp_path: Path) -> None:
    with running(tmp_path, spark) as url, ThreadPoolExecutor(20) as pool:
        keys = [f"q{number}" for number in range(60)]
        found = list(pool.map(lambda at: ask(url, at[0], at[1]), enumerate(keys)))
        assert found == [(200, {"id": key, "n": n, "square": n * n}) for n, key in enumerate(keys)]
        assert ask(url, 7, "q7") == found[7]
        assert ask(f"{url}/keys/q7/answer", None, None) == found[7]
        assert ask(url, 8, "q7")[1]["condition"] == "KEY_REUSED"
        assert ask(url, 9, "q9", id="q9") == found[9]
    with running(tmp_path, spark) as url:
        assert ask(url, 7, "q7") == found[7], "another process has the answer, too"
        assert ask(f"{url}/keys/q7", None, None)[1]["repeated"] is True
    import sqlite3

    with sqlite3.connect(tmp_path / "counts.db") as counts:
        assert dict(counts.execute("SELECT n, times FROM counts")) == dict.fromkeys(range(60), 1)


@pytest.mark.spark
def test_a_request_without_an_answer_is_told_to_ask_later(spark: SparkSession, tmp_path: Path) -> None:
    with running(tmp_path, spark, answer_timeout=timedelta(milliseconds=300)) as url:
        status, said = ask(url, -1, "no answer")
        assert (status, said["rows"]) == (202, 1)
        assert ask(f"{url}/keys/no%20answer/answer", None, None)[0] == 202
        assert ask(f"{url}/keys/unknown/answer", None, None) == (404, {"recorded": False})


@pytest.mark.spark
def test_bad_requests_are_refused_and_record_nothing(spark: SparkSession, tmp_path: Path) -> None:
    with running(tmp_path, spark) as url:
        status, said = ask(url, 1, None)
        assert (status, said["condition"]) == (400, "BAD_OPTION")
        assert "Idempotency-Key" in said["message"]
        status, said = ask(url, 1, "mine", id="another")
        assert (status, said["condition"]) == (400, "BAD_ROW")
        assert ask(url, 2, "mine") == (200, {"id": "mine", "n": 2, "square": 4})


@pytest.mark.spark
def test_one_push_is_one_question(spark: SparkSession, tmp_path: Path) -> None:
    with running(tmp_path, spark) as url:
        request = urllib.request.Request(url, b'[{"n": 1}, {"n": 2}]', {"Idempotency-Key": "two"})
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(request, timeout=60)
        assert json.load(caught.value)["condition"] == "BAD_ROW"
        assert ask(url, 3, "two") == (200, {"id": "two", "n": 3, "square": 9})


@pytest.mark.spark
def test_an_answer_outlives_its_key(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The input log has forgotten the key; the table has not: the question is not taken again."""
    from boatlift.storage.input_log import InputLog

    with running(tmp_path, spark) as url:
        assert ask(url, 3, "old") == (200, {"id": "old", "n": 3, "square": 9})
        monkeypatch.setattr(InputLog, "find", lambda *_: None)
        assert ask(url, 3, "old") == (200, {"id": "old", "n": 3, "square": 9})
        monkeypatch.undo()
        assert ask(url, 4, "new")[0] == 200, "it still runs"


def test_requests_wait_for_a_sink_that_opens_again() -> None:
    held: dict[str, bytes] = {}
    answers = PushAnswers("id", 30)

    def look(keys: Sequence[str]) -> dict[str, bytes]:
        return {key: held[key] for key in keys if key in held}

    async def request() -> bytes | None:
        with pytest.raises(UnavailableError, match=r"\[NOT_RUNNING\]"):
            answers.find("q")
        answers.serve(look)
        waiting = answers.wait("q")
        answers.serve(None)
        held["q"] = b"{}"  # its step was committed, and the sink failed before it could say so
        answers.serve(look)
        return await asyncio.wait_for(waiting, 30)

    assert asyncio.run(request()) == b"{}"
    assert answers.find("q") == b"{}"


def test_all_requests_that_a_step_answers_cost_one_look() -> None:
    answers, looks = PushAnswers("id", 30), []

    def look(keys: Sequence[str]) -> dict[str, bytes]:
        looks.append(list(keys))
        return {key: key.encode() for key in keys}

    async def requests() -> list[bytes | None]:
        answers.serve(look)
        waiting = [answers.wait(f"q{number // 2}") for number in range(1000)]  # each of 500 keys twice
        gone = answers.wait("gone")
        answers.leave("gone", gone)
        answers.leave("q0", waiting[1])
        await asyncio.to_thread(answers.came, ["other", "gone", *(f"q{number}" for number in range(500))])
        return await asyncio.wait_for(asyncio.gather(waiting[0], *waiting[2:]), 30)

    assert asyncio.run(requests()) == [b"q0", *(f"q{number // 2}".encode() for number in range(2, 1000))]
    assert looks == [[f"q{number}" for number in range(500)]]


def test_values_that_json_has_not_are_texts(tmp_path: Path) -> None:
    import sqlite3

    answers = bl.push("id STRING", ack="answer", key="id")
    sink = bl.reply(answers, tmp_path / "a ?#%41.db")
    with sqlite3.connect(tmp_path / "a ?#%41.db") as database:
        database.execute("CREATE TABLE answers (id TEXT, f REAL, b BLOB)")
        database.execute("INSERT INTO answers VALUES ('q', ?, ?)", (float("-inf"), b"\x00\xff"))
    assert sink._kept.look(["q", "other"]) == {"q": b'{"id":"q","f":"-Infinity","b":"AP8="}'}


@pytest.mark.spark
def test_clients_that_leave_or_never_read_hold_nothing_up(spark: SparkSession, tmp_path: Path) -> None:
    import socket

    with running(tmp_path, spark) as url:
        host, port = url.removeprefix("http://").partition("/")[0].split(":")
        body = b'{"n": 3}'
        silent = []
        for number in range(20):
            client = socket.create_connection((host, int(port)))
            client.sendall(
                b"POST /questions HTTP/1.1\r\nHost: %s:%s\r\nIdempotency-Key: silent%d\r\nContent-Length: %d\r\n\r\n%s"
                % (host.encode(), port.encode(), number, len(body), body)
            )
            silent.append(client)
        for client in silent[:10]:
            client.close()
        assert ask(url, 5, "quick") == (200, {"id": "quick", "n": 5, "square": 25})
        until(lambda: all(ask(f"{url}/keys/silent{number}/answer", None, None)[0] == 200 for number in range(20)))
        for client in silent[10:]:
            client.close()


@pytest.mark.spark
@pytest.mark.parametrize(
    ("query", "condition"),
    [
        (
            "SELECT id, n AS square FROM questions UNION ALL SELECT id, n + 1 FROM questions WHERE n = 2",
            "DUPLICATE_KEY",
        ),
        ("SELECT CAST(NULL AS STRING) AS id, n AS square FROM questions", "ANSWER_WITHOUT_KEY"),
        ("SELECT max(id) AS id, max(n) AS square FROM questions", "ANSWER_CHANGED"),
    ],
)
def test_two_answers_no_key_and_answers_that_change_stop_the_dataflow(
    spark: SparkSession, tmp_path: Path, query: str, condition: str
) -> None:
    source = bl.push("id STRING, n BIGINT", ack="answer", key="id")
    flow = bl.Dataflow("wrong")
    flow.source("questions", source)
    flow.sql("answers", query).sink("replies", bl.reply(source, tmp_path / "answers.db"))
    run = bl.start(flow, tmp_path / "store", spark=spark)
    for n in range(1, 4):
        flow.push("questions", {"n": n}, key=f"q{n}")
        until(lambda: not run.is_active or run.status().closed["questions"] >= 0)
    until(lambda: not run.is_active)
    assert isinstance(run.exception, BoatliftError)
    assert run.exception.condition == condition


PROGRAM = """
import sys
from pathlib import Path
sys.path[:0] = {paths!r}
import boatlift as bl
from connectors.test_push_answers import flow_at
flow, source = flow_at(Path({folder!r}), {listen!r})
bl.run(flow, Path({folder!r}) / "store", spark=bl.session("local[2]"), on_progress=lambda _: None)
"""


@pytest.mark.spark
@pytest.mark.crash
def test_clients_that_ask_until_they_are_answered_get_one_answer_over_kills(tmp_path: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    paths = [str(Path(__file__).parents[1])]
    program = PROGRAM.format(paths=paths, folder=str(tmp_path), listen=f"127.0.0.1:{port}")
    url, over = f"http://127.0.0.1:{port}/questions", threading.Event()
    answers: dict[str, set[str]] = {}

    def until_answered(n: int) -> None:
        key = f"q{n}"
        while not over.is_set():
            try:
                status, said = ask(url, n, key)
            except (OSError, ValueError):  # the process is dead, or dies
                continue
            if status == 200:
                answers.setdefault(key, set()).add(json.dumps(said))
                return

    def started() -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", program], start_new_session=True)

    process = started()
    try:
        with ThreadPoolExecutor(8) as pool:
            first = pool.submit(until_answered, 0)
            first.result(120)
            for kill in range(2):
                waiting = [pool.submit(until_answered, 100 * kill + number) for number in range(1, 9)]
                until(lambda: any(each.done() for each in waiting), seconds=60)  # noqa: B023 - called at once
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                process = started()
                for each in waiting:
                    each.result(120)
            for n in (0, 1, 8, 101, 108):
                until_answered(n)
    finally:
        over.set()
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert len(answers) == 17
    assert {key: len(each) for key, each in answers.items()} == dict.fromkeys(answers, 1)
    for key, (said,) in answers.items():
        n = int(key[1:])
        assert json.loads(said) == {"id": key, "n": n, "square": n * n}


def test_bad_options_are_refused(tmp_path: Path) -> None:
    for options, said in (
        ({"ack": "answer"}, "names the column"),
        ({"key": "id"}, "names the column"),
        ({"ack": "answer", "key": "n"}, "name a STRING column"),
        ({"ack": "answer", "key": "gone"}, "name a STRING column"),
        ({"ack": "answer", "key": "id", "answer_timeout": timedelta(0)}, "above 0"),
        ({"ack": "soon"}, "'answer'"),
        ({"answer_timeout": timedelta(seconds=1)}, "answer_timeout is for"),
    ):
        with pytest.raises(InvalidError, match=rf"\[BAD_OPTION\].*{said}"):
            bl.push("id STRING, n BIGINT", **options)  # type: ignore[arg-type]
    with pytest.raises(InvalidError, match=r"\[BAD_OPTION\].*ack=\"answer\""):
        bl.reply(bl.push("id STRING"), tmp_path / "answers.db")
    source = bl.push("id STRING", ack="answer", key="id")
    with pytest.raises(InvalidError, match=r"\[BAD_OPTION\] no bl.reply answers the pushes of questions"):
        source.reserve("questions")
    bl.reply(source, tmp_path / "answers.db")
    with pytest.raises(InvalidError, match=r"\[BAD_OPTION\].*one sink"):
        bl.reply(source, tmp_path / "others.db")
