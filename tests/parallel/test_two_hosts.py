# SPDX-License-Identifier: Apache-2.0
"""Two hosts, which are network namespaces, train as two workers of one host do."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

pytest.importorskip("mindspore_rec._native")
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def modules(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import hybrid_processes
    import network_hosts

    why = network_hosts.missing()
    if why:
        pytest.skip(why)
    if not Path(sys.prefix, "bin", "mpirun").exists():
        pytest.skip("Open MPI is not installed")
    return hybrid_processes, network_hosts


def test_two_hosts_have_the_losses_of_two_workers_of_one_host(modules):
    processes, network = modules
    settings = ("wide_deep_128", 100, 2600, 0)
    losses, hosts = {}, {}
    cores = sorted(os.sched_getaffinity(0))
    with network.Hosts((cores[0], cores[-1])) as pair:
        pair.set_rate(1)
        for name, prefix in (("one", processes.launched(2, 1)), ("two", pair.launched())):
            with processes.Processes(name, prefix, settings, 2) as workers:
                hosts[name] = [each["host"] for each in workers.about]
                workers.tell("run", 4)
                answers = workers.answers()
                losses[name] = [each["losses"] for each in answers]
                assert all(sent > 0 for each in answers for sent in each["bytes"])
    assert len(set(hosts["one"])) == 1
    assert len(set(hosts["two"])) == 2
    assert losses["one"] == losses["two"]
    assert losses["one"][0] != losses["one"][1]


def test_namespaces_are_gone_after_an_error(modules):
    _, network = modules
    with pytest.raises(ValueError, match="of the block"), network.Hosts((0, 0)) as pair:
        names = pair.names
        pair.set_rate(10)
        assert all(Path("/run/netns", name).exists() for name in names)
        raise ValueError("of the block")
    assert not any(Path("/run/netns", name).exists() for name in names)
