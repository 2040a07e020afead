#!/usr/bin/env bash
# Makes a Debian or Ubuntu machine able to build PyFlame: installs the system packages that are missing (one apt-get call, as root
# or with sudo) and a virtual environment in .venv. Says what it does; does nothing, and needs no network, when all is there.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'bootstrap: %s\n' "$*"; }
die() {
  printf 'bootstrap: %s\n' "$*" >&2
  exit 1
}

# --- the machine's packages
needed=()
need_command() { command -v "$1" >/dev/null 2>&1 || needed+=("$2"); }
need_file() {
  local pattern
  for pattern in "${@:2}"; do compgen -G "$pattern" >/dev/null && return; done
  needed+=("$1")
}

# A compiler may be the user's own; a C++20 one is asked for below.
{ command -v c++ || command -v g++; } >/dev/null 2>&1 || needed+=(g++)
need_command ninja ninja-build
need_command cmake cmake
need_command ccache ccache
need_command mold mold
need_command git git
need_command make make
need_command clang-format clang-format
need_file libdnnl-dev '/usr/include/oneapi/dnnl/dnnl.hpp' '/usr/local/include/oneapi/dnnl/dnnl.hpp'
need_file libopenblas-dev '/usr/include/*/openblas*/cblas.h' '/usr/include/openblas/cblas.h' '/usr/local/include/cblas.h'
need_file libhwy-dev '/usr/include/hwy/highway.h' '/usr/local/include/hwy/highway.h'
need_file libfmt-dev '/usr/include/fmt/format.h' '/usr/local/include/fmt/format.h'
need_file nlohmann-json3-dev '/usr/include/nlohmann/json.hpp' '/usr/local/include/nlohmann/json.hpp'
need_file libcli11-dev '/usr/include/CLI/CLI.hpp' '/usr/local/include/CLI/CLI.hpp'
need_file libsqlite3-dev '/usr/include/sqlite3.h' '/usr/local/include/sqlite3.h'
need_file zlib1g-dev '/usr/include/zlib.h' '/usr/local/include/zlib.h'
need_file libzstd-dev '/usr/include/zstd.h' '/usr/local/include/zstd.h'
need_file libbz2-dev '/usr/include/bzlib.h' '/usr/local/include/bzlib.h'
need_file libgtest-dev '/usr/include/gtest/gtest.h' '/usr/local/include/gtest/gtest.h'
need_file libbenchmark-dev '/usr/include/benchmark/benchmark.h' '/usr/local/include/benchmark/benchmark.h'

# --- Python: the first python3 on PATH if it will do (version, venv, headers), otherwise the system's, made to do
python_ok() {
  "$1" - >/dev/null 2>&1 <<'PY'
import os, sys, sysconfig
import ensurepip, venv
header = os.path.join(sysconfig.get_paths()["include"], "Python.h")
sys.exit(0 if sys.version_info >= (3, 9) and os.path.exists(header) else 1)
PY
}
python=""
for candidate in python3 /usr/bin/python3; do
  if [ -z "$python" ] && command -v "$candidate" >/dev/null 2>&1 && python_ok "$candidate"; then python=$(command -v "$candidate"); fi
done
if [ -z "$python" ] && [ ! -x .venv/bin/python ]; then needed+=(python3 python3-venv python3-dev); fi

if [ ${#needed[@]} -gt 0 ]; then
  command -v apt-get >/dev/null 2>&1 || die "missing: ${needed[*]} (names of Debian packages); install them with this system's package manager"
  as_root=()
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null 2>&1 || die "missing: ${needed[*]}; run as root, or install sudo"
    as_root=(sudo)
  fi
  say "installing system packages: ${needed[*]}"
  export DEBIAN_FRONTEND=noninteractive
  # The package lists are fetched only where they do not know a package yet.
  for package in "${needed[@]}"; do
    if [ -z "$(apt-cache policy "$package" 2>/dev/null | sed -n 's/^ *Candidate: *//p' | grep -v '(none)')" ]; then
      "${as_root[@]}" apt-get update -qq
      break
    fi
  done
  install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${needed[@]}")
  # Lists that are old name versions that the mirrors no longer have: fetch them and try once more.
  "${install[@]}" >/dev/null || { "${as_root[@]}" apt-get update -qq && "${install[@]}" >/dev/null; }
  [ -n "$python" ] || python=/usr/bin/python3
fi

# --- the virtual environment
if [ ! -x .venv/bin/python ] || ! .venv/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then
  python_ok "$python" || die "$python is not usable; expected Python >= 3.9 with venv and headers"
  say "creating .venv with $("$python" --version) ($python)"
  rm -rf .venv
  "$python" -m venv .venv
fi
older() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n1)" != "$2" ]; }
extra=()
if older "$(cmake --version 2>/dev/null | sed -n 's/^cmake version //p' || true)" 3.25; then extra+=("cmake>=3.25"); fi
if older "$(ninja --version 2>/dev/null || true)" 1.10; then extra+=("ninja>=1.10"); fi
if ! .venv/bin/python - tools/requirements.txt "${extra[@]}" >/dev/null 2>&1 <<'PY'
# Exits with 0 when everything asked for is installed: then pip, and the network, are not needed.
import re, sys
from importlib.metadata import version
def key(text):
    return [int(n) for n in re.findall(r"\d+", text)[:3]]
lines = [line.strip() for line in open(sys.argv[1])] + sys.argv[2:]
for line in lines:
    if line and not line.startswith("#"):
        name, _, least = line.partition(">=")
        if key(version(name)) < key(least):
            sys.exit(1)
PY
then
  say "installing into .venv: $(grep -v '^#' tools/requirements.txt | tr '\n' ' ')${extra[*]}"
  .venv/bin/python -m pip install --quiet --disable-pip-version-check -r tools/requirements.txt "${extra[@]}"
fi

printf 'int main() { auto f = []<class T>(T x) requires true { return x; }; return f(0); }\n' |
  "${CXX:-c++}" -std=c++20 -x c++ -fsyntax-only - 2>/dev/null || die "${CXX:-c++} cannot compile C++20; expected GCC 12 or newer"
say "ready: $("${CXX:-c++}" --version | head -n1), $(.venv/bin/python --version)"
