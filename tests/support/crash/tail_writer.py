"""A program that appends lines to files, mostly in pieces."""

import os
import random
import sys
import time
from pathlib import Path

NAMES = ("a.csv", "b.csv")
BAD = 7


def line(name: str, number: int) -> str:
    """Return a line of a file; some are bad rows."""
    return f"{name},{'none' if number % BAD == 0 else number}\n"


def append_until_told(folder: Path) -> None:
    """Appends lines, mostly in pieces, to files in turn, until there is a file `stop`; ends each last line then."""
    draw = random.Random(5)
    files = {name: os.open(folder / "data" / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND) for name in NAMES}
    rest = dict.fromkeys(NAMES, b"file,n\n")
    number = 0
    while not (folder / "stop").exists():
        number += 1
        for name, file in files.items():
            text = rest[name] + line(name, number).encode()
            rest[name] = text[os.write(file, text[: draw.randrange(len(text) + 1)]) :]
        time.sleep(0.004)  # a writer that is as quick as it can be leaves no end to what is available
    for name, file in files.items():
        while rest[name]:
            rest[name] = rest[name][os.write(file, rest[name]) :]


if __name__ == "__main__":
    append_until_told(Path(sys.argv[1]))
