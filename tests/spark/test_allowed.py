"""The lists name classes that Spark has, each in one list only. Needs no JVM."""

from __future__ import annotations

import importlib.util
import itertools
import zipfile
from pathlib import Path

import pytest

from boatlift.spark.plans import allowed

EXPRESSIONS = "org/apache/spark/sql/catalyst/expressions/"


@pytest.fixture(scope="module")
def classes() -> set[str]:
    """All classes of Spark's catalyst, by path."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    (jar,) = (Path(spec.origin).parent / "jars").glob("spark-catalyst_*.jar")
    with zipfile.ZipFile(jar) as archive:
        return {name.removesuffix(".class") for name in archive.namelist() if name.endswith(".class")}


LISTS = {
    "row-wise": allowed.ROW_WISE,
    "not deterministic": frozenset(allowed.NONDETERMINISTIC),
    "not row-wise": frozenset(allowed.NOT_ROW_WISE_EXPRESSIONS),
    "code of the user": allowed.USER_FUNCTIONS,
}


@pytest.mark.parametrize("name", LISTS)
def test_every_expression_is_one_of_sparks(classes: set[str], name: str) -> None:
    unknown = sorted(kind for kind in LISTS[name] if EXPRESSIONS + kind.replace(".", "/") not in classes)
    assert unknown == []


def test_no_expression_is_in_two_lists() -> None:
    for one, other in itertools.combinations(LISTS.values(), 2):
        assert not one & other


def test_every_node_is_one_of_sparks(classes: set[str]) -> None:
    logical = {name.rpartition("/")[2] for name in classes if "/plans/logical/" in name}
    # Leaves that are read from files are part of Spark's execution, not of catalyst.
    execution = {"LogicalRDD", "LogicalRelation", "DataSourceV2Relation"}
    assert sorted((allowed.NODES | allowed.STATIC_LEAVES | set(allowed.NOT_ROW_WISE_NODES)) - logical - execution) == []
    assert not allowed.NODES & set(allowed.NOT_ROW_WISE_NODES)


@pytest.mark.parametrize(
    "kind",
    ["CurrentTimestamp", "Rand", "Uuid", "PythonUDF", "WindowExpression", "ScalarSubquery", "AesEncrypt", "PythonUDAF"],
)
def test_expressions_that_must_never_pass_are_not_allowed(kind: str) -> None:
    assert kind not in allowed.ROW_WISE
