"""Names that are imported when they are first asked for."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("package", "count"),
    [("fairshot", 17), ("fairshot.reporting", 7), ("fairshot.studies", 13), ("fairshot.teaching", 11)],
)
def test_a_package_has_the_names_it_lists_and_no_others(package, count):
    module = importlib.import_module(package)
    names = re.findall(r" as (\w+)$", Path(module.__file__).read_text(), re.MULTILINE)
    assert len(names) >= count
    assert module.__all__ == sorted(names)
    for name in names:
        assert getattr(module, name).__name__ == name
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing'"):
        _ = module.nothing


def test_a_package_is_imported_without_torch():
    packages = "fairshot, fairshot.reporting, fairshot.studies, fairshot.teaching"
    code = f"import sys, {packages}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})
