# SPDX-License-Identifier: Apache-2.0
"""example_clicks: random clicks of a shop, for the examples in docs/."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from mindspore_rec.common.checks import check_int

__all__ = ["example_clicks"]

USERS: Final = 100
ITEMS: Final = 40
KINDS: Final = np.array(["sofa", "lamp", "desk", "rug"])
CITIES: Final = np.array(["Lyon", "Oslo", None], object)


def example_clicks(rows: int = 20_000, seed: int = 0) -> pd.DataFrame:
    """Return generated clicks of a shop, one row per second. The guides use these rows.

    Users with even numbers prefer sofas and desks; users with odd numbers prefer lamps and rugs.
    Users with odd numbers click more often, and a lower price makes a click more likely. Time and
    city have no effect, and a third of the cities are missing.

    Args:
        rows: number of rows. With more rows and the same seed, the first rows stay the same.
            Default: 20,000.
        seed: seed of the random numbers. Default: 0.

    Returns:
        A data frame with the columns `time` (timestamps), `user`, `item` and `city` (texts),
        `price` (a number from 5 to 300) and `clicked` (0 or 1), in order of time.

    Raises:
        TypeError: an argument is not a whole number.
        ValueError: `rows` is less than 1, or `seed` is negative.

    Example:
        >>> from mindspore_rec.data import example_clicks
        >>> print(example_clicks(3).to_csv(index=False), end="")
        time,user,item,city,price,clicked
        2026-01-01 00:00:00,u63,desk-10,Lyon,5.35,0
        2026-01-01 00:00:01,u91,sofa-24,,46.3,0
        2026-01-01 00:00:02,u81,sofa-0,,5.74,0
    """
    check_int("rows", rows, 1, 2**31 - 1)
    check_int("seed", seed, 0, 2**63 - 1)
    draws = np.random.default_rng(seed).random((rows, 5))
    user, item, city = (draws[:, :3] * (USERS, ITEMS, len(CITIES))).astype(int).T
    price = np.round(5 * 60 ** draws[:, 3], 2)
    odd, prefers = user % 2, user % 2 == item % 2
    score = 6 * prefers + 4 * odd + 2 * (item % 2) - 8 - 1.5 * np.log(price / 40)
    return pd.DataFrame(
        {
            "time": pd.Timestamp("2026-01-01") + pd.to_timedelta(np.arange(rows), unit="s"),
            "user": [f"u{number}" for number in user],
            "item": [f"{KINDS[number % len(KINDS)]}-{number}" for number in item],
            "city": CITIES[city],
            "price": price,
            "clicked": (draws[:, 4] < 1 / (1 + np.exp(-score))).astype(int),
        }
    )
