"""Datasets as streams: a base session, then small sessions."""
