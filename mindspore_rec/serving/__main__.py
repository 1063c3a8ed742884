# SPDX-License-Identifier: Apache-2.0
"""Serve a run's newest state over HTTP: python -m mindspore_rec.serving PATH --port 8000."""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import threading
from typing import Any

os.environ.setdefault("GLOG_v", "3")

import mindspore as ms

from mindspore_rec.serving.builder import load_function
from mindspore_rec.serving.predictor import Predictor


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m mindspore_rec.serving",
        description="Serves the newest state of a run's directory by the Open Inference Protocol "
        "v2, and follows the deltas that come.",
    )
    made.add_argument("path", help="the directory that RecCheckpoint writes")
    made.add_argument("--port", type=int, required=True, help="0: any that is free")
    made.add_argument("--host", default="127.0.0.1", help="to listen at; default: %(default)s")
    made.add_argument("--name", default="model", help="of the model; default: %(default)s")
    made.add_argument(
        "--network",
        metavar="MODULE:FUNCTION",
        help="makes the network; default: the builder that the checkpoint names",
    )
    made.add_argument(
        "--features",
        metavar="MODULE:FUNCTION",
        help="makes the FeaturePipeline for requests of raw columns; default: what the network's "
        "function, or the checkpoint's builder, returns beside the network",
    )
    made.add_argument(
        "--input",
        action="append",
        metavar="NAME:DATATYPE:SHAPE",
        help="an argument of the network, as in ids:INT64:-1,26; once for each, in their order; "
        "default: as the network's set_inputs says, or the checkpoint",
    )
    made.add_argument(
        "--poll-seconds", type=float, default=0.1, help="between looks; default: %(default)s"
    )
    made.add_argument(
        "--announcements",
        metavar="BROKERS/TOPIC",
        help="Kafka topic of an Announcer: looks when there is news, as well as each poll",
    )
    made.add_argument(
        "--wait-seconds",
        type=float,
        default=300,
        help="for a first checkpoint; default: %(default)s",
    )
    made.add_argument(
        "--max-batch-rows",
        type=int,
        default=1024,
        help="rows of requests that go through the network together, and of one request; 0: each "
        "goes alone, for networks whose rows depend on each other; default: %(default)s",
    )
    return made


def main(arguments: list[str] | None = None) -> int:
    """Serve until a signal ends it; return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        import uvicorn

        from mindspore_rec.serving.http import Front
    except ImportError as error:
        print(f"error: {error}: pip install 'mindspore_rec[serving]'", file=sys.stderr)
        return 1
    ms.set_context(mode=ms.GRAPH_MODE)
    sys.setswitchinterval(0.001)  # one thread decodes while others answer
    front = Front(options.name, options.max_batch_rows)
    try:
        listener = socket.create_server((options.host, options.port), backlog=1024)
    except (OSError, OverflowError) as error:  # a port beyond 65535 is the latter
        print(f"error: cannot listen at {options.host}:{options.port}: {error}", file=sys.stderr)
        return 1
    with listener:
        server = uvicorn.Server(
            uvicorn.Config(
                front.app,
                log_level="warning",
                access_log=False,
                timeout_keep_alive=75,  # longer than balancers and pools keep one
                timeout_graceful_shutdown=10,
            )
        )
        failed: list[BaseException] = []

        def load() -> None:
            try:
                predictor = Predictor(
                    options.path,
                    load_function(options.network) if options.network else None,
                    inputs=options.input,
                    poll_seconds=options.poll_seconds,
                    wait_seconds=options.wait_seconds,
                    features=load_function(options.features)() if options.features else None,
                )
                front.open(predictor)
                if options.announcements:
                    _listen(options.announcements, predictor)
                print(f"version {predictor.status().version} answers", flush=True)
            except Exception as error:
                failed.append(error)
                server.should_exit = True

        host, port = listener.getsockname()[:2]
        print(f"listening at http://{host}:{port}/v2/models/{options.name}", flush=True)
        threading.Thread(target=load, name="load", daemon=True).start()
        # The server ends by these, then raises them again: what is under way shall be closed.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        server.run(sockets=[listener])
    if failed:
        print(f"error: {_text(failed[0])}", file=sys.stderr)
        return 1
    front.close()
    return 0


def _listen(place: str, predictor: Predictor) -> None:
    from mindspore_rec.stream.announcements import AnnouncementReader

    brokers, slash, topic = place.partition("/")
    if not (brokers and slash and topic):
        raise ValueError(f"--announcements must be BROKERS/TOPIC, got {place!r}")
    AnnouncementReader(brokers.split(","), topic, lambda _: predictor.wake())


def _text(error: Any) -> str:
    return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    sys.exit(main())
