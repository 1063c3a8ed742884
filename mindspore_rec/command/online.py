# SPDX-License-Identifier: Apache-2.0
"""Train on a topic: write deltas for predictors, and evaluate each batch before its step."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import pyarrow as pa

from mindspore_rec.command.fitting import close_tables, new_model
from mindspore_rec.command.json_file import write_json
from mindspore_rec.command.opened import rows_of
from mindspore_rec.command.options import Result
from mindspore_rec.command.run_folder import RunFolder
from mindspore_rec.command.settings import KafkaSettings, Settings
from mindspore_rec.common.columns.schema.schema import Schema
from mindspore_rec.common.data.fitting import fit_to_rows
from mindspore_rec.common.stream.kafka_source import KafkaSource
from mindspore_rec.common.stream.schema_format import schema_format
from mindspore_rec.common.stream.stop import StopWhen
from mindspore_rec.train.callbacks.curves import Curves
from mindspore_rec.train.callbacks.progressive import ProgressiveValidation
from mindspore_rec.train.checkpoint.rec_checkpoint import RecCheckpoint
from mindspore_rec.train.graph.mode import prepare_process
from mindspore_rec.train.loop.schema_training import start_at_labels

__all__ = ["train_online"]


def train_online(
    settings: Settings,
    kafka: KafkaSettings,
    schema: Schema,
    folder: RunFolder,
    options: argparse.Namespace,
) -> Result:
    """Train until Ctrl-C, or until the limit `--max-steps` or `--idle-seconds` is reached.

    Raises:
        ValueError: the topic does not exist; or the columns include numbers, and there are no rows
            from which the scales of the numbers can be computed.
    """
    train = settings.train
    prepare_process(train.seed)
    _fit(settings, kafka, schema)
    model = new_model(settings, schema)
    if kafka.sample is not None:
        start_at_labels(model.predict_network, rows_of(kafka.sample, settings, None))
    stop = None if options.idle_seconds is None else StopWhen(idle_seconds=options.idle_seconds)
    source = KafkaSource(
        kafka.servers,
        kafka.topic,
        format=schema_format(kafka.format, schema, _arrow_types(kafka)),
        batch_size=train.batch_size,
        dead_letters=kafka.dead_letters,
        stop=stop,
    )
    stream = model.batches(source)
    validation = ProgressiveValidation(model)
    curves = Curves(folder.events_if_possible())
    checkpoint = RecCheckpoint(
        folder.checkpoints,
        every_seconds=train.checkpoint_seconds,
        delta_every_seconds=train.delta_seconds,
        states={**model.states, "validation": validation},
        publication=model.publication,
    )
    if options.resume:
        checkpoint.restore(model, stream)
    folder.is_online.touch()
    summary = model.online_train(
        stream, [validation, curves, checkpoint], max_steps=options.max_steps
    )
    figures: dict[str, Any] = {
        "training": {
            **summary.to_json(),
            "curve": curves.points,
            "evaluations": curves.evaluations,
        },
        "run": str(folder.path),
        "progressive": validation.figures() if validation.rows else None,
    }
    write_json(folder.metrics, figures)
    close_tables(model)
    print(f"checkpoints: {folder.checkpoints}\n--resume continues the training", file=sys.stderr)
    return Result(figures)


def _fit(settings: Settings, kafka: KafkaSettings, schema: Schema) -> None:
    """Fit the scales of numbers to the file that the YAML key `source.kafka.sample` names."""
    if kafka.sample is not None:
        fit_to_rows(schema, rows_of(kafka.sample, settings, None))
    elif not schema.is_fitted:
        numbers = ", ".join(schema.numbers)
        raise ValueError(
            f"'source.kafka.sample' must name a file with rows from which the scales of {numbers} "
            "learn; columns with the transform none learn nothing"
        )


def _arrow_types(kafka: KafkaSettings) -> pa.Schema | None:
    """Return the Arrow types of messages; None if the YAML file sets no types."""
    if not kafka.types:
        return None
    fields = []
    for name, text in kafka.types.items():
        try:
            fields.append((name, pa.type_for_alias(text)))
        except ValueError as error:
            raise ValueError(
                f"'source.kafka.types.{name}' must be an Arrow type such as string, int64 or "
                f"float64, got {text!r}"
            ) from error
    return pa.schema(fields)
