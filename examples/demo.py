"""`make demo`: four regimes in one application, every part of it killed; the answers are those of one execution.

Flights and questions come in little by little. In each round the process of `answers.py` is killed by SIGKILL in
another of its parts, and started again with the same command. Then its state, its model and every answer are compared
with plain computations over all flights. Each answer must come from one moment, and moments must not go back.
"""

from __future__ import annotations

import csv
import math
import shutil
import struct
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from under_attack import HERE, OUTPUT, WrongError, exact, rows_of, run, say, verify, watchable

ATTACKS = (
    (
        "sink.stage(connections):before:2",  # while weeks bring new connections: a step without rows has no task
        "the loop has done its rounds, and is about to stage its rows, in a task",
    ),
    ("sink.commit(answers):after:10", "answers to questions were just committed"),
    ("sink.stage(model):before:1", "the batch is in the middle of its job, in a task"),
    ("sink.commit(statistics):before:12", "the eager statistics are durable, and about to be seen"),
    ("store.create(runs):after:12", "a lazy checkpoint is half durable"),
    ("sink.stage(network):before:1", "the running totals are in the middle of a job, in a task"),
    ("store.create(log):before:40", "the log is about to take in another group of records"),
    ("store.delete(log):after:5", "garbage is half collected"),
)
QUERIES_A_FILE = 20
FOLDER = OUTPUT / "answers"


def main() -> None:
    """Run the demo, print the outcome, and exit with 0 or 1."""
    began = time.monotonic()
    try:
        weeks, queries = prepare()
        with watchable(FOLDER):
            attack(weeks, queries)
        verdict(weeks, queries)
    except WrongError as wrong:
        print(f"demo failed: {wrong}")
        sys.exit(1)
    say(f"{time.monotonic() - began:.0f} s in all; look for yourself:")
    print(f"  sqlite3 {FOLDER}/answers.db 'SELECT * FROM answers WHERE fit_median IS NOT NULL LIMIT 5'")
    for command in ("status", "console", "explain", "gc", "log", "checkpoints", "verify"):
        print(f"  .venv/bin/boatlift {command} --store {FOLDER}/store")
    print("demo passed")


def prepare() -> tuple[list[Path], list[Path]]:
    """Cut the flights into weeks, and ask about some of each week's flights before they are flown."""
    sys.path.insert(0, str(HERE))
    from cut_flights import cut

    shutil.rmtree(OUTPUT, ignore_errors=True)
    flights = cut(OUTPUT / "data" / "flights")
    weeks = sorted((OUTPUT / "data" / "flights").glob("*.csv"))
    files = list(questions(weeks, OUTPUT / "data" / "queries"))
    (FOLDER / "flights").mkdir(parents=True)
    (FOLDER / "queries").mkdir()
    asked = sum(len(rows_in(file)) for file in files)
    print(
        f"One Spark application takes {flights:,} real flights in {len(weeks)} weeks: it cleans them (ephemeral),\n"
        f"keeps totals and a loop (lazy), fits a model (batch), counts (eager), and answers {asked:,} questions. It\n"
        f"is killed by SIGKILL {len(ATTACKS)} times, each time in another part, and started again as before.\n"
        "In the end every answer is compared with plain computations over all flights. It takes some minutes."
    )
    return weeks, files


