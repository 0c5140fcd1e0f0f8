"""Files as a source: CSV, JSON and Parquet.

Read in this order: `options` (`bl.files`), `source` (positions and cursors), `listing` (which files a step takes),
`ranges` (parts of large files, and digests), `formats` (how a file is read), `lines` (reading text in tasks),
`compression`, `follow` (files that grow), `bucket` (objects in the place of files).
"""
