# The commands of this repository. `make demo` and `make test` work from a fresh clone: tools/bootstrap.sh installs what is missing.
# Everything is built in one CMake tree (build/release) and installed from there into a virtual environment (.venv), so the core is
# compiled once for the program, the tests and the Python module.
SHELL := /bin/bash
.DELETE_ON_ERROR:

BUILD   := build/release
VENV    := .venv
PY      := $(abspath $(VENV)/bin/python)
STAMP   := build/stamps
# CMake and Ninja of the virtual environment, where the system's are too old, win.
export PATH := $(abspath $(VENV)/bin):$(PATH)

# What `make demo` trains on and with; override on the command line.
DEVICE      ?= cpu
DEMO_OUT    ?= runs/demo
DEMO_DATA   ?= $(shell $(PY) -c 'import sysconfig; print(sysconfig.get_paths()["stdlib"])')
DEMO_ARGS   ?= --overwrite
DEMO_PROMPT ?= def 
DEMO_GENERATE_ARGS ?= --seed 5 --temperature 0.9

PYTEST_ARGS ?=
PYTEST_DIRS := $(wildcard tests/python tests/tools tests/ops tests/plan tests/errors tests/footguns tests/doctor tests/inspect tests/profile tests/ports tests/kernels tests/hard)
PYTEST      := $(PY) tools/run_pytest.py

# make -s print-NAME: the value of a variable, for scripts.
print-%:
	@echo '$($*)'

.PHONY: help build demo test test-full test-cpp test-python lint format tidy asan tsan fuzz soak docs docs-check bench compare-torch compare-ops compare-onnx clean distclean

help:  ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F'\t' '{printf "  make %-14s %s\n", $$1, $$2}'

$(STAMP)/bootstrap: tools/bootstrap.sh tools/requirements.txt
	@tools/bootstrap.sh
	@mkdir -p $(STAMP) && touch $@

# ON compiles the sources of a folder together (cmake/PyFlameUnity.cmake): less for a whole build, more for each change.
PYFLAME_UNITY ?= OFF
$(BUILD)/build.ninja: $(STAMP)/bootstrap CMakePresets.json
	cmake --preset release -DPYFLAME_BUILD_PYTHON=ON -DPYFLAME_BUILD_TESTS=ON -DPYFLAME_UNITY=$(PYFLAME_UNITY) -DPython_EXECUTABLE=$(PY)
	@touch $@

build: $(BUILD)/build.ninja  ## the program, the Python module and the C++ tests, optimized
	cmake --build $(BUILD)

.PHONY: build-times
build-times:  ## what compiling cost by folder, from Ninja's log of build/release
	@python3 tools/build_times.py $(BUILD)

# Cheaper than `pip install .`, and it is the same set of files (the `python` component).
.PHONY: install-venv
install-venv: build
	@tools/install_venv.sh $(BUILD) $(VENV)

# An installation whose Python files are links to python/pyflame: an edit counts at the next start, without another installation. A new file, C++, and what
# type checkers know of a changed signature need `make develop` again.
.PHONY: develop
develop: install-venv  ## .venv with links to the Python files of this tree, for work on them (as pip install -e python)
	@site=$$($(PY) -c 'import sysconfig; print(sysconfig.get_paths()["platlib"])'); \
	find python/pyflame -name '*.pyi' -prune -o -name __pycache__ -prune -o -type f -printf '%P\n' | while read -r file; do ln -sfn "$(CURDIR)/python/pyflame/$$file" "$$site/pyflame/$$file"; done; \
	cd / && $(PY) -c 'import pyflame; print("develop:", pyflame.__file__)'

