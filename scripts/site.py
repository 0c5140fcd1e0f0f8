"""Writes the generated pages, and builds the documentation site into site/ (`make docs`), strictly and offline.

The pages stay where a reader of the repository finds them. They are copied with their folders, so that their links hold
in the site too; the pages of the API and of the commands are made from the code.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from operator import attrgetter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "build" / "pages"
SITE = ROOT / "site"
COPIED = (
    "*.md",
    "LICENSE",
    "docs/**/*.md",
    "docs/site.css",
    "docs/*.png",
    "docs/grafana/*",
    "docs/tutorial/*.ipynb",
    "benchmarks/*.md",
    "benchmarks/results/*",
    "examples/*.py",
)
ELSEWHERE = re.compile(r"""(?:<(?:script|img|iframe)[^>]+src|<link[^>]+rel="stylesheet"[^>]+href)="(?:https?:)?//""")


def main() -> None:
    """Build the site.

    Raises:
        SystemExit: a link leads nowhere, or a page would fetch something from elsewhere.
    """
    for folder in (PAGES, SITE):
        shutil.rmtree(folder, ignore_errors=True)
    for pattern in COPIED:
        for path in ROOT.glob(pattern):
            if path.is_file():
                to = PAGES / path.relative_to(ROOT)
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, to)
    reference = PAGES / "docs" / "reference"
    reference.mkdir()
    (reference / "api.md").write_text(api(), encoding="utf-8")
    (reference / "commands.md").write_text(commands(), encoding="utf-8")
    built = subprocess.run(["zensical", "build", "--strict"], cwd=ROOT, check=False)
    if built.returncode:
        sys.exit(built.returncode)
    fetched = [
        str(page.relative_to(SITE)) for page in SITE.rglob("*.html") if ELSEWHERE.search(page.read_text("utf-8"))
    ]
    if fetched:
        sys.exit(f"pages fetch something from elsewhere: {', '.join(fetched[:5])}")


GROUPS = {
    "The program": ("Dataflow", "Stream", "Grouped", "window"),
    "Sources": ("files", "kafka.source", "push", "generator"),
    "Sinks": ("sqlite", "postgres", "mysql", "parquet", "delta", "kafka.sink", "foreach", "http_post", "reply",
              "stdout"),
    "Policies": ("Ephemeral", "Lazy", "SinceCheckpoint", "Eager", "History", "Batch"),
    "Inside of transforms": ("now", "rand", "uuid", "call"),
    "State and timers": ("KeyedBatch", "Processed", "Timers", "StatefulOperator"),
    "Run and look": (
        "session", "store", "run", "start", "Running", "Progress", "plan", "evolution", "rewind", "Keep", "status",
        "seen", "sql", "Receipt", "Delivery",
    ),
    "Errors": (
        "BoatliftError", "InvalidError", "DataError", "DivergedError", "UnavailableError", "UserCodeError",
        "FencedError", "InternalError",
    ),
}  # fmt: skip
"""The public names in the order of a program, not of the alphabet. `Grouped` is what `group_by` returns."""

INSIDE = "!^(_.*|unused|ticks|has_ticks|check|add|add_view|adding|upserts_of|asks_rows|judges_rows|is_bound_alone)$"
"""What classes of the API have for Boatlift's own rooms alone."""


def api() -> str:
    """Return the page of the API: every public name, from its docstring.

    Raises:
        SystemExit: a public name is in no group, or a group has a name that is not public.
    """
    import boatlift as bl
    from boatlift.api.grouped import Grouped

    grouped = [name for names in GROUPS.values() for name in names]
    if {name.partition(".")[0] for name in grouped} != {*bl.__all__, "Grouped"}:
        sys.exit(f"the groups of the API's page differ from boatlift.__all__: {sorted(set(bl.__all__) ^ set(grouped))}")
    parts = ["# API\n\n`import boatlift as bl`. An example of most things is on a page of the guide."]
    for title, names in GROUPS.items():
        parts.append(f"## {title}")
        for name in names:
            found = Grouped if name == "Grouped" else attrgetter(name)(bl)
            heading = "stream.group_by(…)" if name == "Grouped" else f"bl.{name}"
            options = {"heading": heading, "toc_label": name, "heading_level": 3, "filters": [INSIDE]}
            shown = "\n".join(f"      {option}: {json.dumps(value)}" for option, value in options.items())
            parts.append(f"::: {found.__module__}.{found.__name__}\n    options:\n{shown}")
    return "\n\n".join(parts) + "\n"


def commands() -> str:
    """Return the page of the commands: the help that each prints, in the order of the program."""
    from boatlift.console.app import app

    parts = ["# Commands\n"]
    for name in (name for name in app if not name.startswith("-")):
        told = subprocess.run(
            [sys.executable, "-m", "boatlift.console", name, "--help"],
            capture_output=True, text=True, check=True, env={"COLUMNS": "96", "TERM": "dumb"},
        )  # fmt: skip
        parts.append(f"## boatlift {name}\n\n```text\n{told.stdout.rstrip()}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    main()
