# SPDX-License-Identifier: Apache-2.0
"""The command `doctor`: real parts of this machine, and each part missing in turn."""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import importlib.util
import json
import os
import platform
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mindspore_rec.command.doctor import disk as disk_probe, machine, others, run as doctor
from mindspore_rec.command.doctor.line import Asked, Line
from mindspore_rec.command.doctor.packages import _REQUIRED, FEATURES
from mindspore_rec.command.doctor.probes import PROBES
from mindspore_rec.command.main import main
from mindspore_rec.common.extras import EXTRAS
from mindspore_rec.common.launch import mpirun
from mindspore_rec.common.parallel import start
from tests.support.missing import missing
from tests.support.nightly import NIGHTLY
from tests.support.processes import ROOT

STATES = ("ok", "slow", "missing", "broken", "off")
BLOCKED = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if any(name == each or name.startswith(each + ".") for each in {names}):
            raise ModuleNotFoundError(f"{{name}} is blocked", name=name)
sys.meta_path.insert(0, Block())
"""


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a function that sets code with which the processes of probes begin."""

    def set_code(code: str) -> None:
        folder = tmp_path / "begin"
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(code)
        monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{ROOT}")

    return set_code


@dataclasses.dataclass
class Outcome:
    """Exit code, and the state and the text of each item."""

    code: int
    states: dict[str, str]
    texts: dict[str, str]
    last: str


def ask(capsys: pytest.CaptureFixture[str], items: str, *more: str) -> Outcome:
    """Run the command for some items."""
    capsys.readouterr()
    code = main(["doctor", "--only", items, *more])
    printed = capsys.readouterr()
    assert printed.err == ""
    lines = [each.split(maxsplit=2) for each in printed.out.splitlines()]
    states = {item: state for state, item, _ in lines if state in STATES}
    return Outcome(
        code,
        states,
        {item: text for state, item, text in lines if state in STATES},
        printed.out.splitlines()[-1],
    )


