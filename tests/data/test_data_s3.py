# SPDX-License-Identifier: Apache-2.0
"""Rows in S3: a server of moto as a process; URIs, globs, folders, a file system, restarts."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.csv
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from mindspore_rec.data import read
from tests.support.s3_server import KEYS, started_s3

TABLE = pa.table({"id": range(1000), "x": [n / 2 for n in range(1000)]})


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory) -> Iterator[str]:
    with started_s3(tmp_path_factory.mktemp("moto") / "log") as address:
        yield address


@pytest.fixture(scope="module")
def system(endpoint) -> pafs.S3FileSystem:
    made = pafs.S3FileSystem(
        access_key="key",
        secret_key="secret",
        endpoint_override=endpoint,
        scheme="http",
        region="us-east-1",
        allow_bucket_creation=True,
    )
    made.create_dir("clicks")
    for day in (1, 2):
        rows = TABLE.slice(500 * (day - 1), 500)
        pq.write_table(rows, f"clicks/log/day={day}/a.parquet", row_group_size=60, filesystem=made)
    with made.open_output_stream("clicks/all.csv.gz", compression="gzip") as out:
        pa.csv.write_csv(TABLE, out)
    return made


def test_a_folder_of_a_bucket_is_read_shuffled_and_resumed(endpoint, system, monkeypatch):
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    options = f"?endpoint_override={endpoint}&scheme=http&region=us-east-1"
    rows = read(f"s3://clicks/log{options}")
    assert rows.names == ["id", "x", "day"] and len(rows) == 1000
    batches = rows.batches(64, shuffle=True, seed=1, buffer_rows=200)
    whole = [batch["id"].to_pylist() for batch in batches]
    assert sorted(sum(whole, [])) == list(range(1000))
    again = read(f"s3://clicks/log/*/*.parquet{options}")
    resumed = again.batches(64, shuffle=True, seed=1, buffer_rows=200)
    resumed.load_state_dict(batches.state_dict(7))
    assert [batch["id"].to_pylist() for batch in resumed] == whole[7:]


def test_a_file_system_and_a_compressed_object(system):
    assert read("clicks/all.csv.gz", filesystem=system).to_table().equals(TABLE)
    rows = read("clicks/log", filesystem=system).where([("day", "=", 2)])
    assert rows.to_table()["id"].to_pylist() == list(range(500, 1000))
    with pytest.raises(FileNotFoundError, match="there is no file or folder clicks/none"):
        read("clicks/none", filesystem=system)
