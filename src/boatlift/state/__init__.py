"""Keyed state as sorted runs: runs on disk, look-ups of keys, merges. Independent of Spark.

An operator's `kernels.kernel.Kernel` reads and adds runs; its `codec.ValueCodec` gives the rows their values.

Read `codec`, `group`, `run_file`, `opened`, `segment` (runs and look-ups), then `merge`, `tiers`, `table`
(compaction). `arrangement` and `newest` are the two codecs that several operators share.
"""
