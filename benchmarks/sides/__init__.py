"""Boatlift's sides of the comparisons: processes that a case starts and asks by lines of JSON."""
