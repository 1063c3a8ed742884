# SPDX-License-Identifier: Apache-2.0
"""Programs of a clone that was not compiled run with the core of an installed wheel."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from mindspore_rec import native_core
from tests.docs.test_docs_your_first_model import clicks
from tests.support.missing import need_package
from tests.support.nightly import nightly
from tests.support.processes import ROOT

PACKAGE = ROOT / "mindspore_rec"
PROGRAMS = ("models", "examples", "benchmarks", "datasets")
COMPILED = ("*.so", native_core.DIGEST_FILE, "__pycache__", "results")

SMALL_DATA = """
data:
  {kind: synthetic, rows: 4096, test_rows: 1024, max_cardinality: 2000, pair_cardinality: 100,
   seed: 1}
embedding: {embedding_dim: 2}
model: {hidden: [4]}
train: {batch_size: 1024, epochs: 1, evaluations: 1, seed: 0}
"""


def build_wheel(folder: Path) -> Path:
    """The wheel, of the package as it is, by setup.py; the core is what is compiled in place."""
    for package in ("pybind11", "wheel"):
        need_package(package, f"pip install {package}")
    library = folder / "lib" / "mindspore_rec"
    library.mkdir(parents=True)
    for compiled in (*PACKAGE.glob("*.so"), PACKAGE / native_core.DIGEST_FILE):
        shutil.copy2(compiled, library)
    (folder / "setup.cfg").write_text(
        f"[build]\nbuild_base={folder}/build\nbuild_lib={folder}/lib\n"
        f"[egg_info]\negg_base={folder}\n"
    )
    command = [sys.executable, "setup.py", "-q", "build_py", "bdist_wheel", "--skip-build"]
    subprocess.run(
        [*command, "--dist-dir", str(folder), "--bdist-dir", str(folder / "bdist")],
        cwd=ROOT,
        env={**os.environ, "DIST_EXTRA_CONFIG": str(folder / "setup.cfg")},
        check=True,
        capture_output=True,
    )
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of an environment with the wheel, where the packages of this one can be imported."""
    folder = tmp_path_factory.mktemp("installed")
    wheel = build_wheel(folder)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "-q", "--python", str(python), "install", "--no-index"]
    subprocess.run([*pip, "--no-deps", "--no-compile", str(wheel)], check=True)
    (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
    # A folder that a .pth file names is searched, and its own .pth files are not read: this
    # project stays out.
    (site / "others.pth").write_text(sysconfig.get_path("purelib"))
    return python


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """What a download of the repository has."""
    for folder in ("mindspore_rec", *PROGRAMS):
        ignored = shutil.ignore_patterns(*COMPILED)
        shutil.copytree(ROOT / folder, tmp_path / "clone" / folder, ignore=ignored)
    for name in ("setup.py", "build.sh"):
        shutil.copy2(ROOT / name, tmp_path / "clone")
    return tmp_path / "clone"


def run(python: Path, clone: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    if not command[0].startswith("-"):
        environment["PYTHONPATH"] = "."  # as benchmarks/README.md says
    return subprocess.run(
        [str(python), *command],
        cwd=clone,
        env={**environment, "GLOG_v": "3"},
        capture_output=True,
        text=True,
        timeout=400,
    )


WHERE = """
import mindspore_rec
from mindspore_rec import _native
from mindspore_rec.common.parallel.start import SHIM
print(mindspore_rec.__file__, _native.__file__, SHIM, sep="\\n")
"""


def test_the_core_is_that_of_the_wheel(python: Path, clone: Path) -> None:
    done = run(python, clone, "-c", WHERE)
    assert done.returncode == 0, done.stderr
    package, core, shim = map(Path, done.stdout.split())
    assert package.is_relative_to(clone)
    assert core.is_relative_to(python.parents[1]) and shim == core.with_name("_mpi.so")
    assert shim.exists() == (PACKAGE / "_mpi.so").exists()


def test_from_a_table_to_an_answer_without_a_clone(python: Path, tmp_path: Path) -> None:
    table = clicks(3000)
    table.to_csv(tmp_path / "clicks.csv", index=False)
    table.drop(columns="clicked").to_parquet(tmp_path / "new.parquet")
    script = ROOT / "tests" / "command" / "from_table_to_answer.sh"
    hidden = ("PYTHONPATH", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run(
        ["bash", str(script), "clicks.csv", "new.parquet"],
        cwd=tmp_path,
        env={**environment, "PATH": f"{python.parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    answer = json.loads(done.stdout.splitlines()[-1])
    assert 0 < answer["outputs"][0]["data"][0] < 1
    scores = (tmp_path / "scores.csv").read_text().splitlines()
    assert scores[0] == '"user","item","probability"' and len(scores) == 3001


ZOO = ("-m", "models.wide_deep.train", "--config", "small.yaml")
EXAMPLE = (
    "examples/dynamic_features/train.py",
    "--samples",
    "20000",
    "--life",
    "3000",
    "--window",
    "4",
)
BENCHMARK = ("benchmarks/embedding_step.py", "--batch", "64", "--rows", "1000", "--rounds", "1")


@pytest.mark.parametrize("command", [ZOO, *nightly(EXAMPLE, BENCHMARK)])
def test_programs_run(python: Path, clone: Path, command: tuple[str, ...]) -> None:
    (clone / "small.yaml").write_text(SMALL_DATA)
    done = run(python, clone, *command)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_other_sources_and_their_versions_are_named(python: Path, clone: Path) -> None:
    version = clone / "mindspore_rec" / "version.py"
    version.write_text('__version__ = "9.8.7"\n')
    assert run(python, clone, "-c", WHERE).returncode == 0  # the core has no version
    header = next((clone / "mindspore_rec" / "csrc").rglob("*.h"))
    header.write_text(header.read_text() + "\n")
    done = run(python, clone, "-c", WHERE)
    assert done.returncode == 1
    said = done.stderr.splitlines()[-1]
    assert said.startswith(
        f"ImportError: the native core of mindspore_rec 9.8.7 in {clone} is not compiled, and that "
        f"of mindspore_rec {sys.modules['mindspore_rec'].__version__}, installed in "
    )
    assert f"run `bash build.sh prepare` in {clone}" in said


def test_without_a_wheel_it_says_how_to_compile(clone: Path, python: Path) -> None:
    shutil.copytree(python.parents[1], clone.parent / "bare", symlinks=True)
    (installed,) = (clone.parent / "bare" / "lib").glob("python*/site-packages/mindspore_rec")
    shutil.rmtree(installed)
    done = run(
        clone.parent / "bare" / "bin" / "python", clone, "-c", "import mindspore_rec._native"
    )
    assert done.stderr.splitlines()[-1].endswith(
        f"in {clone} is not compiled, and no other one is installed: run `bash build.sh prepare` "
        f"in {clone}"
    )


def test_the_digest_is_of_sources_and_flags_and_of_nothing_else(clone: Path) -> None:
    before = native_core.source_digest(clone)
    assert before == native_core.source_digest(ROOT)
    setup = clone / "setup.py"
    text = setup.read_text()
    setup.write_text(text.replace('license="Apache-2.0"', 'license="MIT"'))
    (clone / "mindspore_rec" / "csrc" / "notes.txt").touch()
    assert native_core.source_digest(clone) == before
    setup.write_text(text.replace('"-O3"', '"-O2"'))
    assert native_core.source_digest(clone) != before
    setup.write_text(text)
    source = next((clone / "mindspore_rec" / "mpi_shim").glob("*.cc"))
    moved = source.rename(source.with_name("other.cc"))
    assert native_core.source_digest(clone) != before
    moved.rename(source)
    assert native_core.source_digest(clone) == before
    assert native_core.source_digest(clone / "mindspore_rec") is None  # no sources, as in a wheel


def test_a_build_writes_the_digest_beside_the_core(tmp_path: Path) -> None:
    need_package("pybind11", "pip install pybind11")
    functions = (ROOT / "setup.py").read_text().partition("\nsetup(\n")[0]
    names: dict[str, Any] = {"__file__": str(ROOT / "setup.py")}
    exec(functions, names)
    distribution = importlib.import_module("setuptools.dist").Distribution
    build = names["BuildNative"](distribution({"ext_modules": []}))
    build.build_lib = str(tmp_path)
    build.finalize_options()
    (tmp_path / "mindspore_rec").mkdir()
    build.run()
    assert native_core.compiled_sources(tmp_path / "mindspore_rec") == (
        native_core.source_digest(ROOT)
    )
