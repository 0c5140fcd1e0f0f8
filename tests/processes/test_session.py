"""A session is set up as steps need it, and one that would break guarantees is refused."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from boatlift.errors import InvalidError
from boatlift.processes.environment import environment
from boatlift.processes.session import check_session, session
from boatlift.processes.settings import CLUSTER_SETTINGS, RUNTIME_SETTINGS, START_SETTINGS, check_java, settings_for


def fake_java(folder: Path, answer: str, code: int = 0) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{answer}' >&2\nexit {code}\n")
    java.chmod(java.stat().st_mode | stat.S_IEXEC)
    return folder


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.1"])
def test_a_new_enough_java_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, f'openjdk version "{version}" 2025-04-15')))
    check_java()


@pytest.mark.parametrize(
    ("answer", "code", "part"),
    [
        ('java version "1.8.0_402"', 0, "is Java 8"),
        ('openjdk version "11.0.2"', 0, "is Java 11"),
        ("cannot execute", 126, "holds no Java that runs"),
    ],
)
def test_an_old_or_broken_java_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, code: int, part: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, answer, code)))
    with pytest.raises(InvalidError) as caught:
        check_java()
    assert caught.value.condition == "NO_JAVA"
    assert part in caught.value.message


def test_java_is_looked_for_on_the_path_and_its_lack_has_one_line_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InvalidError, match=r"\[NO_JAVA\] no Java was found.*Java 17 or newer: "):
        check_java()
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "jdk", 'openjdk version "17"') / "bin"))
    check_java()


def test_a_missing_pyspark_is_an_error_with_the_pip_command() -> None:
    program = "import sys; sys.modules['pyspark'] = None\nfrom boatlift.processes.session import session\nsession()"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "[MISSING_EXTRA] pyspark is not installed: pip install 'boatlift[spark]'" in answer.stderr


def test_the_users_settings_win() -> None:
    settings = settings_for(
        "local[2,4]", {"spark.sql.session.timeZone": "Europe/Berlin", "spark.executor.memory": "2g"}
    )
    assert settings["spark.sql.session.timeZone"] == "Europe/Berlin"
    assert settings["spark.executor.memory"] == "2g"
    assert settings["spark.driver.host"] == "127.0.0.1"
    assert "spark.driver.host" not in settings_for("yarn")
    assert CLUSTER_SETTINGS.items() <= settings_for("spark://127.0.0.1:7077").items()
    assert not CLUSTER_SETTINGS.keys() & settings_for("local[2]").keys()


def test_the_page_lists_every_setting_that_is_changed() -> None:
    page = (Path(__file__).parents[2] / "docs" / "session.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `spark.")]
    for name, value in {**START_SETTINGS, **RUNTIME_SETTINGS, **CLUSTER_SETTINGS}.items():
        (row,) = [line for line in rows if f"`{name}`" in line]
        assert f"| `{value}` |" in row or "| bounded |" in row
    told = page[page.index("yours too") : page.index("## What `bl.session`")]
    assert all(f"| `{name}` |" in told for name in RUNTIME_SETTINGS)


def test_a_log_configuration_of_the_users_own_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    option, _, uri = settings_for("yarn")["spark.driver.extraJavaOptions"].partition("=")
    assert option == "-Dlog4j2.configurationFile"
    assert Path(uri.removeprefix("file://")).is_file()
    (tmp_path / "log4j2.properties").write_text("")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert "spark.driver.extraJavaOptions" not in settings_for("yarn")


def test_spark_connect_is_refused() -> None:
    remote = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(InvalidError, match=r"\[BAD_OPTION\].*Spark Connect"):
        check_session(remote)


def test_speculation_is_refused() -> None:
    conf = SimpleNamespace(get=lambda name, default=None: "true" if name == "spark.speculation" else default)
    user = SimpleNamespace(sparkContext=SimpleNamespace(_jsc=object(), getConf=lambda: conf))
    with pytest.raises(InvalidError, match=r"\[BAD_OPTION\] spark.speculation"):
        check_session(user)  # type: ignore[arg-type]


def test_threads_that_are_not_pinned_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    conf = SimpleNamespace(get=lambda name, default=None: default)
    spark = SimpleNamespace(sparkContext=SimpleNamespace(_jsc=object(), getConf=lambda: conf))
    monkeypatch.setenv("PYSPARK_PIN_THREAD", "False")
    with pytest.raises(InvalidError, match=r"\[BAD_OPTION\] PYSPARK_PIN_THREAD"):
        check_session(spark)  # type: ignore[arg-type]


@pytest.mark.spark
def test_a_session_has_the_settings_that_steps_rest_on(spark: SparkSession) -> None:
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert spark.conf.get("spark.sql.adaptive.enabled") == "false"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.sparkContext.getConf().get("spark.python.unix.domain.socket.enabled") == "true"
    assert spark.sparkContext.getConf().get("spark.scheduler.mode") == "FAIR"


@pytest.mark.spark
def test_a_users_session_is_set_right(spark: SparkSession) -> None:
    own = spark.newSession()
    own.conf.set("spark.sql.adaptive.enabled", "true")
    own.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
    check_session(own)
    assert own.conf.get("spark.sql.adaptive.enabled") == "false"
    assert own.conf.get("spark.sql.files.ignoreCorruptFiles") == "false"


@pytest.mark.spark
def test_a_filter_takes_the_nan_that_the_statistics_of_a_file_leave_out(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [0.5, float("nan")]}), tmp_path / "rows.parquet")
    check_session(spark)
    assert spark.read.parquet(str(tmp_path / "rows.parquet")).where("x > 1").count() == 1


def test_a_second_call_gives_the_session_there_is(spark: SparkSession) -> None:
    assert session().sparkContext is spark.sparkContext


@pytest.mark.spark
def test_the_environment_names_versions_and_settings(spark: SparkSession) -> None:
    own = spark.newSession()
    before = environment(own)
    assert before == environment(own)
    assert {"boatlift", "spark", "java", "python", "pyarrow", "numpy"} <= set(before)
    assert before["spark.sql.session.timeZone"] == "UTC"
    assert before["spark.sql.ansi.enabled"] == "true"
    own.conf.set("spark.sql.ansi.enabled", "false")
    own.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    after = environment(own)
    assert {name for name in after if after[name] != before[name]} == {
        "spark.sql.ansi.enabled",
        "spark.sql.session.timeZone",
    }
