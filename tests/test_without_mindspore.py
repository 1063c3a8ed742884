# SPDX-License-Identifier: Apache-2.0
"""Everything but training and compat is imported where MindSpore cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.processes import NO_MINDSPORE, ROOT, run_python
from tests.test_import_rule import PACKAGE, TOP, faces
from tools.public_names import COMMANDS

# Modules of the command that train, or load a trained model.
COMMANDS_THAT_TRAIN = (
    "evaluate", "explain", "fitting", "online", "predict", "refitting", "trained", "tune",
    "tune_space",
)  # fmt: skip


def needs_mindspore(file: Path) -> bool:
    storey, *rest = file.relative_to(PACKAGE).with_suffix("").parts
    if storey == "command":
        return rest[0] in COMMANDS_THAT_TRAIN
    return storey in ("train", "compat")


MODULES = sorted(
    ".".join((TOP, *file.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
    for file in PACKAGE.rglob("*.py")
    if not needs_mindspore(file)
)

IMPORT_ALL = """
import importlib

for name in sys.argv[1:]:
    importlib.import_module(name)
assert "mindspore" not in sys.modules
print(sorted(name for name in sys.modules if name.startswith("mindspore_rec.")))
"""

ASK_FACES = """
import importlib, traceback

for name in sys.argv[1:]:
    face = importlib.import_module(name)
    for each in face.__all__:
        try:
            getattr(face, each)
        except ImportError as error:
            assert "mindspore is blocked" in str(error), error
            files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
            assert any("/train/" in file or "/compat/" in file for file in files), files
    print(name)
"""


def test_every_module_but_those_of_training() -> None:
    assert {
        f"{TOP}.common.run.chain",
        f"{TOP}.stream",
        f"{TOP}.plan.__main__",
        f"{TOP}.command.init",
    } <= set(MODULES)
    printed = run_python("-c", NO_MINDSPORE + IMPORT_ALL, *MODULES, cwd=ROOT)
    # `train` itself is a face.
    assert "mindspore_rec.train." not in printed and "mindspore_rec.compat" not in printed


def test_every_face_and_the_names_that_need_no_mindspore() -> None:
    names = ["mindspore_rec", *(f"{TOP}.{face}" for face in sorted(faces()))]
    assert run_python("-c", NO_MINDSPORE + ASK_FACES, *names, cwd=ROOT).split() == names


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_every_command(command: str) -> None:
    module = f"{TOP}.{command}"
    run = "import runpy\nsys.argv[1:] = ['--help']\n"
    run += f"runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
    printed = run_python("-c", NO_MINDSPORE + run, cwd=ROOT)
    usage = printed.splitlines()[0]
    assert usage.startswith("usage: ") and module in usage
