"""The Java that Spark runs on: found as Spark's own scripts find it, and refused if it is too old."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

from boatlift.errors import InvalidError

OLDEST_JAVA = 17


def check_java() -> None:
    """Raise if Spark would find no Java that it can run on.

    Raises:
        InvalidError: `[NO_JAVA]` there is no Java, or it is too old; the message has the line to type.
    """
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    found = "no Java was found"
    if java is not None:
        version = _java_version(java)
        if version is not None and version >= OLDEST_JAVA:
            return
        where = f"JAVA_HOME={home}" if home else java
        found = f"{where} holds no Java that runs" if version is None else f"{where} is Java {version}"
    raise InvalidError("NO_JAVA", f"{found}, and Spark needs Java {OLDEST_JAVA} or newer: {_java_remedy(home)}")


def _java_version(java: str) -> int | None:
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(match.group(1)) if match and answer.returncode == 0 else None


def _java_remedy(home: str | None) -> str:
    if home and shutil.which("java"):
        return "unset JAVA_HOME, or set it to the folder of a newer Java"
    for tool, line in (
        ("apt-get", "sudo apt-get install -y openjdk-17-jre-headless"),
        ("dnf", "sudo dnf install -y java-17-openjdk-headless"),
        ("brew", "brew install openjdk@17"),
    ):
        if shutil.which(tool):
            return line
    return "install a newer Java, and set JAVA_HOME to its folder"
