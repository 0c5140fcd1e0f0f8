"""Processes of one dataflow that speak to each other: the owner, its standbys, and commands.

`channel` is the connection and its handshake, `owner` the owner's end, `detector` (pure) tells when an owner is taken
for dead. Nothing here decides what a dataflow does: a wrong suspicion costs a takeover, and nothing else.
"""
