# SPDX-License-Identifier: Apache-2.0
"""Binding of tables to optimizers: from parameters to native tables, one rule a table."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

from mindspore import Parameter
from mindspore.nn import Cell

__all__ = ["bind_table", "check_covered", "table_of", "trainable_tables"]

# Native table id -> the optimizer that trains it, its rule and the number the table gave it.
_trainers: dict[int, tuple[weakref.ref[Cell], str, int]] = {}


def table_of(parameter: Parameter) -> Any:
    """Return the table whose anchor `parameter` is, or None for a dense parameter."""
    return getattr(parameter, "mindspore_rec_table", None)


def trainable_tables(parameters: Iterable[Parameter]) -> dict[int, Any]:
    """Return the tables to train whose anchors are among `parameters`, by native table id."""
    owners = (table_of(p) for p in parameters if p.requires_grad)
    return {owner.id: owner for owner in owners if owner is not None}


def bind_table(optimizer: Cell, owner: Any, rule: str, constants: Mapping[str, Any]) -> int:
    """Bind a table to the optimizer that trains it; an earlier one can no longer step it.

    Rows keep their values. Their optimizer state is kept if the rule stays the same, and starts
    fresh if it changes.

    Args:
        optimizer: the optimizer.
        owner: the table's owner, a MapParameter or its sibling of a static vocabulary.
        rule: name of the native rule.
        constants: the rule's constants, as `TableParameter.bind_optimizer` takes them.

    Returns:
        The number the optimizer's steps have to show to the table.
    """
    before = _trainers.get(owner.id)
    if before is not None and before[0]() is not None and before[1] != rule:
        warnings.warn(
            f"table '{owner.name}' is taken over by {optimizer.cls_name} ('{rule}') from an "
            f"optimizer in use, {type(before[0]()).__name__} ('{before[1]}'): the state of its "
            "rows starts fresh, and the earlier optimizer's next step will raise",
            RuntimeWarning,
            stacklevel=4,
        )
    number = owner.bind_optimizer(rule, **constants)
    if owner.device is not None:
        owner.device.bind()
    _trainers[owner.id] = (weakref.ref(optimizer), rule, number)
    return int(number)


def check_covered(net: Cell, optimizer: Any) -> None:
    """Raise RuntimeError if a table of `net` is not trained by `optimizer`.

    A table learns only from an optimizer of `mindspore_rec.optim` that was given its parameter.
    With any other, also with `mindspore.nn.Adam` over that same parameter, it would silently keep
    its first values.

    Args:
        net: the network (a Cell); its frozen tables (``requires_grad=False``) are not asked for.
        optimizer: the optimizer the network is trained by, a list of several, or None.

    Raises:
        RuntimeError: a table is not covered, or an optimizer created later took it over; the
            message names all these tables.

    Example:
        >>> from mindspore import nn
        >>> import mindspore_rec.optim as optim
        >>> net = nn.Dense(2, 1)
        >>> check_covered(net, optim.LazyAdam(net.trainable_params()))
    """
    optimizers = list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]
    bindings: dict[int, set[int]] = {}
    for each in optimizers:
        for number, binding in getattr(each, "table_bindings", {}).items():
            bindings.setdefault(number, set()).add(binding)
    tables = trainable_tables(net.get_parameters())
    missing = [owner.name for number, owner in tables.items() if number not in bindings]
    kinds = " and ".join(type(each).__name__ for each in optimizers) or "no optimizer"
    if missing:
        cause = (
            f"{kinds} {'does' if len(optimizers) < 2 else 'do'} not cover "
            f"{'it' if len(missing) == 1 else 'them'}"
        )
        if optimizer is None:
            cause = "the argument optimizer is None"
        raise RuntimeError(
            f"{_names(missing)} would not learn: {cause}. Use an optimizer of mindspore_rec.optim "
            "and give it all of net.trainable_params(); freeze a table on purpose with "
            "requires_grad=False"
        )
    lost = [owner.name for i, owner in tables.items() if _trainers[i][2] not in bindings[i]]
    if lost:
        raise RuntimeError(
            f"{_names(lost)} would not learn: an optimizer created after this "
            f"{kinds} has taken over; use the later one, or create this one anew"
        )


def _names(names: list[str]) -> str:
    word = "table" if len(names) == 1 else "tables"
    return f"{word} {', '.join(repr(name) for name in sorted(names))}"
