"""Processes of one dataflow that speak to each other: the owner, its standbys, and commands.

`channel` is the connection and its handshake; `owner`, `follower` and `handover` are the ends of owner, standby and
command; `detector` (pure) tells when an owner is taken for dead. A wrong suspicion costs a takeover, and nothing else.
"""
