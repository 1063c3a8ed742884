# SPDX-License-Identifier: Apache-2.0
"""Raw columns through the training's features, with what they had learned at that state."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from mindspore_rec.common.run.state_file import read_states
from mindspore_rec.serve.protocol.limits import Limits
from mindspore_rec.serve.protocol.messages import RawColumns, RequestError, parse_request
from mindspore_rec.serving import ChainError, Predictor
from mindspore_rec.stream import FeaturePipeline, MinMaxScale, Number
from tests.serving.features_network import INPUTS, Network, asked, build, pipeline, train
from tests.support.http_server import Server, ready_server
from tests.support.processes import start_python

pytestmark = pytest.mark.usefixtures("graph_mode")

STEPS = 8


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Full at step 0 and 5, deltas of each step up to 8."""
    root = tmp_path_factory.mktemp("features") / "run"
    train(root, STEPS)
    return root


def state_at(root: Path, step: int) -> dict[str, Any]:
    """Return the pipeline's state that the delta of a step has."""
    entry = next(root.glob(f"{step:012d}.delta"))
    found: dict[str, Any] = read_states(entry)["objects"]["train_dataset"]["transform"]
    return found


def by_hand(root: Path, step: int, rows: Any) -> list[np.ndarray]:
    stage = pipeline()
    stage.load_state_dict(state_at(root, step))
    made = stage.apply(rows, ["ids", "dense"])
    return [made["ids"], made["dense"]]


def test_raw_columns_of_every_kind_are_what_arrays_made_by_hand_are(learned: Path) -> None:
    rows = asked([3.0, 70.0, None, 200.0])
    with Predictor(learned, follow=False) as predictor:
        assert predictor.raw_columns == ["city", "user", "time", "price"]
        assert predictor.features is not None
        arrays = by_hand(learned, STEPS, rows)
        expected = predictor.predict(*arrays)
        assert expected[:, 3].tolist() == pytest.approx([3 / 80, 70 / 80, 0.0, 1.0])
        np.testing.assert_array_equal(expected[:, :3], STEPS)
        before = json.dumps(predictor.features.state_dict())
        for given in (rows, pd.DataFrame(rows), pa.table(rows), pa.table(rows).to_batches()[0]):
            np.testing.assert_array_equal(predictor.predict(given), expected)
        with_label = {**rows, "click": ["never looked at"] * 4}
        np.testing.assert_array_equal(predictor.predict(with_label), expected)
        assert json.dumps(predictor.features.state_dict()) == before  # it learns nothing
        assert before == json.dumps(state_at(learned, STEPS))


def test_a_delta_brings_rows_and_what_was_learned_together(learned: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(learned, tmp_path / "run"))
    for path in root.glob("00000000000[678].*"):
        shutil.rmtree(path)
    given = pipeline()
    with Predictor(root, Network, inputs=INPUTS, features=given, follow=False) as predictor:
        for step in (5, 6, 7, 8):
            if step > 5:
                shutil.copytree(learned / f"{step:012d}.delta", root / f"{step:012d}.delta")
                predictor.apply(root / f"{step:012d}.delta")
            (answer,), version = predictor.predict_versioned(asked([1.0, 2.0]))
            assert version == step and np.unique(answer[:, :3]).tolist() == [float(step)]
            np.testing.assert_array_equal(
                answer[:, 3:], by_hand(learned, step, asked([1.0, 2.0]))[1]
            )
    assert given.state_dict() == pipeline().state_dict()  # the caller's own stays as it is


def test_whole_states_while_a_trainer_goes_on_and_is_killed(tmp_path: Path, wait: Any) -> None:
    root = tmp_path / "run"
    command = ["-m", "tests.serving.features_network", str(root), "0.03"]
    process = start_python(*command, stdout=None)
    stop = threading.Event()
    failures: list[BaseException] = []
    seen: set[int] = set()

    def ask(number: int) -> None:
        rows = asked([1.0 + number, 5.0, 0.5])
        prices = np.array(rows["price"])
        while not stop.wait(0.02):  # the trainer needs the processor too
            try:
                (answer,), version = predictor.predict_versioned(rows)
                if version == 0:
                    continue  # rows are not made yet
                assert np.unique(answer[:, :3]).tolist() == [float(version)]
                expected = (prices / (10.0 * version)).astype(np.float32)
                np.testing.assert_array_equal(answer[:, 3], expected)
                seen.add(version)
            except BaseException as error:
                failures.append(error)
                return

    try:
        with Predictor(root, poll_seconds=0.02) as predictor:
            threads = [threading.Thread(target=ask, args=(number,)) for number in range(3)]
            for thread in threads:
                thread.start()
            try:
                wait(lambda: failures or predictor.status().version >= 12, 240)
                process.kill()
                process.wait()
                process = start_python(*command, stdout=None)
                at = predictor.status().version
                wait(lambda: failures or predictor.status().version >= at + 12, 240)
            finally:
                stop.set()
                for thread in threads:
                    thread.join()
            assert not failures, failures
            assert len(seen) >= 8, seen
    finally:
        process.kill()
        process.wait()


