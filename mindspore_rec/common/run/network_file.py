# SPDX-License-Identifier: Apache-2.0
"""Files of a network, from which a predictor can run the network without MindSpore.

The directory `network` of a run, or of a checkpoint that `save_checkpoint` wrote, has

network.onnx   the network's model without lookups. The inputs are the network's inputs, the result
               of each lookup, and all dense parameters, whose initial values are in the file
ids.onnx       from the network's inputs to the ids and offsets of lookups, if the network computes
               them
network.json   the description, with sizes and CRC32C of both models

The directory `network` is written once per network. Rows and state are in the checkpoints, and not
in the directory `network`. If a network cannot be written, `network.json` contains the reason.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mindspore_rec import _native
from mindspore_rec.common.columns.tensors import TensorSpec, parsed_specs
from mindspore_rec.common.run.errors import CheckpointError
from mindspore_rec.common.run.manifest import TEMPORARY, new_directory, new_id, sync_files
from mindspore_rec.common.sync import sync

__all__ = [
    "DESCRIPTION",
    "NETWORK",
    "Lookup",
    "NetworkFile",
    "ParameterSpec",
    "copy_network",
    "new_network",
    "read_network",
    "remove_network",
    "write_reason",
]

NETWORK = "network"
DESCRIPTION = "network.json"
DENSE = "network.onnx"
IDS = "ids.onnx"
FORMAT_VERSION = 1
_MOST_DESCRIPTION = 16 << 20  # bytes
_MOST_MODEL = (1 << 31) - 1  # bytes of a protobuf message


@dataclass(frozen=True)
class Lookup:
    """Lookup that a network makes outside its ONNX model.

    Attributes:
        result: the input through which the ONNX model receives the looked-up rows.
        ids: name of the tensor that contains the keys. The tensor is an input of the network or an
            output of the ONNX model of the ids.
        tables: names of the lookup's tables. There is one table in total, or one table for each
            column of the ids.
        padding_key: id whose row is zeros; None without a padding key.
        combiner: 'sum', 'mean' or 'sqrtn' combines the rows of each bag to one row; with None, the
            result has one row for each id.
        grouped: True if `tables` has one table for each column of the ids.
        offsets: name of the tensor of offsets, which are the first positions of the bags in the ids
            `[N]`. The tensor is an input of the network or an output of the ONNX model of the ids.
            None if ids are `[B, L]` and each row is a bag.
        weights: name of the network's input that contains the weight of each id; None if all
            weights are 1.
    """

    result: str
    ids: str
    tables: tuple[str, ...]
    padding_key: int | None = None
    combiner: str | None = None
    grouped: bool = False
    offsets: str | None = None
    weights: str | None = None


@dataclass(frozen=True)
class ParameterSpec:
    """Name, shape and NumPy dtype of a dense parameter."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class NetworkFile:
    """A network for `OnnxRunner`.

    Attributes:
        model: the manifest's entry `model`, or None. The entry names the builder of the network.
        features: description of the FeaturePipeline that the builder returns together with the
            network, or the reason why the pipeline has no description. None if the builder returns
            no pipeline.
        inputs, outputs: name, shape and dtype of each input and output of the network.
        lookups: lookups that are not part of the model.
        tables: for each table, the arguments of `_native.Table` and the dtype of the keys.
        parameters: dense parameters that are inputs of the model.
        dense, ids: the ONNX models of the dense part and of the ids, as bytes. `ids` is empty if
            all ids are inputs of the network.
        directory: directory that contains the network's files.
    """

    model: dict[str, Any] | None
    features: dict[str, Any] | str | None
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    lookups: tuple[Lookup, ...]
    tables: Mapping[str, tuple[dict[str, Any], str]]
    parameters: tuple[ParameterSpec, ...]
    dense: bytes = field(repr=False)
    ids: bytes = field(repr=False)
    directory: Path = Path()

    def write(self, directory: Path) -> None:
        """Write the files into a new directory.

        Raises:
            OSError: a file cannot be written.
        """
        files = {DENSE: self.dense, **({IDS: self.ids} if self.ids else {})}
        for name, data in files.items():
            (directory / name).write_bytes(data)
        described = {
            "format_version": FORMAT_VERSION,
            "model": self.model,
            "features": self.features,
            "inputs": [str(spec) for spec in self.inputs],
            "outputs": [str(spec) for spec in self.outputs],
            "lookups": [asdict(lookup) for lookup in self.lookups],
            "tables": {
                name: {"arguments": arguments, "key_dtype": key_dtype}
                for name, (arguments, key_dtype) in self.tables.items()
            },
            "parameters": [asdict(each) for each in self.parameters],
            "files": {
                name: {"size": len(data), "crc32c": _native.crc32c(data)}
                for name, data in files.items()
            },
        }
        (directory / DESCRIPTION).write_text(json.dumps(described, indent=1) + "\n")


def write_reason(directory: Path, reason: str) -> None:
    """Write a description that contains the reason why the network could not be written."""
    described = {"format_version": FORMAT_VERSION, "reason": reason}
    (directory / DESCRIPTION).write_text(json.dumps(described) + "\n")


