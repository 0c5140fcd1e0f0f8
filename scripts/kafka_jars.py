"""Fetches the jars of a Kafka broker into .kafka/libs by Maven (`make kafka-jars`); quick when they are there.

The argument `spark` fetches the jars of Spark's own connector into .kafka/spark/libs, `flink` those of Flink into
.kafka/flink/libs, `postgres` the driver of Spark's JDBC writer into .kafka/postgres/libs, and `delta` the Delta sink of
Structured Streaming into .kafka/delta/libs: peers in benchmarks. Any number of these programs may run at once, and any
of them be killed: a folder named `libs` is always whole.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
POM = ROOT / "scripts" / "kafka" / "pom.xml"
FOLDER = ROOT / ".kafka"


def provide(pom: Path, folder: Path) -> None:
    """Fetch the jars of a pom into `folder/libs`, unless they are there.

    Raises:
        SystemExit: There is no Maven, or it failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # The pom that made them lies among the jars, and comes there by the same rename.
        libs = folder / "libs"
        if (libs / "pom.xml").is_file() and (libs / "pom.xml").read_bytes() == pom.read_bytes():
            return
        require_maven()
        making, old = folder / "making", folder / "old"
        for left_behind in (making, old):
            shutil.rmtree(left_behind, ignore_errors=True)
        print(f"kafka-jars: fetching what {pom.name} names (a broker is 50 MB)", flush=True)
        fetch(pom, making, folder / "repository", lock.fileno())
        shutil.copyfile(pom, making / "pom.xml")
        if libs.exists():
            libs.rename(old)
        making.rename(libs)
        shutil.rmtree(old, ignore_errors=True)


def fetch(pom: Path, into: Path, repository: Path, lock: int) -> None:
    """Run Maven with a local repository of its own: the user's repository can lack the jars themselves."""
    # fmt: off
    command = [
        "mvn", "--quiet", "--batch-mode", "--strict-checksums", "-Dstyle.color=never", "--file", str(pom),
        f"-Dmaven.repo.local={repository}", "dependency:copy-dependencies",
        "-DincludeScope=runtime", f"-DoutputDirectory={into}",
    ]
    # fmt: on
    # Maven has the lock too: if this process is killed, no other one begins before Maven has ended.
    if subprocess.run(command, pass_fds=[lock], check=False).returncode != 0:
        stop("Maven could not fetch the jars: see above")


def require_maven() -> None:
    """Find Maven, or install the system's package where that is allowed."""
    if shutil.which("mvn"):
        return
    if shutil.which("apt-get") and (root := as_root()) is not None:
        print("kafka-jars: there is no mvn: installing the system's package with apt-get", flush=True)
        subprocess.run([*root, "apt-get", "update", "-qq"], check=False)
        install = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y", "-qq"]
        subprocess.run([*root, *install, "--no-install-recommends", "maven"], check=False)
        if shutil.which("mvn"):
            return
    for tool, line in (
        ("apt-get", "sudo apt-get install -y maven"),
        ("dnf", "sudo dnf install -y maven"),
        ("brew", "brew install maven"),
    ):
        if shutil.which(tool):
            stop(f"Maven fetches the jars of the Kafka broker and there is no mvn. Type: {line}")
    stop("Maven fetches the jars of the Kafka broker and there is no mvn: install it")


def as_root() -> list[str] | None:
    """Return the prefix of a command that needs root; None if there is no way."""
    if os.geteuid() == 0:
        return []
    sudo = ["sudo", "-n"]
    if shutil.which("sudo") and subprocess.run([*sudo, "true"], capture_output=True, check=False).returncode == 0:
        return sudo
    return None


def stop(why: str) -> None:
    """End with one sentence."""
    sys.exit(f"kafka-jars: {why}")


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            provide(POM, FOLDER)
        case [("spark" | "flink" | "postgres" | "delta") as peer]:
            provide(POM.with_name(f"{peer}.xml"), FOLDER / peer)
        case _:
            stop("say spark, flink, postgres, delta or nothing")
