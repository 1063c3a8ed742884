# SPDX-License-Identifier: Apache-2.0
"""`mindspore-rec tune`: search for better settings with Optuna."""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Mapping
from typing import Any

from mindspore_rec.command.continued import SEARCHED, check_unchanged, with_places
from mindspore_rec.command.opened import Parts, open_parts, schema_of
from mindspore_rec.command.options import Result
from mindspore_rec.command.run_folder import RunFolder
from mindspore_rec.command.settings import (
    KafkaSource,
    Settings,
    read_settings,
)
from mindspore_rec.command.text import text_table
from mindspore_rec.command.tune_space import changed, present, suggested, tried_defaults
from mindspore_rec.common.extras import pip_install
from mindspore_rec.train.models.registry import settings as model_settings

__all__ = ["run"]

_METRIC = "auc"
_SETTINGS, _ROWS = "settings", "rows"  # names of the attributes of a study
_DIGEST_ROWS = 1000


def run(options: argparse.Namespace) -> Result:
    """Search until there are enough trials, and write the YAML file of the best settings."""
    try:
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend
    except ImportError as error:
        raise ImportError(f"tune needs Optuna: {pip_install('tune')}") from error
    settings = read_settings(options.yaml).with_train(epochs=options.epochs)
    if isinstance(settings.source, KafkaSource):
        raise ValueError("tune is for files: a topic has no rows to validate with")
    schema = schema_of(settings)
    if len(schema.labels) > 1 or not schema.labels[0].binary:
        raise ValueError("tune is for one label with two values")
    parts = open_parts(settings, schema)
    if parts.valid is None:
        raise ValueError(f"{options.yaml} has no validation rows: set 'split.valid'")
    folder = RunFolder(options.yaml, options.run_dir)
    folder.path.mkdir(parents=True, exist_ok=True)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    if options.overwrite:
        folder.study.unlink(missing_ok=True)
    study = optuna.create_study(
        storage=JournalStorage(JournalFileBackend(str(folder.study))),
        study_name=settings.model.name,
        load_if_exists=True,
        direction="maximize",
        pruner=optuna.pruners.MedianPruner(n_startup_trials=5),
    )
    defaults = tried_defaults(model_settings(settings.model.name), schema)
    finished = optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED
    _check_study(study, options, parts)
    begun = *finished, optuna.trial.TrialState.WAITING
    if not study.get_trials(deepcopy=False, states=begun):
        study.enqueue_trial(present(settings, defaults))
    while (done := len(study.get_trials(deepcopy=False, states=finished))) < options.trials:
        study.sampler = optuna.samplers.TPESampler(seed=options.seed + done)
        trial = study.ask()
        value, pruned = _tried(settings, trial, defaults)
        study.tell(trial, None if pruned else value, state=finished[1] if pruned else finished[0])
        shown = f"{_METRIC} {value:.5f}{', pruned' if pruned else ''}"
        print(f"trial {done + 1} of {options.trials}: {shown}, {trial.params}", file=sys.stderr)
    best = study.best_trial
    places = best.user_attrs["places"]
    if options.epochs is not None:
        places = {**places, "train.epochs": options.epochs}
    folder.best_settings.write_text(with_places(options.yaml, places), encoding="utf-8")
    # The first trial that ended has the values of the YAML file, and is never pruned.
    first = study.get_trials(deepcopy=False, states=finished)[0].value
    print(
        f"Best of {options.trials} trials: validation {_METRIC} {best.value:.5f}; the first, with "
        f"the settings of {options.yaml.name}: {first:.5f}"
    )
    print(text_table(["setting", "value"], [[name, str(each)] for name, each in places.items()]))
    print(f"settings: {folder.best_settings}")
    return Result(
        {"trials": options.trials, _METRIC: best.value, "first": first, "settings": places}
    )


def _check_study(study: Any, options: argparse.Namespace, parts: Parts) -> None:
    """Check that the settings and the rows are those with which the search began.

    A search of an earlier version has no such record, so this call records settings and rows.

    Raises:
        ValueError: a setting or the rows differ.
    """
    remedy = (
        "trials of one search must have the same settings and rows. Begin another search with "
        "--overwrite, or with --run in another directory"
    )
    epochs = {} if options.epochs is None else {"train.epochs": options.epochs}
    settings, rows = with_places(options.yaml, epochs), _digest(parts)
    check_unchanged(study.user_attrs.get(_SETTINGS, settings), settings, SEARCHED, remedy)
    if study.user_attrs.get(_ROWS, rows) != rows:
        raise ValueError(f"the rows of {options.yaml} differ from the rows of the search: {remedy}")
    if _SETTINGS not in study.user_attrs:
        study.set_user_attr(_SETTINGS, settings)
        study.set_user_attr(_ROWS, rows)


def _digest(parts: Parts) -> str:
    """Return a digest of the number of training and validation rows, and of the first rows."""
    digest = hashlib.sha256()
    for rows in (parts.train, parts.valid):
        assert rows is not None  # `run` has checked the validation rows
        digest.update(repr((rows.count(), rows.head(_DIGEST_ROWS).to_pylist())).encode())
    return digest.hexdigest()


def _tried(settings: Settings, trial: Any, defaults: Mapping[str, Any]) -> tuple[float, bool]:
    """Train with the values of a trial; return the best metric, and True if the trial was pruned.

    A trial is one training, without the refit and the linear model of the command `train`.
    """
    from mindspore_rec.command.fitting import Place, close_tables, fit
    from mindspore_rec.train.callbacks.decision import Decision

    places = suggested(trial, settings, defaults)
    trial.set_user_attr("places", places)
    tried = changed(settings, places)
    schema = schema_of(tried)
    values: list[float] = []
    pruned = False

    def is_hopeless(metrics: Mapping[str, float]) -> bool:
        nonlocal pruned
        values.append(metrics[_METRIC])
        trial.report(max(values), len(values))
        pruned = trial.should_prune()
        return pruned

    parts = open_parts(tried, schema)
    decision = Decision(is_hopeless, "pruned")
    fitted = fit(tried, schema, parts, Place(), progress=False, further=[decision])
    close_tables(fitted.model)
    if fitted.summary.interrupted:
        raise KeyboardInterrupt
    return max(values), pruned