# The demo builds what it uses: for the CPU neither the GPU backends nor the tools.
DEMO_TARGET  = $(if $(filter cpu,$(DEVICE)),pyflame_gpt_cpu,pyflame_cli)
DEMO_PROGRAM = $(BUILD)/bin/$(if $(filter cpu,$(DEVICE)),pyflame-gpt,pyflame)
demo: $(BUILD)/build.ninja  ## train a small GPT on Python's own library, then let it write (about three minutes; DEVICE=rocm on a GPU)
	cmake --build $(BUILD) --target $(DEMO_TARGET)
	$(DEMO_PROGRAM) train gpt --device $(DEVICE) --data $(DEMO_DATA) --out $(DEMO_OUT) $(DEMO_ARGS)
	$(DEMO_PROGRAM) generate --device $(DEVICE) --checkpoint $(DEMO_OUT) --prompt '$(DEMO_PROMPT)' $(DEMO_GENERATE_ARGS)

# `make test` runs the day's part of the op cases (tests/ops/conftest.py); another number runs another part, none runs all.
PYFLAME_TEST_ROTATION ?= $(shell echo $$(($$(date +%s) / 86400)))
test: export PYFLAME_TEST_ROTATION := $(PYFLAME_TEST_ROTATION)
test: build  ## every test, C++ and Python; of the op cases one of each kind and the day's fifth
	@rc=0; \
	tools/install_venv.sh $(BUILD) $(VENV) || exit 1; \
	ctest --test-dir $(BUILD) --output-on-failure --progress -j $$(nproc) >$(BUILD)/ctest.log 2>&1 || rc=1; \
	  if [ $$rc = 0 ]; then grep -E 'tests passed|Total Test time' $(BUILD)/ctest.log; else tail -n 200 $(BUILD)/ctest.log; fi; \
	$(PYTEST) $(PYTEST_ARGS) $(PYTEST_DIRS) || rc=1; \
	echo; echo "C++:    $$(grep -E 'tests passed|No tests were found' $(BUILD)/ctest.log | tail -1)"; \
	echo "Python: $$(cat build/pytest-summary.txt)"; exit $$rc

test-full:  ## every test with every op case
	@$(MAKE) --no-print-directory test PYFLAME_TEST_ROTATION=

test-cpp: install-venv  ## the C++ tests
	ctest --test-dir $(BUILD) --output-on-failure -j $$(nproc)

test-python: install-venv  ## the Python tests
	$(PYTEST) $(PYTEST_ARGS) $(PYTEST_DIRS)

lint: $(STAMP)/bootstrap  ## include direction, vendor words, machine paths, format and the like
	$(PY) tools/lint/run.py

format:  ## clang-format on all C++ sources
	git ls-files -co --exclude-standard '*.h' '*.cpp' | xargs clang-format -i

TIDY_FILES ?= $(shell git ls-files '*.cpp' | grep -E '^(src|cli)/')
tidy: $(BUILD)/build.ninja  ## clang-tidy on TIDY_FILES (default: all; slow)
	@printf '%s\n' $(TIDY_FILES) | xargs -P $$(nproc) -I FILE bash -c \
	  'said=$$(clang-tidy --quiet --extra-arg=-Wno-unknown-warning-option -p $(BUILD) FILE 2>&1); rc=$$?; printf "%s: %s\n" FILE "$$said"; exit $$rc'

asan: $(STAMP)/bootstrap  ## the C++ tests under AddressSanitizer and UndefinedBehaviorSanitizer
	cmake --preset asan-ubsan && cmake --build --preset asan-ubsan && ctest --preset asan-ubsan -j $$(nproc)

