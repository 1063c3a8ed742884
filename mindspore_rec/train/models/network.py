# SPDX-License-Identifier: Apache-2.0
"""Network: the base class of networks that are made from a schema."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn

from mindspore_rec.common.checks import check_int
from mindspore_rec.common.columns.schema.schema import Schema
from mindspore_rec.common.tiers.config import CacheConfig
from mindspore_rec.train.models.features import Features
from mindspore_rec.train.models.inputs import FirstOrder
from mindspore_rec.train.models.label_scale import LabelScale
from mindspore_rec.train.models.model_names import name_of
from mindspore_rec.train.models.schema_features import SchemaFeatures
from mindspore_rec.train.models.schema_tables import users_tables
from mindspore_rec.train.nn.members import MemberLogits, check_members
from mindspore_rec.train.parameter.hash_table import HashTable
from mindspore_rec.train.parameter.table_config import MAX_SEED

__all__ = ["Network"]

_NOT_SETTINGS = ("name", "seed")


class Network(nn.Cell):
    """Base class of networks that are made from a schema.

    The first argument of a derived class is the schema. All further arguments of the class have
    defaults and can be passed by keyword. The class must have the arguments `name`, the prefix of
    the tables' names, and `seed`, the seed of the tables' initial values. All arguments except the
    schema, `name` and `seed` are settings of the network. The values of settings are numbers,
    texts, None, or lists, mappings or dataclasses of such values. The class passes all its
    arguments to `super().__init__`.

    A network with several members is an ensemble inside one network. All members share the tables
    and the layers. Each member multiplies the row by learned factors of its own, and has its own
    output in the last layer. The loss is the mean of the members' losses, and the prediction is the
    mean of the members' probabilities. The layers process each row of a batch once per member.

    Args:
        schema: the `Schema` of the data, or a `Features` for arrays that have no schema.
        name: prefix of the tables' names.
        seed: seed of the tables' initial values, 0 to 2**64 - 1.
        settings: the network's settings.

    Inputs:
        ids: int64 Tensor `[B, W]`, the schema's array `ids`.
        numbers: float32 Tensor `[B, N]`, the schema's array `numbers`; left out if N is 0.
        histories: the arrays of the histories in the order of `Schema.inputs`, if the network reads
            histories.

    Outputs:
        float32 Tensor `[B, T]`, one logit per label. For a label that is a number, the output is
        the standardized label, (label - mean) / deviation; `RecModel.predict` converts the output
        to the unit of the label. With several members, the output in training has the shape
        `[members * B, T]` and contains the outputs of one member after the other.

    Attributes:
        schema: a copy of the schema; None if the network was made from a `Features`. Training the
            network changes the scales in the copied schema.
        features: the description of the arrays; its methods make the cells that read the arrays.
        several_tasks: class attribute, True if the network has an output for each label. Default:
            False, which means that the network has one output.
        reads_histories: class attribute, True if the network reads the arrays of histories.
            Default: False, which means that a schema with histories causes an error.
        default_learning_rate: class attribute, learning rate of the optimizer that `RecModel` makes
            for the network. Default: 0.002.
        members: number of members.
        label_scale: a `LabelScale` with mean and deviation of the labels; None if no label of the
            schema is a number.
        users: tables with the last events of each user, one table for each `KeptHistoryColumn`;
            missing if the schema has no `KeptHistoryColumn`.
        varying_inputs: True if the schema has histories, because the number of values in histories
            differs from batch to batch.

    Raises:
        TypeError: `schema` is neither a `Schema` nor a `Features`, or the derived class does not
            pass all its arguments to the base class.
        ValueError: there are several labels, but the network has one output; or there are
            histories, which the network does not read.

    Example:
        >>> from mindspore import Tensor
        >>> from mindspore_rec import Schema
        >>> from mindspore_rec.feature import CategoryColumn
        >>> from mindspore_rec.models import InputLayer, Network
        >>> from mindspore_rec.nn import MLP
        >>> class Perceptron(Network):
        ...     def __init__(self, schema, *, hidden=(8,), name="doc.network", seed=0):
        ...         super().__init__(schema, hidden=hidden, name=name, seed=seed)
        ...         self.inputs = InputLayer(self.features, "concat", f"{name}.embedding", seed)
        ...         self.deep = MLP(self.inputs.widths, hidden, out_features=1)
        ...
        ...     def construct(self, ids, numbers=None):
        ...         return self.deep(*self.inputs(ids, numbers))
        >>> net = Perceptron(Schema([CategoryColumn("user")]), hidden=(4,))
        >>> net(Tensor([[1], [2]])).shape
        (2, 1)
    """

    several_tasks: ClassVar[bool] = False
    reads_histories: ClassVar[bool] = False
    default_learning_rate: ClassVar[float] = 0.002
    members: int = 1

    def __init__(self, schema: Schema | Features, *, name: str, seed: int, **settings: Any) -> None:
        super().__init__()
        _check_settings(type(self), settings)
        if not isinstance(name, str):
            raise TypeError(f"name must be a str, got {name!r}")
        # Copy the schema: training changes the schema's scales, and other networks may use the
        # schema.
        schema = copy.deepcopy(schema) if isinstance(schema, Schema) else schema
        self.features = features_of(schema)
        self.schema = None if isinstance(schema, Features) else schema
        _check_tasks(type(self), self.features.tasks)
        has_numbers = self.schema is not None and not all(self.features.binary)
        self.label_scale = LabelScale(self.features.binary) if has_numbers else None
        if self.schema is not None:
            _check_histories(type(self), self.schema)
        self.varying_inputs = self.schema is not None and bool(self.schema.histories)
        if self.schema is not None and self.schema.pipeline.kept:
            self.users = nn.CellList(users_tables(self.schema, name))
        self._recipe = {
            "settings": {key: _plain(key, value) for key, value in settings.items()},
            "name": name,
            "seed": check_int("seed", seed, 0, MAX_SEED),
        }

    def store_users(self, cache: CacheConfig) -> None:
        """Limit the host memory of the tables that store users' last events. Call before training.

        Each table in `users` is replaced by a new table without rows. Rows that exceed the limit
        are stored on an SSD or in Redis. The tiers of a predictor are set separately, by
        `Predictor(tiers=)`.

        Args:
            cache: the tiers in which each table stores its rows. Rows are not read ahead.

        Raises:
            ValueError: the schema has no `KeptHistoryColumn`.
            OSError, RemoteError: a tier cannot be opened.

        Example:
            >>> import tempfile
            >>> from mindspore_rec import CacheConfig, Schema, SsdConfig
            >>> from mindspore_rec.feature import CategoryColumn, KeptHistoryColumn, TimeColumn
            >>> from mindspore_rec.models import DIN
            >>> columns = [CategoryColumn("item", table="items"), CategoryColumn("user")]
            >>> columns += [KeptHistoryColumn("recent", of="item", by="user"), TimeColumn("ts")]
            >>> net = DIN(Schema(columns), name="doc.store_users")
            >>> net.store_users(CacheConfig(host_rows=1000, ssd=SsdConfig(tempfile.mkdtemp())))
            >>> net.users[0].cache.host_rows
            1000
        """
        if not hasattr(self, "users"):
            raise ValueError("the schema must have a KeptHistoryColumn, whose users are stored")
        cache = dataclasses.replace(cache, prefetch=0)
        for place, table in enumerate(list(self.users)):
            table.close()
            self.users[place] = HashTable(dataclasses.replace(table.config, cache=cache))

    def _set_members(self, members: int) -> None:
        """Set the number of members; call this method before the first layer is made."""
        self.members = check_members(members)
        if members > 1:
            self.member_logits = MemberLogits(members, self.features.binary)

    def _answer(self, outputs: Tensor) -> Tensor:
        """Compute the network's output from the output of its last layer."""
        return self.member_logits(outputs) if self.members > 1 else outputs

    @property
    def last_biases(self) -> list[Parameter]:
        """Biases of the last layers, one Parameter per label; empty if the layers have none."""
        return []

    @property
    def is_started(self) -> bool:
        """True if the label scale was set.

        For a network without a label scale, `is_started` is True if any bias in `last_biases` is
        not 0.

        The label scale and the last biases are set by training, by loading a checkpoint and by
        `start_at`. If the mean of every label is 0.5, `start_at` sets the last biases to 0, and
        `is_started` stays False.
        """
        if self.label_scale is not None:
            return self.label_scale.is_set
        return any(each.asnumpy().any() for each in self.last_biases)

    def start_at(self, means: Sequence[float], deviations: Sequence[float]) -> None:
        """Make an untrained network predict approximately each label's mean, in the label's unit.

        After a call of `start_at`, the network has to learn only how rows differ from the mean.
        `RecModel` calls `start_at` before it trains an untrained network on a table of rows. A
        program that trains a network on a stream may also call `start_at`.

        Args:
            means: mean of each label; for a label with two values, the share of rows with label 1.
            deviations: standard deviation of each label, at least 0. For labels with two values,
                the deviations are not used.

        Raises:
            ValueError: the number of means or deviations is not the number of labels, a mean or
                deviation is not finite, or a deviation is negative.
        """
        tasks = len(self.features.tasks)
        for argument, values in (("means", means), ("deviations", deviations)):
            if np.shape(values) != (tasks,) or not np.isfinite(values).all():
                raise ValueError(f"{argument} must be {tasks} finite numbers, got {values!r}")
        if min(deviations) < 0:
            raise ValueError(f"deviations must be at least 0, got {deviations!r}")
        if self.label_scale is not None:
            self.label_scale.set(means, deviations)
        for _, cell in self.cells_and_names():
            if isinstance(cell, FirstOrder):
                cell.start_at_zero()
        binary = self.features.binary
        for bias, mean, is_binary in zip(self.last_biases, means, binary, strict=False):
            value = _log_odds(mean) if is_binary else 0.0
            bias.set_data(Tensor(np.full(bias.shape, value, np.float32), ms.float32))

    def recipe(self) -> dict[str, Any]:
        """Return JSON values that describe how to make the network from its schema.

        `mindspore_rec.models.build` makes a new network from the returned values.

        Returns:
            Dict with the keys `model` (the name of the model), `settings` (the settings of the
            class), `name` and `seed`.

        Raises:
            ValueError: the network was not made from a schema, or the class of the network cannot
                be found by name.
        """
        if self.schema is None:
            raise ValueError(f"{type(self).__name__} was not made from a schema, got features")
        return {"model": name_of(type(self)), **_plain("recipe", self._recipe)}


