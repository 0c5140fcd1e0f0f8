"""The kinds of processors that the machine drives: first `processor`, then `endpoints`, `ordered`, `batch`."""