def ends(process: int) -> bool:
    """Return True if a process ends within ten seconds."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


# ---- what is there


def test_what_this_machine_has(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("MINDSPORE_REC_SIMD", "MINDSPORE_REC_ONEDNN"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "doctor.json"
    items = "processor,cores,memory,python,core,packages,onednn,gpu,kafka,redis,broker"
    outcome = ask(capsys, items, "--json", str(path))
    assert outcome.code == 0 and list(outcome.states) == items.split(",")
    fine = {"python", "core", "packages", "redis", "kafka"}
    assert {item for item in fine if outcome.states[item] != "ok"} == set()
    assert outcome.states["broker"] == "off" and "--kafka HOST:PORT" in outcome.texts["broker"]
    result = json.loads(path.read_text())
    assert result["usable"] is True
    assert result["items"]["core"]["figures"]["kernels"] in ("base", "avx2", "avx512")
    assert result["items"]["onednn"]["figures"]["version"].startswith("3.")
    assert result["items"]["cores"]["figures"]["usable"] == len(os.sched_getaffinity(0))
    assert all(each["state"] in STATES for each in result["items"].values())


@pytest.mark.skipif(not NIGHTLY, reason="imports all packages, and measures a disk for 5 seconds")
def test_the_whole_page(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["doctor", "--directory", str(tmp_path)]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert [each.split()[1] for each in lines] == list(PROBES)
    states = {each.split()[1]: each.split()[0] for each in lines}
    may_differ = {"processor", "cores", "memory", "disk", "gpu", "broker"}
    assert {states[item] for item in states.keys() - may_differ} == {"ok"}
    assert last == "mindspore_rec can be used here"


def test_mindspore_computes_and_two_workers_meet(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = ask(capsys, "mindspore,mpi")
    assert outcome.states == {"mindspore": "ok", "mpi": "ok"}, outcome.texts
    assert "2 workers hear from each other" in outcome.texts["mpi"]


def test_every_extra_has_an_item_or_belongs_to_programs_of_the_clone() -> None:
    of_the_clone = {"lightgbm", "models", "torch"}
    tried_by_others = {"cuda": "gpu", "mpi": "mpi"}
    assert set(tried_by_others.values()) <= set(PROBES)
    assert set(FEATURES) == set(EXTRAS) - of_the_clone - set(tried_by_others)


def test_required_packages_are_those_of_the_wheel() -> None:
    setup = (ROOT / "setup.py").read_text(encoding="utf-8")
    listed = re.findall(r'^ {8}"([^"]+)"', setup.partition("install_requires=[")[2], re.MULTILINE)
    wheel = [each for each in listed[: len(_REQUIRED) + 1] if not each.startswith("mindspore")]
    assert sorted(wheel) == sorted(_REQUIRED)


# ---- what is missing


@pytest.mark.parametrize(
    ("module", "item", "sentence"),
    [
        ("mindspore", "mindspore", "nothing can be trained. Run pip install 'mindspore>=2.10"),
        ("mindspore", "onednn", "MindSpore, which ships oneDNN, is missing. Run pip install"),
        ("pyarrow", "packages", "pyarrow is not installed, for every command. Run pip install"),
        ("yaml", "packages", "PyYAML is not installed, for every command. Run pip install"),
        ("grpc", "grpc", "grpcio is not installed, for the server's gRPC front. Run pip install"),
        ("onnxruntime", "serving", "onnxruntime is not installed, for the HTTP server. Run pip"),
        ("kafka", "kafka", "kafka-python is not installed, for topics of Kafka. Run pip install"),
        ("hiredis", "redis", "hiredis is not installed, for rows in Redis. Run pip install"),
        ("optuna", "tune", "optuna is not installed, for `mindspore-rec tune`. Run pip install"),
    ],
)
def test_a_missing_package(
    capsys: pytest.CaptureFixture[str], begin, module: str, item: str, sentence: str
) -> None:
    begin(BLOCKED.format(names=[module]))
    outcome = ask(capsys, f"cores,{item}")
    assert outcome.states == {"cores": "ok", item: "missing"}
    assert sentence in outcome.texts[item]
    assert outcome.code == (1 if item in ("mindspore", "packages") else 0)
    if outcome.code:
        assert outcome.last == f"mindspore_rec cannot be used here, because of: {item}"


def test_without_the_core_and_numpy_the_others_answer(
    capsys: pytest.CaptureFixture[str], begin
) -> None:
    begin(BLOCKED.format(names=["mindspore_rec._native", "numpy"]))
    outcome = ask(capsys, "processor,memory,python,core,packages,onednn,mpi")
    assert outcome.code == 1
    assert outcome.last == "mindspore_rec cannot be used here, because of: core, packages"
    assert outcome.states["core"] == "broken" and "build.sh prepare" in outcome.texts["core"]
    assert outcome.texts["packages"].startswith("numpy is not installed, for every command")
    for item in ("onednn", "mpi"):
        assert outcome.states[item] == "off"
        assert outcome.texts[item].endswith("cannot be loaded. Mend the item core.")
    assert outcome.states["python"] == "ok" and "GiB free" in outcome.texts["memory"]


def test_a_core_that_mindspore_rec_cannot_load_in_this_process(tmp_path: Path) -> None:
    code = BLOCKED.format(names=["mindspore_rec._native", "numpy", "mindspore"])
    code += "from mindspore_rec.command.main import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", code, "doctor", "--only", "python,core", "--json", "out.json"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0 and done.stderr == ""
    assert json.loads((tmp_path / "out.json").read_text())["items"]["core"]["state"] == "ok"


def test_packages_of_other_versions_and_broken_ones(
    capsys: pytest.CaptureFixture[str], begin
) -> None:
    begin(
        "import importlib.metadata as metadata, sys\n"
        "version = metadata.version\n"
        "metadata.version = lambda name: '4.6.0' if name == 'redis' else version(name)\n"
        "class Broken:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'optuna': raise OSError('libfoo.so: no such file')\n"
        "sys.meta_path.insert(0, Broken())\n"
    )
    outcome = ask(capsys, "redis,tune")
    assert outcome.code == 0 and outcome.states == {"redis": "broken", "tune": "broken"}
    assert "redis is 4.6.0, and redis>=5.1,<9 is needed, for rows" in outcome.texts["redis"]
    assert "optuna cannot be imported (OSError: libfoo.so: no such" in outcome.texts["tune"]


@pytest.mark.parametrize(
    ("value", "state", "sentences"),
    [
        (
            "/nowhere/libdnnl.so.3",
            "slow",
            ("MindSpore's own layers are used", "No such file", "or correct its path"),
        ),
        ("off", "off", ("because of MINDSPORE_REC_ONEDNN=off", "Remove MINDSPORE_REC_ONEDNN")),
    ],
)
def test_onednn_that_is_not_used(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    value: str,
    state: str,
    sentences: tuple[str, ...],
) -> None:
    monkeypatch.setenv("MINDSPORE_REC_ONEDNN", value)
    outcome = ask(capsys, "onednn")
    assert outcome.states == {"onednn": state} and outcome.code == 0
    assert all(each in outcome.texts["onednn"] for each in sentences)


def test_kernels_that_the_environment_chose(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINDSPORE_REC_SIMD", "avx1024")
    outcome = ask(capsys, "core")
    assert outcome.states == {"core": "slow"}
    assert "although MINDSPORE_REC_SIMD=avx1024 asks for others" in outcome.texts["core"]
    monkeypatch.setenv("MINDSPORE_REC_SIMD", "base")
    if "avx2" in machine.cpu_flags():
        outcome = ask(capsys, "core")
        assert outcome.states == {"core": "slow"} and outcome.texts["core"].startswith("base ker")


def test_a_gpu_that_cannot_be_used(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    library = tmp_path / "libcuda.so.1"
    command = ["gcc", "-shared", "-x", "c", "/dev/null", "-o", str(library)]
    subprocess.run(command, check=True)  # a driver without functions
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    outcome = ask(capsys, "gpu")
    assert outcome.code == 0 and outcome.states == {"gpu": "broken"}
    assert "cannot be used" in outcome.texts["gpu"] and "pip install" in outcome.texts["gpu"]


NO_MPI = """
import importlib.metadata as metadata, site, sys
sys.prefix = site.USER_BASE = "/nowhere"
def files(name):
    raise metadata.PackageNotFoundError(name)
