"""Dataflows that crash tests kill, what they read, and the judges of what their sinks hold."""
