# SPDX-License-Identifier: Apache-2.0
"""Fixtures for all tests: modes of execution, table names, number of threads, servers.

What tests start, and how, is in tests/support.
"""

from __future__ import annotations

import gc
import itertools
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from tests.support.gradients import forget_gradient
from tests.support.lives import Lives
from tests.support.missing import summary
from tests.support.redis_server import RedisServer
from tests.support.slow_tests import put_slow_files_first, skip_nightly_cases

if TYPE_CHECKING:
    from examples.online_learning.kafka.broker import Broker

os.environ.setdefault("GLOG_v", "3")  # before MindSpore is imported: no deprecation noise

# Compiling a graph inside an example may take a second.
settings.register_profile("mindspore_rec", deadline=None)
settings.load_profile("mindspore_rec")

_numbers = itertools.count()


@pytest.fixture(autouse=True, scope="module")
def default_mode() -> None:
    """Each module begins as it does alone, whichever modules ran before it in this process."""
    if "mindspore" in sys.modules:
        import mindspore as ms

        ms.set_context(mode=ms.PYNATIVE_MODE, pynative_synchronize=False)
        forget_gradient()  # of a test of an error


@pytest.fixture(autouse=True, scope="module")
def old_objects_are_not_searched() -> None:
    """MindSpore has garbage collected before each graph it compiles. Here that would look at a
    million objects of all the tests each time, a third of the tests' time: what is alive between
    two modules stays."""
    with warnings.catch_warnings():
        # Sockets that Kafka clients of an earlier module left open, where warnings are errors.
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def cells_die_before_a_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    """MindSpore compiles a graph twice if a cell of an earlier test dies while it compiles the
    first time, which is half of many tests' time. `RecModel` sees to it; bare cells do not."""
    if "mindspore" not in sys.modules:
        return
    from mindspore.graph.api import _CellGraphExecutor

    compile_cell = _CellGraphExecutor.compile

    def compile_alone(self: Any, cell: Any, *args: Any, **options: Any) -> Any:
        if not cell.compile_cache:
            gc.collect()
        return compile_cell(self, cell, *args, **options)

    monkeypatch.setattr(_CellGraphExecutor, "compile", compile_alone)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Puts slow files first, and leaves cases to a nightly run."""
    put_slow_files_first(items)
    skip_nightly_cases(config, items)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints which tests were skipped and why, one line per cause."""
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


@pytest.fixture
def start_redis(tmp_path: Path) -> Iterator[Callable[..., RedisServer]]:
    """Starts Redis servers that the test may kill; the arguments are lines of the configuration."""
    servers: list[RedisServer] = []

    def start(*options: str, cli: tuple[str, ...] = ()) -> RedisServer:
        servers.append(RedisServer(tmp_path / f"redis{len(servers)}", *options, cli=cli))
        return servers[-1]

    yield start
    for server in servers:
        server.kill()


@pytest.fixture(scope="module")
def shared_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A Redis server that the tests of a module share: each uses its own table."""
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(scope="module")
def redis_url(shared_redis: RedisServer) -> str:
    return shared_redis.url


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One Kafka broker for the tests of a module that leave it as it is.

    A start takes 6 seconds of a processor, and so do two minutes in which nothing is asked of it.
    """
    from tests.support.kafka_broker import started_broker

    with started_broker(tmp_path_factory.mktemp("kafka")) as started:
        yield started


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    """A Kafka broker that the test may kill."""
    from tests.support.kafka_broker import started_broker

    with started_broker(tmp_path / "kafka") as started:
        yield started


@pytest.fixture
def topic(broker: Broker) -> Callable[..., str]:
    """Makes topics of the broker that no other test has."""
    from tests.support.kafka_broker import make_topic

    return lambda partitions=1: make_topic(broker.address, partitions)


@pytest.fixture
def lives() -> Iterator[Lives]:
    """Runs and kills lives of the online tests' trainer."""
    with Lives() as started:
        yield started
