"""Queries kept up to date: Catalyst's optimised plan as stages, each fed with changes (docs/views.md)."""
