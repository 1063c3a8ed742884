# SPDX-License-Identifier: Apache-2.0
"""Serve a run's newest state over HTTP: python -m mindspore_rec.serving PATH --port 8000."""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

os.environ.setdefault("GLOG_v", "3")  # of MindSpore, where it is needed

from mindspore_rec.cache.config import CacheConfig
from mindspore_rec.parameter.quantise import ROWS
from mindspore_rec.serving.following.announced import listen
from mindspore_rec.serving.following.predictor import Predictor
from mindspore_rec.serving.following.tiers import add_tier_arguments, tiers_of
from mindspore_rec.serving.network.builder import add_network_arguments, load_function
from mindspore_rec.serving.network.own_directory import OwnDirectory
from mindspore_rec.serving.protection.metric_files import give_back, reserve
from mindspore_rec.serving.protection.options import add_protection_arguments, counted, seconds
from mindspore_rec.serving.server.held_port import hold_port
from mindspore_rec.serving.server.models import Models, add_model_arguments, parsed_models
from mindspore_rec.serving.shared.supervisor import FATAL, Shared, add_worker_arguments, supervise

if TYPE_CHECKING:
    from mindspore_rec.serving.server.protection import Protection


def _parser() -> argparse.ArgumentParser:
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
    made.add_argument("--host", default="127.0.0.1", help="to listen at; default: %(default)s")
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


def main(arguments: list[str] | None = None) -> int:
    """Serve until a signal ends it; return the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    several = options.workers > 1
    with _counted_together() if several else contextlib.nullcontext():
        extra = "serving"
        try:
            from mindspore_rec.serving.server.http import Front  # noqa: F401
            from mindspore_rec.serving.server.protection import Protection

            try:
                pairs, tiers = _declared(options), tiers_of(options)
            except ValueError as error:
                parser.error(str(error))
            protection = Protection(options)
            if options.grpc_port is not None:
                extra = "grpc"
                from mindspore_rec.serving.server.grpc_front import GrpcServer  # noqa: F401
        except ImportError as error:
            print(f"error: {error}: pip install 'mindspore_rec[{extra}]'", file=sys.stderr)
            return 1
        except (OSError, ValueError) as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        sys.setswitchinterval(0.0005)  # one thread decodes while others answer
        with contextlib.ExitStack() as sockets:
            try:
                listener = _listen(options, sockets)
            except OSError as error:
                print(f"error: {error}", file=sys.stderr)
                return 1
            host, port = listener.getsockname()[:2]
            try:
                warning = protection.check_address(host)
            except ValueError as error:
                print(f"error: {error}", file=sys.stderr)
                return 1
            if warning is not None:
                print(f"warning: {warning}", file=sys.stderr)
            place = f"{protection.scheme}://{host}:{port}"
            print(f"listening at {place}/v2/models/{pairs[0][0]}", flush=True)
            if several:
                _import_ahead()

                def work(shared: Shared, number: int) -> int:
                    return _work(shared, number, protection)

                return supervise(options, listener, work, give_back)
            makers = [
                (name, functools.partial(_predictor, path, options, tiers)) for name, path in pairs
            ]
            return _serve(options, listener, makers, protection)


def _listen(options: argparse.Namespace, sockets: contextlib.ExitStack) -> socket.socket:
    """Return the listening socket; where workers share a port of gRPC, hold that too.

    Raises:
        OSError: one of the ports is not to be had.
    """
    port = options.port
    try:
        listener = sockets.enter_context(socket.create_server((options.host, port), backlog=1024))
        if options.workers > 1 and options.grpc_port is not None:
            port = options.grpc_port
            sockets.enter_context(hold_port(options.host, port))
    except (OSError, OverflowError) as error:  # a port beyond 65535 is the latter
        raise OSError(f"cannot listen at {options.host}:{port}: {error}") from None
    return listener


@contextlib.contextmanager
def _counted_together() -> Iterator[None]:
    """Have processes count in files that all of them read; before prometheus_client is imported."""
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        yield
        return
    with OwnDirectory() as directory:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(directory)
        try:
            yield
        finally:
            del os.environ["PROMETHEUS_MULTIPROC_DIR"]


def _declared(options: argparse.Namespace) -> list[tuple[str, str]]:
    """Return names and directories of the models that a command line declares.

    Raises:
        ValueError: it declares none, or says of several what only one can be.
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
    return pairs


