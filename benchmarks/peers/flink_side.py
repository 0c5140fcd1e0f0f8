"""A side in Flink SQL: compiles `flink_peer/` and becomes the JVM that answers.

The JVM answers `prepare` (`folder`, and `state`: `hashmap` or `rocksdb`), `start` (`tables` as declared, a `query`, and
the folder `output` of its changes), `run` (`steps`, each with the file of each table; the answer has the seconds after
which each was visible) and `finish` (what windows still hold is visible after it).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.harness.data import ARTIFACTS
from benchmarks.harness.side import die_with_parent

__all__ = ["why_not"]

ROOT = Path(__file__).resolve().parents[2]
SOURCES = Path(__file__).with_name("flink_peer")
JARS = ROOT / ".kafka" / "flink" / "libs"

HEAP = "4g"
OPENED = ("java.base/java.nio", "java.base/java.util")


def why_not() -> str:
    """Return why Flink is left out, in words; an empty text if it can run. Its jars are fetched."""
    if shutil.which("javac") is None:
        return "its side is compiled when it runs, and there is no javac (install a JDK)"
    if not JARS.exists() and shutil.which("mvn") is None:
        return "its jars are fetched by Maven, and there is no mvn"
    fetched = subprocess.run([sys.executable, str(ROOT / "scripts" / "kafka_jars.py"), "flink"], check=False)
    return "its jars could not be fetched" if fetched.returncode else ""


def command(classes: Path) -> list[str]:
    """Compile the sources into a folder; return the command that runs them."""
    jars = str(JARS / "*")
    java = sorted(str(path) for path in SOURCES.glob("*.java"))
    subprocess.run(["javac", "-nowarn", "-d", str(classes), "-cp", jars, *java], check=True)
    services = classes / "META-INF" / "services"
    services.mkdir(parents=True, exist_ok=True)
    (services / "org.apache.flink.table.factories.Factory").write_text("PeerTables\n")
    opened = [f"--add-opens={package}=ALL-UNNAMED" for package in OPENED]
    return ["java", f"-Xmx{HEAP}", *opened, "-cp", f"{classes}{os.pathsep}{jars}", "FlinkSqlPeer"]


def main() -> None:
    """Become the JVM."""
    die_with_parent()
    classes = ARTIFACTS / "flink-classes"
    answers = os.dup(1)
    os.dup2(2, 1)  # whatever the compiler says is no answer
    told = command(classes)
    os.dup2(answers, 1)
    os.execvp(told[0], told)


if __name__ == "__main__":
    main()
