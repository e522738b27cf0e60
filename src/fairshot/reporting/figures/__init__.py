"""Figures, one file per kind; `SECTIONS` are the sections of the page that hold figures alone, in order."""

from fairshot.reporting.figures import classes, features, gates, training

SECTIONS = (classes.SECTION, gates.SECTION, features.SECTION, training.SECTION)
