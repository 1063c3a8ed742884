# SPDX-License-Identifier: Apache-2.0
"""A run goes on with other data: from files to a stream, followed by a predictor throughout."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn
from mindspore.train import Callback

from mindspore_rec import LazyAdam, RecCheckpoint, RecModel, tables_of
from mindspore_rec.common.run.chain import newest_chain
from mindspore_rec.common.run.command import main
from mindspore_rec.serving import Predictor
from mindspore_rec.stream import DataReceiver, MemoryTopic, StopWhen, StreamingDataset
from tests.checkpoint.resume_program import network
from tests.support.topics import topic_of_rows
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("graph_mode")

FILES, EVENTS, BATCH = 10, 64, 8


def files() -> list[tuple[np.ndarray, np.ndarray]]:
    """Return batches with one key each."""
    return [
        (np.full((BATCH, 2), -1 - i), np.full((BATCH, 1), i % 2, np.float32)) for i in range(FILES)
    ]


def topic(name: str = "clicks") -> MemoryTopic:
    """Return a topic of events with a key each."""
    keys = np.arange(EVENTS)[:, None].repeat(2, 1)
    return topic_of_rows({"ids": keys, "label": (keys[:, :1] % 2 == 0) * 1.0}, 5, name)


def stream(log: MemoryTopic) -> StreamingDataset:
    def numbers(rows: Any) -> dict[str, np.ndarray]:
        ids = np.array(rows.column("ids").to_pylist())
        return {"ids": ids, "label": np.array(rows.column("label").to_pylist(), np.float32)}

    receiver = DataReceiver(log, batch_size=BATCH, stop=StopWhen(idle_seconds=0.1))
    return StreamingDataset(receiver, numbers)


class Dies(Callback):
    """Ends a training before the checkpoint of a step, as a kill would."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.step = step

    def on_train_step_end(self, run_context: Any) -> None:
        if run_context.original_args().cur_step_num == self.step:
            raise KeyError("killed")


class Life:
    """A process of training, as far as it can be had within one."""

    def __init__(self, root: Path) -> None:
        ms.set_seed(1)
        self.net = network("new_data")
        self.model = RecModel(
            self.net, nn.BCEWithLogitsLoss(), LazyAdam(self.net.trainable_params(), 0.05)
        )
        self.checkpoint = RecCheckpoint(root, every_steps=6, delta_every_steps=2)

    def ends(self, train: Callable[..., Any], *data: Any, dies_at: int | None = None) -> None:
        callbacks = [self.checkpoint, *([] if dies_at is None else [Dies(dies_at)])]
        if dies_at is None:
            train(*data, callbacks, progress=False)
        else:
            with pytest.raises(KeyError):
                train(*data, callbacks, progress=False)

    def counts(self) -> dict[int, int]:
        rows = self.net[0].embedding_table.export_rows()
        return dict(zip(rows["keys"].tolist(), rows["counts"].tolist(), strict=True))

    def close(self) -> None:
        for table in tables_of(self.net):
            table.close()


def follows(predictor: Predictor, life: Life) -> None:
    """Wait until a predictor has the state of a training that is over, and compare answers."""
    wait_until(lambda: predictor.status().version == life.checkpoint.step, 120)
    ids = np.array([[-1, -3], [5, 40], [63, 63]])
    expected = life.model.predict(ids).asnumpy()
    np.testing.assert_allclose(predictor.predict(ids), expected, rtol=1e-4, atol=1e-6)


def test_from_files_to_a_stream_in_one_run(tmp_path: Path) -> None:
    root, log = tmp_path / "run", topic()
    life = Life(root)
    life.ends(life.model.train, 2, files(), dies_at=FILES + 5)
    life.close()

    life = Life(root)
    assert life.checkpoint.restore(life.model, files()) == FILES + 4
    life.ends(life.model.train, 2, files())
    trained_on_files = {-1 - i: 2 * 2 * BATCH for i in range(FILES)}
    assert life.counts() == trained_on_files
    run_id = newest_chain(root)[-1].run
    with Predictor(
        root, lambda: network("new_data"), inputs=["input_data:INT64:-1,2"]
    ) as predictor:
        follows(predictor, life)
        life.close()

        life = Life(root)
        with pytest.raises(ValueError, match="must be those that were saved.*new_data=True"):
            life.checkpoint.restore(life.model, stream(log))
        data = stream(log)
        assert life.checkpoint.restore(life.model, data, new_data=True) == 2 * FILES
        life.ends(life.model.online_train, data, dies_at=4)
        life.close()

        life, data = Life(root), stream(log)
        assert life.checkpoint.restore(life.model, data, new_data=True) == 2 * FILES + 2
        with pytest.raises(ValueError, match="has a place in topic 'clicks' already"):
            life.model.online_train(data, life.checkpoint, progress=False)
        data = stream(log)
        assert life.checkpoint.restore(life.model, data) == 2 * FILES + 2
        assert data.batches == 2
        life.ends(life.model.online_train, data)
        assert life.checkpoint.step == 2 * FILES + EVENTS // BATCH
        assert life.counts() == trained_on_files | dict.fromkeys(range(EVENTS), 2)
        follows(predictor, life)
    assert newest_chain(root)[-1].run == run_id
    assert main(["verify", str(root)]) == 0
    life.close()

    life = Life(root)  # and back to files, or to another topic
    with pytest.raises(ValueError, match="states and train_dataset must be those"):
        life.checkpoint.restore(life.model, files())
    life.checkpoint.restore(life.model, files(), new_data=True)
    life.ends(life.model.train, 1, files())
    assert life.counts() == {key: 3 * 2 * BATCH for key in trained_on_files} | dict.fromkeys(
        range(EVENTS), 2
    )
    life.close()
