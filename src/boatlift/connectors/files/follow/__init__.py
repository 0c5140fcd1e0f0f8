"""`bl.files(…, tail=…)`: files of lines that grow.

`source` is the source, and chooses the lines of a step; `unchanged` proves what was taken, and refuses changes.
"""
