# SPDX-License-Identifier: Apache-2.0
"""The page for those who come from Rec SDK: its program runs, and what it says of options holds."""

from __future__ import annotations

import re

import pytest

import mindspore_rec
from tests.support.processes import ROOT, run_python

PAGE = (ROOT / "docs" / "from_rec_sdk.md").read_text(encoding="utf-8")


def test_two_labels_and_the_loss_alone(tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    (tmp_path / "program.py").write_text(code)
    assert run_python("program.py", cwd=tmp_path).strip() == "True 133"


@pytest.mark.parametrize(("option", "words"), [("use_mpi", "one process"), ("use_hot", "CacheCon")])
def test_options_of_init_say_what_serves(option, words):
    assert f"`{option}`" in PAGE
    with pytest.raises(TypeError, match=f"init takes no argument '{option}': .*{words}"):
        mindspore_rec.init(**{option: True})
