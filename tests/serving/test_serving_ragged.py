# SPDX-License-Identifier: Apache-2.0
"""Inputs whose rows have any number of values: answers are the same alone, together, both ways."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest

from mindspore_rec.common.columns.tensors import TensorSpec, parsed_specs
from mindspore_rec.serve.protocol.limits import Limits
from mindspore_rec.serve.protocol.messages import RequestError, parse_request
from mindspore_rec.serve.server.batcher import Batcher
from mindspore_rec.serving import Predictor
from mindspore_rec.train.export.write_network import write_network
from tests.serving.ragged_network import INPUTS, build, request, save

SPECS = parsed_specs(INPUTS)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("ragged") / "saved"
    save(root)
    ms.set_context(mode=ms.GRAPH_MODE)
    assert write_network(root, build, INPUTS, None, None) is None
    return root


@pytest.fixture(scope="module")
def predictor(saved: Path) -> Iterator[Predictor]:
    with Predictor(saved, follow=False) as made:
        assert made.status().runtime == "onnxruntime"
        yield made


def test_answers_are_mindspores(saved: Path, predictor: Predictor) -> None:
    rng = np.random.default_rng(1)
    with Predictor(saved, build, inputs=INPUTS, follow=False) as other:
        for rows in (1, 2, 9):
            asked = request(rng, rows)
            np.testing.assert_allclose(
                predictor.predict(*asked), other.predict(*asked), rtol=1e-5, atol=1e-5
            )
        empty = [np.array([[1]]), np.zeros(0, np.int64), np.zeros(0, np.float32), np.array([0])]
        np.testing.assert_allclose(
            predictor.predict(*empty), other.predict(*empty), rtol=1e-5, atol=1e-5
        )


def test_bags_by_hand(saved: Path, predictor: Predictor) -> None:
    assert predictor.inputs == SPECS
    one = predictor.predict(*request(np.random.default_rng(2), 1))
    assert one.shape == (1, 2)
    user, starts = np.array([[7], [7]]), np.array([0, 2])
    weights = np.array([1.0, 3.0, 2.0], np.float32)
    # The order of a bag's items does not matter, and another row's items do not.
    a = predictor.predict(user, np.array([5, 6, 8]), weights, starts)
    b = predictor.predict(user, np.array([6, 5, 9]), weights[[1, 0, 2]], starts)
    np.testing.assert_allclose(a[0], b[0], rtol=1e-5, atol=1e-5)
    assert abs(a[1] - b[1]).max() > 1e-3


def test_together_and_alone(predictor: Predictor) -> None:
    """Offsets are shifted where requests become one, whatever their sizes."""
    rng = np.random.default_rng(3)
    batcher = Batcher(predictor, 1024)
    asked = [request(rng, int(rng.integers(1, 6))) for _ in range(60)]
    joined = batcher._joined(asked)
    np.testing.assert_allclose(
        predictor.predict(*joined),
        np.concatenate([predictor.predict(*each) for each in asked]),
        rtol=1e-5, atol=1e-5,
    )  # fmt: skip
    futures = [batcher.submit(each) for each in asked]
    for each, future in zip(asked, futures, strict=True):
        (found,), _ = future.result(30)
        np.testing.assert_allclose(found, predictor.predict(*each), rtol=1e-5, atol=1e-5)
    batcher.close()


def tensors(**changed: Any) -> list[dict[str, Any]]:
    given = {
        "user": {"datatype": "INT64", "shape": [2, 1], "data": [1, 2]},
        "items": {"datatype": "INT64", "shape": [3], "data": [5, 6, 7]},
        "weights": {"datatype": "FP32", "shape": [3], "data": [1, 1, 0.5]},
        "starts": {"datatype": "INT64", "shape": [2], "data": [0, 1]},
        **changed,
    }
    return [{"name": name, **each} for name, each in given.items() if each is not None]


def parse(inputs: list[dict[str, Any]], limits: Limits | None = None) -> list[np.ndarray]:
    found = parse_request(json.dumps({"inputs": inputs}).encode(), SPECS, [], limits).inputs
    assert isinstance(found, list)
    return found


def test_lists_of_different_lengths() -> None:
    items = {"datatype": "INT64", "shape": [4, -1], "data": [[5], [], [6, 7], []]}
    weights = {"datatype": "FP32", "shape": [4, -1], "data": [[1], [], [1, 0.5], []]}
    user = {"datatype": "INT64", "shape": [4, 1], "data": [1, 2, 3, 4]}
    found = parse(tensors(user=user, items=items, weights=weights, starts=None))
    assert [each.tolist() for each in found[1:]] == [[5, 6, 7], [1, 1, 0.5], [0, 1, 1, 3]]
    short = {"datatype": "FP32", "shape": [4, -1], "data": [[1], [], [1], [0.5]]}
    with pytest.raises(RequestError, match="rows as long as others of 'starts'"):
        parse(tensors(user=user, items=items, weights=short, starts=None))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"starts": {"datatype": "INT64", "shape": [2], "data": [1, 2]}}, "must begin with 0"),
        ({"starts": {"datatype": "INT64", "shape": [2], "data": [0, 4]}}, "at the 3 values of"),
        ({"starts": {"datatype": "INT64", "shape": [3], "data": [0, 2, 1]}}, "never fall"),
        ({"starts": {"datatype": "INT64", "shape": [0], "data": []}}, "at least 1"),
        ({"starts": None}, "input 'starts' is missing"),
        ({"starts": None, "items": {"datatype": "INT64", "shape": [2, -1], "data": [1, 2]}},
         "must be a list for each row"),
        ({"starts": None, "items": {"datatype": "INT64", "shape": [9, -1], "data": [[1]]}},
         "data has 1 rows"),
        ({"starts": None, "items": {"datatype": "INT64", "shape": [2, -1], "data": [[1], ["x"]]}},
         "data must be integers of int64"),
        ({"starts": None, "items": {"datatype": "INT64", "shape": [2, -1], "data": [[1], [[2]]]}},
         "lists of the same length"),
    ],
)  # fmt: skip
def test_what_is_refused(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        parse(tensors(**changed))
    assert len(parse(tensors())) == 4


def test_values_are_bounded_by_elements_and_rows_by_rows() -> None:
    limits = Limits.of(SPECS, 10)
    assert limits.elements == 10 + 10 + 2 * 10 * 64
    many = {"datatype": "INT64", "shape": [40], "data": [1] * 40}
    weights = {"datatype": "FP32", "shape": [40], "data": [1] * 40}
    assert parse(tensors(items=many, weights=weights), limits)[1].size == 40
    with pytest.raises(RequestError, match="must have at most 30 that"):
        parse(tensors(items=many, weights=weights), Limits(elements=32))
    starts = {"datatype": "INT64", "shape": [11], "data": [0] * 11}
    with pytest.raises(RequestError, match="'starts' has 11 rows"):
        parse(tensors(starts=starts), limits)


@pytest.mark.parametrize(
    "texts",
    [
        ["x:INT64:-1:offsets=y"],
        ["x:INT64:-1:offsets=y", "y:FP32:-1"],
        ["x:INT64:-1:offsets=y", "y:INT64:-1,1"],
        ["x:INT64:5:offsets=y", "y:INT64:-1"],
        ["x:INT64:-1:offsets=y", "y:INT64:-1:offsets=x"],
    ],
)
def test_bad_declarations(texts: list[str]) -> None:
    with pytest.raises(ValueError, match="offsets in an input INT64 or INT32"):
        parsed_specs(texts)
    with pytest.raises(ValueError, match="an input must be name:datatype:shape"):
        TensorSpec.parse("x:INT64:-1:starts")
