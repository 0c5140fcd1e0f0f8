"""A long run with kills in between (`make endurance`): what it keeps in memory and on disk must not grow."""
