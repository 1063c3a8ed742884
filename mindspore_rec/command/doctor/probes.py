# SPDX-License-Identifier: Apache-2.0
"""The probes of all items, in the order of docs/command.md, and a program that runs one probe."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass

from mindspore_rec.command.doctor import disk, libraries, machine, others, packages
from mindspore_rec.command.doctor.line import OFF, ONLY_SERVES, Asked, Line, has_training

__all__ = ["PROBES", "Probe", "main"]

_DAY = 86_400.0  # seconds


@dataclass(frozen=True)
class Probe:
    """One check of `mindspore-rec doctor`.

    Attributes:
        find: the function that examines the item.
        seconds: time after which the probe's process is ended, unless `--seconds` is greater.
        needed: True if the library cannot be used without the item. Default: False.
        trains: True if only training uses the item. The probe then needs the native core. Default:
            False.
    """

    find: Callable[[Asked], Line]
    seconds: float = 20.0
    needed: bool = False
    trains: bool = False

    def limit(self, asked: Asked) -> float:
        """Return the number of seconds after which the probe's process is ended."""
        return min(max(self.seconds, asked.seconds), _DAY)


PROBES = {
    "processor": Probe(machine.processor),
    "cores": Probe(machine.cores),
    "memory": Probe(machine.memory),
    "disk": Probe(disk.disk, 30.0),
    "python": Probe(libraries.python),
    "core": Probe(libraries.core, needed=True),
    "packages": Probe(packages.required, 60.0, needed=True),
    "mindspore": Probe(libraries.mindspore, 120.0, needed=True),
    "onednn": Probe(libraries.onednn, trains=True),
    "gpu": Probe(libraries.gpu, 60.0, trains=True),
    "mpi": Probe(others.mpi, 60.0, trains=True),
    **{name: Probe(packages.of_extra(name), 60.0) for name in packages.FEATURES},
    "broker": Probe(others.broker, 30.0),
}


def main() -> None:
    """Run the probe that the command line names, and write its line to stdout as JSON."""
    name, options = sys.argv[1:3]
    probe, asked = PROBES[name], Asked(**json.loads(options))
    signal.alarm(int(probe.limit(asked)) + 5)  # ends this process if its parent has been killed
    answer = os.dup(1)
    os.dup2(2, 1)  # what libraries print is not the answer
    line = _line_for_training() if probe.trains else None
    line = line or probe.find(asked)
    os.write(answer, json.dumps(asdict(line)).encode())
    os._exit(0)  # threads of a library may hang or crash at the end of a program


def _line_for_training() -> Line | None:
    """Return the line for items that only training uses; None if these items can be probed."""
    if not has_training():
        return Line(OFF, ONLY_SERVES)
    try:
        from mindspore_rec import _native  # noqa: F401
    except ImportError:
        return Line(OFF, "not tried, since the native core cannot be loaded", "Mend the item core.")
    return None
