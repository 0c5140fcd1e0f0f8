"""Writes the generated pages, and builds the documentation site into site/ (`make docs`), strictly and offline.

The pages stay where a reader of the repository finds them. They are copied with their folders, so that their links hold
in the site too; the pages of the API and of the commands are made from the code.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "build" / "pages"
SITE = ROOT / "site"
COPIED = ("*.md", "LICENSE", "docs/**/*.md", "benchmarks/*.md", "benchmarks/results/*", "examples/*.py")
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


def api() -> str:
    """Return the page of the API: every public name, from its docstring."""
    import boatlift as bl

    parts = ["# API\n"]
    parts += [f"::: boatlift.{getattr(bl, name).__module__.removeprefix('boatlift.')}.{name}" for name in _documented()]
    return "\n\n".join(parts) + "\n"


def _documented() -> list[str]:
    import boatlift as bl

    named = [name for name in bl.__all__ if getattr(getattr(bl, name), "__module__", "").startswith("boatlift")]
    return [name for name in named if getattr(bl, name).__name__ == name]


def commands() -> str:
    """Return the page of the commands: the help that each prints, in the order of the program."""
    from boatlift.console.app import app

    parts = ["# Commands\n"]
    for name in (name for name in app if not name.startswith("-")):
        told = subprocess.run(
            [sys.executable, "-m", "boatlift.console", name, "--help"],
            capture_output=True, text=True, check=True, env={"COLUMNS": "100", "TERM": "dumb"},
        )  # fmt: skip
        parts.append(f"## boatlift {name}\n\n```text\n{told.stdout.rstrip()}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    main()
