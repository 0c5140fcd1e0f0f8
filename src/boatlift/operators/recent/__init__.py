"""Recent rows, which leave as time passes."""
