"""The check of every byte of a Parquet sink's folder, without its owner."""

from __future__ import annotations

from collections.abc import Iterator

from boatlift.connectors.parquet.folder import StepFolder
from boatlift.connectors.parquet.identity import FolderIdentity
from boatlift.connectors.parquet.step_file import verify_step
from boatlift.errors import DataError, Finding


def verify_folder(folder: StepFolder) -> Iterator[Finding]:
    """Prove each step's file by its checksum; yield each damaged, missing or foreign file."""
    identity: FolderIdentity | None = None
    try:
        identity = folder.identity()
        if identity is None:
            return
    except DataError as error:
        yield Finding(str(folder.identity_path), error.condition, error.message)
    try:
        folder.steps()
    except DataError as error:
        yield Finding(str(folder.path), error.condition, error.message)
    for step in folder.listed().steps:
        path = folder.step_path(step)
        try:
            record = verify_step(path, step)
            if identity is not None:
                identity.refuse_stranger(record.dataflow, record.sink, path)
        except DataError as error:
            yield Finding(str(path), error.condition, error.message)
