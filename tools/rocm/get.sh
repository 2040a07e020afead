#!/usr/bin/env bash
# A real ROCm 7.2.4 for a Linux machine (x86-64, apt) without a GPU: compiler, headers, device bitcode and the real libraries, so that
# kernels are compiled for AMD GPUs and the program is started over the real HIP runtime. Nothing outside the folder changes.
#
#   ROCM_ROOT=DIR tools/rocm/get.sh      then: . DIR/env.sh, or make rocm-full ROCM_ROOT=DIR
#
# It is Debian's build, fetched by apt from Debian's archive (or, once that has moved on, from its snapshot of the day the versions were
# written down) and held to the checksums in packages.txt. The libraries want a newer C library than most machines have: it is unpacked
# beside them, and a program runs over it by ROCM_LDSO (tools/kernel_code.py does). About 0.7 GB to fetch and as much on disk.
#   ROCM_ROOT     where to; required
#   ROCM_CACHE    keep the packages there; default: nowhere
#   ROCM_TENSILE  1: the math libraries' own kernels too, which only a GPU (or an emulated one) needs; 2 GB more on disk
#   ROCM_MIRROR   of Debian's archive; default http://deb.debian.org/debian
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
list=$here/packages.txt
keys=/usr/share/keyrings/debian-archive-keyring.gpg
mirror=${ROCM_MIRROR:-http://deb.debian.org/debian}
snapshot=http://snapshot.debian.org/archive
day=20261121T000000Z
llvm=22
lib=usr/lib/x86_64-linux-gnu

say() { printf 'rocm: %s\n' "$*" >&2; }
die() {
  say "$*"
  exit 1
}
[ -n "${ROCM_ROOT:-}" ] || die "ROCM_ROOT names no folder; try: ROCM_ROOT=\$PWD/build/rocm $0"
mkdir -p "$ROCM_ROOT"
root=$(cd "$ROCM_ROOT" && pwd)
stamp="$root ${ROCM_TENSILE:-0} $(cat "$0" "$list" | sha256sum)"
[ "$(cat "$root/.stamp" 2>/dev/null)" = "$stamp" ] && { say "$root is up to date"; exit 0; }
[ "$(uname -m)" = x86_64 ] || die "these are packages for x86-64; got $(uname -m)"
command -v apt-get dpkg-deb >/dev/null || die "apt-get and dpkg-deb are needed"
[ -e $keys ] || die "$keys is missing: apt-get install debian-archive-keyring"
if [ ! -e "$root/.stamp" ] && [ -n "$(find "$root" -mindepth 1 -maxdepth 1 -not -name .get -print -quit)" ]; then
  die "$root has other files in it; expected an empty folder or one that this script made"
fi

# --- which packages: not the compiler, where this one is installed
host=/usr/lib/llvm-$llvm/bin
wanted='rocm|run|clang'
[ -x $host/clang++ ] && [ -x $host/lld ] && [ -x $host/llvm-readelf ] && [ -x $host/clang-offload-bundler ] && wanted='rocm|run'
packages() { grep -E "^($wanted) " "$list"; }

# --- fetch, with an apt configuration of its own
work=$root/.get
cache=${ROCM_CACHE:-$work/packages}
mkdir -p "$work"/{lists/partial,archives/partial} "$cache"
cache=$(cd "$cache" && pwd)
: >"$work/status"
cat >"$work/apt.conf" <<C
Dir::Etc::sourcelist "$work/sources.list"; Dir::Etc::sourceparts "/dev/null"; Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null"; Dir::State "$work"; Dir::State::lists "$work/lists"; Dir::State::status "$work/status";
Dir::Cache "$work"; APT::Architecture "amd64"; APT::Architectures { "amd64"; }; APT::Sandbox::User "root"; Debug::NoLocking "1";
Acquire::Languages "none"; Acquire::Retries "3";
C
sources() { # of the archive at $1 and the security archive at $2
  local o="[arch=amd64 signed-by=$keys${3:+ $3}]"
  printf 'deb %s %s %s main\n' "$o" "$1" sid "$o" "$1" experimental "$o" "$2" bookworm-security >"$work/sources.list"
}
file_of() { printf '%s/%s_%s_*.deb' "$cache" "$1" "${2//:/%3a}"; }
have() { # name version sha256
  local f
  f=$(compgen -G "$(file_of "$1" "$2")" | head -n 1)
  [ -n "$f" ] && echo "$3  $f" | sha256sum --check --status
}
fetch() {
  local missing=() part name version sum
  while read -r part name version sum; do have "$name" "$version" "$sum" || missing+=("$name=$version"); done < <(packages)
  [ ${#missing[@]} -gt 0 ] || return 0
  say "fetching ${#missing[@]} packages from $1"
  sources "$@"
  export APT_CONFIG=$work/apt.conf
  apt-get -qq update >&2 || return 1
  (cd "$cache" && apt-get -qq download "${missing[@]}" >&2) || return 1
  while read -r part name version sum; do
    have "$name" "$version" "$sum" || { say "$name $version is not what packages.txt says"; return 1; }
  done < <(packages)
}
fetch "$mirror" "${mirror%/debian}/debian-security" ||
  fetch "$snapshot/debian/$day" "$snapshot/debian-security/$day" check-valid-until=no ||
  die "the packages could not be fetched"

# --- unpack: ROCm to usr, what its libraries run on to run, the compiler to clang
rm -rf "$root"/{usr,run,clang,env.sh,.stamp}
mkdir -p "$root"/{usr,run/usr/lib,run/usr/lib64,clang}
ln -s usr/lib "$root/run/lib" && ln -s usr/lib64 "$root/run/lib64"
leave=(--exclude=./usr/share/doc --exclude=./usr/share/man --exclude=./usr/share/locale --exclude=./etc --exclude='*/gconv/*')
[ "${ROCM_TENSILE:-0}" = 1 ] || leave+=(--exclude="./$lib/rocblas/*" --exclude="./$lib/hipblaslt/*")
while read -r part name version _; do
  case $part in rocm) to=$root ;; run) to=$root/run ;; clang) to=$root/clang ;; esac
  dpkg-deb --fsys-tarfile "$(compgen -G "$(file_of "$name" "$version")" | head -n 1)" |
    tar -x -C "$to" --keep-directory-symlink --no-same-owner "${leave[@]}"
