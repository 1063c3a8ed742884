# SPDX-License-Identifier: Apache-2.0
"""The tests of which every run has some cases only are there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.processes import ROOT
from tests.support.slow_tests import EVERY_RUN


def test_all_are_there() -> None:
    for name in EVERY_RUN:
        path, _, function = name.partition("::")
        assert f"def {function}(" in (ROOT / path).read_text(), name


def test_a_case_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "test_x.py").write_text(
        "import pytest\n\n\n@pytest.mark.parametrize('n', [1, 2])\ndef test_y(n): pass\n"
    )
    (tmp_path / "conftest.py").write_text(
        "from tests.support import slow_tests\n\n"
        "slow_tests.EVERY_RUN['test_x.py::test_y'] = CASES\n\n\n"
        "def pytest_collection_modifyitems(config, items):\n"
        "    slow_tests.skip_nightly_cases(config, items)\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["--rootdir", str(tmp_path), "test_x.py"]
    text = (tmp_path / "conftest.py").read_text()
    outputs = []
    for cases in ("('2',)", "('3',)"):
        (tmp_path / "conftest.py").write_text(text.replace("CASES", cases))
        environment = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        outputs.append(done.stdout + done.stderr)
    assert "1 passed, 1 skipped" in outputs[0], outputs[0]
    assert "test_y has no case '3'" in outputs[1], outputs[1]
