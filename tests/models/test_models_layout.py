# SPDX-License-Identifier: Apache-2.0
"""Names, shapes and first values of the networks' parameters: what their checkpoints hold.

The layout is that of the networks before their layers were fused.
"""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
import pytest

from mindspore_rec import models, tables_of
from models.common.embedding import EmbeddingConfig
from models.common.features import PackedFeatures

# Settings, and each parameter with its shape and the sum of its first values' magnitudes.
NETWORKS: dict[str, tuple[dict[str, Any], list[tuple[str, tuple[int, ...], float]]]] = {
    "wide_deep": (
        {"hidden": (4, 3), "batch_norm": True},
        [
            ("wide.ids.table.embedding_table.anchor", (1,), 0.0),
            ("wide.numbers.weight", (1, 2), 0.0),
            ("wide.numbers.bias", (1,), 0.20944),
            ("inputs.embedding.table.embedding_table.anchor", (1,), 0.0),
            ("deep.layers.0.weight", (4, 14), 16.62637),
            ("deep.layers.1.moving_mean", (4,), 0.0),
            ("deep.layers.1.moving_variance", (4,), 4.0),
            ("deep.layers.1.gamma", (4,), 4.0),
            ("deep.layers.1.beta", (4,), 0.0),
            ("deep.layers.3.weight", (3, 4), 7.90241),
            ("deep.layers.4.moving_mean", (3,), 0.0),
            ("deep.layers.4.moving_variance", (3,), 3.0),
            ("deep.layers.4.gamma", (3,), 3.0),
            ("deep.layers.4.beta", (3,), 0.0),
            ("deep.layers.6.weight", (1, 3), 0.53675),
            ("deep.layers.6.bias", (1,), 0.0),
        ],
    ),
    "deepfm": (
        {"hidden": (4,), "dropout": 0.5},
        [
            ("inputs.vectors", (2, 4), 0.07224),
            ("inputs.embedding.table.embedding_table.anchor", (1,), 0.0),
            ("first_order.ids.table.embedding_table.anchor", (1,), 0.0),
            ("first_order.numbers.weight", (1, 2), 0.0),
            ("first_order.numbers.bias", (1,), 0.59837),
            ("deep.layers.0.weight", (4, 20), 21.18822),
            ("deep.layers.0.bias", (4,), 0.0),
            ("deep.layers.2.used", (1,), 0.0),
            ("deep.layers.3.weight", (1, 4), 2.54074),
            ("deep.layers.3.bias", (1,), 0.0),
        ],
    ),
    "dcn": (
        {"layers": 2, "hidden": (4,)},
        [
            ("inputs.embedding.table.embedding_table.anchor", (1,), 0.0),
            ("cross.weight", (2, 14), 11.37015),
            ("cross.bias", (2, 14), 0.0),
            ("deep.layers.0.weight", (4, 14), 16.62637),
            ("deep.layers.0.bias", (4,), 0.0),
            ("output.weight", (1, 18), 5.36512),
            ("output.bias", (1,), 0.0),
        ],
    ),
    "dcn_v2": (
        {"layers": 1, "hidden": (4,), "cross": {"rank": 2, "experts": 3}},
        [
            ("inputs.embedding.table.embedding_table.anchor", (1,), 0.0),
            ("cross.mixtures.0.v", (14, 6), 27.04809),
            ("cross.mixtures.0.u", (6, 14), 22.32732),
            ("cross.mixtures.0.bias", (14,), 0.0),
            ("cross.mixtures.0.c", (3, 2, 2), 5.77548),
            ("cross.gates.weight", (3, 14), 12.57055),
            ("deep.layers.0.weight", (4, 14), 18.65177),
            ("deep.layers.0.bias", (4,), 0.0),
            ("output.weight", (1, 18), 5.35868),
            ("output.bias", (1,), 0.0),
        ],
    ),
    "dlrm": (
        {"bottom": (3,), "top": (4,)},
        [
            ("embedding.table.embedding_table.anchor", (1,), 0.0),
            ("bottom.layers.0.weight", (3, 2), 5.84121),
            ("bottom.layers.0.bias", (3,), 0.0),
            ("bottom.layers.2.weight", (4, 3), 8.04648),
            ("bottom.layers.2.bias", (4,), 0.0),
            ("top.layers.0.weight", (4, 10), 16.32737),
            ("top.layers.0.bias", (4,), 0.0),
            ("top.layers.2.weight", (1, 4), 0.74948),
            ("top.layers.2.bias", (1,), 0.0),
        ],
    ),
    "mmoe": (
        {"experts": 2, "expert_hidden": (3, 2), "tower_hidden": (2,), "input_dropout": 0.5},
        [
            ("inputs.embedding.table.embedding_table.anchor", (1,), 0.0),
            ("mixture.first.layers.0.weight", (6, 14), 29.61634),
            ("mixture.first.layers.0.bias", (6,), 0.0),
            ("mixture.later.0.0.layers.0.weight", (2, 3), 3.16583),
            ("mixture.later.0.0.layers.0.bias", (2,), 0.0),
            ("mixture.later.1.0.layers.0.weight", (2, 3), 5.89005),
            ("mixture.later.1.0.layers.0.bias", (2,), 0.0),
            ("mixture.input_dropout.used", (1,), 0.0),
            ("mixture.gates.weight", (4, 14), 18.36206),
            ("towers.0.layers.0.weight", (2, 2), 5.84826),
            ("towers.0.layers.0.bias", (2,), 0.0),
            ("towers.0.layers.2.weight", (1, 2), 1.94029),
            ("towers.0.layers.2.bias", (1,), 0.0),
            ("towers.1.layers.0.weight", (2, 2), 4.42735),
            ("towers.1.layers.0.bias", (2,), 0.0),
            ("towers.1.layers.2.weight", (1, 2), 2.61354),
            ("towers.1.layers.2.bias", (1,), 0.0),
        ],
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_parameters_are_those_of_old_checkpoints(name, unique):
    arguments, expected = NETWORKS[name]
    tasks = ("one", "two") if name == "mmoe" else ("one",)
    features = PackedFeatures(3, 2, EmbeddingConfig(embedding_dim=4), tasks)
    ms.set_seed(5)
    net = models.get(name)(features, name=unique(), **arguments)
    found = [(p.name, p.shape, float(np.abs(p.asnumpy()).sum())) for p in net.get_parameters()]
    for table in tables_of(net):
        table.close()
    assert [each[:2] for each in found] == [each[:2] for each in expected]
    sums, old = (np.array([each[2] for each in side]) for side in (found, expected))
    np.testing.assert_allclose(sums, old, rtol=1e-4, atol=1e-5)
