# SPDX-License-Identifier: Apache-2.0
"""Optimizers over several workers: gradient exchange, equal settings and equal initial values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

from mindspore_rec.common.parallel.agreed_settings import check_same
from mindspore_rec.common.parallel.group import worker_group
from mindspore_rec.common.parallel.shared_arrays import arrays_of_first
from mindspore_rec.train.graph.operators import custom_op
from mindspore_rec.train.optim.dense_step import as_float32

__all__ = ["WorkerExchange", "require_same_settings", "start_alike"]

# The workers compare their dense parameters in the first step, and again every `COMPARE_EVERY`
# steps.
COMPARE_EVERY = 100


class WorkerExchange(nn.Cell):
    """Cell that combines this worker's gradients with the other workers' gradients.

    In each step, one exchange sends the gradients of all tables to the workers that own the rows.
    Dense gradients are averaged, with bit-identical results on all workers. Each worker's gradients
    are weighted by the worker's share of the samples (`WorkerGroup.begin_step`), so that the result
    is the gradient of the mean over all samples.

    Every 100 steps, beginning with the first, the dense parameters of all workers are compared.

    Args:
        parameters: the optimizer's parameters.
        owners: the table of each parameter, or None for a dense parameter.
    """

    def __init__(self, parameters: Sequence[Parameter], owners: Sequence[Any]) -> None:
        super().__init__(auto_prefix=False)
        self._table_index = tuple(i for i, owner in enumerate(owners) if owner is not None)
        self._dense_index = tuple(i for i, owner in enumerate(owners) if owner is None)
        # Bypass Cell.__setattr__, because the Parameters belong to the optimizer, not to this cell.
        self.__dict__["_dense"] = tuple(parameters[i] for i in self._dense_index)
        tables = [owners[i] for i in self._table_index]
        if tables:
            descriptors = np.stack([owner.descriptor.asnumpy() for owner in tables])
            narrow = [owner.config.gradient_dtype == ms.bfloat16 for owner in tables]
            self._descriptors = Tensor(descriptors)
            self._narrow = Tensor(np.array(narrow, np.int64))
            self._exchange = custom_op("MsrExchangeGradients", ms.float32)
        if self._dense_index:
            names = "".join(p.name + "\n" for p in self._dense).encode()
            self._names = Tensor(np.frombuffer(names, np.uint8))
            self._every = Tensor(np.array([COMPARE_EVERY], np.int32))
            self._compare = custom_op("MsrCompareParameters", ms.float32)
            self._average = custom_op(
                "MsrAverageGradients",
                (ms.float32,) * (1 + len(self._dense)),
                shapes=((1,), *(tuple(p.shape) for p in self._dense)),
                multi_output=True,
            )
        self._zero = Tensor(np.zeros(1, np.float32))

    def construct(self, gradients: Any, step: Tensor) -> Any:
        """Return one gradient per parameter, for the batches of all workers together.

        Args:
            gradients: the gradients of this worker's batch, with a Tensor for each dense parameter
                and a token for each table.
            step: number of steps done so far, one int32 number.
        """
        token = self._zero
        if self._dense_index:
            token = self._compare(token, step, self._every, self._names, *self._dense)
        if self._table_index:
            tokens: Any = (token,)
            for i in self._table_index:
                tokens += (gradients[i],)
            token = self._exchange(self._descriptors, self._narrow, *tokens)
        dense: Any = ()
        if self._dense_index:
            for i in self._dense_index:
                dense += (as_float32(gradients[i]),)
            averaged = self._average(token, *dense)
            token = averaged[0]
            dense = averaged[1:]
        results: Any = ()
        for i in range(len(gradients)):
            if i in self._dense_index:
                mean = dense[self._dense_index.index(i)]
                results += (ops.cast(mean, gradients[i].dtype),)
            else:
                results += (token,)
        return results


def require_same_settings(tables: Sequence[Any], settings: Mapping[str, Any]) -> None:
    """Check that all workers train the same tables with the same settings.

    All workers must call this function in their main threads. With one worker, the function does
    nothing.

    Args:
        tables: tables that the optimizer trains. The function compares each config's native
            arguments and `gradient_dtype`.
        settings: maps the name of each setting of the optimizer to the setting's value.

    Raises:
        ValueError: on some worker, a setting differs from the setting on worker 0. The worker with
            the different setting raises the error first.

    Example:
        >>> require_same_settings([], {"learning_rate": 0.1})
    """
    group = worker_group()
    if group.size == 1:
        return
    mine = {f"{name} of the optimizer": _text(value) for name, value in settings.items()}
    for table in tables:
        arguments = table.config.native_arguments() | {
            "gradient_dtype": table.config.gradient_dtype
        }
        mine |= {f"{name} of table '{table.name}'": _text(arguments[name]) for name in arguments}
    check_same(group, mine)


def _text(value: Any) -> str:
    if isinstance(value, Tensor):
        value = value.asnumpy()
    if isinstance(value, np.ndarray):
        value = value.tolist()
    return type(value).__name__ if isinstance(value, nn.Cell) else repr(value)


def start_alike(parameters: Sequence[Parameter]) -> None:
    """Set dense parameters to the values of worker 0.

    All workers must call this function in their main threads. With one worker, the function does
    nothing.

    Args:
        parameters: the dense parameters, with the same names on all workers.

    Raises:
        WorkerError: names, shapes or dtypes of the parameters differ between workers.

    Example:
        >>> from mindspore import nn
        >>> start_alike(nn.Dense(2, 1).trainable_params())
    """
    group = worker_group()
    if group.size == 1 or not parameters:
        return
    described = "; ".join(f"{p.name} {tuple(p.shape)} {p.dtype}" for p in parameters)
    group.require_equal("dense parameters", described)
    first = arrays_of_first(group, {p.name: p.init_data().asnumpy() for p in parameters})
    for p in parameters:
        if p.name in first:
            p.set_data(Tensor(first[p.name], p.dtype))