def _log_odds(rate: float) -> float:
    """Return the logit of a rate; the logit is bounded if the rate is 0 or 1.

    Example:
        >>> _log_odds(0.5)
        0.0
    """
    rate = min(max(rate, 1e-6), 1 - 1e-6)
    return float(np.log(rate / (1 - rate)))


def features_of(schema: Schema | Features) -> Features:
    """Return the description of a network's arrays.

    Args:
        schema: a `Schema`, or a `Features`.

    Raises:
        TypeError: `schema` is neither a `Schema` nor a `Features`.
    """
    if isinstance(schema, Features):
        return schema
    if not isinstance(schema, Schema):
        raise TypeError(f"schema must be a mindspore_rec.Schema, got {type(schema).__name__}")
    return SchemaFeatures(schema)


def _check_settings(kind: type, settings: Mapping[str, Any]) -> None:
    """Check that a derived class passes exactly its own arguments to the base class."""
    parameters = list(inspect.signature(kind).parameters.values())[1:]
    names = {each.name for each in parameters if each.kind is not each.VAR_KEYWORD}
    missing = sorted(names - {*settings, *_NOT_SETTINGS})
    if missing:
        raise TypeError(
            f"{kind.__name__} must pass all its arguments to super().__init__, so that it can be "
            f"made again from a checkpoint; it lacks {', '.join(missing)}"
        )
    unknown = sorted({*settings} - names)
    if unknown and len(names) == len(parameters):
        raise TypeError(
            f"{kind.__name__} must pass only its own arguments to super().__init__, got "
            f"{', '.join(unknown)}"
        )


def _check_tasks(kind: type[Network], tasks: tuple[str, ...]) -> None:
    if len(tasks) > 1 and not kind.several_tasks:
        raise ValueError(
            f"{kind.__name__} has one output, but the schema has {len(tasks)} labels "
            f"({', '.join(tasks)}): use MMoE, or keep one label"
        )


def _check_histories(kind: type[Network], schema: Schema) -> None:
    names = [of[0].name for of in schema.histories]
    if names and not kind.reads_histories:
        raise ValueError(
            f"{kind.__name__} does not read histories, and the schema has {', '.join(names)}: of a "
            "ListColumn (kind 'list') it reads the mean, and a network with reads_histories = True "
            "reads the arrays of the histories"
        )


def _plain(name: str, value: Any) -> Any:
    """Return a setting as a JSON value; lists and dicts are copied.

    Example:
        >>> _plain("hidden", (400, 400))
        [400, 400]
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(name, each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(name, each) for each in value]
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(
        f"{name} must be a number, a text, None, or a list, mapping or dataclass of them, got "
        f"{value!r:.80}"
    )
