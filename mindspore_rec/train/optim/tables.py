# SPDX-License-Identifier: Apache-2.0
"""Binds tables to optimizers; each table has one optimizer rule."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

from mindspore import Parameter
from mindspore.nn import Cell

__all__ = ["bind_table", "check_bound", "check_covered", "table_of", "trainable_tables"]

# Maps a native table id to a tuple: the optimizer that trains the table, the optimizer's rule, and
# the id of the binding.
_trainers: dict[int, tuple[weakref.ref[Cell], str, int]] = {}


def table_of(parameter: Parameter) -> Any:
    """Return the table with the anchor `parameter`, or None for a dense parameter."""
    return getattr(parameter, "mindspore_rec_table", None)


def trainable_tables(parameters: Iterable[Parameter]) -> dict[int, Any]:
    """Return a dict from native ids to the trainable tables whose anchors are in `parameters`."""
    owners = (table_of(p) for p in parameters if p.requires_grad)
    return {owner.id: owner for owner in owners if owner is not None}


def bind_table(optimizer: Cell, owner: Any, rule: str, constants: Mapping[str, Any]) -> int:
    """Bind a table to an optimizer; an earlier optimizer can no longer update the table.

    Rows keep their values. Rows keep their optimizer state if the rule stays the same; with another
    rule, the state is initialized again.

    Args:
        optimizer: the optimizer.
        owner: the table, a HashTable or a StaticParameter.
        rule: name of the native rule.
        constants: the rule's constants, as in `TableParameter.bind_optimizer`.

    Returns:
        The id of the binding. In each step, the table recognizes the optimizer by the id of the
        binding.
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


def check_bound(optimizer: Any, owners: Iterable[Any]) -> None:
    """Raise RuntimeError if a later optimizer has been bound to one of the tables.

    Args:
        optimizer: the optimizer that is about to update the tables.
        owners: each `TableParameter` to which the optimizer was bound.

    Example:
        >>> from mindspore_rec import SGD, MapParameter
        >>> table = MapParameter("doc.check_bound")
        >>> optimizer = SGD([table.anchor])
        >>> check_bound(optimizer, [table])
    """
    for owner in owners:
        if _trainers[owner.id][2] != optimizer.table_bindings[owner.id]:
            raise RuntimeError(
                f"table '{owner.name}': another optimizer was created for this table later; this "
                "one can no longer step"
            )


def check_covered(net: Cell, optimizer: Any) -> None:
    """Raise RuntimeError if `optimizer` does not train every trainable table of `net`.

    A table is trained only by an optimizer of `mindspore_rec.optim` whose `params` include the
    table's parameter. Another optimizer, such as `mindspore.nn.Adam`, would accept the table's
    parameter, but silently leave the table at its initial values.

    Args:
        net: the network (a Cell). Frozen tables of the network (``requires_grad=False``) need no
            optimizer.
        optimizer: the optimizer that trains the network, a list of optimizers, or None.

    Raises:
        RuntimeError: a table has no optimizer, or a later optimizer has been bound to a table. The
            message names all tables without a current optimizer.

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
