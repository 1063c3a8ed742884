# SPDX-License-Identifier: Apache-2.0
"""Tables of one name made where something else is at work: another thread, or a forked child."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
from mindspore import Tensor

from mindspore_rec import MapParameter
from mindspore_rec.train.parameter import table_parameter

ROOT = Path(__file__).parents[2]

IN_A_CHILD = """
import os, sys
import mindspore_rec
from mindspore_rec import CacheConfig, SsdConfig, MapParameter

def stored(path):
    return MapParameter(name="users", cache=CacheConfig(host_rows=9, ssd=SsdConfig(path)))

parents = stored(sys.argv[1])
child = os.fork()
if child == 0:
    in_memory = MapParameter(name="users")
    own = stored(sys.argv[2])
    assert own.stats()["rows"] == 0
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
parents.stats()
"""


def test_a_name_is_looked_up_while_another_thread_makes_tables(unique) -> None:
    name = unique()
    older = MapParameter(name=name)
    others = []

    class Meanwhile(MapParameter):
        searched = False

        @property
        def name(self) -> str:
            if Meanwhile.searched:  # what another thread does between two tables of a search
                others.append(MapParameter(name=unique()))
            return super().name

    meanwhile = Meanwhile(name=unique())
    Meanwhile.searched = True
    newer = MapParameter(name=name)
    Meanwhile.searched = False
    assert others
    assert newer.get(Tensor(np.array([1], np.int32))).shape[0] == 1
    for table in (newer, older, meanwhile, *others):
        table.close()
    assert table_parameter.open_tables(name) == []


def test_a_forked_child_has_the_names_of_its_parent_for_itself(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IN_A_CHILD, str(tmp_path / "parent"), str(tmp_path / "child")],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
