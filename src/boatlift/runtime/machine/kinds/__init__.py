"""The kinds of processors that the machine drives."""
