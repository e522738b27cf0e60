"""Measurements of speed, each beside a plain implementation in the same run."""
