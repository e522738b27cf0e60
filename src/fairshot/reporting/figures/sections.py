"""Sections of the page that hold figures alone, in order. A new one is a file of its own, named here."""

from fairshot.reporting.figures import classes, features, gates, training

SECTIONS = (classes.SECTION, gates.SECTION, features.SECTION, training.SECTION)
