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
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

os.environ.setdefault("GLOG_v", "3")  # of MindSpore, if it is needed
os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # it would log what strangers send

from mindspore_rec.common.extras import pip_install
from mindspore_rec.common.network.builder import load_function
from mindspore_rec.common.tiers.config import CacheConfig
from mindspore_rec.serve.command import command_parser, declared_models
from mindspore_rec.serve.following.announced import listen
from mindspore_rec.serve.following.predictor import Predictor
from mindspore_rec.serve.following.tiers import tiers_of
from mindspore_rec.serve.network.own_directory import OwnDirectory
from mindspore_rec.serve.protection.metric_files import give_back, reserve
from mindspore_rec.serve.server.held_port import family_of, hold_port, place_of
from mindspore_rec.serve.server.models import Models
from mindspore_rec.serve.shared.supervisor import FATAL, Shared, supervise

if TYPE_CHECKING:
    from mindspore_rec.serve.server.protection import Protection


class _UsageError(Exception):
    """Error for options with which no server can run."""


@dataclass(frozen=True)
class _Checked:
    """Checked settings from the command line: models, tiers and protection."""

    models: list[tuple[str, str]]  # names and directories
    tiers: CacheConfig | None
    protection: Protection


def main(arguments: list[str] | None = None) -> int:
    """Run the server until a signal stops it; return the exit code."""
    parser = command_parser()
    options = parser.parse_args(arguments)
    counting = _counted_together() if options.workers > 1 else contextlib.nullcontext()
    with counting, contextlib.ExitStack() as sockets:
        try:
            checked = _check(options)
            listener, says = _listen(options, checked, sockets)
        except _UsageError as error:
            parser.error(str(error))
        except (ImportError, OSError, ValueError) as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        return _serve(options, checked, listener, says)


def _check(options: argparse.Namespace) -> _Checked:
    """Check the options; return the models, tiers and protection that the options describe.

    Raises:
        _UsageError: the options are invalid.
        ImportError: a package is missing; the message says how to install it.
        OSError, ValueError: a file in the options cannot be used.
    """
    _import_fronts(options)
    from mindspore_rec.serve.server.protection import Protection

    try:
        models, tiers = declared_models(options), tiers_of(options)
    except ValueError as error:
        raise _UsageError(str(error)) from None
    return _Checked(models, tiers, Protection(options))


def _import_fronts(options: argparse.Namespace) -> None:
    extra = "serving"
    try:
        from mindspore_rec.serve.server.http import Front  # noqa: F401
        from mindspore_rec.serve.server.protection import Protection  # noqa: F401

        if options.grpc_port is not None:
            extra = "grpc"
            from mindspore_rec.serve.server.grpc_front import GrpcServer  # noqa: F401
    except ImportError as error:
        raise ImportError(f"{error}: {pip_install(extra)}") from None


def _listen(
    options: argparse.Namespace, checked: _Checked, sockets: contextlib.ExitStack
) -> tuple[socket.socket, str]:
    """Return the listening socket, and the text that announces the socket's address.

    Raises:
        OSError: a port is not available.
        ValueError: other machines could send requests, and there is neither TLS nor a token.
    """
    listener = _ports(options, sockets)
    host, port = listener.getsockname()[:2]
    warning = checked.protection.check_address(host)
    if warning is not None:
        print(f"warning: {warning}", file=sys.stderr)
    place = f"{checked.protection.scheme}://{place_of(host, port)}"
    return listener, f"listening at {place}/v2/models/{checked.models[0][0]}"


def _serve(
    options: argparse.Namespace, checked: _Checked, listener: socket.socket, says: str
) -> int:
    """Answer requests in this process or in workers until a signal arrives; return the exit
    code.
    """
    sys.setswitchinterval(0.0005)  # one thread decodes while others answer
    if options.workers > 1:
        print(says, flush=True)  # both ports are held
        _import_ahead()

        def work(shared: Shared, number: int) -> int:
            return _work(shared, number, checked.protection)

        return supervise(options, listener, work, give_back)
    makers = [
        (name, functools.partial(_predictor, path, options, checked.tiers))
        for name, path in checked.models
    ]
    return _answer(options, listener, makers, checked.protection, says=says)


