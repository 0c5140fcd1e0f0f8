"""The console: a page about a dataflow, and the documents that it is made of, from its store alone.

`documents` makes the documents, by `runtime.inspect` and nothing else: they are the structs that the commands print
with `--json`. `events` tells readers of news. `server` answers HTTP, for readers alone: no route changes anything.
`page/` is what a browser gets: HTML, a style sheet and modules of JavaScript, without a build step.
"""
