"""The formats of files. Read `base` first: the contract, and what text formats share.

`csv` and `json` are text, read by Spark or line by line in tasks.
`parquet` is the driver's side of Parquet, `parquet_rows` is the tasks'.
"""