def _ports(options: argparse.Namespace, sockets: contextlib.ExitStack) -> socket.socket:
    """Return the listening socket; if workers share a gRPC port, reserve that port too.

    Raises:
        OSError: one of the ports is not available.
    """
    port = options.port
    family = family_of(options.host)
    try:
        listener = sockets.enter_context(
            socket.create_server((options.host, port), family=family, backlog=1024)
        )
        if options.workers > 1 and options.grpc_port is not None:
            port = options.grpc_port
            sockets.enter_context(hold_port(options.host, port))
    except (OSError, OverflowError) as error:  # a port beyond 65535 is the latter
        raise OSError(f"cannot listen at {place_of(options.host, port)}: {error}") from None
    return listener


@contextlib.contextmanager
def _counted_together() -> Iterator[None]:
    """Let all processes write counts to one directory; call before importing prometheus_client."""
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        yield
        return
    with OwnDirectory() as directory:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(directory)
        try:
            yield
        finally:
            del os.environ["PROMETHEUS_MULTIPROC_DIR"]


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
        scrub_seconds=options.scrub_seconds,
    )
    if options.announcements:
        try:
            listen(options.announcements, predictor.wake)
        except BaseException:
            predictor.close()
            raise
    return predictor


def _work(shared: Shared, number: int, protection: Protection) -> int:
    """Answer requests in one of several processes.

    Before a checkpoint is loaded, only the first process listens, and tells clients that the model
    is not ready. After the first prediction, no process may tell clients that the model is not
    ready.
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
            from mindspore_rec.serve.shared.reader import shared_predictor

            predictor = shared_predictor(
                Path(options.path),
                shared.copy,
                shared.fd,
                shared.places(number),
                float("inf"),  # the writer has a limit
                load_function(options.features)() if options.features else None,
                shared.pulse,
                options.poll_seconds,
            )
            while not (early or shared.answers):
                time.sleep(0.01)
            return predictor
        except (ValueError, TypeError, ImportError) as error:  # which the next one would raise, too
            wrong.append(error)
            raise

    code = _answer(
        options, shared.listener, [(options.name, make)], protection, shared.answer, early
    )
    return FATAL if wrong else code


def _import_ahead() -> None:
    """Import the modules of all processes, except ONNX Runtime, because a fork would lose its
    threads.

    Forked processes share the memory of the imported modules, and start faster than new processes.
    """
    import importlib

    for name in ("uvloop", "httptools", "uvicorn.lifespan.on"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    import mindspore_rec.serve.protocol.request_error
    import mindspore_rec.serve.protocol.rows
    import mindspore_rec.serve.shared.writer  # noqa: F401


def _answer(
    options: argparse.Namespace,
    listener: socket.socket,
    makers: Sequence[tuple[str, Callable[[], Predictor]]],
    protection: Protection,
    answers: Callable[[], None] = lambda: None,
    early: bool = True,
    says: str | None = None,
) -> int:
    """Answer requests with models until a signal arrives; return the exit code.

    Args:
        options: parsed options of the command line.
        listener: the listening socket.
        makers: names of the models, and functions that make their predictors.
        protection: the checks that each request must pass.
        answers: function that is called when all models can answer.
        early: whether to listen before the models can answer.
        says: line that is printed when the server listens. Default: none.
    """
    from mindspore_rec.serve.server.http import Front

    models = Models(
        options.max_batch_rows, protection.drain, protection.metrics, options.max_age_seconds
    )
    for name, make in makers:
        models.add(name, make)
    front = Front(models, control=options.model_control == "explicit", security=protection.security)
    grpc = None
    if options.grpc_port is not None:
        from mindspore_rec.serve.server.grpc_front import GrpcServer

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
    server = protection.server(front.app, grpc, loading.start if early else lambda: None, says)
    if not early:
        load()
    # uvicorn handles SIGTERM and SIGINT only while the server runs; an earlier signal must not be
    # lost.
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
    """End the process; skip the interpreter's shutdown if a daemon thread still runs.

    A daemon thread that loads a model may be waiting for a tier in native code. The interpreter's
    shutdown would end a daemon thread in the middle of native code.
    """
    if any(each.daemon for each in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def run(arguments: list[str] | None = None) -> NoReturn:
    """Run the command in this process, then end the process.

    Args:
        arguments: command-line arguments. Default: the command-line arguments of the process.
    """
    _exit(main(arguments))
