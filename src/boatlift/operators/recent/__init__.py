"""Rows for as long as they are recent: they leave as time passes, also when nothing comes."""
