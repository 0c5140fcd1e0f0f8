"""Users' functions as Catalyst plans: read (`catalyst.py`), proved row-wise (`row_wise.py`) and hashed."""
