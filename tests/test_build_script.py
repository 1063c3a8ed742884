# SPDX-License-Identifier: Apache-2.0
"""What build.sh finds, installs and leaves behind, with its functions called one by one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import ROOT

SCRIPT = (ROOT / "build.sh").read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with build.sh's functions and a package, and nothing in the path but basic tools."""
    functions = SCRIPT[
        : SCRIPT.index(
            "# ---------------------------------------------------------------- the command line"
        )
    ]
    (tmp_path / "tree" / "mindspore_rec").mkdir(parents=True)
    (tmp_path / "tree" / "mindspore_rec" / "__init__.py").touch()
    (tmp_path / "tree" / "functions.sh").write_text(functions)
    (tmp_path / "bin").mkdir()
    for tool in ("bash", "dirname", "grep", "cat", "chmod", "nproc", "id"):
        found = shutil.which(tool)
        assert found is not None
        (tmp_path / "bin" / tool).symlink_to(found)
    return tmp_path


def tool(folder: Path, name: str, text: str) -> None:
    path = folder / "bin" / name
    path.unlink(missing_ok=True)
    path.write_text(f"#!{shutil.which('bash')}\n{text}\n")
    path.chmod(0o755)


def run(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    script = f"source {folder}/tree/functions.sh\n{command}\n"
    return subprocess.run(
        [str(folder / "bin" / "bash"), "-c", script],
        env={"PATH": str(folder / "bin"), "HOME": str(folder)},
        capture_output=True,
        text=True,
    )


def test_the_package_is_imported_from_every_folder(folder):
    venv = folder / "tree" / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    look = "import importlib.util as u; print(u.find_spec('mindspore_rec').origin)"
    for _ in range(2):
        done = run(folder, "prepare_import")
        assert done.returncode == 0, done.stderr
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        found = subprocess.check_output(
            [str(venv / "bin" / "python"), "-c", look], cwd="/", text=True, env=environment
        )
        assert Path(found.strip()) == folder / "tree" / "mindspore_rec" / "__init__.py"
    assert "prepare_import" in SCRIPT.split("\nprepare() {")[1].split("\n}")[0]


def test_without_valgrind_nothing_is_counted_unless_all_is_required(folder):
    tool(folder, "g++", "exit 0")
    done = run(folder, "if need_valgrind; then echo counts; fi; echo on")
    assert done.returncode == 0 and "valgrind or its headers are missing" in done.stdout
    assert done.stdout.endswith("\non\n") and "counts" not in done.stdout.split("\n")
    done = run(folder, "MINDSPORE_REC_REQUIRE_ALL=1; if need_valgrind; then :; fi; echo on")
    assert done.returncode == 1 and "asks for valgrind" in done.stderr and "on\n" not in done.stdout
    without = "MINDSPORE_REC_REQUIRE_ALL=1; MINDSPORE_REC_WITHOUT=torch,valgrind"
    assert run(folder, f"{without}; need_valgrind || echo no").stdout.endswith("no\n")
    tool(folder, "valgrind", "exit 0")
    assert run(folder, "need_valgrind && echo there").stdout == "there\n"


POLICY = 'case "$2" in {cases} *) echo "  Candidate: (none)";; esac'


@pytest.mark.parametrize(
    ("candidates", "packages"),
    [
        ({"python3": "3.11.2-1+b1"}, "python3 python3-venv python3-dev"),
        ({"python3": "3.13.5-1"}, ""),
        (
            {"python3": "3.13.5-1", "python3.12": "3.12.1-2"},
            "python3.12 python3.12-venv python3.12-dev",
        ),
        ({}, ""),
    ],
)
def test_a_missing_python_is_installed_where_apt_has_one(folder, candidates, packages):
    cases = " ".join(f'{name}) echo "  Candidate: {of}";;' for name, of in candidates.items())
    tool(folder, "apt-cache", POLICY.format(cases=cases))
    tool(folder, "apt-get", f'echo "apt-get $*" >>{folder}/log; exit 0')
    tool(folder, "id", "echo 0")
    tool(folder, "sed", "exit 0")
    done = run(folder, "need_python")
    log = (folder / "log").read_text()
    if packages:
        assert f"install -y -qq --no-install-recommends {packages}\n" in log
        assert "no Python between 3.10 and 3.12 is there" in done.stderr  # apt here installs none
    else:
        assert "install" not in log
        assert "no Python between 3.10 and 3.12 is here" in done.stderr
    assert done.returncode == 1


def test_without_root_the_command_is_printed(folder):
    tool(folder, "apt-cache", POLICY.format(cases='python3) echo "  Candidate: 3.11.2-1";;'))
    tool(folder, "apt-get", f'echo "apt-get $*" >>{folder}/log')
    tool(folder, "id", "echo 1000")
    done = run(folder, "need_python")
    assert done.returncode == 1 and not (folder / "log").exists()
    assert "install -y --no-install-recommends python3 python3-venv python3-dev" in done.stderr


@pytest.mark.parametrize("root", [True, False])
@pytest.mark.parametrize("emulator", ["qemu-aarch64", "qemu-aarch64-static", None])
def test_an_emulator_of_arm_is_installed_for_root_alone(folder, emulator, root):
    tool(folder, "apt-get", f'echo "apt-get $*" >>{folder}/log')
    tool(folder, "id", f"echo {0 if root else 1000}")
    tool(folder, "aarch64-linux-gnu-g++", "exit 0")
    if emulator is not None:
        tool(folder, emulator, "exit 0")
    done = run(folder, "need_arm; echo on")
    assert done.returncode == 0 and done.stdout.endswith("on\n")
    assert ("a test will be skipped" in done.stdout) == (emulator is None)
    assert (folder / "log").exists() == (root and emulator is None)
    if (folder / "log").exists():
        assert "qemu-user g++-aarch64-linux-gnu\n" in (folder / "log").read_text()


@pytest.mark.parametrize(
    ("java", "has_maven", "wanted"),
    [
        (None, False, "openjdk-17-jre-headless maven"),
        ("11.0.2", True, "openjdk-17-jre-headless"),
        ("17.0.1", False, "maven"),
        ("21", True, None),
    ],
)
def test_java_and_maven_are_installed_for_kafka(folder, java, has_maven, wanted):
    tool(folder, "apt-cache", POLICY.format(cases='openjdk-17*) echo "  Candidate: 17.0";;'))
    tool(folder, "apt-get", f'echo "apt-get $*" >>{folder}/log')
    tool(folder, "id", "echo 0")
    if java:
        tool(folder, "java", f"echo 'openjdk version \"{java}\"' >&2")
    if has_maven:
        tool(folder, "mvn", "exit 0")
    done = run(folder, "need_kafka")
    assert done.returncode == 0, done.stderr
    log = (folder / "log").read_text() if (folder / "log").exists() else ""
    assert (f"recommends {wanted}\n" in log) if wanted else not log
    tool(folder, "id", "echo 1000")
    again = run(folder, "need_kafka")
    assert again.returncode == 0  # the tests run without it, and say so
    assert ("tests with Kafka will be skipped" in again.stdout) == bool(wanted)
