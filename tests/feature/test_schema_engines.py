# SPDX-License-Identifier: Apache-2.0
"""Ray Data and Dask make the arrays of a schema, with the same bits as a training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from mindspore_rec import Schema
from tests.feature.test_schema_spark import frame, schema_of
from tests.support.nightly import NIGHTLY

pytestmark = pytest.mark.skipif(not NIGHTLY, reason="MINDSPORE_REC_NIGHTLY=1 runs Ray and Dask")

Make = Callable[[pa.Table], pa.Table]


def maker(driver: Schema) -> Make:
    """Return the function that a process of an engine calls with rows."""
    described, state = driver.describe(), driver.state_dict()

    def make(rows: pa.Table) -> pa.Table:
        part = Schema.from_description(described)
        part.load_state_dict(state)
        arrays = part.arrow_batches([rows.combine_chunks().to_batches()[0]])
        return pa.Table.from_batches(arrays).append_column("row", rows["row"])

    return make


def by_ray(rows: pd.DataFrame, make: Make) -> pa.Table:
    ray = pytest.importorskip("ray", reason="pip install 'ray[data]'")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        data = ray.data.from_pandas(rows).repartition(3)
        made = data.map_batches(make, batch_format="pyarrow")
        return pa.concat_tables(ray.get(made.to_arrow_refs()))
    finally:
        ray.shutdown()


def by_dask(rows: pd.DataFrame, make: Make) -> pa.Table:
    delayed = pytest.importorskip("dask", reason="pip install 'dask[dataframe]'").delayed
    frames = pytest.importorskip("dask.dataframe").from_pandas(rows, npartitions=3)

    def made(part: pd.DataFrame) -> pa.Table:
        return make(pa.Table.from_pandas(part, preserve_index=False))

    parts = [delayed(made)(part) for part in frames.to_delayed()]
    return pa.concat_tables(delayed(list)(parts).compute(scheduler="processes", num_workers=2))


@pytest.mark.parametrize("engine", [by_ray, by_dask])
def test_an_engine_makes_the_keys_and_numbers_of_a_training(engine: Any) -> None:
    rows = frame()
    driver = schema_of().fit(rows.drop(columns="row"))
    expected = driver.pipeline.batch(rows, learn=False, training=True)[0]
    table = engine(rows, maker(driver))
    order = table["row"].to_numpy()
    assert sorted(order.tolist()) == rows["row"].tolist()
    for name, array in expected.items():
        made = np.array(table[name].to_pylist(), array.dtype)
        np.testing.assert_array_equal(made, array[order])
