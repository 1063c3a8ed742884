# SPDX-License-Identifier: Apache-2.0
"""Two hosts on one machine: network namespaces connected by one link of limited speed.

Each host has a name, an address and one of the machine's cores. The hosts share files but nothing
else, so workers on two hosts can exchange data only over TCP. The benchmark needs the root user,
`ip` and `tc` of iproute2, and `taskset` and `unshare` of util-linux.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

__all__ = ["WIRE_SHARE", "Hosts", "missing"]

# Share of TCP data in the bytes that the Linux tool `tc` counts. A frame has 1,514 bytes: 14 of
# Ethernet, 52 of IP and TCP with timestamps, and 1,448 of data.
WIRE_SHARE = 1448 / 1514
_NET = "10.213.7"
# After a pause, a host may send `_BURST` bytes at once, without the speed limit. TCP never sends
# more than `_BURST` at once. If `_BURST` were smaller, the processor would cut TCP's data into
# packets of 1,514 bytes.
_BURST = "70kb"

_AGENT = """\
#!/bin/sh
# {agent} HOST COMMAND...: run a command on the other host, in the place of ssh
shift
exec ip netns exec {space} taskset -c {core} unshare --uts \\
    sh -c 'hostname "$0"; exec sh -c "$*"' {name} "$@"
"""


def missing() -> str:
    """Return the reason why this machine cannot make the hosts, or "" if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in ("ip", "tc", "taskset", "unshare"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed (packages iproute2 and util-linux)"
    name = f"msrec{os.getpid()}t"
    done = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if done.returncode != 0:
        return f"network namespaces cannot be made: {done.stderr.strip()}"
    kinds = ["ip", "-n", name, "link", "add", "t0", "type", "veth", "peer", "name", "t1"]
    veth = subprocess.run(kinds, capture_output=True, text=True)
    subprocess.run(["ip", "netns", "del", name], check=True)
    return "" if veth.returncode == 0 else f"links cannot be made: {veth.stderr.strip()}"


class Hosts:
    """Two hosts and the link between them; they exist until the end of a `with` block.

    Args:
        cores: one core of the machine for each host.

    Attributes:
        names: names of the two hosts; a host's namespace has the host's name.
    """

    def __init__(self, cores: tuple[int, int]) -> None:
        self._cores = cores
        self.names = (f"msrec{os.getpid()}a", f"msrec{os.getpid()}b")
        self._directory = tempfile.TemporaryDirectory()
        self._agent = Path(self._directory.name) / "agent"

    def __enter__(self) -> Hosts:
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _make(self) -> None:
        first, second = self.names
        for name in self.names:
            _run("ip", "netns", "add", name)
        link = ("ip", "link", "add", "link0", "netns", first, "type", "veth")
        _run(*link, "peer", "name", "link0", "netns", second)
        for i, name in enumerate(self.names):
            _run("ip", "-n", name, "addr", "add", f"{self.address(i)}/24", "dev", "link0")
            for device in ("lo", "link0"):
                _run("ip", "-n", name, "link", "set", device, "up")
        text = _AGENT.format(agent=self._agent.name, space=second, core=self._cores[1], name=second)
        self._agent.write_text(text, encoding="utf-8")
        self._agent.chmod(0o755)

    def __exit__(self, *error: object) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
        self._directory.cleanup()

    @staticmethod
    def address(host: int) -> str:
        """Return the address of host 0 or 1."""
        return f"{_NET}.{host + 1}"

    def set_rate(self, gbit: float) -> None:
        """Limit both directions of the link to a number of Gbit/s."""
        for name in self.names:
            _run(
                *("tc", "-n", name, "qdisc", "replace", "dev", "link0", "root", "tbf"),
                *("rate", f"{gbit * 1000:.0f}mbit", "burst", _BURST, "latency", "50ms"),
            )

    def launched(self) -> tuple[list[str], dict[str, str]]:
        """Return the first words of a command that runs on both hosts, and the environment
        variables."""
        name = self.names[0]
        inside = [
            *("ip", "netns", "exec", name, "taskset", "-c", str(self._cores[0])),
            *("unshare", "--uts", "sh", "-c", 'hostname "$0"; exec "$@"', name),
        ]
        hosts = ",".join(f"{self.address(i)}:1" for i in (0, 1))
        options = ["--hosts", hosts, "--threads-per-worker", "1", "--no-bind"]
        environment = {
            "PRTE_MCA_plm_ssh_agent": str(self._agent),
            "PRTE_MCA_prte_if_include": f"{_NET}.0/24",
            "OMPI_MCA_btl_tcp_if_include": f"{_NET}.0/24",
        }
        return [*inside, sys.executable, "-m", "mindspore_rec.launch", *options], environment


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
