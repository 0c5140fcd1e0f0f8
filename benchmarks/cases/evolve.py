"""The time without new input when a program changes: a run with the consent to its plan, until it has returned.

An aggregate's expression changes over 10M rows of history with 1M keys, and the batch query over the same rows is the
peer; a run adds a sink to the same store, and a plain restart is the peer. One view of twenty changes, over all twenty
filled: these read a tenth of the rows, because twenty aggregates of all of them take minutes.
"""

from __future__ import annotations

from benchmarks.harness import data
from benchmarks.harness.measuring import Effort, Figure, Result, median_ratio
from benchmarks.harness.side import Side

__all__ = ["measure"]

FILES, VIEWS = 10, 20

BATCH = "SELECT k, count(*) AS n, sum(v * {factor}) AS s FROM rows GROUP BY k"

MOST_OF_BATCH, MOST_OF_ALL, MOST_OF_RESTART = 1.5, 0.2, 1.5


def measure(effort: Effort) -> Result:
    """Change the programs again and again."""
    aggregate, views = _aggregate(effort), _views(effort)
    of_batch = median_ratio(aggregate["changed"], aggregate["batch"])
    of_all = median_ratio(views["one"], views["all"])
    restart = aggregate["restart"]
    with_past, from_now = (median_ratio(aggregate[name], restart) for name in ("sink", "sink, now"))
    names = {
        "changed": "an aggregate's expression changed",
        "batch": "the batch query",
        "restart": "a plain restart",
        "sink": "a further sink",
        "sink, now": "a further sink from now on",
        "one": "one view of twenty changed",
        "all": "all twenty filled",
    }
    taken = {**aggregate, **views}
    return Result(
        name="evolve",
        target=f"stopped time: a changed aggregate over the batch query at most {MOST_OF_BATCH:g}; one view of {VIEWS} "
        f"over all of them at most {MOST_OF_ALL:g}; a further sink over a restart at most {MOST_OF_RESTART:g}",
        met=of_batch <= MOST_OF_BATCH and of_all <= MOST_OF_ALL and with_past <= MOST_OF_RESTART,
        ratios={
            "batch query": of_batch,
            "one view of twenty, over all": of_all,
            "a further sink, over a restart": with_past,
            "a further sink from now on, over a restart": from_now,
        },
        figures={shown: Figure.of("s", taken[name]) for name, shown in names.items()},
    )


def _aggregate(effort: Effort) -> dict[str, list[float]]:
    """Return the seconds of each change of an aggregate over 10M rows, and of its peers."""
    keys = effort.keys(1_000_000)
    taken: dict[str, list[float]] = {name: [] for name in ("batch", "changed", "restart", "sink", "sink, now")}
    with Side("benchmarks.sides.changing_side") as side:
        side.ask("feed", files=[str(path) for path in data.drawn_keys(keys, keys, FILES)])
        side.ask("run", sinks=["changes"])
        for number in range(effort.rounds + 1):
            program = {"factor": number + 2, "sinks": ["changes"]}
            answers = {
                "batch": side.ask("batch", query=BATCH.format(factor=number + 2)),
                "changed": side.ask("evolve", **program),
                "restart": side.ask("run", **program),
            }
            for name, change in {"sink": {}, "sink, now": {f"now{number}": "now"}}.items():
                # A new name each time: a sink that comes back has got its rows already.
                added = {**program, "sinks": ["changes", *(change or [f"copy{number}"])]}
                answers[name] = side.ask("evolve", change=change, **added)
                side.ask("evolve", **program)
            if number:  # the first round warms the session up
                for name, answer in answers.items():
                    taken[name].append(float(answer["seconds"]))
        if (found := side.ask("wrong", sink="changes"))["wrong"]:
            raise RuntimeError(f"{found['wrong']} rows of {found['rows']} differ from those of the batch query")
    return taken


def _views(effort: Effort) -> dict[str, list[float]]:
    """Return the seconds of each change of one view, and of all."""
    rows = effort.keys(100_000)
    taken: dict[str, list[float]] = {"one": [], "all": []}
    with Side("benchmarks.sides.changing_side") as side:
        side.ask("feed", files=[str(path) for path in data.drawn_keys(rows, rows, FILES)])
        side.ask("run", views=VIEWS)
        for number in range(effort.rounds + 1):
            one = side.ask("evolve", factor=2 * number + 2, views=VIEWS)
            every = side.ask("evolve", factor=2 * number + 3, views=VIEWS, change={"all": "fill"})
            if (len(one["computed"]), len(every["computed"])) != (1, VIEWS):
                raise RuntimeError(f"computed: {one['computed']}, and {every['computed']}")
            if number:
                taken["one"].append(float(one["seconds"]))
                taken["all"].append(float(every["seconds"]))
    return taken
