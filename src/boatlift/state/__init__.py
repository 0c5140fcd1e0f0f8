"""Keyed state as sorted runs, for any operator: runs on disk, finding keys in them, merging them. No Spark in here.

A *kernel* (`kernels.kernel.KeyedKernel`) is the operator's part; its *codec* (`codec.ValueCodec`) says what a row holds
beside hash and keys. Reading order: `codec`, `rows`, `group`, `run_file`, `opened`, `probe`; then `merge`, `tiers`,
`table`.
"""