metadata.files = files
"""


def test_no_open_mpi(capsys: pytest.CaptureFixture[str], begin) -> None:
    begin(NO_MPI)
    outcome = ask(capsys, "mpi")
    assert outcome.states == {"mpi": "missing"} and outcome.code == 0
    assert "one process trains, since Open MPI is not installed. Run pip" in outcome.texts["mpi"]


def test_no_mpirun_and_a_build_without_mpi(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(start, "find_mpi", lambda: tmp_path / "lib")
    monkeypatch.setattr(mpirun, "find_mpi", lambda: tmp_path / "lib")
    line = others.mpi(Asked())
    assert line.state == "missing" and "there is no mpirun in the environment" in line.meaning
    monkeypatch.setattr(start, "SHIM", tmp_path / "_mpi.so")
    line = others.mpi(Asked())
    assert line.state == "missing" and line.remedy.endswith("and build mindspore_rec again.")


def test_workers_that_fail_or_hang(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(others, "_WORKER", "raise OSError('no shared memory')")
    line = others.mpi(Asked())
    assert line.state == "broken"
    assert line.meaning == "2 workers cannot train together (OSError: no shared memory)"
    process = tmp_path / "process"
    worker = f"import os, time; open({str(process)!r}, 'w').write(str(os.getpid()))"
    monkeypatch.setattr(others, "_WORKER", f"{worker}; time.sleep(600)")
    for seconds in (1, 5, 25):  # on a busy machine, workers need seconds to start
        monkeypatch.setattr(others, "_MPI_SECONDS", float(seconds))
        line = others.mpi(Asked())
        assert line.state == "broken"
        assert line.meaning == f"2 workers did not end within {seconds} s"
        if process.exists() and process.read_text():
            break
    assert ends(int(process.read_text()))


# ---- brokers


def test_a_port_where_nothing_listens(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # bound, and not listening
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        outcome = ask(capsys, "broker", "--kafka", address)
    assert outcome.states == {"broker": "missing"} and outcome.code == 0
    assert f"nothing answers at {address} (Connection refused)" in outcome.texts["broker"]


def test_an_address_without_a_port(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = ask(capsys, "broker", "--kafka", "localhost")
    assert outcome.states == {"broker": "broken"} and "HOST:PORT" in outcome.texts["broker"]


@contextmanager
def closing_server() -> Iterator[str]:
    """Yield the address of a server that closes each connection, and is no broker."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    server.accept()[0].close()
                except OSError:
                    return

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join(10)


@pytest.mark.skipif(not NIGHTLY, reason="the client tries for 5 seconds")
def test_a_port_of_something_else(capsys: pytest.CaptureFixture[str]) -> None:
    with closing_server() as address:
        outcome = ask(capsys, "broker", "--kafka", address)
    assert outcome.states == {"broker": "broken"}
    assert f"{address} is open, and no broker answers there" in outcome.texts["broker"]


# ---- disks


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_WRITE_SECONDS", "_RANDOM_SECONDS", "_SEQUENTIAL_SECONDS"):
        monkeypatch.setattr(disk_probe, name, 0.05)


