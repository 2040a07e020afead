#!/usr/bin/env bash
# Does a wheel work on a machine that has nothing but Debian's base system and Python? usage: tools/wheel_in_debian.sh WHEEL SUITE FOLDER
#
# Makes a minimal Debian in FOLDER/SUITE with debootstrap (once; bullseye has glibc 2.31 and Python 3.9, bookworm 2.36 and 3.11), puts the wheel and NumPy
# into a virtual environment there, without a compiler and without a network, and runs tools/check_wheel.py. The wheel is for that Python.
# Needs root. Exit code 77 where it cannot run.
set -euo pipefail
wheel=$(realpath "$1") suite=$2 root=$(realpath -m "$3")/$2
here=$(dirname "$(realpath "$0")")
python=${PYTHON:-python3}
[ "$(id -u)" = 0 ] || { echo "wheel_in_debian: only root can make a Debian in a folder"; exit 77; }
command -v debootstrap >/dev/null || { echo "wheel_in_debian: debootstrap is not installed; hint: apt-get install debootstrap"; exit 77; }

if [ ! -e "$root/.complete" ]; then
  mkdir -p "$root"
  debootstrap --variant=minbase --include=python3,python3-venv "$suite" "$root" http://deb.debian.org/debian >"$root.log" 2>&1 || { tail -3 "$root.log"; echo "wheel_in_debian: no Debian could be made"; exit 77; }
  touch "$root/.complete"
fi

rm -rf "$root/opt/wheels" "$root/opt/venv"
mkdir -p "$root/opt/wheels"
version=$(chroot "$root" python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
# The other Python's NumPy, by this machine's pip. pip there takes the wheel under its own name and tag, as a user's does.
"$python" -m pip download --quiet --disable-pip-version-check --dest "$root/opt/wheels" --python-version "$version" --only-binary=:all: --platform manylinux_2_28_x86_64 \
  --platform manylinux2014_x86_64 numpy
cp "$wheel" "$root/opt/wheels/"
cp "$here/check_wheel.py" "$root/opt/"
# shellcheck disable=SC2016
unshare -mnpf --kill-child bash -c '
  mount -t proc proc "$1/proc" && exec chroot "$1" env -i PATH=/usr/bin:/bin HOME=/ sh -ec "
    ! command -v cc g++ gcc
    python3 -m venv /opt/venv
    /opt/venv/bin/pip install --quiet --no-index --find-links /opt/wheels /opt/wheels/pyflame-*.whl
    cd /
    ldd --version | head -1
    /opt/venv/bin/python /opt/check_wheel.py
    /opt/venv/bin/pyflame doctor --help >/dev/null"' - "$root"
