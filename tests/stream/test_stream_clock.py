# SPDX-License-Identifier: Apache-2.0
"""Senders whose clock is wrong."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from examples.online_learning.kafka.broker import Broker
from mindspore_rec.stream import DataReceiver, StopWhen
from tests.history.clock import Clock, compiled
from tests.support.missing import missing
from tests.support.processes import run_python

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.filterwarnings("ignore:read_text is deprecated"),
    pytest.mark.filterwarnings("ignore:open_text is deprecated"),
]

DAY = 86_400
SENDER = """
import sys
import time
import numpy as np
from mindspore_rec.stream import DataSender

print(time.time())
sender = DataSender(sys.argv[1], dataset_name=sys.argv[2], message_rows=2)
sender.send({"x": np.arange(5)})
sender.flush()
sender.close()
"""


@pytest.mark.parametrize("days", [2, -2])
def test_a_sender_whose_clock_is_wrong(broker: Broker, tmp_path: Path, days: int) -> None:
    library = compiled(tmp_path)
    if library is None:
        missing("gcc", "a C compiler")
    clock = Clock(tmp_path / "clock", library)
    clock.move(days * DAY)
    name = f"clock{days}"
    printed = run_python("-c", SENDER, broker.address, name, variables=clock.environment)
    assert abs(float(printed) - time.time() - days * DAY) < 3600  # the sender's clock was moved
    with DataReceiver(
        broker.address, shard_id=None, dataset_name=name, batch_size=5, stop=StopWhen(batches=1)
    ) as receiver:
        assert next(receiver)["x"].to_pylist() == list(range(5))
