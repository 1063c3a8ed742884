# SPDX-License-Identifier: Apache-2.0
"""Options of each command."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Result", "add_commands"]


@dataclass(frozen=True)
class Result:
    """Result of a command.

    Attributes:
        figures: JSON values, which `--json` writes.
        code: exit code. Default: 0.
    """

    figures: dict[str, Any] = field(default_factory=dict)
    code: int = 0


def add_commands(parser: argparse.ArgumentParser) -> None:
    """Add a parser for each command."""
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for add in (
        _add_init,
        _add_train,
        _add_eval,
        _add_predict,
        _add_explain,
        _add_tune,
        _add_serve,
        _add_doctor,
    ):
        add(commands)


def _added(
    commands: Any, name: str, module: str, about: str, example: str, further: bool = False
) -> argparse.ArgumentParser:
    """Return the parser of a new command, with the options of every command.

    Args:
        commands: what `add_subparsers` returned.
        name: name of the command.
        module: name of a module in this folder. The command imports the module and calls the
            module's function `run`.
        about: description of the command, for `--help`.
        example: an example of a command line, for `--help`.
        further: True if the command accepts options that its parser does not know.
    """
    made: argparse.ArgumentParser = commands.add_parser(
        name,
        help=about.partition(". ")[0].rstrip("."),
        description=about,
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument("--json", type=Path, metavar="PATH", help="write the result to PATH as JSON")
    made.add_argument(
        "--traceback", action="store_true", help="show where in the program an error was raised"
    )
    made.set_defaults(run=_runner(module), takes_further=further, command=name)
    return made


def _runner(module: str) -> Callable[[argparse.Namespace], Result | None]:
    def run(options: argparse.Namespace) -> Result | None:
        name = f"mindspore_rec.command.{module}"
        try:
            command = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
            raise ImportError(
                "this wheel only serves: install mindspore_rec in place of mindspore_rec_serving"
            ) from None
        result: Result | None = command.run(options)
        return result

    return run


class _Joined(argparse.Action):
    """Join the values of a repeated option with commas."""

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        """Append the option's value to the values of earlier occurrences."""
        earlier = getattr(namespace, self.dest, None)
        setattr(namespace, self.dest, f"{earlier},{values}" if earlier else values)


def _add_yaml(made: argparse.ArgumentParser) -> None:
    made.add_argument("yaml", type=Path, help="the YAML file")
    made.add_argument(
        "--run",
        dest="run_dir",
        type=Path,
        metavar="DIR",
        help="directory of the run; default: NAME.run beside NAME.yaml",
    )


def _add_init(commands: Any) -> None:
    made = _added(
        commands,
        "init",
        "init",
        "Look at a table and print a YAML file with a proposed description of its columns.",
        "mindspore-rec init clicks.parquet --label clicked --time ts > clicks.yaml",
    )
    made.add_argument("source", nargs="?", help="path, glob, folder or URL of the table")
    made.add_argument(
        "--label", action=_Joined, help="column to predict; several labels with commas between them"
    )
    made.add_argument("--positive", metavar="VALUE", help="value of the label that counts as 1")
    made.add_argument("--number", action="store_true", help="predict the label as a number")
    made.add_argument("--time", help="column with the time of the event")
    made.add_argument("--group", help="column of groups, such as users, for metrics by group")
    made.add_argument("--weight", help="column with the weight of each row")
    made.add_argument(
        "--split",
        choices=("time", "random"),
        help="how rows are divided; default: by time if there is a time",
    )
    made.add_argument(
        "--ignore", action=_Joined, default="", help="columns to ignore, with commas between them"
    )
    made.add_argument("--encoding", help="encoding of CSV; default: utf-8")
    made.add_argument("--separator", help="character between values of CSV; default: the likeliest")
    made.add_argument("--decimal", help="decimal point of CSV; default: .")
    made.add_argument(
        "--text",
        action=_Joined,
        default="",
        metavar="A,B",
        help="columns of CSV to read as texts, as for 01234",
    )
    made.add_argument(
        "--bad-rows",
        type=float,
        metavar="SHARE",
        help="largest share of rows that may be unreadable, and are left out; default: 0",
    )
    made.add_argument(
        "--rows", type=_least_one, default=100_000, help="rows to look at; default: %(default)s"
    )
    made.add_argument(
        "--json-schema",
        action="store_true",
        help="print the JSON Schema of the YAML file, with which editors complete keys",
    )


