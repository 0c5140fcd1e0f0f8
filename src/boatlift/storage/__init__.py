"""Durable data: the store, the log in it, and the input logs of pushed rows.

In reading order: `store` (the contract), `local` (a store in a folder, on `filesystem`); `records/` (the records of the
log, their bytes and their meaning); `log_reader` and `log` (the sequence of objects), `identities` (what tells a new
store from a damaged one), `group_commit` (many records in one object); `input_log` (pushed rows), with `input_objects`,
`remembered_keys` and `unlogged_input`; `bad_rows`; `blocks` (a checksum for each block of a file); `verify` (a check of
every byte).
"""
