# SPDX-License-Identifier: Apache-2.0
"""The server's command line: its options, and checks of the options before the server listens."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable

from mindspore_rec.common.columns.tensors import parsed_specs
from mindspore_rec.common.network.builder import add_network_arguments, load_function
from mindspore_rec.common.rows.quantise import ROWS
from mindspore_rec.serve.following.announced import brokers_and_topic
from mindspore_rec.serve.following.tiers import add_tier_arguments
from mindspore_rec.serve.protection.options import add_protection_arguments, counted, seconds
from mindspore_rec.serve.server.models import add_model_arguments, parsed_models
from mindspore_rec.serve.shared.supervisor import add_worker_arguments

__all__ = ["command_parser", "declared_models"]


def command_parser() -> argparse.ArgumentParser:
    """Return the parser of `python -m mindspore_rec.serving`.

    Example:
        >>> command_parser().parse_args(["runs/a", "--port", "8000"]).max_batch_rows
        1024
    """
    made = argparse.ArgumentParser(
        prog="python -m mindspore_rec.serving",
        description="Serves the newest state of a run's directory by the Open Inference Protocol "
        "v2, and follows the deltas that come.",
    )
    made.add_argument("path", nargs="?", help="the directory that RecCheckpoint writes")
    made.add_argument("--port", type=int, required=True, help="0: any that is free")
    made.add_argument(
        "--grpc-port", type=int, help="listen for gRPC too, at this port; 0: any that is free"
    )
    made.add_argument(
        "--host",
        default="127.0.0.1",
        help="address or name to listen at; an address with a colon is IPv6, and :: is each IPv6 "
        "address of the machine; default: %(default)s",
    )
    made.add_argument("--name", default="model", help="of the model; default: %(default)s")
    add_model_arguments(made)
    add_network_arguments(made)
    made.add_argument(
        "--features",
        metavar="MODULE:FUNCTION",
        help="makes the FeaturePipeline for requests of raw columns; default: what the network's "
        "function, or the checkpoint's builder, returns beside the network",
    )
    made.add_argument(
        "--rows",
        choices=ROWS,
        default="float32",
        help="how numbers of the tables' rows are kept; default: %(default)s",
    )
    made.add_argument(
        "--poll-seconds",
        type=seconds(low_open=True),
        default=0.1,
        help="between looks; default: %(default)s",
    )
    made.add_argument(
        "--announcements",
        metavar="BROKERS/TOPIC",
        help="Kafka topic of an Announcer: looks when there is news, as well as each poll",
    )
    made.add_argument(
        "--wait-seconds",
        type=seconds(high=1e9),
        default=300.0,
        help="for a first checkpoint; default: %(default)s",
    )
    made.add_argument(
        "--max-age-seconds",
        type=seconds(high=1e9),
        default=0.0,
        metavar="N",
        help="/v2/health/ready says no while the newest state of a model is older; requests are "
        "answered all the same; default: 0, whatever its age",
    )
    made.add_argument(
        "--scrub-seconds",
        type=seconds(high=1e9),
        default=0.0,
        metavar="N",
        help="compare every row with its digest once in N seconds, and log an error for those that "
        "changed by themselves; takes 15 to 23 bytes a row; default: 0, never",
    )
    made.add_argument(
        "--max-batch-rows",
        type=counted(0, 1 << 30),
        default=1024,
        help="rows of requests that go through the network together, and of one request; 0: each "
        "goes alone, for networks whose rows depend on each other; default: %(default)s",
    )
    add_worker_arguments(made)
    add_tier_arguments(made)
    add_protection_arguments(made)
    return made


def declared_models(options: argparse.Namespace) -> list[tuple[str, str]]:
    """Return the names and directories of the models that a command line declares.

    Raises:
        ValueError: the options declare no model, repeat an option of a single model, or have a
            value that the running server could not use.

    Example:
        >>> parser = command_parser()
        >>> declared_models(parser.parse_args(["runs/a", "--port", "0", "--input", "ids"]))
        Traceback (most recent call last):
        ValueError: --input: an input must be name:datatype:shape, as in ids:INT64:-1,26, got 'ids'
    """
    pairs = parsed_models(options.path, options.name, options.model)
    if options.grpc_port is not None and not 0 <= options.grpc_port <= 65535:
        raise ValueError(f"--grpc-port must be in [0, 65535], got {options.grpc_port}")
    if options.grpc_port and options.grpc_port == options.port:
        raise ValueError(f"--grpc-port must be another than --port, {options.port}")
    if options.model and (options.network or options.input or options.features):
        raise ValueError("--network, --input and --features go with PATH, not with --model")
    if options.workers > 1:
        if options.model or options.model_control != "none":
            raise ValueError("--model and --model-control go with one process, not --workers")
        if options.network:
            raise ValueError("--network is for one process: --workers serve networks as ONNX")
        if options.grpc_port == 0:
            raise ValueError("--grpc-port must be a port, not 0, with --workers: they share it")
    _check_inputs(options)
    if options.announcements:
        brokers_and_topic(options.announcements)
    if options.features:
        _check_features(options.features, apart=options.workers > 1)
    return pairs


def _check_inputs(options: argparse.Namespace) -> None:
    if not options.input:
        return
    try:
        parsed_specs(options.input)
    except ValueError as error:
        raise ValueError(f"--input: {error}") from None


def _check_features(name: str, apart: bool) -> None:
    """Check that a function can be imported. If `apart` is True, a forked process does the import.

    The import of a module such as MindSpore may start threads, and workers that are forked later
    would lack these threads.
    """
    error = _in_child(lambda: _features_error(name)) if apart else _features_error(name)
    if error:
        raise ValueError(f"--features: {error}")


def _features_error(name: str) -> str:
    try:
        load_function(name)
    except ValueError as error:
        return str(error)
    except SystemExit as error:
        return f"{name!r} cannot be imported: its module ends the process ({error.code})"
    except Exception as error:  # of the module
        return f"{name!r} cannot be imported: {type(error).__name__}: {error}"
    return ""


_RAN = "ran:"  # start of the output of a child that has run to its end


def _in_child(run: Callable[[], str]) -> str:
    """Run a function in a forked process and return its result."""
    read, write = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        try:
            os.close(read)
            with open(write, "w", encoding="utf-8") as pipe:
                pipe.write(_RAN + run())
        finally:
            os._exit(0)
    os.close(write)
    with open(read, encoding="utf-8") as pipe:
        output = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return f"its module ends the process by signal {os.WTERMSIG(status)}"
    if not output.startswith(_RAN):
        return "its module ends the process"
    return output.removeprefix(_RAN)