def _add_train(commands: Any) -> None:
    made = _added(
        commands,
        "train",
        "train",
        "Train a model. The run directory gets the model, a report page, metrics and events for "
        "TensorBoard. If the source is a topic, train online until Ctrl-C.",
        "mindspore-rec train clicks.yaml --model deepfm --epochs 2",
    )
    _add_yaml(made)
    made.add_argument(
        "--model", metavar="NAME", help="network with its default settings, instead of the YAML's"
    )
    made.add_argument("--epochs", type=_least_one, help="passes, instead of the YAML's")
    made.add_argument("--workers", type=_least_one, help="processes, instead of the YAML's")
    made.add_argument("--seed", type=int, help="seed, instead of the YAML's")
    made.add_argument("--max-steps", type=_least_one, metavar="N", help="end after N steps")
    made.add_argument(
        "--idle-seconds",
        type=float,
        metavar="S",
        help="end if the topic has had no new row for S seconds; default: train until Ctrl-C",
    )
    earlier = made.add_mutually_exclusive_group()
    earlier.add_argument(
        "--resume", action="store_true", help="continue a training that was interrupted"
    )
    earlier.add_argument("--overwrite", action="store_true", help="replace an earlier training")
    made.add_argument(
        "--no-baseline", action="store_true", help="do not train a linear model to compare"
    )


def _add_eval(commands: Any) -> None:
    made = _added(
        commands,
        "eval",
        "evaluate",
        "Compute the metrics of the trained model, also by group, and a calibration table.",
        "mindspore-rec eval clicks.yaml",
    )
    _add_yaml(made)
    made.add_argument(
        "rows", nargs="?", help="other rows with labels; default: the test rows of the YAML"
    )


def _add_predict(commands: Any) -> None:
    made = _added(
        commands,
        "predict",
        "predict",
        "Predict rows of any number, and write the predictions beside label, time and group.",
        "mindspore-rec predict clicks.yaml new.parquet -o scores.parquet --keep user,item",
    )
    _add_yaml(made)
    made.add_argument("rows", help="path, glob, folder or URL of the rows; no label is needed")
    made.add_argument(
        "-o", "--output", type=Path, required=True, metavar="PATH", help="a .parquet or .csv file"
    )
    made.add_argument("--keep", metavar="A,B", help="columns beside the predictions")


def _add_explain(commands: Any) -> None:
    made = _added(
        commands,
        "explain",
        "explain",
        "Show what the model reads: importance of columns by permutation, and surprising rows.",
        "mindspore-rec explain clicks.yaml --nearest item=sofa-2",
    )
    _add_yaml(made)
    made.add_argument(
        "--rows",
        type=_least_one,
        default=20_000,
        help="number of test rows to read; with --nearest, ten times as many training rows are "
        "read; default: %(default)s",
    )
    made.add_argument(
        "--nearest", metavar="COLUMN=ID", help="show the ids whose rows are nearest to an id's row"
    )
    made.add_argument("--seed", type=int, default=0, help="of the sample; default: %(default)s")


def _add_tune(commands: Any) -> None:
    made = _added(
        commands,
        "tune",
        "tune",
        "Search for better settings by Optuna. A second call continues the search.",
        "mindspore-rec tune clicks.yaml --trials 30",
    )
    _add_yaml(made)
    made.add_argument(
        "--trials", type=_least_one, default=30, help="trials in all; default: %(default)s"
    )
    made.add_argument("--epochs", type=_least_one, help="passes of a trial, instead of the YAML's")
    made.add_argument("--seed", type=int, default=0, help="of the search; default: %(default)s")
    made.add_argument("--overwrite", action="store_true", help="replace an earlier search")


def _add_serve(commands: Any) -> None:
    made = _added(
        commands,
        "serve",
        "serve",
        "Answer requests of raw columns with probabilities. All options of "
        "`python -m mindspore_rec.serving --help` can be added.",
        "mindspore-rec serve clicks.yaml --port 8000",
        further=True,
    )
    _add_yaml(made)
    made.add_argument("--port", type=int, required=True, help="0: any that is free")


def _add_doctor(commands: Any) -> None:
    made = _added(
        commands,
        "doctor",
        "doctor.run",
        "Show what this machine has, what is used, and what to do about the rest. The exit code is "
        "1 if the native core, MindSpore or a required package cannot be used.",
        "mindspore-rec doctor --directory /mnt/ssd --kafka localhost:9092",
    )
    made.add_argument(
        "--directory", default=".", help="folder whose disk is measured; default: the present one"
    )
    made.add_argument("--kafka", metavar="HOST:PORT", help="address of a Kafka broker to ask")
    made.add_argument("--only", metavar="A,B", help="items to look at; default: all")
    made.add_argument(
        "--seconds",
        type=_least_one,
        default=0,
        help="how long each item may take, on a slow machine; default: the limit of each item",
    )


def _least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a number of at least 1, got {text!r}")
    return int(text)
