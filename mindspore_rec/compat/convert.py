# SPDX-License-Identifier: Apache-2.0
"""Convert the embeddings of an ordinary network to tables and back, without changes to the
network's code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn

from mindspore_rec.common.checks import check_one_of
from mindspore_rec.compat.conversion import ATTRIBUTE, NEW_KINDS, Conversion, changes_of
from mindspore_rec.compat.conversion_checks import (
    cells_outside,
    check_convertible,
    forget_compiled,
    warn_of_users,
)
from mindspore_rec.compat.conversion_tables import check_template, config_of, new_lookup
from mindspore_rec.compat.conversion_targets import (
    Target,
    choose_targets,
    find_stacks,
    find_targets,
    replace_in,
    walk,
)
from mindspore_rec.compat.map_parameter import MapParameter
from mindspore_rec.train.nn.sequential import FusedSequential
from mindspore_rec.train.parameter.initializers import row_initializer
from mindspore_rec.train.parameter.static_parameter import StaticParameter
from mindspore_rec.train.parameter.table_config import TableConfig
from mindspore_rec.train.parameter.upstream import (
    admission_by_filter,
    check_described_once,
    describing_arguments,
    eviction_by_filter,
    given_arguments,
)

__all__ = ["convert", "revert"]


def convert(
    net: nn.Cell,
    *,
    names: str | Sequence[str] | None = None,
    min_size: int | None = None,
    predicate: Callable[[str, nn.Cell], bool] | None = None,
    kind: str = "hash",
    key_dtype: Any = ms.int64,
    keep_weights: bool = True,
    param_init: Any = None,
    permit_filter_value: int = 1,
    evict_filter_value: int = sys.maxsize,
    seed: int = 0,
    prefix: str = "",
    dry_run: bool = False,
    config: TableConfig | None = None,
    dense: bool = False,
) -> Conversion:
    """Replace the embeddings of a network by table lookups, without changes to the network's code.

    The function finds MindSpore's `nn.Embedding`, `mint.nn.Embedding` and `nn.EmbeddingLookup` at
    any depth. The function converts the embeddings that match `names`, `min_size` and `predicate`;
    an argument that is not set matches all embeddings. The weights of the converted embeddings move
    into tables, and the changes are printed. Predictions stay the same. All checks are made before
    any change. Either all chosen embeddings are converted, or the function raises an error and does
    not change the network.

    Convert the network first, then make an optimizer of `mindspore_rec.optim` from
    `net.trainable_params()`. An optimizer that was made before the conversion still refers to the
    old weights.

    Args:
        net: the network, which is changed in place.
        names: one or several paths of embeddings, or patterns such as 'tower.*'. Default: any.
        min_size: embeddings with fewer rows are not converted. Default: no minimum.
        predicate: function that takes a path and a cell, and returns True if the embedding is to be
            converted. Default: any.
        kind: 'hash' makes a `HashEmbeddingLookup`, whose table accepts any id and grows. 'static'
            makes an `EmbeddingLookup` with the old vocabulary.
        key_dtype: key dtype of a hash table, `int32` or `int64`; an int32 table refuses int64 ids.
        keep_weights: if True, rows start with the values of the weights; if False, rows start with
            the value of `param_init`.
        param_init: initial value of the rows that have no weights, with the same choices as for
            `HashEmbeddingLookup`. Default: 'normal'.
        permit_filter_value: number of occurrences in training at which an id gets a row. With
            `keep_weights=True`, all rows of the old weights are admitted from the start.
        evict_filter_value: a row is evicted if its id has not occurred for this many training
            steps.
        seed: seed of the initial values. Default: 0.
        prefix: prefix of the tables' names; prefix + path must be unique among open tables.
            Default: ''.
        dry_run: True to only check the network and print the changes.
        config: a `TableConfig` for all tables, in place of the arguments above that describe a
            table. The config must have no name and no `vocab_size`, and its `embedding_dim` must
            equal the dim of the converted embeddings. A table is frozen if the old weight is frozen
            or the config freezes it.
        dense: True to fuse each `nn.SequentialCell` of `nn.Dense` layers and activations into one
            operator, if `nn.FusedSequential` accepts the cell. Layers and parameters stay the same
            objects. With `dense=True`, the network may have no embeddings. Default: False.

    Returns:
        The record of the changes, a Conversion. `revert` undoes the changes.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range; a name does not
            match any embedding; or no table can replace a chosen embedding.

    Warns:
        RuntimeWarning: an optimizer or a cell outside the network still uses old weights.

    The function corresponds to the automatic graph modification of Rec SDK.

    Example:
        >>> from mindspore import Tensor, nn
        >>> import mindspore_rec
        >>> net = nn.SequentialCell(nn.Embedding(1000, 8), nn.Flatten(), nn.Dense(16, 1))
        >>> before = net(Tensor([[3, 999]], ms.int32))
        >>> conversion = mindspore_rec.convert(net, prefix="doc.convert.")
        path  old kind      new kind              rows  dim   bytes
        0     nn.Embedding  HashEmbeddingLookup  1,000    8  32,000
        >>> bool((net(Tensor([[3, 999]], ms.int32)) == before).all())
        True
        >>> optimizer = mindspore_rec.LazyAdam(net.trainable_params())  # after the conversion
        >>> mindspore_rec.revert(net)
        >>> type(net[0]).__name__
        'Embedding'
    """
    explicit = given_arguments(convert, locals())
    check_described_once(describing_arguments(convert, locals()), config)
    if not isinstance(net, nn.Cell):
        raise TypeError(f"net must be a Cell, got {type(net).__name__}")
    for argument, flag in _flags(keep_weights, dry_run, dense):
        if not isinstance(flag, bool):
            raise TypeError(f"{argument} must be a bool, got {flag!r}")
    if not isinstance(prefix, str):
        raise TypeError(f"prefix must be a str, got {prefix!r}")
    check_one_of("kind", kind, tuple(NEW_KINDS))
    if key_dtype not in (ms.int32, ms.int64):
        raise TypeError(f"key_dtype must be int32 or int64, got {key_dtype!r}")
    if kind == "static":
        for argument in ("key_dtype", "permit_filter_value", "evict_filter_value"):
            if argument in explicit:
                raise ValueError(f"{argument} is for kind='hash'")
        if keep_weights and param_init is not None:
            raise ValueError("param_init is for kind='hash' or keep_weights=False")
    if config is not None:
        check_template(config, kind, keep_weights)

    def template(dim: int) -> TableConfig:
        if config is not None:
            return config
        initializer = "normal" if param_init is None else param_init
        row_initializer(initializer, fan_in=dim, fan_out=dim, argument="param_init")
        if kind == "static":
            return TableConfig(dim, initializer=initializer, seed=seed)
        return TableConfig(
            dim,
            key_dtype=key_dtype,
            initializer=initializer,
            seed=seed,
            admission=admission_by_filter("", None, permit_filter_value),
            eviction=eviction_by_filter("", None, evict_filter_value),
        )

    stacks = find_stacks(net) if dense else {}
    targets = choose_targets(find_targets(net, not stacks, dense), names, min_size, predicate)
    check_convertible(net, targets, keep_weights)
    _check_names(net, targets, prefix)
    configs = [config_of(t, template(t.dim), kind, keep_weights, prefix) for t in targets]
    conversion = Conversion(net, kind, changes_of(targets, kind, prefix), dry_run, stacks)
    if dry_run or not (targets or stacks):
        conversion._net = None
        print(conversion)
        return conversion
    tables: dict[int, Any] = {}
    try:
        for target, described in zip(targets, configs, strict=True):
            new = new_lookup(target, described, keep_weights, tables)
            conversion._pairs.append((target, new))
        conversion._fused = [(stack, FusedSequential(stack)) for stack in stacks.values()]
        outside = cells_outside(net)
        warn_of_users(targets, outside)  # a warning may be made an error
    except Exception:
        for table in tables.values():
            table.close()
        raise
    replace_in(net, conversion.replacements())
    vars(net).setdefault(ATTRIBUTE, []).append(conversion)
    forget_compiled(net, outside)
    print(conversion)
    return conversion


def _flags(keep_weights: bool, dry_run: bool, dense: bool) -> tuple[tuple[str, bool], ...]:
    return (("keep_weights", keep_weights), ("dry_run", dry_run), ("dense", dense))


def _check_names(net: nn.Cell, targets: list[Target], prefix: str) -> None:
    converted = {id(target.weight) for target in targets}
    taken = {p.name for _, p in net.parameters_and_names() if id(p) not in converted}
    for target in targets:
        if prefix + target.path in taken:
            raise ValueError(
                f"prefix {prefix!r} gives a table the name '{prefix + target.path}', which a "
                "parameter of the network has"
            )


def revert(net_or_conversion: nn.Cell | Conversion, *, drop_new: bool = False) -> None:
    """Put the ordinary embeddings back, with the trained values of the tables' rows.

    The network gets the original embedding cells and Parameters back, so optimizers and checkpoints
    of the ordinary network can be used again. The tables are closed. A hash table may have no row
    for an id, because the row was evicted, or because with `keep_weights=False` the id never
    occurred. If the table has no row for an id, the embedding gets the value that a lookup in
    evaluation returns for the id. Optimizer state is not transferred.

    Args:
        net_or_conversion: the conversion to undo; or a network, to undo all conversions of the
            network.
        drop_new: True if rows of ids outside the old vocabulary may be dropped. Default: False.

    Raises:
        TypeError: the argument is neither a Cell nor a Conversion.
        ValueError: there is nothing to revert, a table has rows of ids outside the old vocabulary,
            or a converted cell is no longer in the network. After an error, the network is
            unchanged.

    Example:
        >>> from mindspore import Tensor, nn
        >>> net = nn.SequentialCell(nn.Embedding(4, 2), nn.Flatten())
        >>> conversion = convert(net, prefix="doc.revert.")
        path  old kind      new kind             rows  dim  bytes
        0     nn.Embedding  HashEmbeddingLookup     4    2     32
        >>> net[0].embedding_table.put(Tensor([9], ms.int32), 0.5).row_count
        5
        >>> revert(conversion)
        Traceback (most recent call last):
        ...
        ValueError: table 'doc.revert.0' has 1 row outside the vocabulary 0 .. 3, such as that of
        id 9; drop_new=True drops such rows
        >>> revert(conversion, drop_new=True)
    """
    if isinstance(net_or_conversion, Conversion):
        conversions = [net_or_conversion] if net_or_conversion.revertible else []
    elif isinstance(net_or_conversion, nn.Cell):
        cells = {id(cell): cell for _, cell in walk(net_or_conversion)}.values()
        conversions = [c for cell in cells for c in vars(cell).get(ATTRIBUTE, [])]
    else:
        raise TypeError(
            f"net_or_conversion must be a Cell or a Conversion, got "
            f"{type(net_or_conversion).__name__}"
        )
    if not conversions:
        raise ValueError(
            "there is nothing to revert: no conversion, one already reverted or forgotten, or a "
            "dry run"
        )
    pairs = [pair for conversion in conversions for pair in conversion._pairs]
    for conversion in conversions:
        inside = {id(cell) for _, cell in walk(conversion._net)}
        for target, new in conversion._pairs:
            if id(new) not in inside:
                raise ValueError(f"the cell converted at '{target.path}' is no longer there")
    tables = {id(target.weight): (target, new.embedding_table) for target, new in pairs}
    values = {key: _rows(*both, drop_new=drop_new) for key, both in tables.items()}
    for key, (target, table) in tables.items():
        target.weight.set_data(Tensor(values[key]))
        target.weight.requires_grad = table.requires_grad
    for conversion in conversions:
        for target, new in conversion._pairs:
            target.cell.set_train(new.training)
        for stack, fused in conversion._fused:
            stack.set_train(fused.training)
        replace_in(conversion._net, conversion.replacements(back=True))
        forget_compiled(conversion._net, cells_outside(conversion._net))
        conversion.forget()
    for _, table in tables.values():
        table.close()


def _rows(target: Target, table: MapParameter | StaticParameter, *, drop_new: bool) -> np.ndarray:
    """Return the values that an evaluation lookup returns for each id of the vocabulary."""
    if isinstance(table, MapParameter):
        keys = table.row_keys()
        new = keys[(keys < 0) | (keys >= target.rows)]
        if len(new) and not drop_new:
            raise ValueError(
                f"table '{table.name}' has {len(new):,} row{'s' if len(new) > 1 else ''} outside "
                f"the vocabulary 0 .. {target.rows - 1}, such as that of id {new.min()}; "
                "drop_new=True drops such rows"
            )
    values = table.read_rows(np.arange(target.rows, dtype=np.int64))
    if target.padding is not None:
        values[target.padding] = 0
    return values
