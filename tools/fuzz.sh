#!/usr/bin/env bash
# Fuzzes the readers of foreign data: tools/fuzz.sh [SECONDS [TARGET...]], SECONDS for each target (default 10), all targets by default.
# PYFLAME_FUZZ_RUNS=N: so many inputs for each target instead, the same ones each time on a fresh folder, whatever the machine's speed.
# PYFLAME_FUZZ_PROGRAM=FILE: this fuzzer, which is built already (the sanitized build makes one).
# Seeds come from the tests (tests/fuzz/seeds.py); what was found in earlier runs of this machine is kept in build/fuzz. The same seed
# each time, so that a run on a fresh folder can be repeated. A finding is written to build/fuzz/findings and ends the run with
# status 1; made small (-minimize_crash=1) it belongs into tests/fuzz/corpus/<target>, which the C++ tests replay.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-10}
shift || true
build=${PYFLAME_FUZZ_BUILD:-build/fuzz}
budget=(-max_total_time="$seconds" -runs=-1)
[ -z "${PYFLAME_FUZZ_RUNS:-}" ] || budget=(-runs="$PYFLAME_FUZZ_RUNS")

# Prints the path of the fuzzer, built anew where it is old. libFuzzer comes with clang.
fuzzer() {
  [ -z "${PYFLAME_FUZZ_PROGRAM:-}" ] || { realpath "$PYFLAME_FUZZ_PROGRAM"; return; }
  if [ -z "${CXX:-}" ]; then
    for CXX in clang++ clang++-18 clang++-16 clang++-14 c++; do command -v "$CXX" >/dev/null && break; done
  fi
  if [ ! -f "$build/build.ninja" ]; then
    cmake -S tests/fuzz -B "$build" -G Ninja -DCMAKE_CXX_COMPILER="$CXX" >"$build/cmake.log" 2>&1 || { cat "$build/cmake.log" >&2; return 1; }
  fi
  cmake --build "$build" >&2
  realpath "$build/pyflame_fuzz"
}
mkdir -p "$build/findings"
program=$(fuzzer)
python3 tests/fuzz/seeds.py "$build/seeds"

# Programs that are given hostile input take what they may: memory, time and addresses are bounded here.
export ASAN_OPTIONS=allocator_may_return_null=0:detect_leaks=1:handle_abort=1:hard_rss_limit_mb=2048 UBSAN_OPTIONS=print_stacktrace=1
targets=("$@")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <("$program" 2>/dev/null)
# One process for each core, each with a target of its own.
one() {
  local target=$1 folders=("$build/corpus/$1" "$build/seeds/$1") said
  [ ! -d "tests/fuzz/corpus/$target" ] || folders+=("tests/fuzz/corpus/$target")
  mkdir -p "${folders[@]}"
  if PYFLAME_FUZZ_TARGET=$target "$program" -seed=1 $limits -timeout=60 -rss_limit_mb=2048 -max_len=65536 \
      -print_final_stats=1 -artifact_prefix="$build/findings/$target-" "${folders[@]}" >"$build/$target.log" 2>&1; then
    printf '%-14s %s\n' "$target" "$(grep -oE 'number_of_executed_units: [0-9]+|and [0-9]+ mutations' "$build/$target.log" | grep -oE '[0-9]+' | tail -1) runs, no finding"
  else
    said=$(grep -E -m3 'ERROR|SUMMARY|runtime error|terminate|what\(\)' "$build/$target.log" || tail -n 5 "$build/$target.log")
    printf '%-14s FINDING, see %s\n%s\n' "$target" "$build/$target.log" "$said"
    return 1
  fi
}
export -f one
limits=${budget[*]}
export program build limits
printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I TARGET bash -c 'one TARGET' || { echo "there are findings"; exit 1; }
