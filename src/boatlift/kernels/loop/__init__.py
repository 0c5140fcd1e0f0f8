"""Loops: operators on changes within a fixed point, round by round."""
