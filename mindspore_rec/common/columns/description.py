# SPDX-License-Identifier: Apache-2.0
"""Convert a FeaturePipeline to JSON values and back, to store the pipeline with a network.

The description contains the arguments of the pipeline, but not the learned state, because
checkpoints store the pipeline's `state_dict`. A description names each transform by its class and
arguments. Only this library's transforms have a description, so no code from outside the library
runs when a description is read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from mindspore_rec.common.columns.cross import Cross
from mindspore_rec.common.columns.feature_pipeline import FeaturePipeline
from mindspore_rec.common.columns.feature_spec import FeatureSpec
from mindspore_rec.common.columns.histories import History, HistoryValues
from mindspore_rec.common.columns.labels import Label, NumbersOfTexts, RequiredNumber, Times
from mindspore_rec.common.columns.lists import Categories, Words
from mindspore_rec.common.columns.outputs import KeysOutput, Output, RaggedOutput, StackedOutput
from mindspore_rec.common.columns.quantiles import MixedScale, QuantileBucket, QuantileScale
from mindspore_rec.common.columns.scaling import LogScale, MinMaxScale, StandardScale
from mindspore_rec.common.columns.target_statistics import TargetStatistics
from mindspore_rec.common.columns.transforms import (
    Category,
    Feature,
    Key,
    Number,
    TimeCycle,
    TimePart,
)

__all__ = ["describe_pipeline", "described_pipeline"]

# For each transform class: a dict from the arguments (without `column`) to the attributes that
# store the arguments' values.
_TRANSFORMS: dict[type[Feature], dict[str, str]] = {
    Category: {"field": "field", "values": "values"},
    Categories: {
        "length": "length",
        "field": "field",
        "separator": "separator",
        "values": "values",
    },
    Words: {"length": "length", "field": "field"},
    HistoryValues: {"values": "values", "field": "field", "separator": "separator"},
    Key: {},
    Label: {"positive": "positive"},
    Number: {"missing": "missing"},
    Times: {"unit": "unit", "format": "format"},
    TimePart: {"part": "part", "unit": "unit", "format": "format"},
    TimeCycle: {"part": "part", "unit": "unit", "format": "format"},
    MinMaxScale: {"low": "_low", "high": "_high", "missing": "missing"},
    LogScale: {"running": "running", "missing": "missing"},
    StandardScale: {"missing": "missing"},
    QuantileScale: {"buckets": "buckets", "sample": "sample", "missing": "missing"},
    MixedScale: {"buckets": "buckets", "sample": "sample", "missing": "missing"},
    QuantileBucket: {"buckets": "buckets", "sample": "sample", "missing": "missing"},
}
# Arguments that later versions added to transforms. A description omits these arguments if they are
# None, so that earlier versions can read the description.
_LATER = ("values", "unit", "format")
_NESTED = ("parts", "labels", "others")  # arguments of TargetStatistics that are transforms
_BY_NAME = {kind.__name__: kind for kind in _TRANSFORMS}


def describe_pipeline(pipeline: FeaturePipeline) -> dict[str, Any]:
    """Return the arguments of a pipeline as JSON values.

    Args:
        pipeline: a pipeline with features of this library and without `prepare`.

    Raises:
        ValueError: a part of the pipeline has no description. The error message names this part of
            the pipeline.

    Example:
        >>> made = describe_pipeline(FeaturePipeline({"x": [Number("price")]}))
        >>> made["outputs"]
        [{'name': 'x', 'features': [{'transform': 'Number', 'column': 'price', 'missing': 0.0}]}]
    """
    if pipeline._prepare:
        raise ValueError("features: the functions of prepare have no description")
    if pipeline._times_out:
        raise ValueError("features: a pipeline of a feature worker has no description")
    time = pipeline.timestamp
    return {
        "outputs": [_described_output(output) for output in pipeline._outputs],
        "timestamp": None if time is None else _described(time),
        "keep_rest": pipeline.keep_rest,
    }


def described_pipeline(description: Mapping[str, Any]) -> FeaturePipeline:
    """Make a pipeline from a description, without any learned state.

    Raises:
        ValueError: `description` is not the description of a pipeline.

    Example:
        >>> description = describe_pipeline(FeaturePipeline({"x": [Number("price")]}))
        >>> described_pipeline(description).apply({"price": [2.5]})["x"].tolist()
        [[2.5]]
    """
    try:
        outputs: dict[str, Any] = {}
        for output in description["outputs"]:
            members = [_made(each) for each in output["features"]]
            name = str(output["name"])
            if name in outputs:
                raise ValueError(f"output {name!r} is there twice")
            outputs[name] = members[0] if output.get("alone", False) else members
            if "history" in output:
                outputs[name] = History(members, **output["history"])
        if description["timestamp"] is not None:
            time = _made(description["timestamp"])
            if not isinstance(time, FeatureSpec):
                raise ValueError("timestamp must be a feature")
            outputs[time.name] = time
        return FeaturePipeline(outputs, keep_rest=description["keep_rest"])
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise ValueError(f"features are no description of a pipeline: {error}") from None


def _described_output(output: Output) -> dict[str, Any]:
    if not isinstance(output, (KeysOutput, RaggedOutput, StackedOutput)):
        raise ValueError(f"features: array '{output.name}', made elsewhere, has no description")
    made: dict[str, Any] = {
        "name": output.name,
        "features": [_described(each) for each in output.members],
    }
    if isinstance(output, KeysOutput):
        made["alone"] = True  # in the shape of its column
    if isinstance(output, RaggedOutput):
        made["history"] = {"length": output.history.length, "keep": output.history.keep}
    return made


def _described(member: FeatureSpec | Feature) -> dict[str, Any]:
    if isinstance(member, FeatureSpec):
        names = [field.name for field in dataclasses.fields(member)]
        fields = {name: _plain(getattr(member, name)) for name in names}
        if member.transform is not None:
            fields["transform"] = _described(member.transform)
        return {"feature": fields}
    if isinstance(member, RequiredNumber):
        # Programs that read descriptions take no labels or weights, so the description stays as in
        # earlier versions.
        member = Number(member.column)
    if isinstance(member, NumbersOfTexts):
        inner = _described(member.transform)
        return {"transform": "NumbersOfTexts", "decimal": member.decimal, "of": inner}
    if isinstance(member, Cross):
        parts = [_described(part) for part in member.parts]
        return {"transform": "Cross", "field": member.field, "of": parts}
    if isinstance(member, TargetStatistics):
        nested = {name: getattr(member, name) for name in _NESTED}
        weight = member.weight
        return {
            "transform": "TargetStatistics",
            **{name: [_described(each) for each in of] for name, of in nested.items()},
            "by": member.by,
            "weight": None if weight is None else _described(weight),
            "most_values": member.most_values,
        }
    attributes = _TRANSFORMS.get(type(member))
    if attributes is None:
        raise ValueError(
            f"features: {type(member).__name__} of column {member.column!r} is no transform of "
            "this library, and has no description"
        )
    arguments = {name: _plain(getattr(member, attribute)) for name, attribute in attributes.items()}
    arguments = {n: value for n, value in arguments.items() if value is not None or n not in _LATER}
    return {"transform": type(member).__name__, "column": _plain(member.column), **arguments}


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _made(described: Mapping[str, Any]) -> Any:
    if "feature" in described:
        fields = dict(described["feature"])
        if fields.get("transform") is not None:
            fields["transform"] = _made(fields["transform"])
        return FeatureSpec(**fields)
    fields = dict(described)
    name = fields.pop("transform")
    if name == "NumbersOfTexts":
        return NumbersOfTexts(_made(fields["of"]), fields["decimal"])
    if name == "Cross":
        return Cross([_made(part) for part in fields["of"]], fields["field"])
    if name == "TargetStatistics":
        parts, labels, others = ([_made(one) for one in fields[each]] for each in _NESTED)
        weight = None if fields["weight"] is None else _made(fields["weight"])
        return TargetStatistics(parts, labels, others, fields["by"], weight, fields["most_values"])
    kind = _BY_NAME[name]
    if not set(fields) <= {"column", *_TRANSFORMS[kind]}:
        raise ValueError(f"{kind.__name__} has arguments {sorted(fields)}")
    return kind(**fields)
