"""A member without Spark: it follows the owner of a store, and holds what the owner sends.

python -m benchmarks.sides.holder STORE
"""

from __future__ import annotations

import os
import secrets
import socket
import sys
import time
from pathlib import Path

from benchmarks.harness.side import die_with_parent
from boatlift.errors import BoatliftError
from boatlift.runtime.peers.channel import Hello
from boatlift.runtime.peers.follower import FollowerLink
from boatlift.runtime.peers.holding import HeldTail
from boatlift.storage.identities import secret_of
from boatlift.storage.local import LocalStore
from boatlift.storage.log_reader import LogReader

__all__ = ["hold_for"]


def main() -> None:
    """Wait for an owner, then hold until this process is ended."""
    die_with_parent()
    link = hold_for(Path(sys.argv[1]), HeldTail(secrets.token_hex(8)))
    while True:
        link.heard.get()


def hold_for(path: Path, tail: HeldTail) -> FollowerLink:
    """Wait for an owner of the store in a folder, then hold what it sends, until the link is closed."""
    log = claimed(path)
    owner = log.claim_of(log.owner)
    assert owner is not None, "it has waited for one"
    store = LocalStore(path)
    hello = Hello("standby", log.store_id, log.dataflow, socket.gethostname(), os.getpid(), tail.life)
    return FollowerLink(owner.address, lambda: secret_of(store), lambda: hello, tail=tail, known_as=log.owner)


def claimed(path: Path) -> LogReader:
    """Return the log of a store once it has an owner."""
    while True:
        try:
            log = LogReader(LocalStore(path), "")
            log.load()
        except BoatliftError:
            time.sleep(0.1)
            continue
        if log.owner:
            return log
        time.sleep(0.1)


if __name__ == "__main__":
    main()