def test_a_checkpoint_that_does_not_say_what_was_learned_is_refused(
    trained: Path, learned: Path, tmp_path: Path
) -> None:
    from tests.serving.serving_network import Marked

    scale = FeaturePipeline({"ids": [MinMaxScale("a")]})
    with pytest.raises(ValueError, match="does not say what the features have learned"):
        Predictor(trained, Marked, inputs=["ids:INT64:-1,3"], features=scale)
    with pytest.raises(ValueError, match="is not of this pipeline: state must be of a pipeline"):
        Predictor(learned, Network, inputs=INPUTS, features=scale)
    short = FeaturePipeline({"ids": Number("a")})
    with pytest.raises(ValueError, match="must make an array for each input of the network"):
        Predictor(learned, Network, inputs=INPUTS, features=short)
    with pytest.raises(TypeError, match="features must be a FeaturePipeline, got str"):
        Predictor(learned, Network, features="pipeline")  # type: ignore[arg-type]


def test_a_delta_with_a_state_of_another_pipeline_changes_nothing(
    learned: Path, tmp_path: Path
) -> None:
    root = Path(shutil.copytree(learned, tmp_path / "run"))
    for path in root.glob("00000000000[78].*"):
        shutil.rmtree(path)
    with Predictor(root, follow=False) as predictor:
        predictor._run.served._pipeline = FeaturePipeline({"x": MinMaxScale("a")})
        before = predictor.predict(*by_hand(learned, 6, asked([1.0])))
        shutil.copytree(learned / "000000000007.delta", root / "000000000007.delta")
        with pytest.raises(ChainError, match="is not of this pipeline"):
            predictor.apply(root / "000000000007.delta")
        assert predictor.status().version == 6
        np.testing.assert_array_equal(predictor.predict(*by_hand(learned, 6, asked([1.0]))), before)


def test_columns_that_do_not_fit(learned: Path) -> None:
    with Predictor(learned, follow=False) as predictor:
        rows = asked([1.0, 2.0])
        for bad, error, words in [
            ({**rows, "price": ["x", "y"]}, ValueError, "column 'price' must be numbers"),
            ({**rows, "city": [1.5, 2.5]}, TypeError, "'city' must be of integers or strings"),
            ({n: c for n, c in rows.items() if n != "user"}, ValueError, "'user', which a batch"),
        ]:
            with pytest.raises(error, match=words):
                predictor.predict(bad)
    with Predictor(learned, Network, inputs=INPUTS, follow=False) as predictor:
        assert predictor.features is None
        with pytest.raises(TypeError, match="got raw columns: give the predictor features="):
            predictor.predict(rows)


# ---- over HTTP


@pytest.fixture(scope="module")
def server(learned: Path) -> Iterator[Server]:
    with ready_server(learned, "--name", "model") as started:
        yield started


def of_rows(columns: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {name: values[i] for name, values in columns.items() if values[i] is not None}
        for i in range(len(columns["price"]))
    ]


def test_requests_of_rows_of_columns_and_of_tensors(server: Server, learned: Path) -> None:
    client = server.client()
    rows = asked([3.0, 70.0, None, 200.0])
    ids, dense = by_hand(learned, STEPS, rows)
    status, found = client.ask("/v2/models/model")
    assert status == 200 and found["parameters"]["columns"] == ["city", "user", "time", "price"]
    bodies: list[dict[str, Any]] = [
        {"rows": of_rows(rows), "id": "7"},
        {"columns": {**rows, "unknown": [{}] * 4}},
        {
            "inputs": [
                {"name": "ids", "shape": [4, 3], "datatype": "INT64", "data": ids.tolist()},
                {"name": "dense", "shape": [4, 2], "datatype": "FP32", "data": dense.tolist()},
            ]
        },
    ]
    answers = []
    for body in bodies:
        status, found = client.ask("/v2/models/model/infer", body)
        assert status == 200, found
        assert found["model_version"] == str(STEPS)
        answers.append(found["outputs"])
    assert answers[0] == answers[1] == answers[2]
    made = np.array(answers[0][0]["data"], np.float32).reshape(4, 5)
    np.testing.assert_array_equal(made[:, :3], STEPS)
    np.testing.assert_array_equal(made[:, 3:], dense)


def test_requests_at_the_same_time_go_together_or_not_and_get_their_own(server: Server) -> None:
    failures: list[Any] = []

    def ask(number: int) -> None:
        client = server.client()
        for i in range(15):
            price = float(number * 15 + i) if i % 3 else number * 15 + i  # integers: another type
            rows = asked([price, 1.0])
            body = {"rows": of_rows(rows)} if i % 2 else {"columns": rows}
            status, found = client.ask("/v2/models/model/infer", body)
            got = found["outputs"][0]["data"][3] if status == 200 else found
            if got != pytest.approx(min(price / 80, 1.0)):
                failures.append((price, got))
            status, found = client.ask("/v2/models/model/infer", {"columns": {"price": [1]}})
            if status != 400:
                failures.append(found)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[:3]