def copy_network(run: Path, target: Path) -> bool:
    """Copy the network of a run or checkpoint, if any, to a directory that has no network.

    Args:
        run: directory of the run or the checkpoint.
        target: directory in which the directory `network` is made. If the copy fails, `target` has
            no `network` afterwards.

    Returns:
        True if the network was copied.
    """
    try:
        shutil.copytree(run / NETWORK, target / NETWORK)
        sync_files(target / NETWORK)
    except (FileNotFoundError, shutil.Error):  # there is none, or it is replaced at this moment
        shutil.rmtree(target / NETWORK, ignore_errors=True)
        return False
    return True


@contextmanager
def new_network(path: Path) -> Iterator[Path]:
    """Yield a new directory, which becomes the network of a run or a checkpoint at the end.

    Until then, and after an error, predictors read the old network.

    Args:
        path: directory of the run or the checkpoint.

    Raises:
        OSError: a file cannot be written.
    """
    made, old = (path / f"{TEMPORARY}{NETWORK}.{new_id()}" for _ in range(2))
    with new_directory(made) as directory:
        yield directory
    with suppress(FileNotFoundError):
        os.rename(path / NETWORK, old)
    os.rename(made, path / NETWORK)
    sync(path)
    shutil.rmtree(old, ignore_errors=True)


def remove_network(path: Path) -> None:
    """Remove the network of a run or a checkpoint. All files of the network disappear together.

    Args:
        path: directory of the run or the checkpoint.
    """
    hidden = path / f"{TEMPORARY}{NETWORK}.{new_id()}"
    with suppress(FileNotFoundError):
        os.rename(path / NETWORK, hidden)
    shutil.rmtree(hidden, ignore_errors=True)


def read_network(directory: Path) -> NetworkFile:
    """Return the network in a directory, after a check of all files.

    Raises:
        FileNotFoundError: there is no network, or a file of the network is missing.
        CheckpointError: a file is damaged, or the network was not written. A CheckpointError is a
            ValueError. The error's text contains the reason.
    """
    path = directory / DESCRIPTION
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing")
    if path.stat().st_size > _MOST_DESCRIPTION:
        raise CheckpointError(f"{path} is damaged: it has {path.stat().st_size} bytes")
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
        reason = described.get("reason")
        version = described.get("format_version")
    except (ValueError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged: {error}") from None
    if version != FORMAT_VERSION:
        raise CheckpointError(
            f"{path} has format version {version!r:.100}, legal: {FORMAT_VERSION}"
        )
    if reason is not None:
        raise CheckpointError(f"the network was not written as ONNX: {reason!s:.1000}")
    try:
        files = described["files"]
        data = {
            name: _read(directory / name, files[name]) for name in (DENSE, IDS) if name in files
        }
        return NetworkFile(
            model=described["model"],
            features=_features(described["features"]),
            inputs=parsed_specs(described["inputs"]),
            outputs=parsed_specs(described["outputs"]),
            lookups=tuple(_lookup(each) for each in described["lookups"]),
            tables={
                str(name): (dict(table["arguments"]), str(table["key_dtype"]))
                for name, table in described["tables"].items()
            },
            parameters=tuple(_parameter(each) for each in described["parameters"]),
            dense=data[DENSE],
            ids=data.get(IDS, b""),
            directory=directory,
        )
    except CheckpointError:
        raise
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} is damaged: {type(error).__name__}: {error}") from None


def _read(path: Path, expected: dict[str, Any]) -> bytes:
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} is missing") from None
    if size != expected["size"] or size > _MOST_MODEL:
        raise CheckpointError(f"{path} is damaged: it has {size} bytes of {expected['size']}")
    data = path.read_bytes()
    if _native.crc32c(data) != expected["crc32c"]:
        raise CheckpointError(f"{path} is damaged: its contents are not those that were saved")
    return data


def _features(features: Any) -> dict[str, Any] | str | None:
    if isinstance(features, bool):  # of earlier versions, which did not describe it
        return "it was exported by an earlier version" if features else None
    if features is None or isinstance(features, (dict, str)):
        return features
    raise ValueError(f"features must be an object, a text or null, got {features!r:.100}")


def _lookup(each: dict[str, Any]) -> Lookup:
    padding = each["padding_key"]
    if padding is not None and type(padding) is not int:
        raise ValueError(f"padding_key must be an integer or null, got {padding!r:.100}")
    if each["combiner"] not in (None, "sum", "mean", "sqrtn"):
        raise ValueError(f"combiner must be sum, mean, sqrtn or null, got {each['combiner']!r:.99}")
    return Lookup(
        str(each["result"]),
        str(each["ids"]),
        tuple(map(str, each["tables"])),
        padding,
        each["combiner"],
        bool(each["grouped"]),
        *(_text_or_none(each.get(name)) for name in ("offsets", "weights")),
    )


def _text_or_none(value: Any) -> str | None:
    return None if value is None else str(value)


def _parameter(each: dict[str, Any]) -> ParameterSpec:
    return ParameterSpec(
        str(each["name"]), tuple(map(int, each["shape"])), str(np.dtype(each["dtype"]))
    )
