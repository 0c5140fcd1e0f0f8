"""The custom operator on Spark: a kernel around the user's object."""

from __future__ import annotations

from collections.abc import Sequence

import xxhash
from pyspark import cloudpickle

from boatlift.operators.custom.kernel import CustomKernel
from boatlift.operators.custom.operator import Custom
from boatlift.spark.compile.keyed import CompiledKeyed, declared_columns, require_columns, rows_by_key
from boatlift.spark.compile.operator import Columns, Kit
from boatlift.spark.plans.column_rules import refuse_types
from boatlift.spark.plans.fingerprint import fingerprint
from boatlift.spark.plans.function_code import code_hash, libraries_of


def compile_custom(operator: Custom, inputs: Sequence[Columns], kit: Kit) -> CompiledKeyed:
    """Compile a custom operator: a kernel around the user's object."""
    (takes,) = inputs
    name, users = operator.name, operator.operator
    require_columns(name, operator.order_by, takes)
    output = declared_columns(name, "output", operator.output)
    refuse_types(output, name)
    rows = rows_by_key(name, operator.keys, takes, kit)
    kernel = CustomKernel(
        processor=name,
        keys=rows.keys,
        columns=rows.arrow,
        order_by=operator.order_by,
        output=kit.arrow_of(output),
        operator=users,
        identity=xxhash.xxh3_128_hexdigest(cloudpickle.dumps(users)),  # type: ignore[no-untyped-call]
    )
    return CompiledKeyed(
        columns=Columns(name, output, has_watermark=takes.has_watermark),
        fingerprint=f"{fingerprint(rows.frame)}{code_hash(users)}",
        calls_python=True,
        libraries=libraries_of(users),
        kernel=kernel,
        inputs=(rows.taken,),
    )


COMPILERS = {Custom: compile_custom}
