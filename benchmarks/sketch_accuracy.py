# SPDX-License-Identifier: Apache-2.0
"""The share of keys that a sketch admits too early, for each number of bytes per counted key.

Each distinct key occurs threshold - 1 times, so an exact count admits no key.
"""

from __future__ import annotations

import bench_common
import mindspore as ms
import numpy as np
from tqdm import tqdm

import mindspore_rec as mr


def admitted_early(keys: np.ndarray, threshold: int, bytes_a_key: float) -> float:
    """Return the share of keys that get a row although they miss the threshold by one."""
    admission = mr.SketchAdmission(threshold, sketch_bytes=int(len(keys) * bytes_a_key))
    table = mr.MapParameter("sketch_accuracy", key_dtype=ms.int64, admission=admission)
    for _ in range(threshold - 1):
        for part in np.array_split(keys, max(1, len(keys) // 4096)):
            table.insert_rows(part)
    share = table.row_count / len(keys)
    table.close()
    return share


def main() -> None:
    """Measure and print."""
    parser = bench_common.parser(str(__doc__))
    parser.add_argument("--keys", type=int, default=200_000, help="distinct keys")
    parser.add_argument("--bytes", type=float, nargs="+", default=[1, 2, 4, 8], help="for each key")
    parser.add_argument(
        "--thresholds", type=int, nargs="+", default=[2, 5, 20], help="of admission"
    )
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    keys = bench_common.spread_keys(rng.integers(0, 1 << 60, args.keys))
    choices = [(threshold, each) for threshold in args.thresholds for each in args.bytes]
    shares = [
        {"threshold": t, "bytes": b, "admitted_early": admitted_early(keys, t, b)}
        for t, b in tqdm(choices, leave=False, disable=None)
    ]
    for each in shares:
        print("threshold {threshold}, {bytes:g} bytes a key: {admitted_early:.2%}".format(**each))
    bench_common.save(args.json, {"keys": args.keys, "shares": shares})


if __name__ == "__main__":
    main()
