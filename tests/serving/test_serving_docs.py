# SPDX-License-Identifier: Apache-2.0
"""The guide's programs run as they are written, and its request is answered."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.support.http_server import ready_server
from tests.support.processes import ROOT, run_python

GUIDE = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")


def test_guide_runs(tmp_path: Path) -> None:
    programs = re.findall(r"```python\n# (\w+\.py)\n(.*?)```", GUIDE, re.DOTALL)
    assert [name for name, _ in programs] == ["my_model.py", "train.py", "ask.py"]
    for name, text in programs:
        (tmp_path / name).write_text(text, encoding="utf-8")
    for name in ("train.py", "ask.py"):
        printed = run_python(name, cwd=tmp_path)
    odd, even, unknown = map(float, re.findall(r"\[\[?\s*([0-9.]+)", printed)[:3])
    assert odd > 0.7 and even < 0.3 and even < unknown < odd, printed
    assert "version=300" in printed and "error=None" in printed
    found = re.search(r"mindspore_rec\.serving (run) --port 8000 --name (\w+)", GUIDE)
    body = re.search(r"infer -d '(.*?)'\n", GUIDE, re.DOTALL)
    assert found and body
    with ready_server(tmp_path / found[1], "--name", found[2], python_path=tmp_path) as server:
        status, answer = server.client().ask("/v2/models/click/infer", json.loads(body[1]))
        assert status == 200 and answer["model_version"] == "300"
        assert abs(answer["outputs"][0]["data"][0] - odd) < 1e-5
