# SPDX-License-Identifier: Apache-2.0
"""The directory of a run, in which each command finds the files of earlier commands."""

from __future__ import annotations

import errno
import importlib.util
import shutil
from pathlib import Path

from mindspore_rec._native import FileLock
from mindspore_rec.common.parallel.group import worker_group

__all__ = ["RunFolder"]


class RunFolder:
    """Directory of a run.

    Args:
        yaml_path: path of the YAML file.
        run_dir: value of the option `--run`. Default: None, which means the YAML's path with the
            ending `.run`.

    Attributes:
        path: the directory.

    Example:
        >>> RunFolder(Path("data/clicks.yaml")).model.as_posix()
        'data/clicks.run/model'
    """

    def __init__(self, yaml_path: Path, run_dir: Path | None = None) -> None:
        self._yaml_path = yaml_path
        self.path = yaml_path.with_suffix(".run") if run_dir is None else run_dir
        self._lock: FileLock | None = None

    @property
    def model(self) -> Path:
        """Folder of the trained model that `RecModel.save` writes."""
        return self.path / "model"

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints and deltas that `RecCheckpoint` writes."""
        return self.path / "checkpoints"

    @property
    def first_model(self) -> Path:
        """Folder of the model before the refit on training and validation rows."""
        return self.path / "model_before_refit"

    @property
    def refit_checkpoints(self) -> Path:
        """Folder of the refit's checkpoints."""
        return self.path / "refit_checkpoints"

    @property
    def events(self) -> Path:
        """Folder of TensorBoard's event files."""
        return self.path / "events"

    def events_if_possible(self) -> Path | None:
        """On worker 0, return TensorBoard's directory, if tensorboardX is installed; else None."""
        if importlib.util.find_spec("tensorboardX") is None or worker_group().rank != 0:
            return None
        return self.events

    @property
    def report(self) -> Path:
        """File of the HTML report."""
        return self.path / "report.html"

    @property
    def metrics(self) -> Path:
        """JSON file with the metrics of the training."""
        return self.path / "metrics.json"

    @property
    def training(self) -> Path:
        """JSON file with the steps, the curve and the evaluations of the training."""
        return self.path / "training.json"

    @property
    def settings(self) -> Path:
        """The YAML file of the training, with the changes of the command line."""
        return self.path / "settings.yaml"

    @property
    def study(self) -> Path:
        """Optuna's journal file with the trials of `tune`."""
        return self.path / "tune.journal"

    @property
    def is_online(self) -> Path:
        """File that exists if the source was a topic, so the newest checkpoint is the model."""
        return self.path / "online"

    @property
    def best_settings(self) -> Path:
        """YAML file with the best settings of `tune`, in the folder of the training's YAML."""
        return self._yaml_path.with_suffix(".tuned.yaml")

    def begin(self, resume: bool, overwrite: bool) -> None:
        """Make the directory for a training, and lock it until this process ends.

        Raises:
            ValueError: the directory contains a training, and neither `resume` nor `overwrite` is
                set; `resume` is set, and there is no training; or another process trains in the
                directory.
        """
        if self.path.is_dir():
            self._take_lock()
        if overwrite:
            for path in (
                *(self.model, self.checkpoints, self.events),
                *(self.first_model, self.refit_checkpoints),
            ):
                shutil.rmtree(path, ignore_errors=True)
            for path in (
                *(self.report, self.metrics, self.training),
                *(self.settings, self.is_online),
            ):
                path.unlink(missing_ok=True)
        elif resume:
            if not self.checkpoints.is_dir():
                raise ValueError(f"{self.path} has no training to resume: leave --resume out")
        elif self.checkpoints.is_dir() or self.model.is_dir():
            raise ValueError(
                f"{self.path} has a training: --resume continues it, --overwrite replaces it, "
                "--run names another directory"
            )
        self.path.mkdir(parents=True, exist_ok=True)
        self._take_lock()

    def _take_lock(self) -> None:
        if self._lock is not None:
            return
        try:
            self._lock = FileLock(self.path / "lock")
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            raise ValueError(
                f"another process trains in {self.path}: wait for its end, or use --run for "
                "another directory"
            ) from None

    def trained(self) -> Path:
        """Return the directory of the model, or of the checkpoints if the source is a topic.

        Raises:
            ValueError: there is no trained model.
        """
        if self.model.is_dir():
            return self.model
        if self.is_online.exists():
            return self.checkpoints
        raise ValueError(
            f"{self.path} has no trained model: run `mindspore-rec train` with this YAML first"
        )
