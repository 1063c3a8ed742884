# SPDX-License-Identifier: Apache-2.0
"""One optimizer made of several optimizers, each with its own parameters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mindspore import Parameter, ParameterTuple, nn, ops
from mindspore.nn.optim.optimizer import _ConvertToCell

from mindspore_rec.common.parallel.group import worker_group
from mindspore_rec.train.optim.base import SparseOptimizer, clip_factor
from mindspore_rec.train.optim.checks import check_hyperparameter
from mindspore_rec.train.optim.over_workers import WorkerExchange
from mindspore_rec.train.optim.tables import table_of

__all__ = ["CombinedOptimizer"]


class CombinedOptimizer(nn.Optimizer):
    """Combination of several optimizers, such as FTRL (wide part) and LazyAdam (deep part).

    The list `parameters` contains all parameters of the first part, then all parameters of the
    second part, and so on. A step of the combined optimizer is one step of each part, and all parts
    share one `global_step`. The combined optimizer owns its parts: after the parts are combined, do
    not call the parts directly. Only the method `apply_by_handle` may be called on a part, because
    the combined optimizer does not have this method.

    Args:
        optimizers: optimizers of this package, with the same loss scale and without a common
            parameter.
        clip_global_norm: upper limit of the common norm of all parts' gradients, a number > 0 or
            None. If a limit is set, the parts must not clip gradients. If `clip_global_norm` is
            None, each optimizer clips by its own limit. Default: None.

    Raises:
        TypeError: `optimizers` is not an iterable of optimizers of this package, or
            `clip_global_norm` is not a number.
        ValueError: `optimizers` is empty; two parts have different loss scales; two parts have a
            common parameter or table; both the combination and a part clip gradients; or
            `clip_global_norm` is out of range.

    Example:
        >>> from mindspore import nn
        >>> import mindspore_rec.optim as optim
        >>> wide, deep = nn.Dense(3, 1), nn.Dense(4, 1)
        >>> wide.update_parameters_name("wide.")
        >>> optimizer = optim.CombinedOptimizer(
        ...     [
        ...         optim.FTRL(wide.trainable_params(), learning_rate=0.05),
        ...         optim.LazyAdam(deep.trainable_params()),
        ...     ],
        ...     clip_global_norm=10.0,
        ... )
        >>> [p.name for p in optimizer.parameters]
        ['wide.weight', 'wide.bias', 'weight', 'bias']
    """

    learning_rate: Any  # made by nn.Optimizer, replaced by one rate per parameter

    def __init__(
        self, optimizers: Iterable[SparseOptimizer], clip_global_norm: float | None = None
    ) -> None:
        parts = _check_parts(optimizers)
        if clip_global_norm is not None:
            clip_global_norm = check_hyperparameter(
                "clip_global_norm", clip_global_norm, low=0, low_open=True
            )
            if any(part.clip_global_norm is not None for part in parts):
                raise ValueError("clip_global_norm must be None here or in all of the optimizers")
        parameters = [p for part in parts for p in part.parameters]
        super().__init__(0.0, parameters, 0.0, parts[0].loss_scale)
        self.clip_global_norm = clip_global_norm
        self._adopt(parts)
        self._optimizers: Any = nn.CellList(parts, auto_prefix=False)
        ends = [sum(len(p.parameters) for p in parts[:k]) for k in range(len(parts) + 1)]
        self._spans = tuple(zip(ends, ends[1:], strict=False))
        self._over_workers = worker_group().size > 1
        if self._over_workers:
            self._worker_exchange = WorkerExchange(parameters, [table_of(p) for p in parameters])
        self.table_bindings = {i: b for part in parts for i, b in part.table_bindings.items()}

    def _adopt(self, parts: list[SparseOptimizer]) -> None:
        """Give all parts one step number; collect the parts' learning rates and weight decays."""
        rates: list[Any] = []
        decays: list[Any] = []
        for k, part in enumerate(parts):
            part.global_step = self.global_step
            count = len(part.parameters)
            own = list(part.learning_rate) if part.is_group_lr else [part.learning_rate]
            _rename_rates(own, k)
            rates += own if part.is_group_lr else own * count
            decays += part.weight_decay if part.is_group else [part.weight_decay] * count
        self.is_group = True
        self.is_group_lr = True
        self.dynamic_lr = any(part.dynamic_lr for part in parts)
        self.dynamic_weight_decay = any(part.dynamic_weight_decay for part in parts)
        self.dynamic_decay_flags = tuple(isinstance(d, nn.Cell) for d in decays)
        self.exec_weight_decay = any(part.exec_weight_decay for part in parts)
        self.weight_decay = tuple(decays)
        del self.learning_rate
        if self.dynamic_lr:
            cells = [_ConvertToCell(r) if isinstance(r, Parameter) else r for r in rates]
            self.learning_rate = nn.CellList(cells, auto_prefix=False)
        else:
            self.learning_rate = ParameterTuple(rates)

    def construct(self, gradients: Any) -> Any:
        """Update all parameters; the gradients are in the order of `parameters`."""
        done: Any = ()
        if self._over_workers:
            gradients = self._worker_exchange(gradients, self.global_step)
        if self.clip_global_norm is not None:
            total = ops.zeros_like(self.reciprocal_scale)
            for k in range(len(self._spans)):
                total = total + self._optimizers[k].squared_norm(self._span(gradients, k))
            scale = self.reciprocal_scale * clip_factor(ops.sqrt(total), self.clip_global_norm)
            for k in range(len(self._spans)):
                done += (self._optimizers[k].update(self._span(gradients, k), scale, False),)
        else:
            for k in range(len(self._spans)):
                done += (self._optimizers[k].scale_and_update(self._span(gradients, k)),)
        self.assignadd(self.global_step, self.global_step_increase_tensor)
        return done

    def apply_by_handle(self, grads: Any, handles: Any) -> None:
        """Raise TypeError: `apply_by_handle` must be called on the part that trains the table."""
        raise TypeError("apply_by_handle must be called on the optimizer that trains the table")

    def _span(self, gradients: Any, k: int) -> Any:
        return gradients[self._spans[k][0] : self._spans[k][1]]

    @property
    def target(self) -> str:
        """Device on which dense parameters are updated; see `SparseOptimizer.target`."""
        return str(self._target)

    @target.setter
    def target(self, value: str) -> None:
        self._set_base_target(value)
        for part in self._optimizers:
            part.target = value