ROW = {"city": "Rome", "user": 1, "time": 1_700_000_000, "price": 1.0}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"rows": []}, "rows must be a list of objects, at least one"),
        ({"rows": [1]}, "each of rows must be an object, got 1"),
        ({"rows": {"a": 1}}, "rows must be a list of objects"),
        ({"rows": [{"x": 1}]}, "rows must have a column"),
        ({"rows": [ROW], "columns": {}}, "one of inputs, rows and columns"),
        ({"rows": [ROW], "inputs": []}, "one of inputs, rows and columns"),
        ({"columns": [1]}, "columns must be an object of lists"),
        ({"columns": {}}, "columns must have at least one row"),
        ({"columns": {"city": []}}, "columns must have at least one row"),
        ({"columns": {"city": "Rome"}}, "column 'city' must be a list"),
        ({"columns": {"city": ["a"], "user": [1, 2]}}, r"the same number of rows, got [1, 2]"),
        ({"rows": [{**ROW, "price": True}, ROW]}, "all numbers or all booleans, got a mixture"),
        ({"rows": [{**ROW, "price": {}}]}, "all numbers or all booleans, got {}"),
        ({"rows": [{**ROW, "price": 1 << 63}]}, "column 'price' must be of integers from"),
        ({"rows": [ROW, {**ROW, "city": 7}]}, "'city' must be all strings, all numbers or"),
        ({"rows": [{**ROW, "city": [["a"]]}]}, "'city' must be all strings, all numbers or"),
        ({"rows": [{**ROW, "city": ["a"]}, ROW]}, "'city' must have lists of the same length"),
        ({"rows": [{**ROW, "city": []}]}, "'city' must have lists of the same length, at least 1"),
        ({"rows": [{**ROW, "city": ["a", "b"]}]}, "must have one value a row"),
        ({"rows": [{**ROW, "city": "\ud800"}]}, "column 'city' must be of Unicode text"),
        ({"rows": [{**ROW, "city": "x" * 5000}]}, "strings of at most 4096 characters, got 5000"),
        ({"rows": [{**ROW, "city": 1.5}]}, "must be of integers or strings, got double"),
        ({"rows": [{**ROW, "price": "8"}]}, "texts such as '8': convert it to numbers, which JSON"),
        ({"rows": [{**ROW, "time": "noon"}]}, "column 'time' must be seconds or timestamps"),
        ({"rows": [{"city": "Rome"}]}, "'user' is in column 'user', which a batch does not have"),
        ({"rows": [ROW] * 1025}, "at most 1024 rows (--max-batch-rows), got 1025"),
        ({"rows": [ROW] * 9000}, "objects"),
        ({"rows": [ROW], "outputs": [{"name": "logit"}]}, "output 'logit' is not one"),
        (b'{"rows": [{"price": 1e999}]}', "column 'price' must be of numbers from -1.79"),
        (b'{"rows": [{"price": 1, "price": 2}]}', "'price' twice in an object"),
        (b'{"columns": {"city": ["' + b'","' * 30_000 + b'"]}}', "at most 1024 rows"),
        (b'{"columns": {"city": ["' + b'","' * 60_000 + b'"]}}', "quotation marks"),
    ],
)
def test_what_is_refused(server: Server, body: Any, words: str) -> None:
    status, found = server.client().ask("/v2/models/model/infer", body)
    assert status == 400 and words in found["error"], found
    for price in (1.0, True):
        row = {**ROW, "price": price}
        status, _ = server.client().ask("/v2/models/model/infer", {"rows": [row]})
        assert status == 200


def test_a_model_without_features_says_so(trained: Path) -> None:
    limits = Limits()
    for body in ({"rows": [ROW]}, {"columns": {"price": [1]}}):
        with pytest.raises(RequestError, match="the model has no features, so inputs must be gi"):
            parse_request(json.dumps(body).encode(), [], [], limits)


def test_memory_of_rows_is_in_proportion_to_what_is_sent() -> None:
    rows = [{f"c{i}": 1} for i in range(3000)]  # a square of missing values
    body = json.dumps({"rows": rows}).encode()
    limits = Limits(rows=4096).with_columns(None)
    with pytest.raises(RequestError, match="must have at most .* values, missing ones too"):
        parse_request(body, [], [], limits, RawColumns(None))


def test_a_function_that_makes_the_network_with_its_features(learned: Path) -> None:
    with Predictor(learned, build, inputs=INPUTS, follow=False) as predictor:
        assert predictor.features is not None
        assert predictor.predict(asked([8.0]))[0, 3] == pytest.approx(0.1)
