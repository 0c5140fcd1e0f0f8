"""The records of the log, their bytes and their meaning. Pure.

Types: `records`, `facts` (of processors), `payloads` (of facts). Bytes: `codec`; validity: `well_formed`. Meaning:
`history`, a fold over records, and `live`, over facts. `damage` has the errors about contradictory records.
"""