def _check_parts(optimizers: Any) -> list[SparseOptimizer]:
    if isinstance(optimizers, nn.Cell) or not isinstance(optimizers, Iterable):
        raise TypeError(
            f"optimizers must be an iterable of optimizers, got {type(optimizers).__name__}"
        )
    parts = list(optimizers)
    if not parts:
        raise ValueError("optimizers must hold at least one optimizer, got none")
    for k, part in enumerate(parts):
        if not isinstance(part, SparseOptimizer):
            raise TypeError(
                f"optimizers[{k}] must be an optimizer of mindspore_rec.optim (not a combination), "
                f"got {type(part).__name__}"
            )
    scales = sorted({part.loss_scale for part in parts})
    if len(scales) > 1:
        raise ValueError(f"optimizers must have one loss_scale, got {scales}")
    _check_disjoint(parts)
    return parts


def _check_disjoint(parts: list[SparseOptimizer]) -> None:
    seen: dict[int, tuple[int, Any]] = {}
    for k, part in enumerate(parts):
        for p in part.parameters:
            owner = table_of(p)
            key = id(p) if owner is None else -owner.id
            if key in seen:
                raise ValueError(
                    f"optimizers must have no parameter in common, got '{p.name}' in "
                    f"optimizers[{seen[key][0]}] and optimizers[{k}]"
                )
            seen[key] = (k, p)


def _rename_rates(rates: list[Any], k: int) -> None:
    """Append `_k` to the names of part `k`'s rates, so that a checkpoint can contain all rates."""
    parameters: dict[int, Parameter] = {}
    for rate in rates:
        own = [rate] if isinstance(rate, Parameter) else rate.get_parameters()
        parameters.update({id(p): p for p in own})
    for p in parameters.values():
        p.name = f"{p.name}_{k}"