done < <(packages)

# --- what compilers and loaders expect where
bin=$host
if [[ $wanted = *clang* ]]; then
  bin=$root/clang$host
  for f in "$root/clang/$lib"/*.so*; do ln -sf "$f" "$root/clang/usr/lib/llvm-$llvm/lib/"; done
  if ldd "$bin/clang" "$bin/lld" | grep 'not found' >&2; then
    die "the compiler lacks these libraries: apt-get install libxml2 libedit2 libz3-4, on Debian 12 or what is like it"
  fi
fi
ln -sfn "lib/llvm-$llvm/lib/clang/$llvm/amdgcn" "$root/usr/amdgcn" # --rocm-path looks for the bitcode here
[ -d "$root/usr/amdgcn/bitcode" ] || die "no device bitcode in $root/usr/lib/llvm-$llvm"
loader=$(find "$root/run/" -name 'ld-linux-x86-64.so.2' | head -n 1)
[ -n "$loader" ] || die "no loader in $root/run"
libraries=$root/usr/lib/lib # libMIOpen and libhipblaslt look into ../lib
mkdir -p "$libraries"
for f in "$root/run/$lib"/*.so.* "$root/$lib"/*.so.*; do ln -sf "$f" "$libraries/"; done
cat >"$root/env.sh" <<C
export ROCM_PATH=$root/usr HIP_PATH=$root/usr HIP_PLATFORM=amd HIP_CLANG_PATH=$bin
export ROCM_CXX=$bin/clang++ ROCM_LLVM=$bin
# Programs that open the libraries run as: "\$ROCM_LDSO" --library-path "\$ROCM_RTPATH" PROGRAM
export ROCM_LDSO=$loader ROCM_RTPATH=$libraries
C

# --- it compiles, and finds its libraries
cat >"$work/try.hip" <<'C'
#include <hip/hip_runtime.h>
extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }
C
"$bin/clang++" -x hip --rocm-path="$root/usr" -isystem "$root/usr/include" --offload-arch=gfx942 --cuda-device-only -O2 \
  -c "$work/try.hip" -o "$work/try.co" || die "the compiler does not work"
"$loader" --library-path "$libraries" --list "$root/$lib/libamdhip64.so.7" >"$work/try.txt" || die "HIP's runtime does not load"
if grep 'not found' "$work/try.txt" >&2; then die "HIP's runtime lacks libraries"; fi
rm -rf "$work"
echo "$stamp" >"$root/.stamp"
say "ready: . $root/env.sh"
