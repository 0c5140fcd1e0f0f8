"""What the pages say of names, requirements and figures is so."""

from __future__ import annotations

import json
import re
import tomllib

from boatlift.conditions import CONDITIONS
from support.pages import ROOT, TEXT


def test_every_condition_is_one() -> None:
    conditions = set(re.findall(r"\[([A-Z]+(?:_[A-Z]+)*)\](?!\()", TEXT))
    assert conditions
    assert conditions <= set(CONDITIONS)


def test_every_make_target_is_one() -> None:
    targets = set(re.findall(r"(?:^|`)make ([a-z-]+)", TEXT, re.MULTILINE))
    assert targets
    assert targets <= set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_what_pip_installs_is_this_folder_with_extras_that_there_are() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    wanted = re.findall(r'"([^"]*)\[([a-z,]+)\]"', TEXT)
    assert wanted
    assert all(of == "." for of, _ in wanted), "no package index has Boatlift"
    assert {extra for _, names in wanted for extra in names.split(",")} == set(extras)


def test_requirements_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    python = project["requires-python"].removeprefix(">=")
    pyspark = next(each for each in project["optional-dependencies"]["spark"] if each.startswith("pyspark"))
    least, below = re.fullmatch(r"pyspark\[sql\]>=([\d.]+),<([\d.]+)", pyspark).groups()
    assert f"Python ≥ {python}, Java ≥ 17, PySpark ≥ {least} and < {below}" in " ".join(TEXT.split())


def test_the_figures_are_those_of_the_newest_results() -> None:
    results = {each["name"]: each for each in json.loads((ROOT / "benchmarks/results/latest.json").read_text())}

    def ratios(name: str) -> list[float]:
        assert results[name]["met"]
        return list(results[name]["ratios"].values())

    p50_rocksdb, p50_memory, *_ = ratios("step_latency")
    over_arrow, by_key, *_ = ratios("processor")
    said = (
        *(
            f"{rocksdb:.1f} times the rows/s of its RocksDB state, {memory:.1f} times those of its in-memory state"
            for rocksdb, memory in map(ratios, ("keyed_aggregation", "join", "windows", "dedup"))
        ),
        (
            f"| {by_key:.0f} times the rows/s of `transformWithStateInPandas` on RocksDB, "
            f"over Arrow {over_arrow:.0f} times |"
        ),
        f"| {p50_rocksdb:.2f} of RocksDB's, {p50_memory:.2f} of in-memory state's |",
        f"| latency with 10M keys over that with 100k, median | {ratios('state_growth')[0]:.2f} |",
        f"| throughput with log and checkpoints over that without | {ratios('overhead')[0]:.2f}",
        f"in a warm session | {ratios('recovery')[0]:.2f} s |",
        f"| {ratios('restart_replay')[1]:.1f} s, and no step is executed again |",
        f"no step is executed again; {ratios('restart_replay')[2]:.2f} of a restart of everything |",
        f"1% of 1M keys changed | {ratios('checkpoint_size')[0]:.1%} of the state, on average |",
    )
    assert [figure for figure in said if figure not in TEXT] == []
    machines = [each["machine"] for each in results.values()]
    assert all(machine["cpu"] in TEXT for machine in machines)
    (cores,), (pyspark,) = ({machine[each] for machine in machines} for each in ("cores", "pyspark"))
    assert f"{cores} cores; PySpark {pyspark}, Java 17" in " ".join(TEXT.split())
