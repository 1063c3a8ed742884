# SPDX-License-Identifier: Apache-2.0
"""`mindspore-rec train`: train and save a model, compare it with baselines, write the report."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mindspore_rec.command.continued import RESUMED, check_unchanged, with_places
from mindspore_rec.command.evaluation import (
    Table,
    metric_table,
    score,
    tables_of_scores,
    task_figures,
)
from mindspore_rec.command.json_file import read_json, write_json
from mindspore_rec.command.leaking import leak_warnings
from mindspore_rec.command.opened import Parts, open_for_refit, open_parts, schema_of
from mindspore_rec.command.options import Result
from mindspore_rec.command.report import Report, write_report
from mindspore_rec.command.run_folder import RunFolder
from mindspore_rec.command.settings import (
    KafkaSource,
    ModelSettings,
    Settings,
    TrainSettings,
    read_settings,
)
from mindspore_rec.command.text import text_table
from mindspore_rec.common.columns.schema.schema import Schema
from mindspore_rec.common.data.label_levels import label_levels
from mindspore_rec.common.data.rows import Rows
from mindspore_rec.common.parallel.group import worker_group

if TYPE_CHECKING:
    from mindspore_rec.command.fitting import Fitted

__all__ = ["run"]

_LINEAR = "logistic_regression"
_LINEAR_STEPS = 1_000  # in which a weight can reach any usual value
_MOST_LINEAR_EPOCHS = 30
_WORKER = "MINDSPORE_REC_COMMAND_WORKER"


def run(options: argparse.Namespace) -> Result:
    """Run the command `mindspore-rec train`."""
    settings = _changed(read_settings(options.yaml), options)
    schema = schema_of(settings)
    folder = RunFolder(options.yaml, options.run_dir)
    is_worker = _WORKER in os.environ
    if isinstance(settings.source, KafkaSource):
        _check_topic(settings.train)
    if not is_worker:
        _check_model(settings, schema)
        folder.begin(options.resume, options.overwrite)
        _write_settings(folder, settings, options)
    if isinstance(settings.source, KafkaSource):
        from mindspore_rec.command.online import train_online

        return train_online(settings, settings.source.kafka, schema, folder, options)
    if settings.train.workers > 1 and not is_worker:
        code = _launch(settings.train.workers, options)
        if code:
            return Result(code=code)
        training = read_json(folder.training)
    else:
        training = _train(settings, schema, folder, options)
        if is_worker:
            return Result()
    if training["interrupted"]:
        print("interrupted: --resume continues the training", file=sys.stderr)
        return Result(training, code=130)
    return Result(_finish(settings, schema, folder, options, training))


def _changed(settings: Settings, options: argparse.Namespace) -> Settings:
    """Return the settings with the changes of the command line."""
    if options.model is not None and options.model != settings.model.name:
        settings = dataclasses.replace(settings, model=ModelSettings(options.model))
    return settings.with_train(epochs=options.epochs, workers=options.workers, seed=options.seed)


def _write_settings(folder: RunFolder, settings: Settings, options: argparse.Namespace) -> None:
    """Write the settings of the training: the YAML file with the changes of the command line.

    Raises:
        ValueError: the training is resumed, and a setting differs that must not change.
    """
    names = [name for name in ("epochs", "workers", "seed") if getattr(options, name) is not None]
    places: dict[str, Any] = {f"train.{name}": getattr(options, name) for name in names}
    if options.model is not None:
        places["model"] = {"name": options.model, **settings.model.settings}
    text = with_places(options.yaml, places)
    if options.resume and folder.settings.is_file():
        check_unchanged(
            folder.settings.read_text(encoding="utf-8"),
            text,
            RESUMED,
            f"--resume continues the training of {folder.settings}, so set the earlier values, or "
            "begin another training with --overwrite, or with --run in another directory",
        )
    folder.settings.write_text(text, encoding="utf-8")


def _check_topic(train: TrainSettings) -> None:
    """Check that all settings of the YAML file apply to a topic."""
    if train.workers > 1:
        raise ValueError("'train.workers' must be 1 for a topic")
    if names := train.only_for_files:
        keys = ", ".join(f"'train.{name}'" for name in names)
        raise ValueError(f"leave out {keys}, for files only: the source is a topic")


def _check_model(settings: Settings, schema: Schema) -> None:
    """Check the network and its settings before the directory is made and workers start."""
    from mindspore_rec.command.fitting import close_tables, new_model

    close_tables(new_model(settings, schema))


def _launch(workers: int, options: argparse.Namespace) -> int:
    """Train on several workers, which run this command again; return the exit code."""
    from mindspore_rec.common.launch.job import run as run_job
    from mindspore_rec.common.launch.mpirun import Job

    program = ["-m", "mindspore_rec", "train", str(options.yaml), "--workers", str(workers)]
    for name in ("model", "epochs", "seed", "max_steps"):
        value = getattr(options, name)
        if value is not None:
            program += [f"--{name.replace('_', '-')}", str(value)]
    if options.run_dir is not None:
        program += ["--run", str(options.run_dir)]
    if options.resume:
        program.append("--resume")
    if options.traceback:
        program.append("--traceback")
    os.environ[_WORKER] = "1"
    try:
        return run_job(Job(workers, tuple(program))).code
    finally:
        del os.environ[_WORKER]


def _train(
    settings: Settings, schema: Schema, folder: RunFolder, options: argparse.Namespace
) -> dict[str, Any]:
    """Train and save the model; return the figures of the training as JSON values."""
    from mindspore_rec.command.fitting import Place, close_tables, fit

    parts = open_parts(settings, schema)
    both = open_for_refit(settings, schema) if settings.train.refit else None
    _check_labels(schema, parts)
    if worker_group().rank == 0 and not options.resume:
        for warning in leak_warnings(schema, parts.whole_train):
            print(f"warning: {warning}", file=sys.stderr)
    place = Place(folder.checkpoints, folder.events_if_possible(), options.resume)
    fitted = fit(settings, schema, parts, place, options.max_steps)
    summary = fitted.summary
    report = parts.train.report()
    if report.bad:
        print(f"training rows: {report}", file=sys.stderr)
    if not summary.interrupted:
        path = folder.model if both is None else folder.first_model
        fitted.model.save(path, overwrite=True)
    training = {
        **summary.to_json(),
        "steps": fitted.curves.steps,  # over restarts
        "samples": fitted.curves.samples,
        "curve": fitted.curves.points,
        "evaluations": fitted.curves.evaluations,
    }
    close_tables(fitted.model)
    if both is not None and not summary.interrupted:
        training["refit"] = _refit(settings, schema, both, folder, fitted, options.resume)
        training["interrupted"] = training["refit"]["interrupted"]
    if worker_group().rank == 0:
        write_json(folder.training, training)
    return training


def _refit(
    settings: Settings, schema: Schema, rows: Rows, folder: RunFolder, fitted: Fitted, resume: bool
) -> dict[str, Any]:
    """Train on training and validation rows, and save; return the figures as JSON values."""
    from mindspore_rec.command.fitting import Place, close_tables
    from mindspore_rec.command.refitting import refit

    print("training on training and validation rows", file=sys.stderr)
    place = Place(folder.refit_checkpoints, None, resume)
    refitted = refit(settings, schema, rows, place, fitted)
    if not refitted.summary.interrupted:
        refitted.model.save(folder.model, overwrite=True)
    figures = {
        **refitted.summary.to_json(),
        "steps": refitted.curves.steps,
        "samples": refitted.curves.samples,
        "curve": refitted.curves.points,
        "path": fitted.path,
    }
    close_tables(refitted.model)
    return figures


def _check_labels(schema: Schema, parts: Parts) -> None:
    """Check that the training rows contain both values of each binary label.

    Raises:
        ValueError: a label has only one value.
    """
    ones = [label.name for label in schema.labels if label.binary]
    zeros = set(ones)
    for batch in parts.whole_train:
        if batch.num_rows:
            labels = dict(zip(schema.tasks, schema.labels_of(batch).T, strict=True))
            ones = [name for name in ones if not (labels[name] > 0).any()]
            zeros = {name for name in zeros if not (labels[name] == 0).any()}
        if not ones and not zeros:
            return
    name, value = (ones[0], 0) if ones else (zeros.pop(), 1)
    raise ValueError(
        f"label {name!r} is {value} in all training rows, so there is nothing to learn: "
        "choose another label or other rows"
    )


def _finish(
    settings: Settings,
    schema: Schema,
    folder: RunFolder,
    options: argparse.Namespace,
    training: dict[str, Any],
) -> dict[str, Any]:
    """Evaluate the saved model and the baselines, and write the report and the metrics."""
    from mindspore_rec.command.trained import loaded

    parts = open_parts(settings, schema)
    first = _figures_before_refit(settings, schema, folder, parts)
    model = loaded(folder)
    figures: dict[str, Any] = {"training": training, "run": str(folder.path), "test": None}
    tables: dict[str, Table] = {}
    if parts.test is not None:
        predict = model.predict_after(parts.valid, parts.test)
        scored = score(predict, model.schema, parts.test)
        of_models = {settings.model.name: task_figures(schema, scored)}
        if first is not None:
            of_models[f"{settings.model.name} before the refit"] = first
        if options.no_baseline:
            pass
        elif schema.histories:
            print("no linear model to compare: it does not read histories", file=sys.stderr)
        elif settings.model.name != _LINEAR and len(schema.labels) == 1:
            kind = "logistic" if schema.labels[0].binary else "linear"
            of_models[f"{kind} regression"] = _linear_figures(settings, schema, parts)
        levels = label_levels(schema, parts.whole_train)
        assert levels is not None
        of_models["base rate"] = task_figures(schema, scored.constant(levels.means))
        heading = f"Test rows: {len(scored.label):,}"
        tables = {heading: metric_table(of_models), **tables_of_scores(schema, scored)}
        print(f"{heading}\n{text_table(*tables[heading])}")
        figures["test"] = {"rows": len(scored.label), "metrics": of_models}
        for sentence in _worse_than_base_rate(
            of_models[settings.model.name], of_models["base rate"]
        ):
            print(sentence)
    write_json(folder.metrics, figures)
    seconds = training["seconds"]
    summary = (
        f"{training['steps']:,} steps, {training['samples']:,} rows and "
        f"{training['epochs']} epochs in {seconds:.1f} s. {training['stop_reason']}"
    )
    if "refit" in training:
        summary += f" {_refit_summary(training['refit'])}"
    page = Report(
        f"{settings.model.name} on {options.yaml.stem}",
        summary.strip(),
        tables,
        _curves(training),
        folder.settings.read_text(encoding="utf-8"),
    )
    write_report(folder.report, page)
    print(f"model: {folder.model}\nreport: {folder.report}")
    return figures


def _worse_than_base_rate(
    figures: Mapping[str, Mapping[str, float]], of_rate: Mapping[str, Mapping[str, float]]
) -> list[str]:
    """Return a sentence for each label whose predictions are worse than the label's mean.

    Example:
        >>> _worse_than_base_rate({"y": {"log_loss": 0.5}}, {"y": {"log_loss": 0.4}})
        ["label 'y': log_loss 0.5 is worse than 0.4 of the label's mean as prediction: more rows, or
        early_stopping: {metric: log_loss}, may help"]
    """
    made = []
    for label, metrics in figures.items():
        name = "log_loss" if "log_loss" in metrics else "rmse"
        value, mean = metrics.get(name), of_rate[label].get(name)
        if value is not None and mean is not None and value > mean:
            made.append(
                f"label {label!r}: {name} {value:.4g} is worse than {mean:.4g} of the label's mean "
                f"as prediction: more rows, or early_stopping: {{metric: {name}}}, may help"
            )
    return made


def _figures_before_refit(
    settings: Settings, schema: Schema, folder: RunFolder, parts: Parts
) -> dict[str, Any] | None:
    """Return the test metrics of the model before the refit; None if there was no refit."""
    from mindspore_rec.command.trained import Trained

    if not settings.train.refit or parts.test is None:
        return None
    model = Trained(folder.first_model)
    predict = model.predict_after(parts.valid, parts.test)
    return task_figures(schema, score(predict, model.schema, parts.test))


def _refit_summary(figures: dict[str, Any]) -> str:
    return (
        f"Then a refit on training and validation rows: {figures['steps']:,} steps and "
        f"{figures['samples']:,} rows in {figures['seconds']:.1f} s."
    )


def _linear_figures(settings: Settings, schema: Schema, parts: Parts) -> dict[str, Any]:
    """Train a linear model (up to 30 epochs if an epoch has few steps); return test metrics."""
    from mindspore_rec.command.fitting import Place, close_tables, fit
    from mindspore_rec.train.models.logistic_regression import LogisticRegression

    print("training a linear model to compare", file=sys.stderr)
    steps = -(-parts.train.count() // settings.train.batch_size)
    epochs = max(settings.train.epochs, min(_MOST_LINEAR_EPOCHS, -(-_LINEAR_STEPS // steps)))
    train = dataclasses.replace(
        settings.train,
        epochs=epochs,
        learning_rate=LogisticRegression.default_learning_rate,
        table_rate=1.0,
        schedule="constant",
        ema=None,
    )
    linear = dataclasses.replace(settings, model=ModelSettings(_LINEAR), train=train)
    fitted = fit(linear, schema, parts, Place(), progress=False)
    if fitted.summary.interrupted:  # the trained model is saved, and `--resume` writes the report
        raise KeyboardInterrupt
    assert parts.test is not None
    figures = task_figures(schema, score(fitted.model.predict, schema, parts.test))
    close_tables(fitted.model)
    return figures


def _curves(training: dict[str, Any]) -> dict[str, Any]:
    """Return a dict from the headings of the report's pictures to the curves in the pictures."""
    curves: dict[str, Any] = {
        "loss": {"training": [(step, loss) for step, loss, _ in training["curve"]]}
    }
    for step, metrics in training["evaluations"]:
        for name, value in metrics.items():
            curves.setdefault(name, {}).setdefault("validation", []).append((step, value))
    speed = [(step, each) for step, _, each in training["curve"]]
    return {**curves, "samples per second": {"training": speed}}
