# SPDX-License-Identifier: Apache-2.0
"""Measure the runs of one network, with one batch size and every precision, in turn."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import step_report
from bare_products import BareProducts, has
from bench_common import alternate
from step_parts import PAUSE, TableTimes

import mindspore_rec as mr

__all__ = ["Run", "StepCase"]

Run = Callable[[int], float]


class StepCase:
    """Runs to compare: mindspore_rec's network in each precision, its tables, and other networks.

    A run is a function that takes a step's number, runs the step, and returns its seconds.

    Args:
        title: title of the printed results.
        batch: samples per step.
        layers: (input width, output width) of each layer that computes a matrix product.
        fixed: indices of layers whose inputs need no gradient. Default: none.
    """

    def __init__(
        self,
        title: str,
        batch: int,
        layers: Sequence[tuple[int, int]],
        fixed: Collection[int] = (),
    ) -> None:
        self.title, self.batch = title, batch
        self._layers, self._fixed = layers, fixed
        self._runs: dict[tuple[str, str], Run] = {}
        self._inside: dict[str, TableTimes] = {}
        self._products: dict[str, BareProducts] = {}
        self._about: dict[tuple[str, str], dict[str, str]] = {}

    def add_ours(
        self, precision: str, whole: Run, tables: Sequence[Any], parts: Mapping[str, Run]
    ) -> None:
        """Add the functions that measure the mindspore_rec network in one precision.

        Args:
            precision: type of the network's products.
            whole: function that runs the network's whole step.
            tables: the tables that the whole step trains.
            parts: functions that run parts of the step, from `step_parts.dense_runs`.
        """
        self._runs[precision, "ours"] = whole
        self._inside[precision] = TableTimes(tables)
        for name, part in parts.items():
            self._runs[precision, name] = part
        if has(precision):
            threads = mr.get_num_threads()
            bare = BareProducts(self._layers, self.batch, precision, threads, self._fixed)
            self._products[precision] = bare
            self._runs[precision, "products"] = lambda _: bare.run()

    def add(
        self, name: str, run: Run, precision: str = "", about: dict[str, str] | None = None
    ) -> None:
        """Add a run to which the results compare mindspore_rec's runs.

        Args:
            name: 'tables', or one of `step_report.STEPS`.
            run: the run.
            precision: the run is compared only with mindspore_rec runs of this precision. Default:
                all precisions.
            about: description of the run, to be printed. Default: nothing.
        """
        self._runs[precision, name] = run
        if about:
            self._about[precision, name] = about

    def measure(self, rounds: int, warmup: int) -> dict[str, dict[str, Any]]:
        """Print and return the results by precision."""
        alternate(self._runs, 0, warmup, f"{self.title}, warm-up", pause=PAUSE)
        for inside in self._inside.values():
            inside.start()
        times = alternate(self._runs, rounds, 0, self.title, pause=PAUSE)
        by_precision = {}
        for precision, inside in self._inside.items():
            seen = {name: spent for (p, name), spent in times.items() if p in ("", precision)}
            figures = step_report.figures(seen, inside.seconds_per_step(rounds), self.batch)
            figures["about"] = {
                name: about for (p, name), about in self._about.items() if p in ("", precision)
            }
            if precision in self._products:
                figures["bare_products"] = self._products[precision].figures()
            step_report.show(f"{self.title}, {precision}", figures)
            by_precision[precision] = figures
        return by_precision
