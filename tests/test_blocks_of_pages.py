"""Every block of code on the pages is run by a test, and names what there is."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from pyspark.sql import functions as F

import boatlift as bl
from support.pages import FOLLOWED, Block, blocks

PYTHON = blocks(language="python")
OTHERS = [block for block in blocks() if block.page not in FOLLOWED]
"""The blocks of the pages that `test_tutorial.py` does not follow from the first block to the last."""

TESTS = "".join(
    (Path(__file__).parent / each).read_text(encoding="utf-8")
    for each in (
        "test_pages.py",
        "test_tutorial.py",
        "console/test_serve.py",
        "connectors/test_database_pages.py",
        "connectors/test_push_page.py",
        "connectors/test_delta_page.py",
        "deploy/test_kubernetes_page.py",
        "testing/test_crash_page.py",
        "dataflow/test_policies_page.py",
    )
)

RUN_BY = {
    "# visits.py": "test_the_first_program_prints_what_is_printed_below_it",
    "python3 -m venv": "test_the_first_program_prints_what_is_printed_below_it",
    "trips = flow.source": "test_bad_rows_go_where_is_said",
    "import os": "test_late_flights_are_delivered",
    "named = flights.transform": "test_late_flights_are_posted_row_by_row",
    "@F.udf": "test_joins_and_functions_run_and_give_what_is_said",
    "def price_of": "test_joins_and_functions_run_and_give_what_is_said",
    "# delays.py": "test_the_kafka_example_takes_messages_and_gives_messages",
    'python -c "from boatlift.testing': "test_the_broker_to_try_kafka_with_listens_where_it_says",
    "orders = flow.source": "test_pushes_from_python_and_by_curl_are_answered_as_is_printed",
    "curl": "test_pushes_from_python_and_by_curl_are_answered_as_is_printed",
    "asked = bl.push": "test_pushes_from_python_and_by_curl_are_answered_as_is_printed",
    "stock = flow.source": "test_pushes_from_python_and_by_curl_are_answered_as_is_printed",
    'bl.sql(flow, "store", "INSERT': "test_pushes_from_python_and_by_curl_are_answered_as_is_printed",
    "boatlift sql shop:flow": "test_pushes_from_python_and_by_curl_are_answered_as_is_printed",
    "running = bl.start": "test_pushes_from_python_and_by_curl_are_answered_as_is_printed",
    "flow.sql": "test_views_give_what_is_said",
    "prices = flow.source": "test_rows_that_go_give_what_is_said",
    "def large": "test_a_rule_for_checkpoints_is_a_function_as_is_said",
    "total = clean.agg": "test_aggregates_give_what_is_said",
    "late, early": "test_aggregates_give_what_is_said",
    "def streaks": "test_the_processor_gives_what_is_said",
    "timed = flights": "test_windows_that_end_give_what_is_said",
    "def connections": "test_the_loop_gives_what_is_said",
    "live = clean": "test_joins_and_functions_run_and_give_what_is_said",
    'by_origin.sink("origins", bl.kafka': "test_topics_are_shown_together_as_is_said",
    "by_origin = clean": "test_sinks_are_shown_together_as_is_said",
    "SELECT (SELECT sum(flights)": "test_sinks_are_shown_together_as_is_said",
    "history = spark.read": "test_reading_the_results_gives_what_is_said",
    "bl.seen(flow": "test_reading_the_results_gives_what_is_said",
    "worst = clean": "test_reading_the_results_gives_what_is_said",
    "answer = bl.sql": "test_reading_the_results_gives_what_is_said",
    "boatlift sql flights:flow": "test_reading_the_results_gives_what_is_said",
    "boatlift run flights:flow": "test_the_commands_for_a_cluster_run_one_after_the_other_on_one_store",
    "boatlift console": "test_it_serves_a_store_without_spark_or_java_until_it_is_stopped",
    "export AWS": "test_a_store_in_a_bucket_goes_as_is_said",
    'bl.run(flow, "s3': "test_a_store_in_a_bucket_goes_as_is_said",
    'flights.sink("lake': "test_a_store_in_a_bucket_goes_as_is_said",
    "events = flow.source": "test_a_store_in_a_bucket_goes_as_is_said",
    'clean.sink("lake", bl.delta': "test_a_dataflow_into_delta_tables_goes_as_is_said",
    "from deltalake": "test_a_dataflow_into_delta_tables_goes_as_is_said",
    'clean.group_by("origin", "dest").agg("routes"': "test_a_dataflow_into_postgresql_goes_as_is_said",
    "export PGUSER": "test_a_dataflow_into_postgresql_goes_as_is_said",
    "GRANT CREATE": "test_a_dataflow_into_postgresql_goes_as_is_said",
    'clean.group_by("origin", "dest").agg("by_route"': "test_a_dataflow_into_mariadb_goes_as_is_said",
    "export MYSQL_PWD": "test_a_dataflow_into_mariadb_goes_as_is_said",
    "CREATE USER boatlift": "test_a_dataflow_into_mariadb_goes_as_is_said",
    "podman build": "test_the_commands_of_the_page_name_what_there_is",
    "kubectl": "test_the_commands_of_the_page_name_what_there_is",
    "# main.py": "test_the_commands_for_a_cluster_run_one_after_the_other_on_one_store",
    "boatlift crash visits:flow": "test_the_verdicts_are_those_that_are_printed",
    "# luck.py": "test_the_verdicts_are_those_that_are_printed",
    "boatlift crash luck:flow": "test_the_verdicts_are_those_that_are_printed",
    "from boatlift.testing import crash_test": "test_the_verdicts_are_those_that_are_printed",
    "spark-submit": "test_the_commands_for_a_cluster_run_one_after_the_other_on_one_store",
}
"""How each block begins, and the test that runs it."""

NOT_RUN = {"make demo": "`make demo` takes minutes and has tests of its own; `make test` is what runs this"}
"""How other blocks begin, and why no test runs them."""


def named(block: Block) -> str:
    return f"{block.page.stem} line {block.line}"


@pytest.mark.parametrize("block", OTHERS, ids=named)
def test_every_block_is_run_by_a_test_or_says_why_not(block: Block) -> None:
    first = [begin for begin in (*RUN_BY, *NOT_RUN) if block.text.startswith(begin)]
    assert len(first) == 1, block.text
    assert first[0] in NOT_RUN or f"def {RUN_BY[first[0]]}(" in TESTS


def test_no_test_is_named_for_a_block_that_is_gone() -> None:
    texts = [block.text for block in OTHERS]
    assert [begin for begin in (*RUN_BY, *NOT_RUN) if not any(text.startswith(begin) for text in texts)] == []


@pytest.mark.parametrize("block", PYTHON, ids=named)
def test_every_python_block_compiles_and_names_what_there_is(block: Block) -> None:
    owners = {"bl": bl, "F": F, "flow": bl.Dataflow("pages"), "running": bl.Running}
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in owners:
            assert hasattr(owners[node.value.id], node.attr), f"{node.value.id}.{node.attr}"
