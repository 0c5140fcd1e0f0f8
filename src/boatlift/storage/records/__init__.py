"""The records of the log, their bytes and their meaning. Pure.

Types: `records` (and a program's division into units), `facts` (of processors), `payloads` (of facts). Bytes: `codec`;
validity: `well_formed`. Meaning: `history`, a fold over records, and `live`, over facts. `manifest_objects` tracks
which objects of the store hold the live facts, and the names that a source has taken.
"""
