# SPDX-License-Identifier: Apache-2.0
"""The two-byte numbers, their rounding and the optimizers' steps in NumPy, as a reference."""

from __future__ import annotations

from typing import Any

import numpy as np

F = np.float32
_U64 = (1 << 64) - 1
_STREAM = 0x5374656350726563
_KEY = 0x52B2C5F0A9D81E37


def mix64(x: int) -> int:
    """MurmurHash3's 64-bit finalizer."""
    x ^= x >> 33
    x = x * 0xFF51AFD7ED558CCD & _U64
    x ^= x >> 33
    x = x * 0xC4CEB9FE1A85EC53 & _U64
    return x ^ x >> 33


def table_seed(seed: int, name: str) -> int:
    """Seed of a table: that of its config mixed with its name (FNV-1a)."""
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = (h ^ byte) * 0x100000001B3 & _U64
    return mix64(seed ^ mix64(h))


class Stream:
    """Random numbers of one row in one step."""

    def __init__(self, seed: int, name: str, key: int, step: int) -> None:
        of_step = mix64(mix64(table_seed(seed, name) ^ _STREAM) + step & _U64)
        self._row = mix64(of_step ^ mix64((key & _U64) ^ _KEY))

    def plane(self, plane: int, n: int) -> np.ndarray:
        """The first n numbers of a plane, uint32."""
        low, high = np.uint32(self._row & 0xFFFFFFFF), np.uint32(self._row >> 32)
        x = low + np.arange(n, dtype=np.uint32) * np.uint32(0x9E3779B9)
        x ^= x >> np.uint32(16)
        x *= np.uint32(0x7FEB352D)
        x ^= x >> np.uint32(15)
        x += high
        x *= np.uint32(0x846CA68B)
        x ^= x >> np.uint32(16)
        if plane == 1:
            x *= np.uint32(0x9E3779B1)
            x ^= x >> np.uint32(15)
        return x

    def of_value(self, n: int) -> np.ndarray:
        return self.plane(0, n)

    def of_state(self, k: int, n: int) -> np.ndarray:
        numbers = self.plane((k + 1) // 2, n)
        return numbers if (k + 1) % 2 == 0 else numbers << np.uint32(16)


def round_to(dtype: str, x: np.ndarray, random: np.ndarray | None) -> np.ndarray:
    """Numbers of that type, as float32; the nearest ones where `random` is None."""
    x = np.ascontiguousarray(x, F)
    if dtype == "float32":
        return x
    return _bfloat16(x, random) if dtype == "bfloat16" else _float16(x, random)


def _bfloat16(x: np.ndarray, random: np.ndarray | None) -> np.ndarray:
    bits = x.view(np.uint32).astype(np.uint64)
    added = (
        0x7FFF + (bits >> np.uint64(16) & np.uint64(1))
        if random is None
        else random >> np.uint32(16)
    )
    rounded = (bits + added.astype(np.uint64)) >> np.uint64(16) << np.uint64(16)
    rounded = np.where(
        np.isnan(x), (bits >> np.uint64(16) | np.uint64(0x40)) << np.uint64(16), rounded
    )
    return rounded.astype(np.uint32).view(F)


def _float16(x: np.ndarray, random: np.ndarray | None) -> np.ndarray:
    with np.errstate(over="ignore"):
        if random is None:
            return np.where(np.isnan(x), F(np.nan), x.astype(np.float16).astype(F))
        # In units of the last bit of a float16 of that size, exactly.
        exact = np.abs(x.astype(np.float64))
        _, exponent = np.frexp(exact)
        unit = np.exp2(np.maximum(exponent - 11, -24).astype(np.float64))
        scaled = np.where(np.isfinite(exact), exact, 0.0) / unit
        kept = np.floor(scaled)
        fraction = np.floor((scaled - kept) * 2.0**32)
        up = fraction + random.astype(np.float64) >= 2.0**32
        rounded = np.where(np.isfinite(exact), (kept + up) * unit, exact)
        rounded = np.where(rounded >= 65536.0, np.inf, rounded)
        return np.copysign(rounded, x).astype(F)


# ---- optimizers, one row at a time; every operation in float32 and in the order of the formula


def states_of(rule: str, dim: int, settings: dict[str, Any]) -> np.ndarray:
    """First state of a row, [number of states, dim or 1]."""
    first = F(settings.get("initial_accumulator", 0.0))
    shape = {
        "sgd": (0, dim), "momentum": (1, dim), "adagrad": (1, dim), "row_wise_adagrad": (1, 1),
        "adam": (2, dim), "adamw": (2, dim), "ftrl": (2, dim),
        "rmsprop": (3 if settings.get("centered") else 2, dim),
    }[rule]  # fmt: skip
    states = np.zeros(shape, F)
    if rule in ("adagrad", "row_wise_adagrad", "ftrl", "rmsprop"):
        states[0] = first
    return states


def step_row(
    rule: str,
    settings: dict[str, Any],
    w: np.ndarray,
    states: np.ndarray,
    raw: np.ndarray,
    lr: float,
    decay: float,
    step: int,
) -> tuple[np.ndarray, np.ndarray]:
    """The row's value and states after a step, in float32."""
    rate, wd = F(lr), F(decay)
    g = F(1.0) * raw + (F(0.0) if rule == "adamw" else wd) * w
    eps = F(settings.get("epsilon", 1e-8))
    new = states.copy()
    if rule == "sgd":
        return w - rate * g, new
    if rule == "momentum":
        mu = F(settings["momentum"])
        new[0] = mu * states[0] + g
        return w - rate * (g + mu * new[0] if settings.get("nesterov") else new[0]), new
    if rule == "adagrad":
        new[0] = states[0] + g * g
        return w - rate * g / (np.sqrt(new[0]) + eps), new
    if rule == "row_wise_adagrad":
        lane = np.zeros(8, F)
        for j, each in enumerate(g):
            lane[j & 7] += each * each
        total = ((lane[0] + lane[4]) + (lane[1] + lane[5])) + (
            (lane[2] + lane[6]) + (lane[3] + lane[7])
        )
        new[0] = states[0] + total / F(len(w))
        return w - (rate / (np.sqrt(new[0]) + eps)) * g, new
    if rule in ("adam", "adamw"):
        b1, b2 = F(settings.get("beta1", 0.9)), F(settings.get("beta2", 0.999))
        c2 = np.sqrt(1.0 - float(b2) ** step)
        scaled = F(float(rate) * c2 / (1.0 - float(b1) ** step))
        if rule == "adamw":
            eps = F(float(eps) * c2)
        one1, one2 = F(1.0) - b1, F(1.0) - b2
        new[0] = b1 * states[0] + one1 * g
        new[1] = b2 * states[1] + one2 * g * g
        move = b1 * new[0] + one1 * g if settings.get("nesterov") else new[0]
        shrink = rate * wd if rule == "adamw" else F(0.0)
        return (w - shrink * w) - scaled * move / (np.sqrt(new[1]) + eps), new
    if rule == "ftrl":
        l1, l2x2 = F(settings.get("l1", 0.0)), F(2.0) * F(settings.get("l2", 0.0))
        new[0] = states[0] + g * g
        root = np.sqrt(new[0])
        new[1] = states[1] + g - (root - np.sqrt(states[0])) / rate * w
        toward = np.where(new[1] > 0, l1, -l1) - new[1]
        return np.where(np.abs(new[1]) > l1, toward / (root / rate + l2x2), F(0.0)), new
    assert rule == "rmsprop"
    keep_old, mu = F(settings.get("decay", 0.9)), F(settings.get("momentum", 0.0))
    keep = F(1.0) - keep_old
    new[0] = keep_old * states[0] + keep * g * g
    variance = new[0]
    if settings.get("centered"):
        new[2] = keep_old * states[2] + keep * g
        variance = np.maximum(new[0] - new[2] * new[2], F(0.0))
    new[1] = mu * states[1] + rate * g / np.sqrt(variance + eps)
    return w - new[1], new


class TrainedRow:
    """A row as a table of some precision trains it."""

    def __init__(
        self, rule: str, settings: dict[str, Any], value: np.ndarray, dtypes: tuple[str, str],
        rounding: str, seed: int, name: str, key: int,
    ) -> None:  # fmt: skip
        self.rule, self.settings, self.rounding = rule, settings, rounding
        self.value_dtype, self.state_dtype = dtypes
        self.of = seed, name, key
        self.value = round_to(self.value_dtype, value, None)
        states = states_of(rule, len(value), settings)
        self.states = round_to(self.state_dtype, states, None).reshape(states.shape)

    def step(self, raw: np.ndarray, lr: float, decay: float, step: int, clock: int) -> None:
        """One step with the optimizer's number `step`, the table's clock at `clock` before."""
        value, states = step_row(
            self.rule, self.settings, self.value, self.states, raw, lr, decay, step
        )
        stream = Stream(*self.of, clock)
        chance = self.rounding == "stochastic"
        self.value = round_to(
            self.value_dtype, value, stream.of_value(len(value)) if chance else None
        )
        for k, each in enumerate(states):
            random = stream.of_state(k, len(each)) if chance else None
            self.states[k] = round_to(self.state_dtype, each, random)
