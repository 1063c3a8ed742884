# SPDX-License-Identifier: Apache-2.0
"""Compare the results of dense programs on two devices: the check of `gpu_step.py`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from gpu.core import Core, to_bfloat16, to_float32
from gpu.layers import CASES, NETWORKS
from gpu.programs import Layers, Program, Run

__all__ = ["TOLERANCE", "Found", "check", "relative_error"]

TOLERANCE = {"float32": 1e-4, "bfloat16": 2e-2}
_SMALL = 0.01  # differences are divided by at least this magnitude
_ROWS_OF_NETWORKS = 1024  # maximum: larger batches take the host long

Found = dict[str, list[np.ndarray]]


def relative_error(tested: np.ndarray, reference: np.ndarray) -> float:
    """Return the greatest difference, divided by the reference's greatest magnitude.

    The divisor is at least 0.01. For a difference that is NaN or infinite, return infinity; for
    empty arrays, return 0.
    """
    if not reference.size:
        return 0.0
    tested, reference = to_float32(tested), to_float32(reference)
    scale = max(float(np.abs(reference).max()), _SMALL)
    error = float(np.abs(tested - reference).max()) / scale
    return error if np.isfinite(error) else float("inf")


class Case:
    """One program on two devices.

    Args:
        title: name of the program in the printed results.
        precision: data type of the matrix products, 'float32' or 'bfloat16'.
        both: two built programs, one on the reference device and one on the tested device.
        exact: True if inputs are multiples of 1/4.
        batches: the batch sizes to test, in rows.
    """

    def __init__(
        self,
        title: str,
        precision: str,
        both: list[Layers],
        exact: bool,
        batches: Sequence[int],
    ) -> None:
        self.title, self.precision, self.both = title, precision, both
        self.exact, self.batches = exact, batches

    def inputs(self, batch: int, narrow: bool) -> list[np.ndarray]:
        """Return inputs in [-1, 1], the same for each call."""
        rng = np.random.default_rng(batch)
        made = []
        for width in self.both[0].input_widths:
            if self.exact:
                x = (rng.integers(-4, 5, (batch, width)) / 4).astype(np.float32)
            else:
                x = rng.uniform(-1, 1, (batch, width)).astype(np.float32)
            made.append(to_bfloat16(x) if narrow else x)
        return made


def _computed(core: Core, layers: Layers, inputs: list[np.ndarray], fill: float) -> Found:
    """Fill a program's memory with `fill`, run the program, and return all its outputs."""
    run = Run(core, layers, inputs, fill)
    predicted = []
    if not layers.moved:  # a program that normalizes by the batch makes no predictions
        run.predict()
        predicted = [each.copy() for each in run.outputs]
        for each in run.outputs:
            each[:] = fill
    run.forward()
    rng = np.random.default_rng(len(inputs[0]) + 1)
    for gradient in run.output_gradients:
        gradient[:] = rng.standard_normal(gradient.shape, np.float32)
    moved = run.moved()
    run.backward()
    return {
        "predicted": predicted,
        "outputs": run.outputs,
        "moving": moved,
        "inputs' gradients": run.input_gradients,
        "parameters' gradients": run.parameter_gradients,
    }


def _same_bits(first: Found, second: Found) -> bool:
    return all(
        a.tobytes() == b.tobytes()
        for name, each in first.items()
        for a, b in zip(each, second[name], strict=True)
    )


def _cases(
    core: Core, devices: tuple[str, str], batches: Sequence[int], chosen: str
) -> Iterator[Case]:
    """Make all programs for the reference device and for the tested device; yield the cases."""
    kinds = []
    for (name, build), precision in itertools.product(
        [*CASES.items(), *NETWORKS.items()], TOLERANCE
    ):
        for training in (True, False) if "norm" in name else (True,):
            title = name if training else f"{name}, evaluation"
            if chosen in title:
                kinds.append((title, name, build, precision, training))
    made: list[list[Layers]] = [[] for _ in kinds]
    for device in devices:
        core.use(device)
        for i, (_, name, build, precision, training) in enumerate(kinds):
            exact = "relu" in name
            program = Program(core, precision, training=training, exact=exact, seed=i)
            made[i].append(program.finish(*build(program)))
    for both, (title, name, _, precision, _) in zip(made, kinds, strict=True):
        sizes = batches
        if name in NETWORKS:
            sizes = sorted({min(size, _ROWS_OF_NETWORKS) for size in batches})
        elif "norm" in name and "relu" in name:
            # The sums that a normalization computes are not exact. With many rows, some sums of a
            # normalization are so near 0 that rounding decides their signs.
            sizes = [size for size in batches if size <= _ROWS_OF_NETWORKS]
        yield Case(title, precision, both, "relu" in name, sizes)


def _compare(core: Core, case: Case, batch: int, narrow: bool) -> dict[str, Any]:
    inputs = case.inputs(batch, narrow)
    reference = _computed(core, case.both[0], inputs, 0.0)
    first = _computed(core, case.both[1], inputs, float("nan"))
    second = _computed(core, case.both[1], inputs, 7.0)
    errors: dict[str, float] = {}
    fine = True
    for name, tested in first.items():
        for a, b in zip(tested, reference[name], strict=True):
            error = relative_error(a, b)
            kind = "bfloat16" if a.dtype == np.uint16 else case.precision
            fine = fine and error <= TOLERANCE[kind]
            errors[name] = max(errors.get(name, 0.0), error)
    same = _same_bits(first, second)
    return {
        "program": case.title,
        "precision": case.precision,
        "inputs": "bfloat16" if narrow else "float32",
        "batch": batch,
        "errors": errors,
        "same_bits": same,
        "passed": fine and same,
    }


def _text(comparison: dict[str, Any]) -> str:
    errors = ", ".join(f"{name} {error:.1e}" for name, error in comparison["errors"].items())
    bits = "same bits" if comparison["same_bits"] else "OTHER BITS in the second run"
    verdict = "ok  " if comparison["passed"] else "FAIL"
    return (
        f"{verdict} {comparison['program']}, {comparison['precision']}, {comparison['inputs']} "
        f"inputs, {comparison['batch']} rows: {errors}; {bits}"
    )


def check(
    core: Core,
    devices: tuple[str, str],
    batches: Sequence[int],
    *,
    chosen: str = "",
    quiet: bool = False,
) -> list[dict[str, Any]]:
    """Compare all programs on two devices; print and return the results.

    Args:
        core: the native core.
        devices: the reference device, and the tested device.
        batches: numbers of rows.
        chosen: text; only programs whose titles contain the text run. Default: all.
        quiet: if True, only failures are printed. Default: False.
    """
    results = []
    for case in _cases(core, devices, batches, chosen):
        for batch, narrow in itertools.product(case.batches, (False, True)):
            comparison = _compare(core, case, batch, narrow)
            results.append(comparison)
            if not quiet or not comparison["passed"]:
                print(_text(comparison), flush=True)
    if not results:
        print(f"no program's name contains {chosen!r}")
    failed = sum(not each["passed"] for each in results)
    worst = {
        precision: max(
            (max(each["errors"].values()) for each in results if each["precision"] == precision),
            default=0.0,
        )
        for precision in TOLERANCE
    }
    figures = ", ".join(f"{name} {error:.1e}" for name, error in worst.items())
    print(f"{len(results)} comparisons, {failed} failed; greatest errors: {figures}", flush=True)
    return results
