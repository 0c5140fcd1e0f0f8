"""Objects of tests: a folder's files in the bucket of a test's server."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import obstore
from obstore.store import S3Store

from boatlift.testing.object_server import ObjectServer
from support.waiting import until


def bucket_of(prefix: str, bucket: str = "boatlift") -> S3Store:
    """Return a client for a prefix, by the environment."""
    return S3Store(bucket, prefix=prefix, client_options={"allow_http": True})


def upload(folder: Path, prefix: str, bucket: str = "boatlift") -> None:
    """Put each file of a folder under its name."""
    for path in sorted(folder.iterdir()):
        obstore.put(bucket_of(prefix, bucket), path.name, path)


def make_versioned(server: ObjectServer, name: str) -> None:
    """Make a bucket that keeps the versions of its objects, and wait until its server knows that it does."""
    program = shutil.which("weed") or shutil.which("weed", path=str(Path(sys.executable).parent))
    assert program is not None
    ports = server._ports
    master = f"-master=127.0.0.1:{ports['master'].number}.{ports['master.grpc'].number}"
    commands = f"s3.bucket.create -name {name}\ns3.bucket.versioning -name {name} -enable\n"
    subprocess.run([program, "shell", master], input=commands.encode(), capture_output=True, timeout=60, check=True)
    until(lambda: bool(obstore.put(bucket_of("", name), "probe", b"")["version"]))
