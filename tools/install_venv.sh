#!/usr/bin/env bash
# Installs the Python component of a build tree into a virtual environment: the files that `pip install .` installs, without
# packaging them first. usage: tools/install_venv.sh BUILD VENV
set -euo pipefail
build=$1 venv=$2
site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["platlib"])')
rm -rf "$site/pyflame"
cmake --install "$build" --component python --prefix "$site" >/dev/null
if [ -x "$build/bin/pyflame" ]; then cp -f "$build/bin/pyflame" "$venv/bin/pyflame"; fi
