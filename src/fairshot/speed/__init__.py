"""Measurements of speed, each beside a plain way to do the same in the same run."""
