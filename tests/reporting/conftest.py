"""What tests of the report share."""

import pytest

from fairshot.reporting.figures import writer
from support.commands import blank


@pytest.fixture
def blank_figures(monkeypatch):
    """Write empty figures, for tests that look at the rest of a report: drawing them takes seconds."""
    monkeypatch.setattr(writer, "render", blank)