def _predictor(path: str, options: argparse.Namespace, tiers: CacheConfig | None) -> Predictor:
    predictor = Predictor(
        path,
        load_function(options.network) if options.network else None,
        inputs=options.input,
        poll_seconds=options.poll_seconds,
        wait_seconds=options.wait_seconds,
        features=load_function(options.features)() if options.features else None,
        rows=options.rows,
        tiers=tiers,
    )
    if options.announcements:
        try:
            listen(options.announcements, predictor.wake)
        except BaseException:
            predictor.close()
            raise
    return predictor


def _work(shared: Shared, number: int, protection: Protection) -> int:
    """Answer as one of several processes.

    Only the first one listens before it has a state, to say so: once a client had an answer, no
    process says that there is none.
    """
    options = shared.options
    early = number == 0 and not shared.answers
    try:
        reserve()
    except OSError as error:
        print(f"error: {_text(error)}", file=sys.stderr, flush=True)
        return FATAL if early else 1
    wrong: list[Exception] = []

    def make() -> Predictor:
        try:
            from mindspore_rec.serving.shared.predictor import SharedPredictor

            predictor = SharedPredictor(
                Path(options.path),
                shared.copy,
                shared.fd,
                shared.places(number),
                float("inf"),  # the writer has a limit
                load_function(options.features)() if options.features else None,
            )
            while not (early or shared.answers):
                time.sleep(0.01)
            return predictor
        except (ValueError, TypeError, ImportError) as error:  # which the next one would raise, too
            wrong.append(error)
            raise

    code = _serve(
        options, shared.listener, [(options.name, make)], protection, shared.answer, early
    )
    return FATAL if wrong else code


def _import_ahead() -> None:
    """Import what all processes need; ONNX Runtime has threads, which a fork would not take along.

    They share the memory of it, and begin at once.
    """
    import importlib

    for name in ("uvloop", "httptools", "uvicorn.lifespan.on"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for name in ("shared.run", "protocol.request_error", "protocol.rows"):
        importlib.import_module(f"mindspore_rec.serving.{name}")


def _serve(
    options: argparse.Namespace,
    listener: socket.socket,
    makers: Sequence[tuple[str, Callable[[], Predictor]]],
    protection: Protection,
    answers: Callable[[], None] = lambda: None,
    early: bool = True,
) -> int:
    """Answer with models until a signal ends it; return the exit code.

    Args:
        options: of the command.
        listener: the listening socket.
        makers: names of the models, and what makes their predictors.
        protection: what requests pass.
        answers: called when all models answer.
        early: listen before they do.
    """
    from mindspore_rec.serving.server.http import Front

    models = Models(options.max_batch_rows, protection.drain, protection.metrics)
    for name, make in makers:
        models.add(name, make)
    front = Front(models, control=options.model_control == "explicit")
    grpc = None
    if options.grpc_port is not None:
        from mindspore_rec.serving.server.grpc_front import GrpcServer

        grpc = GrpcServer(
            front,
            options.host,
            options.grpc_port,
            reuse_port=options.workers > 1,
            announces=early,
            **protection.grpc_options(),
        )
    failed: list[BaseException] = []

    def load() -> None:
        try:
            for name in dict.fromkeys(models.names):
                models.load(name)
            answers()
            for name in dict.fromkeys(models.names):
                for status in models.statuses(name):
                    print(f"version {status.version} answers by {status.runtime}", flush=True)
        except Exception as error:
            failed.append(error)
            server.should_exit = True

    loading = threading.Thread(target=load, name="load", daemon=True)
    server = protection.server(front.app, grpc, loading.start if early else lambda: None)
    if not early:
        load()
    # It takes these itself while it runs; one that comes before shall not be lost.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, server.handle_exit)
    code = 1
    try:
        if early or not failed:
            server.run(sockets=[listener])
    except OSError as error:  # it cannot listen; nor could this worker if it began again
        failed.append(error)
        code = FATAL if early and options.workers > 1 else 1
    front.close()
    protection.close()
    if failed:
        print(f"error: {_text(failed[0])}", file=sys.stderr)
        return code
    return 0


def _text(error: Any) -> str:
    return f"{type(error).__name__}: {error}"


def _exit(code: int) -> NoReturn:
    """End the process, without the interpreter's own end while a thread still loads a model.

    That one may be amid native code that waits for a tier, where the interpreter would end it.
    """
    if any(each.daemon for each in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    _exit(main())
