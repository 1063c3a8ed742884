# SPDX-License-Identifier: Apache-2.0
"""The planted model: the values of row r, and the probability that row r is clicked."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from datasets.criteo.schema import scale_counts
from datasets.synthetic.config import CategoryField, PlantedConfig
from datasets.synthetic.counter import irwin_hall, stream_words, uniform
from mindspore_rec import category_keys

__all__ = ["PlantedModel", "RawRows"]

_CALIBRATION_ROWS = 1 << 16
_MISSING_SHARE = 0.1
_TEXT_TABLE_LIMIT = 1 << 24


class RawRows(NamedTuple):
    """Rows before any encoding.

    Args:
        ranks: int64 [B, F], index of a value in its field; 0 is the most frequent value.
        counts: float64 [B, N], whole numbers, NaN if missing.
        bayes: float64 [B], the true probability of a click.
        clicks: bool [B], the label.
    """

    ranks: np.ndarray
    counts: np.ndarray
    bayes: np.ndarray
    clicks: np.ndarray


class PlantedModel:
    """A planted model for one seed.

    A value's effect depends on (seed, field, value) only, and a row depends on (seed, row number)
    only. Two instances with the same arguments give the same rows.

    Args:
        config: Fields, counts, click rate and other settings of the model.
        seed: Any integer. Different seeds give different models and rows.

    Example:
        >>> model = PlantedModel(PlantedConfig((CategoryField(10),), pairs_share=0.0), seed=1)
        >>> late = model.rows(998, 1000)
        >>> bool(np.all(late.ranks == model.rows(0, 1000).ranks[998:]))
        True
    """

    def __init__(self, config: PlantedConfig, seed: int) -> None:
        self.config = config
        self.seed = seed
        self._pair_fields = [i for i, field in enumerate(config.fields) if field.pairs > 0]
        self._vectors = {i: self._field_vectors(i) for i in self._pair_fields}
        self._keys: list[_KeyTable] = [
            _KeyTable(seed, f"C{i + 1}", field.cardinality) for i, field in enumerate(config.fields)
        ]
        self._calibrate()

    def rows(self, start: int, stop: int) -> RawRows:
        """Return rows ``start`` to ``stop - 1``; a row does not depend on the requested range.

        Raises:
            ValueError: ``start`` is below 0 or above ``stop``.
        """
        if not 0 <= start <= stop:
            raise ValueError(f"rows must be a range from at least 0, got {start}..{stop}")
        ranks, counts = self._features("row", start, stop)
        bayes = 1.0 / (1.0 + np.exp(-self._logits(ranks, counts)))
        draws = uniform(stream_words(self.seed, "row/label", np.arange(start, stop)))
        return RawRows(ranks, counts, bayes, draws < bayes)

    def keys(self, ranks: np.ndarray) -> np.ndarray:
        """Return int64 [B, F] table keys: `category_keys` of the values' texts, field by field."""
        columns = [table.keys(ranks[:, i]) for i, table in enumerate(self._keys)]
        return np.stack(columns, axis=1)

    def texts(self, field: int, ranks: np.ndarray) -> np.ndarray:
        """Return the values in Criteo's spelling: 8 hexadecimal digits, uint8 [B, 8]."""
        return self._keys[field].texts(ranks)

    def main_effect(self, field: int, ranks: np.ndarray) -> np.ndarray:
        """Return one main effect (float32) per value of a field, with mean 0 and variance 1."""
        return irwin_hall(stream_words(self.seed, f"main/C{field + 1}", ranks))

    def _features(self, stream: str, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        numbers = np.arange(start, stop)
        ranks = np.empty((stop - start, len(self.config.fields)), np.int64)
        for i, field in enumerate(self.config.fields):
            draws = uniform(stream_words(self.seed, f"{stream}/C{i + 1}", numbers))
            ranks[:, i] = zipf_ranks(field, draws)
        counts = np.empty((stop - start, self.config.counts))
        for j in range(self.config.counts):
            counts[:, j] = _counts(j, stream_words(self.seed, f"{stream}/I{j + 1}", numbers))
        return ranks, counts

    def _field_vectors(self, index: int) -> np.ndarray:
        """Return float32 vectors [cardinality, rank] with a frequency-weighted mean of 0.

        Centred vectors have no main effect in the logit, so the interactions' share comes from
        interactions only. A linear model can learn almost nothing of the interactions.
        """
        field = self.config.fields[index]
        ranks = np.arange(field.cardinality)
        stream = f"pair/C{index + 1}"
        vectors = np.stack(
            [
                irwin_hall(stream_words(self.seed, f"{stream}/{r}", ranks))
                for r in range(self.config.rank)
            ],
            axis=1,
        )
        weights = zipf_probabilities(field)
        vectors -= weights @ vectors
        spread = np.sqrt(weights @ vectors.astype(np.float64) ** 2)
        scaled = vectors / np.where(spread > 0, spread, 1.0) * field.pairs
        return scaled.astype(np.float32)

    def _parts(self, ranks: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Return float64 [B, 3]: unscaled main effects, interactions and count effects."""
        parts = np.zeros((len(ranks), 3))
        for i, field in enumerate(self.config.fields):
            if field.main > 0:
                parts[:, 0] += field.main * self.main_effect(i, ranks[:, i])
        parts[:, 1] = self._interactions(ranks)
        scaled = scale_counts(counts)
        for j in range(self.config.counts):
            slope, wave = irwin_hall(stream_words(self.seed, f"count/I{j + 1}", np.arange(2)))
            parts[:, 2] += slope * scaled[:, j] + wave * np.cos(1.5 * scaled[:, j])
        return parts

    def _interactions(self, ranks: np.ndarray) -> np.ndarray:
        """Return ``sum_{f<g} <v_f, v_g>`` as ``(|sum v|**2 - sum |v|**2) / 2`` [B]."""
        total = np.zeros((len(ranks), self.config.rank))
        squares = np.zeros(len(ranks))
        for i in self._pair_fields:
            vectors = self._vectors[i][ranks[:, i]]
            total += vectors
            squares += np.einsum("br,br->b", vectors, vectors)
        return (np.einsum("br,br->b", total, total) - squares) / 2

    def _calibrate(self) -> None:
        """Compute the logit's means, scales and bias from rows drawn only for this purpose."""
        config = self.config
        parts = self._parts(*self._features("calibration", 0, _CALIBRATION_ROWS))
        shares = np.array([config.main_share, config.pairs_share, config.counts_share])
        spread = parts.std(axis=0)
        used = (shares > 0) & (spread > 0)
        self._means = parts.mean(axis=0)
        self._scales = np.zeros(3)
        self._scales[used] = config.logit_std * np.sqrt(shares[used] / shares[used].sum())
        self._scales[used] /= spread[used]
        self._bias = _bias_for((parts - self._means) @ self._scales, config.click_rate)

    def _logits(self, ranks: np.ndarray, counts: np.ndarray) -> np.ndarray:
        # add in a fixed order, because the order of matmul may depend on the number of rows
        parts = (self._parts(ranks, counts) - self._means) * self._scales
        return parts[:, 0] + parts[:, 1] + parts[:, 2] + self._bias


def zipf_ranks(field: CategoryField, draws: np.ndarray) -> np.ndarray:
    """Draw values of a field by inversion of a bounded power law.

    The distribution with density ``x ** -zipf`` on [1, cardinality + 1) is inverted in closed form.
    The result is rounded down, so value k has the mass of [k + 1, k + 2). The result is close to
    Zipf's ``(k + 1) ** -zipf`` at any cardinality, and needs no table.

    Args:
        field: Cardinality and exponent.
        draws: float64 in [0, 1), any shape.

    Returns:
        int64 array of the same shape; 0 is the most frequent value.

    Example:
        >>> zipf_ranks(CategoryField(100, zipf=1.0), np.array([0.0, 0.5, 0.999]))
        array([ 0,  9, 99])
    """
    top = float(field.cardinality + 1)
    power = 1.0 - field.zipf
    if abs(power) < 1e-9:
        x = np.exp(draws * np.log(top))
    else:
        x = np.exp(np.log1p(draws * np.expm1(power * np.log(top))) / power)
    return np.clip(x.astype(np.int64) - 1, 0, field.cardinality - 1)


def zipf_probabilities(field: CategoryField) -> np.ndarray:
    """Return the probability of each value that `zipf_ranks` draws, float64 [cardinality].

    Example:
        >>> zipf_probabilities(CategoryField(3, zipf=0.0)).round(3)
        array([0.333, 0.333, 0.333])
    """
    edges = np.log(np.arange(1.0, field.cardinality + 2.0))
    power = 1.0 - field.zipf
    if abs(power) < 1e-9:
        below = edges / edges[-1]
    else:
        below = np.expm1(power * edges) / np.expm1(power * edges[-1])
    return np.diff(below)


def _counts(index: int, words: np.ndarray) -> np.ndarray:
    """Draw long-tailed counts; a tenth are missing, and some counts of I2 are negative."""
    draws = uniform(words)
    # the low bits, which hardly affect uniform(), decide which values are missing
    missing = (words & np.uint64(0x3FF)) < np.uint64(int(_MISSING_SHARE * 1024))
    top = 2.0 + index % 6
    counts = np.floor(np.expm1(top * draws))
    if index == 1:
        counts[draws < 0.05] = -1.0
        counts[draws < 0.002] = -2.0
    counts[missing] = np.nan
    return counts


def _bias_for(logits: np.ndarray, click_rate: float) -> float:
    low, high = -60.0 - float(np.abs(logits).max()), 60.0 + float(np.abs(logits).max())
    for _ in range(80):
        middle = (low + high) / 2
        rate = np.mean(1.0 / (1.0 + np.exp(-(logits + middle))))
        low, high = (middle, high) if rate < click_rate else (low, middle)
    return (low + high) / 2


class _KeyTable:
    """The texts and keys of a field's values; a small field's values are hashed only once."""

    def __init__(self, seed: int, name: str, cardinality: int) -> None:
        self._name = name
        # multiplying by an odd factor and adding an offset is a bijection of 32 bits, so texts
        # differ
        words = stream_words(seed, f"text/{name}", np.arange(2))
        self._factor = np.uint64((int(words[0]) & 0xFFFFFFFF) | 1)
        self._offset = np.uint64(int(words[1]) & 0xFFFFFFFF)
        self._table: np.ndarray | None = None
        self._known: np.ndarray | None = None
        if cardinality <= _TEXT_TABLE_LIMIT:
            self._table = np.zeros(cardinality, np.int64)
            self._known = np.zeros(cardinality, bool)

    def texts(self, ranks: np.ndarray) -> np.ndarray:
        words = (ranks.astype(np.uint64) * self._factor + self._offset).astype(np.uint32)
        digits = np.empty((len(ranks), 8), np.uint8)
        for place in range(8):
            digits[:, place] = (words >> np.uint32(28 - 4 * place)) & np.uint32(15)
        return _HEX[digits]

    def keys(self, ranks: np.ndarray) -> np.ndarray:
        if self._table is None or self._known is None:
            uniques, back = np.unique(ranks, return_inverse=True)
            return self._hash(uniques)[back]
        new = np.unique(ranks[~self._known[ranks]])
        if len(new):
            self._table[new] = self._hash(new)
            self._known[new] = True
        return self._table[ranks]

    def _hash(self, ranks: np.ndarray) -> np.ndarray:
        texts = self.texts(ranks).view("S8").reshape(-1).astype("U8")
        return category_keys(self._name, texts)


_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