def look(folder: Path | str) -> Line:
    return disk_probe.disk(Asked(directory=str(folder)))


@pytest.mark.usefixtures("short")
def test_a_disk_is_measured_and_left_empty(tmp_path: Path) -> None:
    line = look(tmp_path)
    assert line.state in ("ok", "slow") and "random reads of 4 KiB per second" in line.meaning
    assert line.figures["random_reads_per_second"] > 0
    assert line.figures["read_megabytes_per_second"] > 0
    assert list(tmp_path.iterdir()) == []


def test_a_machine_that_is_too_busy_to_start_the_threads_in_time_has_a_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_RANDOM_SECONDS", "_SEQUENTIAL_SECONDS"):
        monkeypatch.setattr(disk_probe, name, 0.0)
    line = look(tmp_path)
    assert line.figures["random_reads_per_second"] > 0
    assert line.figures["read_megabytes_per_second"] > 0


@pytest.mark.usefixtures("short")
def test_a_slow_disk_has_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_probe, "_FEW_READS", 1e12)
    line = look(tmp_path)
    assert line.state == "slow" and line.remedy.startswith("Put an SSD tier on")


@pytest.mark.usefixtures("short")
def test_a_file_system_without_direct_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fcntl.fcntl

    def no_direct(fd: int, command: int, flags: int = 0) -> int:
        if command == fcntl.F_SETFL and flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(fd, command, flags)

    monkeypatch.setattr(fcntl, "fcntl", no_direct)
    line = look(tmp_path)
    assert line.state == "slow" and "through the page cache" in line.meaning
    assert line.figures["direct"] is False and line.figures["random_reads_per_second"] > 0


def test_folders_that_cannot_be_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, sentence in (
        (tmp_path / "nowhere", "is no folder, so no disk was measured"),
        ("/proc", "/proc has no room for a file to read"),
    ):
        line = look(folder)
        assert line.state == "missing" and sentence in line.meaning
        assert "--directory" in line.remedy

    def damaged(*_: object) -> float:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(disk_probe, "_reads_per_second", damaged)
    line = look(tmp_path)
    assert line.state == "broken" and "(Input/output error)" in line.meaning


