"""What tests of the report share."""

import pytest

from fairshot.reporting.figures import writer


@pytest.fixture
def blank_figures(monkeypatch):
    """Write empty figures, for tests that look at the rest of a report: drawing them takes seconds."""
    monkeypatch.setattr(writer, "render", lambda figure, kinds: dict.fromkeys(kinds, b"<svg></svg>"))
