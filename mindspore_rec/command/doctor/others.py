# SPDX-License-Identifier: Apache-2.0
"""Probes of other processes: workers under MPI, and a Kafka broker."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
from typing import Any

from mindspore_rec.command.doctor.line import (
    BROKEN,
    MISSING,
    OFF,
    OK,
    Asked,
    Line,
)
from mindspore_rec.common.extras import pip_install

__all__ = ["broker", "mpi"]

_MPI_SECONDS, _TERM_SECONDS = 30.0, 5.0
_WORKERS = 2
_ANSWER = "workers answered:"
# A worker that receives a message from each worker, and then prints MPI's version.
_WORKER = f"""
from mindspore_rec import _native
from mindspore_rec.common.parallel.group import worker_group

if worker_group().all_gather_json(worker_group().rank) == list(range({_WORKERS})):
    print("{_ANSWER}", _native.WorkerGroup.library(), flush=True)
"""
_TAG = re.compile(r"\[\d+,\d+\]<\w+>:?")  # of a line of a worker
_TCP_SECONDS, _KAFKA_MS = 3.0, 5000


def mpi(_: Asked) -> Line:
    """Run two workers that exchange messages through Open MPI."""
    from mindspore_rec._native import WorkerError
    from mindspore_rec.common.launch.mpirun import (
        Job,
        find_mpirun,
        mpirun_command,
        worker_environment,
    )
    from mindspore_rec.common.parallel.start import SHIM, find_mpi

    remedy = f"Run {pip_install('mpi')}."
    if find_mpi() is None:
        return Line(MISSING, "one process trains, since Open MPI is not installed", remedy)
    if not SHIM.exists():
        remedy = f"Run {pip_install('mpi')}, and build mindspore_rec again."
        return Line(MISSING, f"this build has no MPI: there is no {SHIM}", remedy)
    try:
        mpirun = find_mpirun()
    except WorkerError as error:
        return Line(MISSING, str(error), remedy)
    job = Job(workers=_WORKERS, program=("-c", _WORKER), hang_limit=_MPI_SECONDS)
    cores = len(os.sched_getaffinity(0))
    environment = worker_environment(job, cores, os.environ)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    command = mpirun_command(job, mpirun, cores, environment)
    try:
        done = _run(command, environment)
    except subprocess.TimeoutExpired:
        meaning = f"{_WORKERS} workers did not end within {_MPI_SECONDS:.0f} s"
        return Line(BROKEN, meaning, "Start them by `python -m mindspore_rec.launch` to see why.")
    answers = [each for each in done.stdout.splitlines() if _ANSWER in each]
    figures = {"mpirun": str(mpirun), "workers": len(answers)}
    if done.returncode != 0 or len(answers) != _WORKERS:
        why = _last_words(done.stderr) or f"mpirun ended with code {done.returncode}"
        return Line(BROKEN, f"{_WORKERS} workers cannot train together ({why})", remedy, figures)
    library = answers[0].partition(_ANSWER)[2].partition(",")[0].strip()
    figures["library"] = library
    return Line(OK, f"{_WORKERS} workers hear from each other ({library}, {mpirun})", "", figures)


def _run(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run mpirun for a limited time. mpirun ends its workers on SIGTERM, and not on SIGKILL."""
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        out, errors = process.communicate(timeout=_MPI_SECONDS)
    except subprocess.TimeoutExpired:
        process.terminate()
        try:
            process.communicate(timeout=_TERM_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
        raise
    return subprocess.CompletedProcess(command, process.returncode, out, errors)


def _last_words(text: str) -> str:
    """Return the workers' last line without mpirun's tag; if there is none, mpirun's last line.

    Lines without a word, such as lines of dashes, are skipped.

    Example:
        >>> _last_words("[1,0]<stderr>: no memory\\n[1,0]<stderr>: -----\\nExit code: 1\\n")
        'no memory'
    """
    lines = [each for each in text.splitlines() if re.search("[A-Za-z]{3}", _TAG.sub("", each))]
    of_workers = [each for each in lines if _TAG.match(each)]
    return _TAG.sub("", (of_workers or lines or [""])[-1]).strip()


def broker(asked: Asked) -> Line:
    """Ask a Kafka broker for the brokers of its cluster, and connect to each broker."""
    if asked.kafka is None:
        return Line(OFF, "no broker was asked", "Name one by --kafka HOST:PORT.")
    figures: dict[str, Any] = {"address": asked.kafka}
    host, colon, port = asked.kafka.rpartition(":")
    if not colon or not host or not port.isdecimal():
        return Line(BROKEN, f"--kafka {asked.kafka} is no address", "Write it as HOST:PORT.")
    problem = _connection_problem(host, int(port))
    if problem:
        remedy = "Start the broker, or correct its address or the firewall."
        return Line(MISSING, f"nothing answers at {asked.kafka} ({problem})", remedy, figures)
    try:
        from kafka.admin import KafkaAdminClient
    except ImportError:
        meaning = f"{asked.kafka} answers, and there is no client"
        return Line(MISSING, meaning, f"Run {pip_install('kafka')}.", figures)
    try:
        admin = KafkaAdminClient(
            bootstrap_servers=asked.kafka,
            bootstrap_timeout_ms=_KAFKA_MS,
            request_timeout_ms=_KAFKA_MS,
        )
        with contextlib.closing(admin):
            cluster = admin.describe_cluster()["brokers"]
    except Exception as error:
        return Line(
            BROKEN,
            f"{asked.kafka} is open, and no broker answers there ({type(error).__name__})",
            "Check if this is a broker's port, if the broker wants TLS or a password, and if its "
            "advertised.listeners can be reached from here.",
            figures,
        )
    figures["brokers"] = [f"{each['host']}:{each['port']}" for each in cluster]
    for each in cluster:
        problem = _connection_problem(each["host"], each["port"])
        if problem:
            return Line(
                BROKEN,
                f"{asked.kafka} answers, but the cluster's broker {each['host']}:{each['port']} "
                f"cannot be reached ({problem})",
                "Set advertised.listeners of that broker to an address that this machine reaches.",
                figures,
            )
    plural = "" if len(cluster) == 1 else "s"
    return Line(OK, f"{asked.kafka} answers, with {len(cluster)} broker{plural}", "", figures)


def _connection_problem(host: str, port: int) -> str:
    """Return the reason why no connection can be made; '' if a connection can be made."""
    try:
        socket.create_connection((host.strip("[]"), port), _TCP_SECONDS).close()
        return ""
    except OSError as error:
        return error.strerror or str(error)
