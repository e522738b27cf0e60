"""Names that are imported when they are first asked for."""

import importlib
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("package", "name"),
    [("fairshot", "Store"), ("fairshot.studies", "tune"), ("fairshot.teaching", "from_run")],
)
def test_a_package_has_the_names_it_lists_and_no_others(package, name):
    module = importlib.import_module(package)
    assert getattr(module, name).__name__ == name
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing'"):
        _ = module.nothing


def test_a_package_is_imported_without_torch():
    code = "import sys, fairshot, fairshot.studies, fairshot.teaching; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
