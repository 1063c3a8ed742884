# SPDX-License-Identifier: Apache-2.0
"""The configuration of a planted model."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["CategoryField", "PlantedConfig", "criteo_like"]

MAX_CARDINALITY = 1 << 32


@dataclass(frozen=True)
class CategoryField:
    """One categorical field.

    Args:
        cardinality: Number of distinct values, 1 to 2**32.
        zipf: Exponent of the frequency law, at least 0: value number k has a probability of about
            ``k ** -zipf``. The exponent 0 makes all values equally frequent; click logs have an
            exponent of about 1.1 (default).
        main: Weight of the field's main effect, at least 0 (default 1).
        pairs: Weight of the field's vector in the pairwise interactions, at least 0. If the weight
            is 0 (default), the field has no interactions.

    Raises:
        ValueError: an argument is out of range.

    Example:
        >>> CategoryField(1000, zipf=1.2)
        CategoryField(cardinality=1000, zipf=1.2, main=1.0, pairs=0.0)
    """

    cardinality: int
    zipf: float = 1.1
    main: float = 1.0
    pairs: float = 0.0

    def __post_init__(self) -> None:
        if not 1 <= self.cardinality <= MAX_CARDINALITY:
            raise ValueError(f"cardinality must be in 1..2**32, got {self.cardinality}")
        for name in ("zipf", "main", "pairs"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} must be finite and at least 0, got {value}")


@dataclass(frozen=True)
class PlantedConfig:
    """A planted model: ``P(click) = sigmoid(b + s * z)``; z has mean 0 and variance 1.

    z is a weighted sum of three independent parts, each of variance 1: main effects of the
    categories, interactions ``sum_{f<g} <v_f, v_g>`` of low-rank vectors, and effects of the
    counts.

    Args:
        fields: The categorical fields C1, C2, ...; at least one field.
        counts: Number of count fields I1, I2, ..., at least 0 (default 13).
        rank: Length of the vectors v, at least 1 (default 3).
        main_share, pairs_share, counts_share: Shares of the variance of z that come from main
            effects, interactions and count effects, each at least 0. The sum of the shares must be
            above 0, and the shares are scaled to a sum of 1. If a part has no fields, its share
            must be 0.
        logit_std: The factor s of z in the logit, above 0. A larger factor makes clicks depend more
            on the features. The default, 1.36, gives a Bayes AUC of about 0.80 at the default click
            rate.
        click_rate: Mean click probability, between 0 and 1 (default 0.25).

    Raises:
        ValueError: an argument is out of range.

    Example:
        >>> config = PlantedConfig((CategoryField(10, pairs=1.0), CategoryField(20, pairs=1.0)))
        >>> config.click_rate
        0.25
    """

    fields: tuple[CategoryField, ...]
    counts: int = 13
    rank: int = 3
    main_share: float = 0.45
    pairs_share: float = 0.40
    counts_share: float = 0.15
    logit_std: float = 1.36
    click_rate: float = 0.25

    def __post_init__(self) -> None:
        if not self.fields:
            raise ValueError("fields must have at least one field")
        if self.counts < 0 or self.rank < 1:
            raise ValueError(
                f"counts must be at least 0 and rank at least 1, got {self.counts}, {self.rank}"
            )
        if not (0 < self.click_rate < 1 and 0 < self.logit_std < math.inf):
            raise ValueError(
                "click_rate must be between 0 and 1 and logit_std above 0, "
                f"got {self.click_rate}, {self.logit_std}"
            )
        self._check_shares()

    def _check_shares(self) -> None:
        shares = (self.main_share, self.pairs_share, self.counts_share)
        if min(shares) < 0 or not 0 < sum(shares) < math.inf:
            raise ValueError(f"shares must be at least 0 with a sum above 0, got {shares}")
        spread = [field for field in self.fields if field.cardinality > 1]
        if self.main_share > 0 and not any(field.main for field in spread):
            raise ValueError("main_share must be 0 where no field has a main effect")
        if self.pairs_share > 0 and sum(field.pairs > 0 for field in spread) < 2:
            raise ValueError("pairs_share must be 0 where fewer than two fields have pairs above 0")
        if self.counts_share > 0 and self.counts == 0:
            raise ValueError("counts_share must be 0 where counts is 0")


def criteo_like(max_cardinality: int = 1_000_000) -> PlantedConfig:
    """Return a configuration like Criteo's data, with 26 categorical fields and 13 counts.

    Only fields with 10 to 1,500 values interact, so that a million rows are enough to learn the
    interactions. Fields with more than 20,000 values have weaker main effects, and many of their
    values occur once or never.

    Args:
        max_cardinality: Upper limit of a field's cardinality, at least 1 (default 1,000,000).

    Returns:
        The configuration; its Bayes AUC is about 0.80.

    Example:
        >>> max(field.cardinality for field in criteo_like(5000).fields)
        5000
    """
    if max_cardinality < 1:
        raise ValueError(f"max_cardinality must be at least 1, got {max_cardinality}")
    sizes = (
        1400, 560, 1_000_000, 250_000, 300, 20, 12_000, 600, 3, 90_000, 5_500, 800_000, 3_100,
        26, 12_000, 500_000, 10, 5_600, 2_100, 4, 700_000, 17, 15, 280_000, 100, 140_000,
    )  # fmt: skip
    return PlantedConfig(tuple(_criteo_field(min(size, max_cardinality)) for size in sizes))


def _criteo_field(cardinality: int) -> CategoryField:
    return CategoryField(
        cardinality,
        zipf=1.1,
        main=1.0 if cardinality <= 20_000 else 0.4,
        pairs=1.0 if 10 <= cardinality <= 1500 else 0.0,
    )
