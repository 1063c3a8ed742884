# SPDX-License-Identifier: Apache-2.0
"""Base class of the optimizers: steps for dense parameters and tables, decay, clipping."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import ParameterTuple, Tensor, nn, ops

from mindspore_rec.common.parallel.group import worker_group
from mindspore_rec.train.optim.asked_rates import note_rates
from mindspore_rec.train.optim.checks import (
    check_groups,
    check_hyperparameter,
    check_learning_rate,
    check_loss_scale,
    check_weight_decay,
)
from mindspore_rec.train.optim.coverage import decay_flags, native_dense_places, split_tables
from mindspore_rec.train.optim.dense_step import DenseNorm, DenseStep, require_tensor
from mindspore_rec.train.optim.handles import apply_by_handle
from mindspore_rec.train.optim.over_workers import (
    WorkerExchange,
    require_same_settings,
    start_alike,
)
from mindspore_rec.train.optim.table_steps import TableSteps
from mindspore_rec.train.optim.tables import bind_table, table_of

__all__ = ["SparseOptimizer"]


class SparseOptimizer(nn.Optimizer):
    """Base class of the optimizers: a `mindspore.nn.Optimizer` for dense parameters and tables.

    A step does the following, in this order, for every parameter ``w`` with raw gradient ``g``:

    * Divide by the loss scale: ``g = g / loss_scale``.
    * Clip: ``g = g * c`` with ``c = clip_global_norm / max(norm, clip_global_norm)``. Here
      ``norm`` is the Euclidean norm of all gradients of the optimizer. Before ``norm`` is computed,
      the gradients of each key of a table are summed.
    * Add the weight decay to the gradient (AdamW decouples the decay):
      ``g = g + weight_decay * w``.
    * Apply the rule in the native core: one operator for all dense parameters, and one operator
      for each table. MindSpore's operators update a dense parameter that is not float32, or whose
      gradient is centralized. If MindSpore does not run on the CPU, MindSpore's operators update
      all dense parameters.

    A step of a table updates only the rows of the batch, each row once. If a key occurs several
    times, in one or several lookups, the key's gradients are summed, and then the key's row is
    updated once. Tables use the "lazy" form of each optimizer rule: rows outside the batch do not
    decay and keep their moments.

    If several workers train together, a step first exchanges the workers' gradients. Dense
    gradients are averaged over the workers. Gradients of tables are sent to the workers that own
    the rows. On all workers, dense parameters start with the values of worker 0.

    Without parameter groups, dense parameters with 'beta' or 'gamma' in their names do not decay,
    as in `mindspore.nn.Optimizer`. Tables decay regardless of their names. `step` counts from 1.

    A subclass passes the name of its native rule and the initial states of dense parameters to
    `__init__`, and defines `dense_step`. The subclass also defines `prepare` if `dense_step` needs
    values that are computed once per step. By default, `dense_step` updates all dense parameters.
    If `native_dense` is True, the native core updates dense parameters by the formula of
    `dense_step`, and `dense_step` updates only dense parameters that the native core does not
    update.

    Args:
        params: parameters of layers and tables, such as `net.trainable_params()`, or parameter
            groups.
        learning_rate: a number or 0-d Tensor; or one rate per step as a 1-d Tensor, an iterable or
            a `LearningRateSchedule`. Finite and >= 0.
        weight_decay: finite number >= 0, or a Cell that maps the step (int32 ``[1]``, from 0) to a
            finite number >= 0.
        loss_scale: finite number > 0 by which the loss was multiplied.
        clip_global_norm: finite number > 0, or None for no clipping.
        rule: name of the native rule.
        constants: constants of the native rule, by name.
        state: maps the name of each state of the dense parameters to the state's initial value.
            Each state becomes an attribute of the optimizer, under the state's name. A state has
            the shape of its parameter.

    Raises:
        TypeError: an argument has a wrong type.
        ValueError: an argument is out of range, or a table occurs twice.
    """

    grad_centralization_flags: tuple[bool, ...]  # made by nn.Optimizer if there are groups

    # True if the native rule updates dense parameters by the same formula as `dense_step`.
    native_dense = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Set `native_dense` to False in a subclass that changes the formula of its base class."""
        super().__init_subclass__(**kwargs)
        changed = {"prepare", "dense_step", "adam"} & cls.__dict__.keys()
        if changed and "native_dense" not in cls.__dict__:
            cls.native_dense = False

    def __init__(
        self,
        params: Any,
        learning_rate: Any,
        weight_decay: Any,
        loss_scale: Any,
        clip_global_norm: Any,
        *,
        rule: str,
        constants: Mapping[str, Any],
        state: Mapping[str, float],
    ) -> None:
        params = check_groups(params)
        learning_rate = check_learning_rate(learning_rate)
        weight_decay = check_weight_decay(weight_decay)
        loss_scale = check_loss_scale(loss_scale)
        if clip_global_norm is not None:
            clip_global_norm = check_hyperparameter(
                "clip_global_norm", clip_global_norm, low=0, low_open=True
            )
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        self.clip_global_norm = clip_global_norm
        owners = [table_of(p) for p in self._parameters]
        self._dense_index, self._table_index = split_tables(owners)
        self._check_rates(learning_rate)
        self._make_state(state)
        self._decay_all_tables(owners)
        self._bind(owners, rule, constants)
        self._make_dense_step(rule, constants, tuple(state))
        note_rates(self)
        self._over_workers = worker_group().size > 1
        if self._over_workers:
            require_same_settings(
                [owner for owner in owners if owner is not None],
                {
                    **constants,
                    "kind": type(self).__name__,
                    "rule": rule,
                    "learning_rate": learning_rate,
                    "weight_decay": weight_decay,
                    "loss_scale": loss_scale,
                    "clip_global_norm": clip_global_norm,
                },
            )
            self._worker_exchange = WorkerExchange(list(self._parameters), owners)
            start_alike([self._parameters[i] for i in self._dense_index])

    # ---- construction

    def _check_rates(self, learning_rate: Any) -> None:
        """Check the learning rates; an override may refuse some kinds of rates."""

    def _make_state(self, state: Mapping[str, float]) -> None:
        dense = ParameterTuple(self._parameters[i] for i in self._dense_index)
        for name, value in state.items():
            setattr(self, name, dense.clone(prefix=name, init=value))

    def _decay_all_tables(self, owners: list[Any]) -> None:
        self._decays = decay_flags(self, owners)
        if self.is_group:
            flags = self.grad_centralization_flags
            self.grad_centralization_flags = tuple(
                flag and owner is None for flag, owner in zip(flags, owners, strict=True)
            )
        self._centralizes = self.is_group and any(self.grad_centralization_flags)

    def _bind(self, owners: list[Any], rule: str, constants: Mapping[str, Any]) -> None:
        tables = [owners[i] for i in self._table_index]
        self.table_bindings = {
            owner.id: bind_table(self, owner, rule, constants) for owner in tables
        }
        bindings = [self.table_bindings[owner.id] for owner in tables]
        self._table_steps = TableSteps(tables, rule, constants, bindings)
        self._no_decay = Tensor(np.zeros(1, np.float32))
        self._one = Tensor(1.0, ms.float32)

    def _make_dense_step(
        self, rule: str, constants: Mapping[str, Any], states: tuple[str, ...]
    ) -> None:
        native = native_dense_places(self, self._dense_index)
        # Indexes of the dense parameters that the native core updates, and of the remaining dense
        # parameters.
        self._native_index = tuple(self._dense_index[j] for j in native)
        self._other_dense = tuple(j for j in range(len(self._dense_index)) if j not in set(native))
        self._other_index = tuple(self._dense_index[j] for j in self._other_dense)
        self._dense_norm = DenseNorm(ms.get_context("device_target") == "CPU")
        if native:
            self._dense_step = DenseStep(
                rule,
                constants,
                [self._parameters[i] for i in self._native_index],
                [[getattr(self, name)[j] for name in states] for j in native],
                [self._decays[i] for i in self._native_index],
                own_rates=self.is_group_lr,
                own_decays=self.is_group,
            )

    # ---- what a rule defines

    def prepare(self, step: Tensor) -> Any:
        """Return values for `dense_step` that depend only on `step` (float32, 0-d, from 1)."""
        return ()

    def dense_step(self, j: int, w: Any, g: Any, lr: Any, decay: Any, prepared: Any) -> Any:
        """Update the dense parameter with index `j`.

        Args:
            j: index of the parameter among the dense parameters, and of its Tensor in each list of
                states.
            w: the Parameter.
            g: gradient of the parameter after scaling and clipping; `g` includes the weight decay
                unless `decouples` is True.
            lr: learning rate, float32, 0-d.
            decay: weight decay, float32, 0-d, or None for no decay.
            prepared: the result of `prepare`: values that depend only on the step number.
        """
        raise NotImplementedError

    # True if the rule applies the weight decay itself; False if the decay is added to the gradient.
    decouples = False

    # ---- the step

    # The step does not use ms.jit, although ms.jit would make PyNative steps 2 to 4 times as fast.
    # In MindSpore 2.10, if set_data gives a Parameter new memory, a jitted function still uses the
    # old memory. If a checkpoint was loaded, a jitted step would update the old memory, which
    # nothing reads.
    def construct(self, gradients: Any) -> Any:
        """Update all parameters.

        Args:
            gradients: one gradient per parameter, in the order of `parameters`. For a table, the
                gradient is a token, which the backward pass of the table's lookups returns.

        Returns:
            A tuple on which later operators can depend.
        """
        if self._over_workers:
            gradients = self._worker_exchange(gradients, self.global_step)
        done = self.scale_and_update(gradients)
        self.assignadd(self.global_step, self.global_step_increase_tensor)
        return done

    def scale_and_update(self, gradients: Any) -> Any:
        """Clip the gradients by the global norm and do a step; do not increase the step number."""
        if self.clip_global_norm is None:
            return self.update(gradients, self.reciprocal_scale, not self.need_scale)
        norm = ops.sqrt(self.squared_norm(gradients))
        scale = self.reciprocal_scale * clip_factor(norm, self.clip_global_norm)
        return self.update(gradients, scale, False)

    def update(self, gradients: Any, scale: Any, unscaled: bool) -> Any:
        """Do a step with gradients multiplied by `scale`; do not increase the step number.

        Args:
            gradients: one gradient per parameter, as in `construct`.
            scale: factor by which the gradients are multiplied, float32, 0-d.
            unscaled: True if `scale` is 1, so that dense gradients need no scaling.

        Raises:
            ValueError: the numbers of gradients and parameters differ.
        """
        self._check_count(gradients)
        lr = self.get_lr()
        decay = self.get_weight_decay() if self.exec_weight_decay else 0.0
        step = self.global_step + 1
        done: Any = ()
        if self._table_index:
            done += self._steps_of_tables(gradients, scale, step, lr, decay)
        if self._native_index:
            done += (self._native_step(gradients, scale, step, lr, decay),)
        if self._other_index:
            done += self._other_steps(gradients, scale, unscaled, step, lr, decay)
        return done

    def _steps_of_tables(self, gradients: Any, scale: Any, step: Any, lr: Any, decay: Any) -> Any:
        tokens: Any = ()
        rates: Any = ()
        decays: Any = ()
        for i in self._table_index:
            tokens += (gradients[i],)
            rates += (self._rate_of(lr, i).reshape((1,)),)
            decays += (
                self._decay_of(decay, i).reshape((1,)) if self._decays[i] else self._no_decay,
            )
        return self._table_steps(tokens, rates, decays, scale.reshape((1,)), step)

    def _native_step(self, gradients: Any, scale: Any, step: Any, lr: Any, decay: Any) -> Any:
        chosen: Any = ()
        numbers: Any = ()
        for i in self._native_index:
            chosen += (gradients[i],)
        for j in self._dense_step.rates_of:
            numbers += (self._rate_of(lr, self._native_index[j]),)
        for j in self._dense_step.decays_of:
            numbers += (self._decay_of(decay, self._native_index[j]),)
        return self._dense_step(chosen, scale, step, numbers)

    def _other_steps(
        self, gradients: Any, scale: Any, unscaled: bool, step: Any, lr: Any, decay: Any
    ) -> Any:
        gradients = self._dense_gradients(gradients, scale, unscaled, decay)
        prepared = self.prepare(ops.cast(step, ms.float32).reshape(()))
        done: Any = ()
        for j in self._other_dense:
            i = self._dense_index[j]
            decay_i = self._decay_of(decay, i) if self._decays[i] else None
            done += (
                self.dense_step(
                    j, self._parameters[i], gradients[i], self._rate_of(lr, i), decay_i, prepared
                ),
            )
        return done

    def _check_count(self, gradients: Any) -> None:
        if len(gradients) != len(self._parameters):
            raise ValueError(
                f"gradients must be one for each of the {len(self._parameters)} parameters of the "
                f"optimizer, got {len(gradients)}"
            )

    def squared_norm(self, gradients: Any) -> Any:
        """Return the sum of squares of all unscaled gradients (g / loss scale): float32, 0-d."""
        self._check_count(gradients)
        dense: Any = ()
        for i in self._dense_index:
            dense += (gradients[i],)
        total = self._dense_norm(dense, self.reciprocal_scale)
        tokens: Any = ()
        for i in self._table_index:
            tokens += (gradients[i],)
        for squares in self._table_steps.squared_norms(tokens):
            total = total + squares * self.reciprocal_scale * self.reciprocal_scale
        return total

    def _dense_gradients(self, gradients: Any, scale: Any, unscaled: bool, decay: Any) -> Any:
        results: Any = ()
        for i in range(len(gradients)):
            g = gradients[i]
            if i in self._other_index:
                g = require_tensor(g)
                w = self._parameters[i]
                if not unscaled:
                    g = g * ops.cast(scale, g.dtype)
                if self._decays[i] and not self.decouples:
                    g = g + w * ops.cast(self._decay_of(decay, i), g.dtype)
            results += (g,)
        return self.gradients_centralization(results) if self._centralizes else results

    def _rate_of(self, lr: Any, i: int) -> Any:
        # A schedule may return a dtype other than float32, which a table would misread.
        return ops.cast(lr[i] if self.is_group_lr else lr, ms.float32).reshape(())

    def _decay_of(self, decay: Any, i: int) -> Any:
        # Divide the weight decay by the loss scale, because nn.Optimizer has multiplied the weight
        # decay by the loss scale.
        value = decay[i] if self.is_group else decay
        return ops.cast(value, ms.float32).reshape(()) * self.reciprocal_scale

    def apply_by_handle(self, grads: Any, handles: Any) -> None:
        """Do one step for tables only, outside a graph; `lookup_with_handles` returns the handles.

        Gradients of a row that occurs several times are summed; gradients of ids that were not
        admitted are dropped. A call of `apply_by_handle` counts as one step of the optimizer. If
        the call raises one of the errors listed below, the tables are unchanged.

        Args:
            grads: float32 array or Tensor `[*ids.shape, dim]`, such as `[n, dim]`, or a list of
                such gradients.
            handles: int64 handles `[*ids.shape, 2]` that `lookup_with_handles` returned for the
                same ids, or a list of such handles.

        Raises:
            StaleHandleError: a row has left the table since `lookup_with_handles` returned the
                handles.
            RuntimeError: a later optimizer has been bound to one of the tables.
            ValueError: this optimizer does not train the table of the handles, or the shapes of
                `grads` and `handles` do not match.

        Example:
            >>> import mindspore as ms
            >>> import numpy as np
            >>> from mindspore_rec import SGD, MapParameter
            >>> table = MapParameter("doc.handles", value_shape=2, default_value="ones")
            >>> optimizer = SGD([table.anchor], learning_rate=0.5)
            >>> rows, handles = table.lookup_with_handles(np.array([7, 9]))
            >>> optimizer.apply_by_handle(np.ones((2, 2), np.float32), handles)
            >>> table.read_rows(np.array([7]))
            array([[0.5, 0.5]], dtype=float32)
        """
        apply_by_handle(self, grads, handles)

    # ---- where the update runs

    @property
    def target(self) -> str:
        """Device on which dense parameters are updated: "CPU", or the device MindSpore runs on.

        Rows of tables are updated on the host, or on the device if the rows are in a device tier.
        """
        return str(self._target)

    @target.setter
    def target(self, value: str) -> None:
        self._set_base_target(value)
        if value == "CPU":
            for op in self.dense_ops():
                op.set_device("CPU")

    def dense_ops(self) -> tuple[Any, ...]:
        """Return MindSpore's operators that update dense parameters."""
        return tuple(op for name, op in self._primitives.items() if name != "assignadd")


def clip_factor(norm: Any, clip: float) -> Any:
    """Return the factor, at most 1, that reduces the global norm `norm` to at most `clip`."""
    return clip / ops.maximum(norm, ops.cast(clip, ms.float32))
