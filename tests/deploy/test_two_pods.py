"""The pods of deploy/kubernetes as processes: each is process 1 of a namespace, with the arguments of the manifest."""

from __future__ import annotations

import http.client
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from boatlift.testing.object_server import ObjectServer
from support.manifests import DEPLOY, Document, container_of, documents_of, named
from support.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

FLOW = """
import boatlift as bl
from pyspark.sql import functions as F

flow = bl.Dataflow("flights")
rows = flow.source("rows", bl.files(DATA, schema="k INT, v INT", max_files_per_step=1))
rows.group_by("k").agg("sums", F.sum("v").alias("v"), policy=bl.Lazy(every=3)).sink("history", bl.parquet(HISTORY))
"""

PROCESS_1 = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
OWNER, STANDBY = (200, "owner"), (503, "standby")


class Pod:
    """A container of the Deployment: what Kubernetes starts again by itself, `start` does."""

    def __init__(self, documents: list[Document], folder: Path, secret: dict[str, str]) -> None:
        self._container, self.folder = container_of(documents), folder
        self.address = ".".join(["127", *(str(random.randint(1, 250)) for _ in range(3))])
        self._grace = named(documents, "Deployment")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
        settings = {**named(documents, "ConfigMap")["data"], **secret}
        outer = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "BOATLIFT_"))}
        scratch = str(folder / "scratch")
        self._environment = outer | {
            name: value.replace("/scratch", scratch) if value.startswith("/") else value
            for name, value in settings.items()
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        fields = {each["name"]: self.address for each in self._container["env"]}
        assert fields.keys() == {"POD_IP"}
        # A pod has all addresses of its network for itself, and these two share one.
        arguments = [
            each.replace("$(POD_IP)", self.address).replace("0.0.0.0:", f"{self.address}:")
            for each in self._container["args"]
        ]
        command = [*PROCESS_1, sys.executable, "-m", "boatlift.console", *arguments]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=self.folder, env={**self._environment, **fields}, stdout=log, stderr=log
            )

    def asked(self, probe: str) -> tuple[int, dict[str, Any]]:
        """Ask as the kubelet does."""
        port = {each["name"]: each["containerPort"] for each in self._container["ports"]}["health"]
        with closing(http.client.HTTPConnection(self.address, port, timeout=10)) as connection:
            connection.request("GET", self._container[probe]["httpGet"]["path"] if probe.endswith("Probe") else probe)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    def role(self) -> tuple[int, str]:
        with suppress(OSError):
            status, body = self.asked("/readyz")
            return status, body["role"]
        return 0, "refused"

    @property
    def inside(self) -> int:
        """The number of process 1, as this process sees it."""
        assert self._process is not None
        (child,) = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        return int(child)

    def zombies(self) -> int:
        children = Path(f"/proc/{self.inside}/task/{self.inside}/children").read_text().split()
        return sum(Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()[0] == "Z" for each in children)

    def kill(self, number: int = signal.SIGKILL) -> int:
        assert self._process is not None
        os.kill(self.inside, number)
        return self._process.wait(self._grace)

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def log(self) -> str:
        return (self.folder / "log").read_text()


class Deployment:
    def __init__(self, root: Path, server: ObjectServer, stack: ExitStack) -> None:
        documents = documents_of(DEPLOY / "base")
        secret = {**server.environment, "BOATLIFT_STORE": server.url("flows/flights")}
        self._data, self.history, self.fed = root / "data", root / "history", 0
        self._data.mkdir()
        self.pods = []
        for number in range(named(documents, "Deployment")["spec"]["replicas"]):
            folder = root / f"pod-{number}"
            folder.mkdir()
            places = f"DATA, HISTORY = {str(self._data / '*.csv')!r}, {str(self.history)!r}"
            (folder / "flights.py").write_text(places + FLOW)
            self.pods.append(Pod(documents, folder, secret))
            stack.callback(self.pods[-1].end)

    def roles(self) -> tuple[Pod, Pod]:
        """Wait until one owns, and the other is a standby that is ready; return both."""

        def are_there() -> tuple[Pod, Pod] | None:
            owners = [each for each in self.pods if each.role() == OWNER]
            others = [each for each in self.pods if each.role() == STANDBY]
            if len(owners) == len(others) == 1 and others[0].asked("readinessProbe")[0] == 200:
                return owners[0], others[0]
            return None

        found = until(are_there, 240)
        assert found is not None
        return found

    def feed(self, files: int) -> None:
        """Add files, and wait until the sink has the step of each."""
        for _ in range(files):
            draft = self._data.parent / "draft"
            draft.write_text("k,v\n" + "".join(f"{key},{self.fed}\n" for key in range(3)))
            draft.rename(self._data / f"{self.fed:03d}.csv")
            self.fed += 1
        until(lambda: len(list(self.history.glob("step-*.parquet"))) == self.fed, 120)

    def check(self) -> None:
        totals: dict[tuple[int, int], int] = {}
        for path in self.history.glob("step-*.parquet"):
            for row in pq.read_table(path).to_pylist():
                totals[row["k"], row["v"]] = totals.get((row["k"], row["v"]), 0) + row["_weight"]
        assert {key: weight for key, weight in totals.items() if weight} == {
            (key, sum(range(self.fed))): 1 for key in range(3)
        }


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    works = shutil.which("unshare") and subprocess.run([*PROCESS_1, "true"], check=False, capture_output=True)
    if not works or works.returncode:
        pytest.skip("this user may make no namespace of processes")
    with ExitStack() as stack:
        server = stack.enter_context(ObjectServer())
        yield Deployment(tmp_path, server, stack)


def test_two_pods_of_one_manifest_share_a_dataflow_through_kills_and_stops(deployment: Deployment) -> None:
    for pod in deployment.pods:
        pod.start()
    first, second = deployment.roles()
    assert first.asked("livenessProbe") == (200, {"role": "owner", "live": True})
    assert second.asked("livenessProbe") == (200, {"role": "standby", "live": True})
    deployment.feed(4)

    first.kill()
    until(lambda: second.role() == OWNER, 120)
    deployment.feed(3)
    first.start()
    assert deployment.roles() == (second, first)
    deployment.feed(2)
    assert second.zombies() == 0

    assert second.kill(signal.SIGTERM) == 0, second.log()
    assert "stopped cleanly" in second.log()
    until(lambda: first.role() == OWNER, 120)
    assert "is taken for dead" not in first.log(), "it did not have to find out"
    deployment.feed(3)
    second.start()
    assert deployment.roles() == (first, second)

    assert second.kill(signal.SIGTERM) == 0, "a standby ends at once"
    assert first.role() == OWNER
    assert first.kill(signal.SIGTERM) == 0
    deployment.check()


def test_a_process_1_that_still_begins_ends_at_sigterm(deployment: Deployment) -> None:
    """The system gives process 1 no default action: without a handler it would wait for SIGKILL."""
    (pod, _) = deployment.pods
    pod.start()
    until(lambda: "importing" in pod.log(), 60)
    assert pod.kill(signal.SIGTERM) == 128 + signal.SIGTERM
