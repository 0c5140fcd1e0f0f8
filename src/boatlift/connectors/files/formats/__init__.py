"""The formats of files. Read `base` first: the contract, and what text formats share.

`csv` and `json` are text, read by Spark or line by line in tasks; `bad_rows` is either of them with dead letters.
`parquet` is the driver's side of Parquet, `parquet_rows` and `parquet_types` are the tasks'.
"""