def questions(weeks: Sequence[Path], folder: Path) -> Iterator[Path]:
    """Write, for every week, files of questions about its flights: two for each day."""
    folder.mkdir()
    number = 0
    for week in weeks:
        flights = rows_in(week)
        for part in range(2):
            chosen = flights[part * 7 :: max(1, len(flights) // QUERIES_A_FILE)][:QUERIES_A_FILE]
            path = folder / f"{week.stem}-{part}.csv"
            with path.open("w", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(["id", "month", "carrier", "flight", "origin", "dest"])
                for flight in chosen:
                    writer.writerow([number, *(flight[c] for c in ("month", "carrier", "flight", "origin", "dest"))])
                    number += 1
            yield path


def rows_in(path: Path) -> list[dict[str, str]]:
    """Read a CSV file."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def attack(weeks: Sequence[Path], queries: Sequence[Path]) -> None:
    """Let some weeks come in, and kill the application at a point; then more weeks, and another point."""
    before: dict[Any, Any] = {}
    share = math.ceil(len(weeks) / (len(ATTACKS) + 1))
    for number, (point, moment) in enumerate((*ATTACKS, (None, "")), start=1):
        come_in(weeks[: number * share], FOLDER / "flights")
        come_in(queries[: 2 * number * share], FOLDER / "queries")
        there = min(number * share, len(weeks))
        bar = ("█" * share + "✖") * (number - 1) + "█" * (there - (number - 1) * share) + "·" * (len(weeks) - there)
        say(f"{bar} {there} of {len(weeks)} weeks")
        died = run(FOLDER, "answers:flow", point)
        if died != (point is not None):
            raise WrongError(f"the run passed {point} without being killed there")
        now = {row[0]: row for row in exact(rows_of(FOLDER, "SELECT * FROM answers"))}
        changed = [number for number, answer in before.items() if now.get(number) != answer]
        if changed:
            raise WrongError(f"the answers to {changed[:5]} were given, and are others now")
        end = f"SIGKILL as {moment} ({point})" if died else "finished"
        say(f"  {end}; {len(now):,} questions are answered, none taken back")
        before = now


def come_in(files: Sequence[Path], folder: Path) -> None:
    """Put files in place, each whole."""
    for file in files:
        target = folder / file.name
        if not target.exists():
            unfinished = folder / f".{file.name}.tmp"
            shutil.copyfile(file, unfinished)
            unfinished.rename(target)


def verdict(weeks: Sequence[Path], queries: Sequence[Path]) -> None:
    """Compare the results with plain computations over all flights."""
    history = History([[arrival for row in rows_in(week) if (arrival := arrived(row))] for week in weeks])
    check_answers(history, queries)
    check_state(history)
    check_connections(history)
    check_statistics()
    verify(FOLDER)


Arrival = tuple[str, str, str, int, int]
"""Origin, destination, airline, month, delay."""


def arrived(row: Mapping[str, str]) -> Arrival | None:
    """Return the columns that matter of a flight that arrived."""
    if row["arr_delay"] == "NA":
        return None
    return row["origin"], row["dest"], row["carrier"], int(row["month"]), int(row["arr_delay"])


class History:
    """All flights by week, and what was known after each week."""

    def __init__(self, weeks: Sequence[Sequence[Arrival]]) -> None:
        self.weeks = len(weeks)
        self._delays: dict[tuple[Any, ...], list[int]] = defaultdict(list)
        self._counts: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0] * (len(weeks) + 1))
        for number, week in enumerate(weeks, start=1):
            for origin, dest, carrier, month, delay in week:
                for key in ((origin,), (origin, dest), (origin, dest, carrier, month)):
                    self._delays[key].append(delay)
                    self._counts[key][number] += 1
        self._known = {key: list(accumulate(counts)) for key, counts in self._counts.items()}

    def keys(self, length: int) -> set[tuple[Any, ...]]:
        """Return the airports (1), the routes (2), or what the model knows apart (4)."""
        return {key for key in self._delays if len(key) == length}

    def delays(self, key: tuple[Any, ...], seen: int | None) -> list[int]:
        """Return the first delays of a key."""
        return self._delays.get(key, [])[: seen or 0]

    def moments(self, key: tuple[Any, ...], seen: int | None) -> set[int]:
        """Return the number of weeks after which so many flights of a key were known; None if none were."""
        known = self._known.get(key, [0] * (self.weeks + 1))
        return {weeks for weeks, count in enumerate(known) if count == (seen or 0)}


def check_answers(history: History, queries: Sequence[Path]) -> None:
    """Check that each question has one answer, each file was answered from one moment, and moments do not go back."""
    columns = (
        "id, origin, dest, carrier, month, airport_flights, airport_delay, route_flights, route_delay, fit_seen, "
        "fit_median, expected"
    )
    answers = {row[0]: row for row in rows_of(FOLDER, f"SELECT {columns} FROM answers")}
    asked = [[int(row["id"]) for row in rows_in(file)] for file in queries]
    if sorted(answers) != sorted(number for file in asked for number in file):
        raise WrongError("not every question has one answer, or a question that was not asked has one")
    moments = {"airports": 0, "routes": 0, "model": 0}
    modelled = 0
    for file in asked:
        for what, possible in moments_of(history, [answers[number] for number in file]).items():
            later = sorted(moment for moment in possible if moment >= moments[what])
            if not later:
                raise WrongError(
                    f"the questions {file[0]} to {file[-1]} were not answered from one moment of the {what}"
                )
            moments[what] = later[0]
        modelled += sum(answers[number][9] is not None for number in file)
    say(f"{len(answers):,} answers, each of its own moment, {modelled:,} of them from the model")


def moments_of(history: History, answers: Sequence[tuple[Any, ...]]) -> dict[str, set[int]]:
    """Return for each table the moments that all of some answers can come from, and check their values."""
    fitting: dict[str, set[int]] = {what: set(range(history.weeks + 1)) for what in ("airports", "routes", "model")}
    for number, origin, dest, carrier, month, *known, told in answers:  # counts and values in turn
        keys = ((origin,), (origin, dest), (origin, dest, carrier, month))
        values = []
        for what, key, seen, value in zip(fitting, keys, known[::2], known[1::2], strict=True):
            moments = history.moments(key, seen)
            fitting[what] &= moments
            delays = history.delays(key, seen)
            right = None if not delays else median(delays) if what == "model" else sum(delays) / len(delays)
            values.append(value)
            if not moments or not same(value, right):
                raise WrongError(f"question {number}: {what} say {value} of {key} after {seen} flights, it was {right}")
        if not same(told, next((value for value in reversed(values) if value is not None), None)):
            raise WrongError(f"question {number} was answered {told}, known were {values}")
    return fitting


def check_state(history: History) -> None:
    """Check that the state and the model in the end are those of all flights."""
    routes = {row[:2]: row[2:] for row in rows_of(FOLDER, "SELECT origin, dest, flights, delay FROM network")}
    model = {
        row[:4]: row[4:] for row in rows_of(FOLDER, "SELECT origin, dest, carrier, month, seen, median FROM model")
    }
    for what, found, of in (("network", routes, lambda d: sum(d) / len(d)), ("model", model, median)):
        if found.keys() != history.keys(2 if what == "network" else 4):
            raise WrongError(f"the {what} does not hold what it should")
        for key, (count, value) in found.items():
            delays = history.delays(key, sys.maxsize)
            if count != len(delays) or not same(value, of(delays)):
                raise WrongError(f"the {what} says {count}, {value} of {key}: it is {len(delays)}, {of(delays)}")
    say(f"the network holds {len(routes)} routes, the model {len(model):,} entries: what plain computations give")
    for key in sorted(routes)[:3]:
        delays = history.delays(key, sys.maxsize)
        ours, plain = (struct.pack(">d", value).hex() for value in (routes[key][1], sum(delays) / len(delays)))
        say(f"  mean delay {key[0]}→{key[1]}: {ours} after {len(ATTACKS)} kills, {plain} by a plain computation")
        if ours != plain:
            raise WrongError(f"the mean delay of {key} differs in its bits")


def check_connections(history: History) -> None:
    """Check that the connections in the end are the fewest flights between each two airports."""
    legs: dict[str, set[str]] = defaultdict(set)
    for origin, dest in history.keys(2):
        legs[origin].add(dest)
        legs[dest].add(origin)
    found = {row[:2]: row[2] for row in rows_of(FOLDER, "SELECT origin, dest, flights FROM connections")}
    for start in legs:
        far, edge, seen = 0, {start}, {start}
        while edge:
            far, edge = far + 1, set().union(*(legs[airport] for airport in edge)) - seen
            seen |= edge
            for airport in edge:
                if found.pop((start, airport), None) != far:
                    raise WrongError(f"the connections do not say {far} flights from {start} to {airport}")
    if found:
        raise WrongError(f"there are no such connections: {sorted(found)[:5]}")
    say(f"the fewest flights between each two of {len(legs)} airports: what a search in breadth gives")


def check_statistics() -> None:
    """Check that the statistics agree with the answers."""
    told: dict[str, list[float]] = defaultdict(list)
    for carrier, expected in rows_of(FOLDER, "SELECT carrier, expected FROM answers"):
        told[carrier] += [] if expected is None else [expected]
    asked = Counter(carrier for (carrier,) in rows_of(FOLDER, "SELECT carrier FROM answers"))
    for carrier, count, mean in rows_of(FOLDER, "SELECT carrier, asked, told FROM interest"):
        right = sum(told[carrier]) / len(told[carrier]) if told[carrier] else None
        if asked.pop(carrier, 0) != count or not same(mean, right):
            raise WrongError(f"the statistics say {count}, {mean} of {carrier}: the answers do not")
    if asked:
        raise WrongError(f"the statistics lack {sorted(asked)}")
    say(f"the statistics of {len(told)} airlines agree with the answers")


def median(delays: Sequence[int]) -> float:
    """Return the median as SQL's percentile does."""
    ordered = sorted(delays)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def same(found: float | None, right: float | None) -> bool:
    """Compare numbers; a plain sum of floats depends on the order."""
    if found is None or right is None:
        return found is right
    return math.isclose(found, right, rel_tol=1e-9, abs_tol=1e-9)


if __name__ == "__main__":
    main()
