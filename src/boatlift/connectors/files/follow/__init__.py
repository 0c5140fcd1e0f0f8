"""`bl.files(…, tail=…)`: files of lines that grow.

`source` is the source, `growing` chooses the lines of a step, `prefixes` proves what was taken of a file, and
`done_files` refuses changes of files that should not change any more.
"""
