# SPDX-License-Identifier: Apache-2.0
"""Start a training script on several workers: `python -m mindspore_rec.launch --help`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from mindspore_rec._native import WorkerError
from mindspore_rec.common.launch.job import run
from mindspore_rec.common.launch.mpirun import Job, parse_hosts

_DESCRIPTION = """\
Starts a training script on N workers, which are processes of one job: each trains its part of every
batch, and tables are spread over all of them. The script is the same as for one process. Lines of
output begin with the rank of their worker. When a worker fails, all end, and the exit code is that
of the worker that failed first."""
_EPILOG = """\
examples:
  python -m mindspore_rec.launch -n 4 train.py --config criteo.yaml
  python -m mindspore_rec.launch -n 2 --restarts 3 -m models.dcn.train --config criteo.yaml
  python -m mindspore_rec.launch --hosts a:8,b:8 train.py      (ssh to both without a password, the
                                                                same paths on both)
Ctrl-C asks the workers to stop at one step, as does output that cannot be written any more, whose
reader is gone; Ctrl-C once more ends them at once. OMPI_MCA_<name>=<value> in
the environment sets a parameter of Open MPI, PRTE_MCA_<name>=<value> one of its launcher, such as
PRTE_MCA_plm_ssh_agent, what to use instead of ssh."""


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a number of at least 1, got {text!r}")
    return int(text)


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be a number of at least 0, got {text!r}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= 1e7:
        raise argparse.ArgumentTypeError(f"must be seconds in (0, 1e7], got {text!r}")
    return seconds


def _hosts(text: str) -> tuple[tuple[str, int], ...]:
    try:
        return parse_hosts(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m mindspore_rec.launch",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("-n", "--workers", type=_positive, help="number of workers; default: the sum over --hosts")
    add(
        "--hosts",
        type=_hosts,
        default=(),
        metavar="H1:N1,H2:N2",
        help="hosts and numbers of workers of each, filled in this order; default: this host",
    )
    add(
        "--threads-per-worker",
        type=_positive,
        metavar="T",
        help="threads of each worker; default: cores of a host / its workers",
    )
    add(
        "--no-bind",
        action="store_true",
        help="do not keep each worker on cores of its own, for hosts that do other work too",
    )
    add(
        "--restarts",
        type=_count,
        default=0,
        metavar="K",
        help="times to start all workers again after a failure; default: 0",
    )
    add(
        "--hang-limit",
        type=_seconds,
        metavar="S",
        help="seconds that a worker waits for another before the job is ended; default: 300",
    )
    add("-m", "--module", action="store_true", help="what follows is a module, as for python -m")
    add("program", nargs=argparse.REMAINDER, help="script or module, and its arguments")
    return parser


def _job(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> Job:
    program = list(arguments.program)
    if not program:
        parser.error("no script was given")
    if arguments.module:
        program.insert(0, "-m")
    elif not Path(program[0]).is_file():
        parser.error(f"there is no script {program[0]!r}")
    slots = sum(number for _, number in arguments.hosts)
    workers = arguments.workers or slots
    if workers == 0:
        parser.error("give the number of workers: -n N")
    if slots and workers > slots:
        parser.error(f"-n {workers} is more than the {slots} workers of --hosts")
    return Job(
        workers=workers,
        program=tuple(program),
        hosts=arguments.hosts,
        threads_per_worker=arguments.threads_per_worker,
        hang_limit=arguments.hang_limit,
        bind=not arguments.no_bind,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        return run(_job(options, parser), options.restarts).code
    except WorkerError as error:
        print(f"mindspore_rec.launch: {error}", file=sys.stderr)
        return 2