# Where threads meet. ThreadSanitizer wants fixed addresses, hence setarch where it is allowed.
TSAN_FOLDERS ?= $(filter base distributed llm record compile runtime autograd,$(notdir $(wildcard tests/cpp/*)))
NO_ASLR := $(shell setarch -R true 2>/dev/null && echo 'setarch -R')
tsan: $(STAMP)/bootstrap  ## the C++ tests of recorder and executor under ThreadSanitizer
	cmake --preset tsan
	cmake --build --preset tsan --target $(patsubst %,pyflame_%_test,$(TSAN_FOLDERS))
	$(NO_ASLR) ctest --preset tsan -j $$(nproc) -R '^($(subst $(eval) ,|,$(strip $(TSAN_FOLDERS))))/'

FUZZ_SECONDS ?= 10
fuzz: $(STAMP)/bootstrap  ## every reader of foreign data against mutated files, FUZZ_SECONDS for each
	tools/fuzz.sh $(FUZZ_SECONDS)

SOAK ?= 20
soak: install-venv  ## the tests of tests/hard for long: SOAK times as many random programs and kills, 100,000 steps of training
	PYFLAME_SOAK=$(SOAK) $(PYTEST) tests/hard

docs: install-venv  ## regenerate the generated pages of docs/
	$(PY) tools/gen_env_docs.py
	$(PY) tools/gen_support.py
	$(PY) tools/gen_cli_docs.py
	$(PY) tools/gen_rules_docs.py
	$(PY) tools/gen_amd_model.py
	$(PY) tools/gen_results.py
	$(PY) tools/gen_pictures.py

docs-check: install-venv  ## generated pages are up to date, and the code blocks of the pages run
	$(PY) tools/gen_env_docs.py --check
	$(PY) tools/gen_support.py --check
	$(PY) tools/gen_cli_docs.py --check
	$(PY) tools/gen_rules_docs.py --check
	$(PY) tools/gen_amd_model.py --check
	$(PY) tools/gen_results.py --check
	$(PY) tools/gen_pictures.py --check
	$(PY) tools/run_doc_blocks.py --jobs 2

# Kernels as AMD code, with a real ROCm and no GPU. ROCM_ROOT: ROCm's folder, or one that tools/rocm/get.sh made (with env.sh). Where there is
# none, it makes one in build/rocm.
OWN_ROCM  := $(abspath build/rocm)
ROCM_ROOT ?= $(or $(ROCM_PATH),$(wildcard /opt/rocm),$(OWN_ROCM))
.PHONY: rocm kernel-budgets loop-code rocm-full test-rocjitsu test-cuda-sanitizer
rocm:  ## a real ROCm for compiling on a machine without one, in build/rocm (0.7 GB of Debian's packages)
	@[ '$(ROCM_ROOT)' != '$(OWN_ROCM)' ] || ROCM_ROOT=$(OWN_ROCM) tools/rocm/get.sh

kernel-budgets: build rocm  ## what each GPU kernel may have of registers and memory becomes what it has now; a reviewer reads the difference (KERNELS='softmax* norm*': these alone)
	$(PY) tools/kernel_code.py --rocm $(ROCM_ROOT) --program $(BUILD)/tests/cpp/pyflame_backends_test --pyflame $(BUILD)/bin/pyflame \
	  $(if $(KERNELS),--only $(foreach k,$(KERNELS),'$(k)'))

loop-code: install-venv rocm  ## the generated kernels of all op cases compiled by ROCm for waves of 64 and of 32: none may spill (six minutes of processor time or more)
	$(PY) tools/loop_code.py --rocm $(ROCM_ROOT) --pyflame $(BUILD)/bin/pyflame --emulator $(EMULATOR) --python $(PY)

rocm-full: build rocm  ## every GPU kernel compiled by ROCm for every AMD architecture that is known (an hour or more; goes on where it was ended)
	$(PY) tools/kernel_full.py --rocm $(ROCM_ROOT) --program $(BUILD)/tests/cpp/pyflame_backends_test --pyflame $(BUILD)/bin/pyflame \
	  --folder build/rocm-full

# AMD's functional emulator, where it is installed: its library, its folder of device configurations, the GPUs to emulate. ROCM_ROOT's
# libraries must be whole. ROCJITSU_ARGS='--defect NAME' says that the emulator has a known defect, which then excuses the tests that it breaks.
ROCJITSU_LIB     ?=
ROCJITSU_CONFIGS ?=
ROCJITSU_TARGETS ?= gfx942,gfx1100
ROCJITSU_ARGS    ?=
test-rocjitsu: install-venv  ## the device tests on an emulated AMD GPU (ROCJITSU_LIB, ROCJITSU_CONFIGS, ROCM_ROOT)
	@$(PY) tools/rocjitsu.py --lib '$(ROCJITSU_LIB)' --configs '$(ROCJITSU_CONFIGS)' --targets $(ROCJITSU_TARGETS) --rocm $(ROCM_ROOT) \
	  --program $(BUILD)/tests/cpp/pyflame_backends_test --python $(PY) $(ROCJITSU_ARGS); rc=$$?; [ $$rc = 77 ] || exit $$rc

test-cuda-sanitizer: install-venv  ## every kernel family under NVIDIA's compute-sanitizer, on a machine with an NVIDIA GPU
	@$(PY) tools/cuda_sanitizer.py --program $(BUILD)/tests/cpp/pyflame_backends_test $(SANITIZER_ARGS); rc=$$?; [ $$rc = 77 ] || exit $$rc

# The wave emulator (tests/support/emulator): the rocm backend on the host. EMULATOR_CASES: how many cases of each op, dtype and kind of test
# (0: all); EMULATOR_RUNS: architecture, order of threads, and the part of those cases (tests/ops/conftest.py; none: all of them).
EMULATOR       := $(abspath $(BUILD)/emulator)
EMULATOR_CASES ?= 0
EMULATOR_RUNS  ?= gfx942:descending gfx1100:1
EMULATOR_TESTS ?= *Gpu*
EMULATED        = LD_LIBRARY_PATH=$(EMULATOR) PYFLAME_CACHE_DIR=$(abspath build/emulator-cache) PYFLAME_INTERPRET=0
.PHONY: emulator test-emulator
emulator: $(BUILD)/build.ninja  ## the wave emulator: build/release/emulator, for LD_LIBRARY_PATH
	cmake --build $(BUILD) --target pyflame_emulator pyflame_emulator_test

test-emulator: install-venv  ## the tests of the GPU backend over the wave emulator, waves of 64 and of 32
	@rc=0; $(BUILD)/tests/support/emulator/pyflame_emulator_test --gtest_brief=1 || rc=1; \
	PYFLAME_TEST_EMULATOR=$(EMULATOR) $(PYTEST) tests/faults || rc=1; \
	$(EMULATED) PYFLAME_EMULATOR_MEMORY=256M $(PYTEST) tests/python/test_backend_rocm.py tests/python/test_device.py tests/python/test_kernels.py tests/python/test_llm_offload.py || rc=1; \
	printf '%s\n' $(EMULATOR_RUNS) | xargs -P $$(nproc) -I EACH bash -c \
	  'run=EACH; log=$(BUILD)/emulator-$${run%%:*}.log; $(MAKE) --no-print-directory emulator-run RUN=EACH >$$log 2>&1; rc=$$?; cat $$log; exit $$rc' || rc=1; \
	exit $$rc

# The language models run for one width of waves a day, or for both without a rotation.
ARCH_OF_THE_DAY = $(word $(shell echo $$(($(PYFLAME_TEST_ROTATION) % 2 + 1))),gfx942 gfx1100)
EMULATED_LLM    = $(if $(PYFLAME_TEST_ROTATION),$(if $(filter $(ARCH_OF_THE_DAY),$(PYFLAME_EMULATOR_ARCH)),tests/python/test_llm_on_gpu.py),tests/python/test_llm_on_gpu.py)

# One of EMULATOR_RUNS. They share no kernel, so they run beside each other, each in one process.
.PHONY: emulator-run
emulator-run: export PYFLAME_EMULATOR_ARCH  = $(firstword $(subst :, ,$(RUN)))
emulator-run: export PYFLAME_EMULATOR_ORDER = $(word 2,$(subst :, ,$(RUN)))
emulator-run: export PYFLAME_TEST_PART     = $(word 3,$(subst :, ,$(RUN)))
emulator-run:
	@rc=0; echo "--- $$PYFLAME_EMULATOR_ARCH, order of threads: $$PYFLAME_EMULATOR_ORDER"; \
	$(EMULATED) $(BUILD)/tests/cpp/pyflame_backends_test --gtest_brief=1 --gtest_filter='$(EMULATOR_TESTS)' || rc=1; \
	$(EMULATED) PYFLAME_TEST_DEVICE=rocm PYFLAME_EMULATOR_DEVICES=2 PYFLAME_TEST_CASES=$(EMULATOR_CASES) $(PYTEST) --jobs=1 tests/ops tests/python/test_profiler.py tests/python/test_fallbacks.py tests/python/test_quantized.py $(EMULATED_LLM) || rc=1; \
	exit $$rc

# The documentation site. Sphinx is in an environment of its own.
SITE_VENV := build/site-venv
# A folder of all versions that are served, and its address: pages have a switch between them, and this version is added to the folder.
SITE_VERSIONS ?=
SITE_URL      ?= /
.PHONY: site
$(STAMP)/site-venv: tools/site/requirements.txt $(STAMP)/bootstrap
	$(PY) -m venv $(SITE_VENV)
	$(SITE_VENV)/bin/pip install --quiet --disable-pip-version-check -r $<
	@touch $@

site: install-venv $(STAMP)/site-venv  ## the documentation as a web site in build/site, with the reference of every public name; links are followed, pages looked at in a browser
	$(SITE_VENV)/bin/python tools/site/build.py --python $(PY) $(if $(SITE_VERSIONS),--versions $(SITE_VERSIONS) --url $(SITE_URL))
	@$(SITE_VENV)/bin/python tools/site/browser.py $(or $(SITE_VERSIONS),build/site); rc=$$?; [ $$rc = 77 ] || exit $$rc

.PHONY: chat-page
chat-page: install-venv $(STAMP)/site-venv  ## talks to the page of `pyflame serve` in a headless Chromium
	@$(SITE_VENV)/bin/python tools/site/chat_page.py --python $(PY); rc=$$?; [ $$rc = 77 ] || exit $$rc

BENCH_ARGS ?= --benchmark_min_time=0.2
bench: install-venv  ## what the engine itself costs per op and per training step; kept in benchmarks/results
	cmake -DPYFLAME_BUILD_BENCHMARKS=ON $(BUILD) >/dev/null
	cmake --build $(BUILD) --target pyflame_overhead
	$(PY) benchmarks/overhead/run.py $(BUILD)/benchmarks/overhead/pyflame_overhead $(BENCH_ARGS)

BENCH_VENV := .bench-venv
BENCH_PY   := $(abspath $(BENCH_VENV)/bin/python)
COMPARE_ARGS ?=
$(STAMP)/bench-venv: $(STAMP)/bootstrap
	$(PY) -m venv $(BENCH_VENV)
	$(BENCH_VENV)/bin/pip install --quiet 'torch>=2.6' numpy
	@touch $@

compare-torch: $(STAMP)/bench-venv build  ## benchmarks against PyTorch, in an environment of its own
	@tools/install_venv.sh $(BUILD) $(BENCH_VENV)
	$(BENCH_PY) benchmarks/compare_torch.py $(COMPARE_ARGS)

compare-ops: $(STAMP)/bench-venv build  ## the same, op by op
	@tools/install_venv.sh $(BUILD) $(BENCH_VENV)
	$(BENCH_PY) benchmarks/compare_ops.py $(COMPARE_ARGS)

$(STAMP)/bench-venv-onnx: $(STAMP)/bench-venv
	$(BENCH_VENV)/bin/pip install --quiet onnx onnxruntime
	$(BENCH_VENV)/bin/pip install --quiet --no-deps silero-vad magika
	@touch $@

compare-onnx: $(STAMP)/bench-venv-onnx build  ## ONNX models of silero-vad and magika, against ONNX Runtime
	@tools/install_venv.sh $(BUILD) $(BENCH_VENV)
	$(BENCH_PY) benchmarks/compare_onnx.py $(COMPARE_ARGS)

clean:  ## remove what was built
	rm -rf build dist *.egg-info compile_commands.json

distclean: clean  ## and the virtual environment
	rm -rf $(VENV)
