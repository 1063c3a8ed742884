# SPDX-License-Identifier: Apache-2.0
"""Ask a server what its own OpenAPI page allows, and what not, for a time.

`python -m tests.fuzz.openapi --seconds 3600` starts a server in a process of its own and has
schemathesis make requests from its page. A finding is an answer that the page does not list, a 5xx,
what the page forbids and the server takes, a server that ends, or one that grows. Requests that the
page allows may be refused by a 400: it does not know names of tables and inputs, or their shapes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.support.http_server import ready_server

ROOT = Path(__file__).parents[2]
MOST_GROWTH = 64 << 20
_RUN = Path(__file__).with_name("targets") / "requests_run.zip"
_LEFT_OUT = "positive_data_acceptance"  # see above


def schemathesis() -> Path:
    """Return its program, installed into an environment of its own where it is not there yet."""
    environment = ROOT / "build" / "fuzz" / "schemathesis"
    program = environment / "bin" / "schemathesis"
    if not program.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", environment], check=True)
        python = str(environment / "bin" / "python")
        subprocess.run([python, "-m", "pip", "install", "-q", "schemathesis>=4,<5"], check=True)
    return program


TOKENS = {role: f"{role}-0123456789abcdef" for role in ("token", "observe-token", "control-token")}


def ask(
    program: Path, directory: Path, seconds: int, seed: int, control: bool, role: str | None = None
) -> dict[str, int]:
    """Ask a new server; return the program's exit code, and bytes of the server before and after.

    Args:
        program: schemathesis.
        directory: of the run that is served.
        seconds: to ask for.
        seed: of the requests.
        control: whether clients may load and unload the models, of which 503 is an answer then.
        role: of the token that is sent, a key of `TOKENS`. Default: none is asked for.
    """
    options = [f"--model={name}={directory}" for name in ("m", "other")]
    options += ["--model-control=explicit"] if control else []
    options += [] if role is None else [f"--{of}-file={_token_file(of)}" for of in TOKENS]
    with ready_server(None, *options) as server:
        page = f"http://127.0.0.1:{server.port}/openapi.json"
        asked = [
            str(program), "run", page, "--continue-on-failure", "--max-time", str(seconds),
            "--seed", str(seed), "--exclude-checks",
            f"{_LEFT_OUT},not_a_server_error" if control else _LEFT_OUT,
        ]  # fmt: skip
        if role is not None:
            asked += ["--header", f"Authorization: Bearer {TOKENS[role]}"]
        begin = _resident(server.process.pid)
        code = subprocess.run(asked, cwd=directory, timeout=seconds + 600).returncode
        time.sleep(1)
        assert server.process.poll() is None, "the server has ended"
        return {"exit": code, "bytes_before": begin, "bytes_after": _resident(server.process.pid)}


def _token_file(name: str) -> Path:
    path = Path(tempfile.gettempdir()) / f"openapi-{os.getpid()}-{name}"
    path.write_text(TOKENS[name])
    path.chmod(0o600)
    return path


def _resident(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise AssertionError("no VmRSS")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="of all servers together")
    parser.add_argument("--seed", type=int, default=time.time_ns() % (1 << 31))
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    directory, program = Path(tempfile.mkdtemp()), schemathesis()
    shutil.unpack_archive(_RUN, directory)
    found = {}
    asked: list[tuple[str, bool, str | None]] = [
        ("models", False, None), ("models that are loaded and unloaded", True, None)
    ]  # fmt: skip
    asked += [(f"models, by a token of --{role}-file", False, role) for role in TOKENS]
    for name, control, role in asked:
        seconds = max(1, options.seconds // len(asked))
        found[name] = ask(program, directory, seconds, options.seed, control, role)
    shutil.rmtree(directory)
    for role in TOKENS:
        _token_file(role).unlink()
    if options.json:
        options.json.write_text(json.dumps({"seed": options.seed, "servers": found}))
    grown = [name for name, of in found.items()
             if of["bytes_after"] > of["bytes_before"] + MOST_GROWTH]  # fmt: skip
    for name, of in found.items():
        print(f"{name}: exit code {of['exit']}, {of['bytes_before'] >> 20} to "
              f"{of['bytes_after'] >> 20} MiB")  # fmt: skip
    return 1 if grown or any(of["exit"] for of in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
