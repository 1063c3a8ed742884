# SPDX-License-Identifier: Apache-2.0
"""What tests of every room share: modes of execution, table names, the number of threads."""

from __future__ import annotations

import gc
import itertools
import os
from collections.abc import Callable, Iterator

import pytest
from hypothesis import settings

from tests.missing import summary

os.environ.setdefault("GLOG_v", "3")  # before MindSpore is imported: no deprecation noise

# Compiling a graph inside an example may take a second.
settings.register_profile("mindspore_rec", deadline=None)
settings.load_profile("mindspore_rec")

_numbers = itertools.count()


@pytest.fixture(autouse=True, scope="module")
def old_objects_are_not_searched() -> None:
    """MindSpore has garbage collected before each graph it compiles. Here that would look at a
    million objects of all the tests each time, a third of the tests' time: what is alive between
    two modules stays."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says what was skipped and why, a line a reason."""
    skipped = terminalreporter.stats.get("skipped", [])
    if skipped:
        terminalreporter.section("skipped")
        for line in summary(str(report.longrepr[2]) for report in skipped):
            terminalreporter.write_line(line)


@pytest.fixture(params=["graph", "pynative"])
def mode(request: pytest.FixtureRequest) -> str:
    """Runs the test in GRAPH_MODE and in PyNative."""
    import mindspore as ms

    ms.set_context(
        mode=ms.GRAPH_MODE if request.param == "graph" else ms.PYNATIVE_MODE,
        pynative_synchronize=True,
    )
    return request.param


@pytest.fixture
def graph_mode() -> None:
    """Runs the test in GRAPH_MODE only."""
    import mindspore as ms

    ms.set_context(mode=ms.GRAPH_MODE, pynative_synchronize=True)


@pytest.fixture
def pynative() -> None:
    """Runs the test in PyNative only: an operator's error in a graph costs MindSpore 3 seconds."""
    import mindspore as ms

    ms.set_context(mode=ms.PYNATIVE_MODE, pynative_synchronize=True)


@pytest.fixture
def unique() -> Callable[[], str]:
    """Makes names that no other table has."""
    return lambda: f"test.{next(_numbers)}"


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    """Sets the number of threads of the tables' operators, and puts it back."""
    from mindspore_rec import get_num_threads, set_num_threads

    before = get_num_threads()
    yield set_num_threads
    set_num_threads(before)
