"""Final rows: those of changes that can change no more, each once."""