def test_a_folder_without_permission(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        tmp_path.chmod(0o500)
        line = look(tmp_path)
    else:
        try:
            os.seteuid(65534)
        except OSError as error:
            missing("root", f"seteuid: {error}")
        try:
            line = look("/")
        finally:
            os.seteuid(0)
    assert line.state == "missing" and "Permission denied" in line.meaning


# ---- the machine


def put(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_limits_of_a_container(tmp_path: Path) -> None:
    new = put(
        tmp_path / "new",
        {
            "proc/self/cgroup": "0::/pods/one\n",
            "sys/fs/cgroup/cpu.max": "max 100000\n",
            "sys/fs/cgroup/pods/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/pods/one/cpu.max": "max 100000\n",
            "sys/fs/cgroup/pods/one/memory.max": f"{3 << 30}\n",
            "sys/fs/cgroup/pods/memory.max": "max\n",
        },
    )
    assert machine.cpu_quota(new) == 1.5 and machine.memory_limit(new) == 3 << 30
    old = put(
        tmp_path / "old",
        {
            "proc/self/cgroup": "4:memory:/docker/one\n1:cpu,cpuacct:/docker/one\n0::/\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{(1 << 63) - 4096}\n",
            "sys/fs/cgroup/memory/docker/one/memory.limit_in_bytes": f"{1 << 30}\n",
            "sys/fs/cgroup/cpu/docker/one/cpu.cfs_quota_us": "50000\n",
            "sys/fs/cgroup/cpu/docker/one/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/cpu/docker/cpu.cfs_quota_us": "-1\n",
        },
    )
    assert machine.cpu_quota(old) == 0.5 and machine.memory_limit(old) == 1 << 30
    assert machine.cpu_quota(tmp_path) is None and machine.memory_limit(tmp_path) is None


def test_threads_of_a_container(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "cpu_quota", lambda: 0.5)
    monkeypatch.delenv("MINDSPORE_REC_NUM_THREADS", raising=False)
    line = machine.cores(Asked())
    assert line.state == "slow" and line.remedy.startswith("Set MINDSPORE_REC_NUM_THREADS=1 in")
    monkeypatch.setenv("MINDSPORE_REC_NUM_THREADS", "1")
    assert machine.cores(Asked()).state == "ok"


def test_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "memory_limit", lambda: 1 << 30)
    line = machine.memory(Asked())
    assert line.state == "slow" and "a container of 1.0 GiB" in line.meaning


@pytest.mark.parametrize(
    ("architecture", "cpuinfo", "state"),
    [
        ("x86_64", "model name\t: Old\nflags\t\t: sse2\n", "broken"),
        ("x86_64", "model name\t: Older\nflags\t\t: sse2 sse4_2\n", "slow"),
        ("x86_64", "model name\t: New\nflags\t\t: sse4_2 avx2 avx512f amx_bf16\n", "ok"),
        ("aarch64", "Features\t: asimd sve bf16\n", "ok"),
    ],
)
def test_processors(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    architecture: str,
    cpuinfo: str,
    state: str,
) -> None:
    monkeypatch.setattr(machine, "_ROOT", put(tmp_path, {"proc/cpuinfo": cpuinfo}))
    monkeypatch.setattr(platform, "machine", lambda: architecture)
    line = machine.processor(Asked())
    assert line.state == state and (line.remedy != "") == (state != "ok")


def test_an_emulator_that_shows_the_file_of_another_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpuinfo = "model name\t: AMD EPYC\nflags\t\t: sse4_2 avx2\n"
    monkeypatch.setattr(machine, "_ROOT", put(tmp_path, {"proc/cpuinfo": cpuinfo}))
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    line = machine.processor(Asked())
    assert machine.cpu_flags() == [] and line.state == "ok" and line.remedy == ""
    assert line.meaning == (
        "aarch64 under an emulator, since /proc/cpuinfo tells of AMD EPYC; the core uses NEON and "
        "no wider set"
    )


# ---- probes that do not answer


def shorter(monkeypatch: pytest.MonkeyPatch, item: str) -> None:
    probes = {**PROBES, item: dataclasses.replace(PROBES[item], seconds=1.0)}
    monkeypatch.setattr(doctor, "PROBES", probes)


def test_a_probe_that_hangs_is_ended_with_its_children(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, begin
) -> None:
    child = tmp_path / "child"
    begin(
        "import signal, subprocess, sys, time\n"
        "if 'redis' in sys.argv:\n"
        "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "    child = subprocess.Popen(['sleep', '600'])\n"
        f"    open({str(child)!r}, 'w').write(str(child.pid))\n"
        "    time.sleep(600)\n"
    )
    shorter(monkeypatch, "redis")
    monkeypatch.setattr(doctor, "_TERM_SECONDS", 0.2)
    began = time.monotonic()
    outcome = ask(capsys, "cores,redis,broker")
    assert time.monotonic() - began < 30
    assert outcome.states == {"cores": "ok", "redis": "broken", "broker": "off"}
    assert outcome.texts["redis"] == (
        "no answer within 1 s. If this machine is busy or slow, run this doctor with --only redis "
        "--seconds 5."
    )
    assert ends(int(child.read_text()))


def test_a_slow_machine_gets_more_time(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, begin
) -> None:
    begin("import sys, time\nif 'cores' in sys.argv: time.sleep(1.5)\n")
    shorter(monkeypatch, "cores")
    assert ask(capsys, "cores").states == {"cores": "broken"}
    assert ask(capsys, "cores", "--seconds", "60").states == {"cores": "ok"}
    assert PROBES["mpi"].limit(Asked(seconds=1.0)) == PROBES["mpi"].seconds
    assert PROBES["mpi"].limit(Asked(seconds=1e30)) == 86_400


def test_a_probe_that_crashes(capsys: pytest.CaptureFixture[str], begin) -> None:
    begin(
        "import os, signal, sys\n"
        "if 'core' in sys.argv:\n"
        "    print('a word before', file=sys.stderr, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGILL)\n"
    )
    outcome = ask(capsys, "core,cores")
    assert outcome.code == 1 and outcome.states == {"core": "broken", "cores": "ok"}
    assert "the probe crashed with SIGILL (a word before)" in outcome.texts["core"]


def test_an_unknown_item_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--only", "disc"]) == 1
    assert capsys.readouterr().err.startswith("error: --only disc: the items are processor, cores")


def test_no_probe_imports_what_may_crash_into_the_command() -> None:
    code = (
        "import sys; import mindspore_rec.command.doctor.run; "
        "print([each for each in ('mindspore', 'numpy', 'kafka', 'mindspore_rec._native') "
        "if each in sys.modules])"
    )
    assert importlib.util.find_spec("mindspore") is not None
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout == "[]\n"
