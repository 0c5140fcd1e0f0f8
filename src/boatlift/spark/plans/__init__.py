"""Users' functions as Catalyst plans: read, proved row-wise, hashed."""
