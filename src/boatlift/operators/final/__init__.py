"""Final rows: the rows of changes that can change no more, each once."""
