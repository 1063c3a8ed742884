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
JOBS=$(nproc 2>/dev/null || echo 2)
export GLOG_v=3  # MindSpore says errors only
export PIP_DISABLE_PIP_VERSION_CHECK=1

usage() {
  cat <<'HELP'
usage: bash build.sh [COMMAND] [--jobs N] [-- ARGUMENTS]

commands
  wheel      build output/mindspore_rec-<version>-*.whl (this is what no command does)
  demo       prepare everything, then train Wide&Deep on synthetic Criteo data
  test       prepare everything, then lint, C++ tests and pytest
  sanitize   C++ tests under ASan and UBSan, those with threads also under TSan
  lint       ruff, mypy and clang-format
  prepare    only prepare: the virtual environment .venv and the native core in place
  help       this text

options
  --jobs N   compile this many files at a time; default: the number of CPUs
  -- ARGS    handed on: to pytest by `test`, to the training by `demo`

environment
  PYTHON     the Python to use; default: the first of python3.11, 3.12, 3.10 and python3 that is
             between 3.10 and 3.12
  MINDSPORE_REC_REQUIRE_ALL=1
             a test that cannot run because a part is missing (Kafka, a data set, ...) fails;
             otherwise it is skipped, and listed at the end

After `demo`, `test` or `prepare`: `source .venv/bin/activate`, and mindspore_rec, as it is in this
folder, can be imported from everywhere.

Packages of the system (Python, a compiler, CMake, GoogleTest, a Redis server, Java and Maven for a
Kafka broker) are installed with apt-get when they are missing and this runs as root; otherwise the
command to run is printed.
HELP
}

