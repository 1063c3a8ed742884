# SPDX-License-Identifier: Apache-2.0
"""Open the network of a run: by ONNX Runtime if the run has an ONNX file, by MindSpore if not."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from mindspore_rec.common.columns.description import described_pipeline
from mindspore_rec.common.columns.feature_pipeline import FeaturePipeline
from mindspore_rec.common.columns.tensors import TensorSpec, parsed_specs
from mindspore_rec.common.network.builder import NoBuilderError
from mindspore_rec.common.network.runner import Runner
from mindspore_rec.common.run.chain import Entry
from mindspore_rec.common.run.network_file import NETWORK, NetworkFile, read_network

__all__ = ["NetworkOpener", "NotYetError", "features_of"]


# The runner for networks that ONNX cannot express is in the training package, which an installation
# for serving lacks. The entry point is defined in this file, not in the package's metadata, because
# a clone that is not installed has no metadata.
_BY_MINDSPORE = EntryPoint(
    name="mindspore",
    value="mindspore_rec.train.export.opening:open_by_mindspore",
    group="mindspore_rec.runners",
)


class NotYetError(Exception):
    """Error: the run has no network file yet, and MindSpore is not installed. Try again later."""


class NetworkOpener:
    """Opens the network of a run, and makes the `Runner` of the run.

    Args:
        path: directory of the run, or of a single checkpoint.
        network, inputs, features: see `Predictor`.

    Attributes:
        reason: reason why MindSpore runs the network; None with ONNX Runtime.
    """

    def __init__(
        self,
        path: Path,
        network: Any,
        inputs: Sequence[TensorSpec | str] | None,
        features: FeaturePipeline | None,
    ) -> None:
        self._path = path
        self._network = network
        self._inputs = inputs
        self._features = features
        self.reason: str | None = None

    def open(self, entry: Entry) -> Runner:
        """Make the network, without loading values.

        Args:
            entry: checkpoint that the network will load.

        Raises:
            NotYetError: MindSpore is not installed, and the network has no file yet.
            TypeError, ValueError: an argument is invalid; or the network needs MindSpore, which is
                not installed.
        """
        missing = False
        if self._network is not None:
            self.reason = "network= was given"
        else:
            try:
                return self._by_file(entry)
            except FileNotFoundError as error:
                self.reason, missing = str(error), True
            except (ValueError, ImportError) as error:
                self.reason = str(error)
        return self._by_mindspore(entry, missing)

    def _by_file(self, entry: Entry) -> Runner:
        network = self.read(entry)
        from mindspore_rec.common.network.onnx_runner import OnnxRunner

        return OnnxRunner(network, features=features_of(network, self._features))

    def read(self, entry: Entry) -> NetworkFile:
        """Return the network file of the run.

        Args:
            entry: see `open`.

        Raises:
            FileNotFoundError: there is no network file.
            ValueError: the file is damaged, or does not fit the checkpoint or the arguments.
        """
        network = read_network(self._path / NETWORK)
        model = entry.manifest["model"]
        if model is not None and network.model != model:
            raise ValueError(f"{network.directory} is of another builder than {entry.path}")
        if isinstance(network.features, str) and self._features is None:
            raise ValueError(
                f"the builder of {network.directory} returns features, too, which are not in it "
                f"({network.features}): give features="
            )
        if self._inputs is not None and parsed_specs(self._inputs) != network.inputs:
            raise ValueError(f"{network.directory} takes {network.inputs}, inputs= says otherwise")
        return network

    def _by_mindspore(self, entry: Entry, missing: bool) -> Runner:
        # A program that has already imported MindSpore may have set MindSpore's mode.
        choose_mode = "mindspore" not in sys.modules
        try:
            open_network = _BY_MINDSPORE.load()
        except ImportError as error:
            if missing:
                raise NotYetError(self.reason) from error
            raise ValueError(f"{self.reason}; and MindSpore cannot be imported: {error}") from error
        try:
            runner: Runner = open_network(entry, self._network, self._inputs, choose_mode)
            return runner
        except NoBuilderError as error:
            raise ValueError(f"{error}; {self.reason}") from error


def features_of(network: NetworkFile, given: FeaturePipeline | None) -> FeaturePipeline | None:
    """Return `given`. If `given` is None, return the pipeline in the network's file, or None if the
    file has no pipeline.
    """
    if given is None and isinstance(network.features, dict):
        return described_pipeline(network.features)
    return given
