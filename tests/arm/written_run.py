# SPDX-License-Identifier: Apache-2.0
"""Write a run on one processor, and read it on another.

`python -m tests.arm.written_run write FOLDER` trains the network of the golden files, writes its
run to FOLDER, and prints digests of rows, states, counters and dense parameters at each full
checkpoint. With `read`, the program loads the run, and prints the digests of what it has loaded.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from mindspore_rec import tables_of
from mindspore_rec.common.run.chain import newest_chain
from mindspore_rec.common.run.command import main as checkpoint_command
from mindspore_rec.common.run.share import Share
from mindspore_rec.train.checkpoint.load import load_chain
from tests.arm.digests import digest
from tests.golden.golden_run import STEPS, Net, Training, contents, dense_of

FULL = range(4, STEPS[1] + 1, 4)


def digests_of(training_or_net: Training | Net, step: int) -> dict[str, str]:
    """Return digests of all that a checkpoint of the step has."""
    if isinstance(training_or_net, Training):
        net, dense = training_or_net.net, training_or_net.model.train_network
    else:
        net = dense = training_or_net
    names = {each.name for each in net.get_parameters()}
    found = contents(net)
    # The net that reads has no optimizer.
    found |= {
        name: value
        for name, value in dense_of(dense).items()
        if name.removeprefix("dense/") in names
    }
    return {f"{step}/{name}": digest(value) for name, value in sorted(found.items())}


def write(folder: Path) -> dict[str, str]:
    """Train, and return the digests."""
    training = Training(folder / "run")
    found: dict[str, str] = {}

    def note(step: int) -> None:
        if step in FULL:
            found.update(digests_of(training, step))

    training.train(STEPS[1], note)
    training.close()
    return found


def read(folder: Path) -> dict[str, str]:
    """Check and load each full checkpoint, and return the digests."""
    if checkpoint_command(["verify", str(folder / "run")]) != 0:
        raise SystemExit(1)
    net = Net()
    shares = {}
    for table in tables_of(net):
        table.bind_optimizer("adam")
        shares[table.name] = Share(0, 1)
    found: dict[str, str] = {}
    for step in FULL:
        load_chain(net, newest_chain(folder / "run", step), shares)
        found.update(digests_of(net, step))
    return found


if __name__ == "__main__":
    made = (write if sys.argv[1] == "write" else read)(Path(sys.argv[2]))
    print(json.dumps(made))
