"""The peer: the same `StatefulProcessor` in Structured Streaming, `transformWithStateInPandas` on RocksDB."""

from __future__ import annotations

from typing import Any

from benchmarks.harness.side import serve
from benchmarks.peers.streaming_peer import Peer
from benchmarks.sides import processor_code as code

__all__ = ["ProcessorPeer"]


class ProcessorPeer(Peer):
    """One streaming query with a processor, fed file by file."""

    mode = "append"

    def query(self, rows: Any) -> Any:
        """Return the frame of the sessions."""
        from pyspark import cloudpickle

        cloudpickle.register_pickle_by_value(code)  # type: ignore[no-untyped-call]
        return rows.groupBy("k").transformWithStateInPandas(code.Sessions(), code.OUTPUT, "Append", "ProcessingTime")


def main() -> None:
    """Serve one peer."""
    peer = ProcessorPeer()
    serve({"prepare": peer.prepare, "run": peer.run})


if __name__ == "__main__":
    main()
