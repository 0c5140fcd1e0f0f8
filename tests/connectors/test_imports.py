"""Importing Boatlift is quick: what is slow to import waits until it is used."""

from __future__ import annotations

import subprocess
import sys


def test_connectors_import_neither_spark_nor_arrow() -> None:
    program = (
        "import sys, boatlift.connectors as c\n"
        "c.files('x.csv', schema='a INT'); c.generator({'a': 'id'}, rows_per_step=1)\n"
        "c.parquet('x'); c.sqlite('x.db', table='t', key=['a'])\n"
        "print([name for name in ('pyspark', 'pyarrow', 'pandas', 'numpy') if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout == "[]\n"
