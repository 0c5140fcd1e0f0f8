"""Runs a dataflow on disks that are nearly full, frees some space, and runs it again; prints what happened, as JSON.

For a process with a mount namespace of its own: it mounts small file systems, which go with the process.
"""

import json
import os
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path

import boatlift as bl
from support.crash.data import make_data

SIZE = 4 << 20
ROOMS = (15_000, 35_000, 60_000, SIZE // 2)

here = Path(sys.argv[1])
spark = bl.session()
from support.crash.paused_flows import make_locking  # noqa: E402 - needs the session


def small_disk(place: Path) -> None:
    """Mounts a new disk."""
    place.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "boatlift-test", place], check=True)


def fill(disk: Path, room: int) -> Path:
    """Leaves so many bytes of a disk; gives the file to delete for more."""
    ballast = disk / "ballast"
    with ballast.open("wb") as file:
        file.write(bytes(shutil.disk_usage(disk).free - room))
    return ballast


def outcome(place: Path) -> str:
    """Runs the dataflow in a folder; gives the error that stopped it."""
    os.chdir(place)
    try:
        bl.run(make_locking(), place / "disk-of-store" / "store", available_now=True, spark=spark)
    except bl.BoatliftError as error:
        return str(error)
    return ""


told = []
for full, room in product(("store", "sinks"), ROOMS):
    place = here / f"{full}-{room}"
    disk = place / "disk-of-store" if full == "store" else place
    small_disk(disk)
    if full == "sinks":
        small_disk(place / "disk-of-store")
    make_data(place / "data")
    ballast = fill(disk, room)
    first = outcome(place)
    ballast.unlink()
    told.append({"place": place.name, "full": full, "room": room, "first": first, "second": outcome(place)})
    shutil.copytree(place, here / "kept" / place.name)
print(json.dumps(told))
spark.stop()