say() { printf '\033[1m==> %s\033[0m\n' "$*"; }
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
  now=$({ cat setup.py; build_requirements; "$VENV/bin/python" --version; } | digest)
  if [[ -f $stamp && $(cat "$stamp") == "$now" ]]; then return; fi
  need_compiler
  say "Installing the requirements into .venv (MindSpore is large; a few minutes)"
  build_requirements | xargs -d '\n' "$VENV/bin/pip" install --quiet
  # egg_info writes the requirements that setup.py has, without building anything.
  local info
  info=$(mktemp -d)
  "$VENV/bin/python" setup.py -q egg_info --egg-base "$info"
  "$VENV/bin/python" - "$info"/*.egg-info/requires.txt >"$info/wanted.txt" <<'PYTHON'
import sys

wanted = {"", "[test]", "[dev]"}
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
    find mindspore_rec/csrc mindspore_rec/mpi_shim -type f -print0 | sort -z | xargs -0 sha256sum
    cat setup.py mindspore_rec/version.py
    "$VENV/bin/python" --version
    echo "${MINDSPORE_REC_CXXFLAGS:-}" "${MINDSPORE_REC_LDFLAGS:-}"
    ls "$VENV/include/mpi.h" 2>&1 || true  # whether the shim of MPI can be compiled
  } | digest)
  local built
  built=mindspore_rec/_native$("$VENV/bin/python" -c \
    'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')
  if [[ -f $built && -f $stamp && $(cat "$stamp") == "$now $(digest <"$built")" ]]; then return; fi
  need_compiler
  need_python
  say "Compiling the native core"
  MINDSPORE_REC_JOBS=$JOBS "$VENV/bin/python" setup.py -q build_ext --inplace
  echo "$now $(digest <"$built")" >"$stamp"
}

# Lets .venv's Python import mindspore_rec from everywhere, as it is here: a path is enough, for the
# native core is compiled in place.
prepare_import() {
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

run_wheel() {
  make_venv "$WHEEL_VENV"
  need_compiler
  need_python
  local stamp=$WHEEL_VENV/requirements.stamp
  local now
  now=$(build_requirements | digest)
  if [[ ! -f $stamp || $(cat "$stamp") != "$now" ]]; then
    say "Installing what builds the wheel"
    build_requirements | xargs -d '\n' "$WHEEL_VENV/bin/pip" install --quiet
    echo "$now" >"$stamp"
  fi
  say "Building the wheel"
  # A module that was removed would live on in these and get into the wheel.
  rm -rf build/lib* build/bdist*
  mkdir -p output
  rm -f output/mindspore_rec-*.whl
  MINDSPORE_REC_JOBS=$JOBS "$WHEEL_VENV/bin/pip" wheel --quiet --no-deps --no-build-isolation \
    --wheel-dir output .
  say "Built $(echo output/mindspore_rec-*.whl)"
}

run_demo() {
  prepare
  say "Training Wide&Deep on synthetic Criteo data"
  "$VENV/bin/python" -m models.wide_deep.train --config models/wide_deep/configs/demo.yaml "$@"
  say "Next: source .venv/bin/activate, then docs/your_first_model.md"
}

cpp_sources() {
  find mindspore_rec/csrc mindspore_rec/mpi_shim tests/csrc -name '*.cc' -o -name '*.h' -o -name '*.inl'
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

# build_cpp_tests DIRECTORY [SANITIZERS]
build_cpp_tests() {
  need_cpp_tests
  cmake -S tests/csrc -B "$1" -G Ninja -DSANITIZE="${2:-}" >/dev/null
  ninja -C "$1" -j "$JOBS" --quiet
  # Dense programs are tested with the oneDNN of .venv's MindSpore.
  prepare_venv
  local libraries
  libraries=$("$VENV/bin/python" -c \
    'import importlib.util as u; print(u.find_spec("mindspore").submodule_search_locations[0])')/lib
  export MSREC_TEST_ONEDNN=${MSREC_TEST_ONEDNN:-$libraries/libdnnl.so.3}
}

run_cpp_tests() {
  say "C++ tests"
  build_cpp_tests build/csrc
  build/csrc/msrec_tests --gtest_brief=1
}

# Tests that start programs: Kafka brokers, servers, commands. They take about as long as all others.
PROGRAM_TESTS=(tests/{benchmarks,datasets,docs,examples,launch,models,online,parallel,plan,serving,ssd,stream})

# run_pytest [ARGUMENTS]: without arguments all tests, in two processes side by side where there are
# two CPUs, since tests wait a lot. The output of the second one comes after that of the first.
run_pytest() {
  if (($#)) || ((JOBS < 2)); then
    "$VENV/bin/python" -m pytest -q "$@"
    return
  fi
  local output code=0
  output=$(mktemp)
  # A background process ignores Ctrl-C, and so would whatever tests start, unless it is reset.
  (trap - INT && exec "$VENV/bin/python" -m pytest -q "${PROGRAM_TESTS[@]}") >"$output" 2>&1 &
  local programs=$!
  trap 'kill "$programs" 2>/dev/null' EXIT
  "$VENV/bin/python" -m pytest -q "${PROGRAM_TESTS[@]/#/--ignore=}" || code=$?
  wait "$programs" || code=$?
  trap - EXIT
  cat "$output"
  rm "$output"
  return "$code"
}

run_test() {
  prepare
  run_lint
  run_cpp_tests
  need_redis
  need_kafka
  say "pytest"
  run_pytest "$@"
}

run_sanitize() {
  say "C++ tests under ASan and UBSan"
  build_cpp_tests build/csrc-asan address,undefined
  ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1:allocator_may_return_null=1 \
    UBSAN_OPTIONS=print_stacktrace=1 build/csrc-asan/msrec_tests --gtest_brief=1
  say "C++ tests of threads under TSan"
  build_cpp_tests build/csrc-tsan thread
  TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1 build/csrc-tsan/msrec_tests \
    --gtest_brief=1 --gtest_filter='ThreadPool*:*Concurrent*:*Threads*:*Worker*:*Sums*:DenseProgram*:OneDnn*'
}

# ---------------------------------------------------------------- the command line

COMMAND=
while (($#)); do
  case $1 in
    --jobs)
      [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || die "--jobs takes a number of at least 1, got '${2:-}'"
      JOBS=$2
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
  demo) run_demo "$@" ;;
  test) run_test "$@" ;;
  sanitize) run_sanitize ;;
  lint) run_lint ;;
  prepare) prepare ;;
  help) usage ;;
  *) die "unknown command '$COMMAND'; see: bash build.sh help" ;;
esac
