"""The records of the log, their bytes and their meaning. Pure.

Types: `records`, `facts` (of processors), `payloads` (of facts), `division` (of a program into units). Bytes: `codec`;
validity: `well_formed`. Meaning: `history`, a fold over records, and `live`, over facts. `fact_objects` and
`seen_names` track which objects of the store hold the live facts, and the names that a source has taken.
"""
