# SPDX-License-Identifier: Apache-2.0
"""Find what prevents a conversion: features that tables lack, and other uses of the weights."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from typing import Any

import mindspore as ms
from mindspore import Parameter, mint, nn

from mindspore_rec.compat.conversion_reader import read_in_construct
from mindspore_rec.compat.conversion_targets import Target, walk
from mindspore_rec.train.parameter.table_config import MAX_DIM

__all__ = ["cells_outside", "check_convertible", "forget_compiled", "warn_of_users"]


_HOOKS = ("_lazy_forward_pre_hook", "_lazy_forward_hook")
_BACKWARD_HOOKS = ("_lazy_backward_pre_hook", "_lazy_backward_hook")


def check_convertible(net: nn.Cell, targets: list[Target], keep_weights: bool) -> None:
    """Raise an error that lists all reasons why `targets` cannot be converted to tables.

    Raises:
        ValueError: MindSpore's parallel mode slices parameters over devices; or embeddings cannot
            be converted, and the message names each of these embeddings and the reason.
    """
    mode = ms.get_auto_parallel_context("parallel_mode")
    if mode in ("semi_auto_parallel", "auto_parallel"):
        raise ValueError(
            "tables are not sliced over devices: convert in parallel_mode 'stand_alone', "
            f"not {mode!r}"
        )
    reasons = [
        f"'{target.path}' ({target.kind}): {reason}"
        for target in targets
        for reason in (*_feature_reasons(target, keep_weights), *_sharing_reasons(target, targets))
    ]
    reasons += _other_users(net, targets)
    if reasons:
        raise ValueError(
            "cannot convert, nothing was changed; leave these out by names=, min_size= or "
            "predicate=, or change them:\n  " + "\n  ".join(reasons)
        )


def _feature_reasons(target: Target, keep_weights: bool) -> Iterator[str]:
    cell = target.cell
    if type(cell).construct is not target.base.construct:
        yield f"its class has a construct of its own, unlike {target.base.__name__}"
        return
    if target.weight.dtype != ms.float32:
        yield f"rows of a table are float32, its weight is {target.weight.dtype}"
    if target.dim > MAX_DIM:
        yield f"a row has at most {MAX_DIM} floats, its rows have {target.dim}"
    if target.base is nn.EmbeddingLookup and cell.max_norm is not None:
        # For row i, ClipByNorm computes the norm from the elements i .. i + dim - 1 of the flat
        # array.
        yield (
            f"max_norm={float(cell.max_norm.asnumpy()):g} goes through MindSpore's ClipByNorm, "
            "which on CPU takes the norms of other elements than the row's; a table would not"
        )
    if target.base is mint.nn.Embedding:
        if cell.max_norm is not None:
            yield f"max_norm={cell.max_norm} renormalizes its weights in place at each lookup"
        if cell.scale_grad_by_freq:
            yield "scale_grad_by_freq=True scales gradients by counts of ids in the batch"
        if target.padding is not None and keep_weights and target.weight.dtype == ms.float32:
            if target.weight.asnumpy()[target.padding].any():
                yield (
                    f"row padding_idx={cell.padding_idx} is not zeros, which is what a table reads "
                    "for padding"
                )
    if getattr(cell, "fp16", False) or getattr(cell, "bf16", False):
        yield "to_float makes it compute in 16 bits, rows of a table are float32"
    if any(getattr(cell, hooks, None) for hooks in (*_HOOKS, *_BACKWARD_HOOKS)):
        yield "it has hooks, which would be lost"
    if getattr(cell, "_recompute_cell", None) is not None:
        yield "recompute would look its ids up twice a step"


def _sharing_reasons(target: Target, targets: list[Target]) -> Iterator[str]:
    """Yield the reasons why cells that share a weight cannot share a table."""
    for other in targets:
        if other is target or other.weight is not target.weight:
            continue
        for what in ("padding", "reads_zeros_outside"):
            mine, its = getattr(target, what), getattr(other, what)
            if mine != its:
                what = {"padding": "padding_idx"}.get(what, "reading zeros outside the vocabulary")
                yield f"shares its weight with '{other.path}', but {what} differs: {mine}, {its}"


# ---- other users of the rows


def _other_users(net: nn.Cell, targets: list[Target]) -> list[str]:
    weights = {id(target.weight): target for target in targets}
    chosen = {id(target.cell) for target in targets}
    reasons = []
    seen: set[int] = set()
    for path, cell in walk(net):
        if id(cell) in chosen or id(cell) in seen:
            continue
        seen.add(id(cell))
        where = f"'{path}' ({type(cell).__name__})" if path else f"the {type(cell).__name__} itself"
        used = {id(p): weights[id(p)] for p in _held_parameters(cell) if id(p) in weights}
        if isinstance(cell, nn.Optimizer) and used:
            reasons.append(
                f"{where} holds the weights already: make the optimizer, of mindspore_rec.optim, "
                "after the conversion"
            )
            continue
        for target in used.values():
            reasons.append(
                f"'{target.path}' ({target.kind}): its weight '{target.weight.name}' is tied, "
                f"{where} has it too"
            )
        for parameter, code in read_in_construct(cell):
            if id(parameter) in weights and id(parameter) not in used:
                target = weights[id(parameter)]
                reasons.append(
                    f"'{target.path}' ({target.kind}): its weight '{target.weight.name}' is tied, "
                    f"the code of {where} reads {code}"
                )
    return reasons


def _held_parameters(cell: nn.Cell) -> Iterator[Parameter]:
    def inside(value: Any, depth: int) -> Iterator[Parameter]:
        if isinstance(value, Parameter):
            yield value
        elif isinstance(value, (list, tuple, dict)) and depth < 8:
            for item in value.values() if isinstance(value, dict) else value:
                yield from inside(item, depth + 1)

    return inside(vars(cell), 0)


# ---- outside the network


def cells_outside(net: nn.Cell) -> list[nn.Cell]:
    """Return all cells of this process, except the network and the cells in the network."""
    gc.collect()  # networks given up live on in reference cycles
    inside = {id(cell) for _, cell in walk(net)}
    # Test `type(o)`, because isinstance would read `__class__`, which loads lazy modules.
    cells = [o for o in gc.get_objects() if issubclass(type(o), nn.Cell)]
    return [cell for cell in cells if id(cell) not in inside and "_cells" in vars(cell)]


def warn_of_users(targets: list[Target], outside: list[nn.Cell]) -> None:
    """Warn if optimizers, or cells outside the network, still use the old weights."""
    old = {id(target.cell) for target in targets}
    identities = {id(target.weight) for target in targets} | old
    users = set()
    for cell in outside:
        children = (child for child in cell._cells.values() if child is not None)
        if id(cell) not in old and any(
            id(thing) in identities for thing in (*_held_parameters(cell), *children)
        ):
            users.add(type(cell).__name__)
    if users:
        warnings.warn(
            f"{', '.join(sorted(users))} outside the network still hold the embeddings as "
            "they were before the conversion (or a compiled graph keeps them): do not go on with "
            "them, make optimizers (of mindspore_rec.optim), train cells and models anew from the "
            "converted network",
            RuntimeWarning,
            stacklevel=3,
        )


def forget_compiled(net: nn.Cell, outside: list[nn.Cell]) -> None:
    """Discard compiled graphs of a network, and of outside cells that contain network cells."""
    around = set()
    for _, cell in walk(net):
        around.add(id(cell))
        cell.compile_cache.clear()
    grew = True
    while grew:
        grew = False
        for cell in outside:
            if id(cell) not in around and any(id(c) in around for c in cell._cells.values()):
                around.add(id(cell))
                cell.compile_cache.clear()
                grew = True
