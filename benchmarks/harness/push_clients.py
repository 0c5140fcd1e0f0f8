"""Clients that push over HTTP, each one row at a time with a connection and keys of its own.

They write and read bytes, so that the server is measured and not the clients.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import uuid

__all__ = ["main"]


async def client(host: str, port: int, path: str, name: str, until: float) -> list[float]:
    """Pushes until the time is over; gives how long each acknowledgement took, in seconds."""
    reader, writer = await asyncio.open_connection(host, port)
    took = []
    number = 0
    while (began := time.perf_counter()) < until:
        number += 1
        body = b'{"id": %d, "item": "item-%d", "amount": 1.5}' % (number, number % 100)
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nIdempotency-Key: {name}-{number}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.partition(b":")[2]))
        if not answer.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(answer.decode())
        took.append(time.perf_counter() - began)
    writer.close()
    return took


async def _all(host: str, port: int, path: str, clients: int, seconds: float) -> list[float]:
    until = time.perf_counter() + seconds
    run = uuid.uuid4().hex
    found = await asyncio.gather(*(client(host, port, path, f"{run}-{n}", until) for n in range(clients)))
    return sorted(each for took in found for each in took)


def main() -> None:
    """Read host, port, path, clients and seconds; print acknowledgements a second, and their times."""
    host, port, path, clients, seconds = sys.argv[1:]
    took = asyncio.run(_all(host, int(port), path, int(clients), float(seconds)))
    answer = {
        "acks": len(took) / float(seconds),
        "p50": took[len(took) // 2] * 1000,
        "p99": took[int(len(took) * 0.99)] * 1000,
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
