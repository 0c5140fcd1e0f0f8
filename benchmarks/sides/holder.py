"""A member without Spark: it follows the owner of a store, and holds what the owner sends.

python -m benchmarks.sides.holder STORE: its folder, or its URL.
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
from boatlift.storage.log_reader import LogReader
from boatlift.storage.opening import open_store
from boatlift.storage.store import Store

__all__ = ["hold_for"]


def main() -> None:
    """Wait for an owner, then hold until this process is ended."""
    die_with_parent()
    link = hold_for(sys.argv[1], HeldTail(secrets.token_hex(8)))
    while True:
        link.heard.get()


def hold_for(place: str | Path, tail: HeldTail) -> FollowerLink:
    """Wait for an owner of the store at a place, then hold what it sends, until the link is closed."""
    store, log = claimed(place)
    owner = log.claim_of(log.owner)
    assert owner is not None, "it has waited for one"
    hello = Hello("standby", log.store_id, log.dataflow, socket.gethostname(), os.getpid(), tail.life)
    return FollowerLink(owner.address, lambda: secret_of(store), lambda: hello, tail=tail, known_as=log.owner)


def claimed(place: str | Path) -> tuple[Store, LogReader]:
    """Return the store at a place and its log, once it has an owner."""
    while True:
        try:
            store = open_store(place, create=False)
            log = LogReader(store, "")
            log.load()
        except BoatliftError:
            time.sleep(0.1)
            continue
        if log.owner:
            return store, log
        time.sleep(0.1)


if __name__ == "__main__":
    main()
