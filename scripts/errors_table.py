"""Writes docs/errors.md from the table of conditions (`make docs`); tests/test_conditions.py holds the two together."""

from __future__ import annotations

from pathlib import Path

from boatlift.conditions import CONDITIONS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "errors.md"

# The classes in the order of their exit codes, with what the user does about all of them.
CLASSES = {
    "InvalidError": "fix the program or its options",
    "UnavailableError": "something outside is not there: mend it, then run again",
    "FencedError": "a newer owner has taken over: this process stops, and that is right",
    "DataError": "what was stored or read is not what was recorded: restore it, or upgrade",
    "DivergedError": "a processor gave another result on replay: it is not deterministic",
    "UserCodeError": "the program's own function raised",
    "InternalError": "a fault of Boatlift itself: report it",
}

HEADER = """\
# Errors

Every error of Boatlift is a `BoatliftError`. Its class says what to do; its condition, in brackets in its text, says
exactly what happened, and stays the same from version to version. The text is one sentence with the values that
matter. The command line ends with the class's exit code. After any of them, the same command goes on from where the
dataflow was: nothing is lost, and nothing starts afresh.

<!-- Written by `make docs` from src/boatlift/conditions/. Not to be edited by hand. -->
"""


def errors_page() -> str:
    """Return the whole page, with a table for each class."""
    from boatlift import errors

    parts = [HEADER]
    for name, action in CLASSES.items():
        code = getattr(errors, name).exit_code
        parts.append(
            f"\n## {name}\n\nExit code {code}: {action}.\n\n| condition | what it means | what to do |\n|---|---|---|\n"
        )
        parts += [
            f"| `{condition}` | {known.meaning} | {known.action} |\n"
            for condition, known in sorted(CONDITIONS.items())
            if known.error == name
        ]
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(errors_page(), encoding="utf-8")
    print(f"wrote {PAGE}")
