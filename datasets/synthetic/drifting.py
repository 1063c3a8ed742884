# SPDX-License-Identifier: Apache-2.0
"""A click stream whose categorical values appear, live for a known time and vanish."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from datasets.common.blocks import Batch
from datasets.synthetic.config import CategoryField
from datasets.synthetic.counter import irwin_hall, stream_words, uniform
from datasets.synthetic.planted import zipf_ranks

__all__ = ["DriftingConfig", "DriftingModel", "DriftingRows", "drifting"]


@dataclass(frozen=True)
class DriftingConfig:
    """Configuration of a drifting stream.

    Args:
        fields: number of categorical fields, at least 1 (default 8).
        alive: number of values per field that are alive at any time, at least 1 (default 1000).
        life: lifetime of a value, as a number of rows of the stream, at least 1 (default 200,000).
            New values appear at an even rate, so that the alive values change gradually.
        zipf: exponent of the Zipf law that the frequencies of alive values follow, at least 0
            (default 0.7).
        once_share: share of ids that occur once and have no effect, such as mistyped words and
            random cookies, in [0, 1) (default 0.02).
        logit_std: standard deviation of the values' effects, above 0 (default 1.3).
        base_rate: click probability without any effect, in (0, 1) (default 0.2).

    Raises:
        ValueError: an argument is out of range.

    Example:
        >>> DriftingConfig(alive=50, life=1000).fields
        8
    """

    fields: int = 8
    alive: int = 1000
    life: int = 200_000
    zipf: float = 0.7
    once_share: float = 0.02
    logit_std: float = 1.3
    base_rate: float = 0.2

    def __post_init__(self) -> None:
        for name in ("fields", "alive", "life"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not (math.isfinite(self.zipf) and self.zipf >= 0):
            raise ValueError(f"zipf must be finite and at least 0, got {self.zipf}")
        if not 0 <= self.once_share < 1:
            raise ValueError(f"once_share must be in [0, 1), got {self.once_share}")
        if not 0 < self.logit_std < math.inf:
            raise ValueError(f"logit_std must be finite and above 0, got {self.logit_std}")
        if not 0 < self.base_rate < 1:
            raise ValueError(f"base_rate must be between 0 and 1, got {self.base_rate}")


class DriftingRows(NamedTuple):
    """Rows of the stream before any encoding.

    Args:
        values: int64 [B, F], index of a value in its field; negative if the value occurs only once.
        bayes: float64 [B], the true probability of a click.
        clicks: bool [B], the label.
    """

    values: np.ndarray
    bayes: np.ndarray
    clicks: np.ndarray


class DriftingModel:
    """A drifting stream for one seed; row i is a function of (seed, i).

    A field has `alive` slots, and each slot contains one value at a time. For each field, a row
    draws one slot, and takes the value of this slot. The slots' probabilities do not change. A slot
    receives a new value every `life` rows; different slots change at different rows. The click
    probability is ``sigmoid(b + s * sum_f effect(f, value) / sqrt(F))``; the effects have mean 0
    and variance 1.

    Args:
        config: number of fields, lifetime of values and other settings.
        seed: any integer.

    Example:
        >>> model = DriftingModel(DriftingConfig(alive=10, life=100, once_share=0.0), seed=1)
        >>> values = model.rows(500, 600).values[:, 0]
        >>> born, dead = model.lifetime(0, values)
        >>> bool(np.all((born <= np.arange(500, 600)) & (np.arange(500, 600) < dead)))
        True
    """

    def __init__(self, config: DriftingConfig, seed: int) -> None:
        self.config = config
        self.seed = seed
        self._law = CategoryField(config.alive, zipf=config.zipf)
        places = np.arange(config.alive)
        self._phases = [
            (uniform(stream_words(seed, f"phase/C{f + 1}", places)) * config.life).astype(np.int64)
            for f in range(config.fields)
        ]

    def rows(self, start: int, stop: int) -> DriftingRows:
        """Return rows ``start`` to ``stop - 1``; a row does not depend on the requested range.

        Raises:
            ValueError: ``start`` is below 0 or above ``stop``.
        """
        if not 0 <= start <= stop:
            raise ValueError(f"rows must be a range from at least 0, got {start}..{stop}")
        numbers = np.arange(start, stop)
        config = self.config
        values = np.empty((stop - start, config.fields), np.int64)
        told = np.zeros(stop - start)
        for f in range(config.fields):
            words = stream_words(self.seed, f"row/C{f + 1}", numbers)
            places = zipf_ranks(self._law, uniform(words))
            values[:, f] = self._holders(f, places, numbers)
            # the low bits, which hardly affect uniform(), decide which ids occur once
            once = (words & np.uint64(0xFFFF)) < np.uint64(round(config.once_share * 65536))
            values[once, f] = -1 - numbers[once]
            told += self.effect(f, values[:, f])
        logits = told * (config.logit_std / math.sqrt(config.fields))
        logits += math.log(config.base_rate / (1.0 - config.base_rate))
        bayes = 1.0 / (1.0 + np.exp(-logits))
        draws = uniform(stream_words(self.seed, "row/label", numbers))
        return DriftingRows(values, bayes, draws < bayes)

    def lifetime(self, field: int, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return each value's first possible row, and the row after its last possible row.

        A value's first row may be below 0, because many values are already alive at row 0.
        """
        once = values < 0
        generation, place = np.divmod(np.where(once, 0, values), self.config.alive)
        born = generation * self.config.life - self._phases[field][place]
        born = np.where(once, -1 - values, born)
        return born, born + np.where(once, 1, self.config.life)

    def effect(self, field: int, values: np.ndarray) -> np.ndarray:
        """Return the float32 effects of a field's values; values that occur once have effect 0."""
        words = stream_words(self.seed, f"effect/C{field + 1}", np.maximum(values, 0))
        return np.where(values < 0, np.float32(0), irwin_hall(words))

    def keys(self, values: np.ndarray) -> np.ndarray:
        """Return int64 [B, F] table keys: 64 random bits for each (field, value)."""
        columns = [
            stream_words(self.seed, f"key/C{f + 1}", values[:, f]).view(np.int64)
            for f in range(values.shape[1])
        ]
        return np.stack(columns, axis=1)

    def _holders(self, field: int, places: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        generation = (numbers + self._phases[field][places]) // self.config.life
        return generation * self.config.alive + places


def drifting(
    rows: int,
    seed: int,
    start: int = 0,
    block_rows: int = 1024,
    config: DriftingConfig | None = None,
) -> Iterator[Batch]:
    """Yield the rows of a drifting stream, in blocks.

    Args:
        rows: number of rows, at least 0.
        seed: seed of the values' effects and of the rows.
        start: index of the first row, at least 0 (default 0).
        block_rows: rows per block, at least 1 (default 1024). Rows do not depend on the block size.
        config: number of fields, lifetime of values and other settings. Default:
            `DriftingConfig()`.

    Yields:
        ``ids`` int64 [B, F], ``label`` float32 [B, 1], ``bayes`` float32 [B, 1], the true
        probability.

    Raises:
        ValueError: an argument is out of range.

    Example:
        >>> next(drifting(5, seed=1))["ids"].shape
        (5, 8)
    """
    if rows < 0 or start < 0 or block_rows < 1:
        raise ValueError(
            "rows and start must be at least 0 and block_rows at least 1, "
            f"got {rows}, {start}, {block_rows}"
        )
    model = DriftingModel(config or DriftingConfig(), seed)
    for first in range(start, start + rows, block_rows):
        raw = model.rows(first, min(first + block_rows, start + rows))
        yield {
            "ids": model.keys(raw.values),
            "label": raw.clicks.astype(np.float32)[:, None],
            "bayes": raw.bayes.astype(np.float32)[:, None],
        }
