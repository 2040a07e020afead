"""Each lint reports its mistake in a bad sample, and reports nothing in a good one."""
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "lint"))

import definitions  # noqa: E402
import devices  # noqa: E402
import formatting  # noqa: E402
import headers  # noqa: E402
import includes  # noqa: E402
import mentions  # noqa: E402
import paths  # noqa: E402
import private_words  # noqa: E402
import sizes  # noqa: E402
import vendor  # noqa: E402


@pytest.fixture
def tree(tmp_path):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)

    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return tmp_path

    return write


@pytest.mark.parametrize(
    "name, included",
    [
        ("src/pyflame/base/a.h", "tensor/tensor.h"),
        ("src/pyflame/tensor/a.cpp", "ops/ops.h"),
        ("src/pyflame/ops/a.cpp", "autograd/autograd.h"),
        ("src/pyflame/record/a.cpp", "ops/ops.h"),
        ("src/pyflame/record/a.cpp", "runtime/executor.h"),
        ("src/pyflame/autograd/a.cpp", "runtime/executor.h"),
        ("src/pyflame/compile/a.cpp", "runtime/executor.h"),
        ("src/pyflame/runtime/a.cpp", "backends/cpu/cpu.h"),
        ("src/pyflame/runtime/a.cpp", "nn/module.h"),
        ("src/pyflame/backends/backend.h", "compile/program.h"),
        ("src/pyflame/backends/reference/a.cpp", "backends/cpu/cpu.h"),
        ("src/pyflame/backends/cpu/a.cpp", "backends/reference/other.h"),
        ("src/pyflame/backends/cpu/a.cpp", "runtime/allocator.h"),
        ("src/pyflame/backends/rocm/a.cpp", "backends/cuda/blas.h"),
        ("src/pyflame/backends/rocm/a.cpp", "backends/gpu/ops/gemm.h"),
        ("src/pyflame/backends/gpu/driver/a.cpp", "backends/gpu/jit/kernel.h"),
        ("src/pyflame/backends/gpu/loops/a.cpp", "backends/gpu/ops/impls.h"),
        ("src/pyflame/backends/gpu/libs/a.cpp", "backends/gpu/loops/loop.h"),
        ("src/pyflame/kernels/a.h", "backends/gpu/jit/kernel.h"),
        ("src/pyflame/kernels/device/a.h", "base/half.h"),
        ("src/pyflame/optim/a.cpp", "data/text.h"),
        ("cli/a.cpp", "backends/cpu/cpu.h"),
        ("src/tools/doctor/a.cpp", "tensor/tensor.h"),
        ("src/tools/inspect/a.cpp", "tools/doctor/rules.h"),
        ("src/pyflame/runtime/device.cpp", "tools/system/absence.h"),
        ("src/pyflame/base/a.cpp", "tools/base/text.h"),
        ("src/pyflame/nn/a.cpp", "apps/gpt/gpt.h"),
        ("src/pyflame/nn/a.cpp", "optim/optim.h"),
        ("src/apps/gpt/a.cpp", "tools/doctor/rules.h"),
        ("src/apps/gpt/a.cpp", "backends/cpu/cpu.h"),
    ],
)
def test_include_against_the_direction(tree, name, included):
    path = included if included.startswith(("tools/", "apps/")) else f"pyflame/{included}"
    root = tree(name, f'// A comment.\n\n#include "{path}"\n')
    (finding,) = includes.check(root)
    assert (finding.path, finding.line) == (name, 3)
    assert included in finding.text


@pytest.mark.parametrize(
    "name, included",
    [
        ("src/pyflame/ops/a.cpp", "record/ir.h"),
        ("src/pyflame/ops/a.cpp", "record/emit.h"),
        ("src/pyflame/record/a.cpp", "ops/op.h"),
        ("src/pyflame/ops/a.cpp", "tensor/grad_node.h"),
        ("src/pyflame/runtime/register_backends.cpp", "backends/cpu/cpu.h"),
        ("src/pyflame/backends/cpu/a.cpp", "backends/reference/reference.h"),
        ("src/pyflame/backends/gpu/ops/a.cpp", "backends/gpu/libs/blas.h"),
        ("src/pyflame/nn/a.cpp", "runtime/executor.h"),
        ("cli/a.cpp", "nn/module.h"),
        ("tests/cpp/a.cpp", "backends/cpu/tile.h"),
        ("src/tools/doctor/a.cpp", "tools/system/facts.h"),
        ("src/tools/doctor/a.cpp", "base/error.h"),
        ("src/pyflame/runtime/register_backends.cpp", "tools/system/absence.h"),
        ("cli/a.cpp", "tools/doctor/audit.h"),
        ("cli/a.cpp", "apps/gpt/commands.h"),
        ("src/apps/gpt/a.cpp", "optim/optim.h"),
        ("src/apps/gpt/a.cpp", "tools/view/kit.h"),
    ],
)
def test_include_in_the_direction(tree, name, included):
    path = included if included.startswith(("tools/", "apps/")) else f"pyflame/{included}"
    assert includes.check(tree(name, f'#include "{path}"\n#include <vector>\n')) == []


# What a header of tensor/ declares, and what defines it.
DECLARED = [
    ("int low(int x);", "int low(int y) { return y; }"),
    ("int low(const Dims& shape, int n = 3);", "int low(const Dims& s, int n) {\n  return n;\n}"),
    ("struct Low {\n public:\n  int at(int i) const;\n};", "int Low::at(int i) const { return i; }"),
    ("class Low : public High {\n  Low();\n};", "Low::Low() : High(1), x_{2} {}"),
    ("struct Low {\n  ~Low();\n};", "Low::~Low() = default;"),
    ("struct Low {\n  bool operator==(const Low& o) const;\n};", "bool Low::operator==(const Low&) const { return true; }"),
    ("namespace inner {\nint low();\n}", "int inner::low() { return 1; }"),
    ("template <class T>\nstd::vector<T> low(std::function<void(T)> f);", "template <class T>\nstd::vector<T> low(std::function<void(T)> f) { return {}; }"),
    ("extern const int kLow;", "const int kLow = 3;"),
    ("extern const int kLow[];", "const int kLow[] = {1, 2};"),
    ("Json low(const nlohmann::json& j);", "Json low(const Json& j) { return j; }"),
]


@pytest.mark.parametrize("declaration, definition", DECLARED)
def test_definition_in_another_layer(tree, declaration, definition):
    tree("src/pyflame/tensor/a.h", f"// A comment.\nnamespace pyflame {{\n{declaration}\n}}\n")
    root = tree("src/pyflame/runtime/b.cpp", f"namespace pyflame {{\n{definition}\n}}  // namespace pyflame\n")
    (finding,) = definitions.check(root)
    assert finding.path == "src/pyflame/tensor/a.h" and "src/pyflame/runtime/b.cpp" in finding.text
    assert definitions.check(tree("src/pyflame/tensor/c.cpp", f"namespace pyflame {{\n{definition}\n}}\n")) == []


def test_definitions_that_are_no_call_upward(tree):
    tree("src/pyflame/tensor/a.h", "namespace pyflame {\nint low(int x) ;\nint high();  // int hidden(); in a comment\nstruct S {\n  virtual int f() = 0;\n"
         "  int g() { return 1; }\n  void (*hook)(int x);\n};\n}\n")
    tree("src/pyflame/tensor/a.cpp", "namespace pyflame {\nint low(int x) { return x; }\n}\n")
    # An overload, a function of one file, and one of another namespace.
    root = tree("src/pyflame/runtime/b.cpp", "namespace pyflame {\nint low(const Window& w) { return 1; }\nnamespace {\nint high() { return 2; }\n}\n"
                "namespace other {\nint high() { return 3; }\n}\nstruct T {\n  int f() { return 1; }\n};\n}\n")
    assert definitions.check(root) == []


def test_an_overload_of_another_layer_does_not_hide_the_definition(tree):
    tree("src/pyflame/tensor/a.h", "namespace pyflame {\nint low(const Tensor& x);\nint low(const Dims& x);\n}\n")
    tree("src/pyflame/tensor/a.cpp", "namespace pyflame {\nint low(const Dims& x) { return 1; }\n}\n")
    (finding,) = definitions.check(tree("src/pyflame/runtime/b.cpp", "namespace pyflame {\nint low(const Tensor& t) { return 2; }\n}\n"))
    assert finding.line == 2


def test_upward_definitions_that_are_meant_still_exist():
    text = "".join(p.read_text() for p in sorted((ROOT / "src" / "pyflame").rglob("*.h")))
    for name in definitions.UPWARD:
        assert name.rsplit("::", 1)[1] in text, f"{name} is declared nowhere: take it out of UPWARD"


@pytest.mark.parametrize("folder", ["ops", "record", "compile"])
def test_device_type_below_the_runtime(tree, folder):
    (finding,) = devices.check(tree(f"src/pyflame/{folder}/a.cpp", "// DeviceType::cpu\nbool f(Device d) { return d.type == DeviceType::cpu; }\n"))
    assert finding.line == 2


def test_device_types_where_they_are_known(tree):
    tree("src/pyflame/tensor/device.cpp", "DeviceType f() { return DeviceType::cpu; }\n")
    assert devices.check(tree("src/pyflame/runtime/a.cpp", "DeviceType f() { return DeviceType::cpu; }\n")) == []


def test_folder_without_a_layer(tree):
    (finding,) = includes.check(tree("src/pyflame/misc/a.h", "// A comment.\n"))
    assert "no layer" in finding.text


@pytest.mark.parametrize(
    "line",
    [
        "#ifdef __HIP_PLATFORM_AMD__",
        "#if defined(__CUDA_ARCH__)",
        "hipMalloc(&p, n);",
        "cudaStream_t s;",
        "int w = warpSize;",
        "#include <hip/hip_runtime.h>",
        "int i = threadIdx.x;",
        "constexpr int kLanes = 32;",
        "int lane = i % 32;",
        "if (lane == 31u) return;",
        "uint64_t wave_mask = 0xffffffff;",
    ],
)
def test_vendor_word_or_wave_width(tree, line):
    root = tree("src/pyflame/runtime/a.cpp", f"// A comment.\n{line}\n")
    (finding,) = vendor.check(root)
    assert finding.line == 2


def test_vendor_words_where_they_are_at_home(tree):
    tree("src/pyflame/kernels/device/arch.h", "#ifdef __HIP_DEVICE_COMPILE__\nint lane = i % 32;\n")
    tree("src/pyflame/backends/rocm/a.cpp", "hipMalloc(&p, n);\n")
    root = tree("src/pyflame/ops/a.cpp", "int64_t x = 32;  // 32 is no wave, warp or lane here\nint plane = f(x) << 3;\n")
    assert vendor.check(root) == []


def test_vendor_words_in_tools_but_no_vendor_builds(tree):
    assert vendor.check(tree("src/tools/profile/a.cpp", 'const char* names[] = {"hipMalloc"};  \nint wave = 32;\n')) == []
    (finding,) = vendor.check(tree("src/tools/profile/a.cpp", "#ifdef __HIPCC__\n#endif\n"))
    assert "__HIPCC__" in str(finding)


def test_vendor_folder_may_not_fix_the_wave(tree):
    (finding,) = vendor.check(tree("src/pyflame/backends/rocm/a.cpp", "int lanes = 32;\n"))
    assert "wave" in finding.text


@pytest.mark.parametrize("path", ["/ro" + "ot/x", "/wo" + "rk/main", "/tmp/" + "pf/x", "/ho" + "me/ann/x"])
def test_machine_path(tree, path):
    (finding,) = paths.check(tree("docs/a.md", f"see {path} there\n"))
    assert finding.line == 1


def test_other_paths(tree):
    assert paths.check(tree("docs/a.md", "a/work/b, /usr/lib, ~/work/x, /workspace, network/root/x, https://a.b/root/c\n")) == []


def test_file_without_comment_or_guard(tree):
    tree("src/pyflame/ops/a.h", "#include <vector>\n")
    tree("src/pyflame/ops/b.cpp", "#include <vector>\n")
    root = tree("python/pyflame/c.py", "import os\n")
    found = {(f.path, f.text.split(" ")[1]) for f in headers.check(root)}
    assert {f[0] for f in found} == {"src/pyflame/ops/a.h", "src/pyflame/ops/b.cpp", "python/pyflame/c.py"}
    assert len(headers.check(root)) == 4  # the header lacks its guard as well


def test_file_with_comment(tree):
    tree("src/pyflame/ops/a.h", "// What it is for.\n#pragma once\n")
    tree("src/pyflame/ops/a.cpp", '#include "pyflame/ops/a.h"\n')
    tree("python/pyflame/__init__.py", "")
    assert headers.check(tree("python/pyflame/c.py", '"""What it is for."""\n')) == []


def test_format(tree):
    try:
        formatting.tool()
    except formatting.Skipped as e:
        pytest.skip(str(e))
    tree(".clang-format", (ROOT / ".clang-format").read_text())
    tree("src/good.cpp", "int f() { return 1; }\n")
    root = tree("src/bad.cpp", "int  f( ){return 1;}\n")
    (finding,) = formatting.check(root)
    assert finding.path == "src/bad.cpp"


def test_long_file_and_function(tree):
    tree("src/long.cpp", "// A comment.\n" + "int x;\n" * 700)
    root = tree("src/function.cpp", "int f(int x) {\n" + "  x += 1;\n" * 70 + "}\nint g() {\n  return 1;\n}\n")
    found = {f.path: f.text for f in sizes.check(root)}
    assert found["src/long.cpp"].startswith("702 lines")
    assert found["src/function.cpp"].startswith("72 lines in a function")
    assert len(found) == 2


def test_runner_fails_on_findings(tree):
    root = tree("src/pyflame/base/a.h", '// A comment.\n#pragma once\n#include "pyflame/nn/module.h"\n')
    run = [sys.executable, str(ROOT / "tools" / "lint" / "run.py"), "--root", str(root)]
    bad = subprocess.run([*run, "includes"], capture_output=True, text=True)
    assert bad.returncode == 1
    assert "src/pyflame/base/a.h:3:" in bad.stdout
    assert subprocess.run([*run, "vendor", "sizes"], capture_output=True).returncode == 0
    assert subprocess.run([*run, "nonsense"], capture_output=True).returncode == 2


HOUSE = {
    "Makefile": "test: build  ## all\n",
    "docs/cli.md": "## pyflame info\n\n## Exit codes\n",
    "src/pyflame/base/env.def": 'ENV_INT(PYFLAME_DEBUG, debug, 0, 0, 6, "")\n',
    "src/tools/doctor/rules.json": '{"id": "ENV-01"}\n',
    "src/pyflame/ops/norm.cpp": "Tensor softmax(const Tensor& x) {}\n",
    "src/pyflame/record/recorder.cpp": "void Recorder::cut() {}\n",
}
TABLE = "| `Recorder::{}` | `src/pyflame/record/recorder.cpp` | ends it |\n"


@pytest.mark.parametrize(
    "name, good, bad",
    [
        ("ARCHITECTURE.md", "`ops/norm.cpp` `src/pyflame/ops` `src/pyflame/<layer>/` `norm.cpp` `build/x.cpp`", "`ops/softmax.cpp`"),
        ("ARCHITECTURE.md", TABLE.format("cut"), TABLE.format("end")),
        ("README.md", "`src/pyflame/ops/*.cpp` `trace/of/me.json`", "`src/pyflame/ops/*.hip`"),
        ("docs/a.md", "`make test` and make believe", "`make tests`"),
        ("docs/a.md", "`pyflame info --json`", "`pyflame information`"),
        ("docs/a.md", "PYFLAME_DEBUG=5", "PYFLAME_DEBUGGING=5"),
        ("docs/a.md", "ENV-01", "ENV-02"),
        ("docs/a.md", "[codes](cli.md#exit-codes) [here](#a) [out](https://a.b/c.md)\n# A", "[codes](cli.md#codes)"),
        ("docs/a.md", "[makefile](../Makefile)", "[makefile](Makefile)"),
        ("docs/a.md", "```\nmake nothing `make nothing`\n```", "`make nothing`"),
        ("src/pyflame/ops/a.h", "// ops/norm.cpp says why, torch/x.py and src/pyflame/record/recorder.cpp too", "// ops/softmax.cpp"),
        ("tests/a.py", "# tests/a.py\nx = 'tests/b.py'", "# tests/b.py"),
    ],
)
def test_mentions_of_what_is_not_there(tree, name, good, bad):
    for file, text in HOUSE.items():
        tree(file, text)
    assert mentions.check(tree(name, good + "\n")) == []
    (finding,) = mentions.check(tree(name, bad + "\n"))
    assert (finding.path, finding.line) == (name, 1)


def test_private_words(tree):
    (finding,) = private_words.check(tree("src/pyflame/a.cpp", "// settle\nvoid settle_others();  // beside\n"))
    assert finding.line == 2 and "settle_others" in finding.text and "flush" in finding.text
    (finding,) = private_words.check(tree("src/pyflame/a.cpp", "enum class ConvFace { forward };\n"))
    assert "ConvFace" in finding.text


@pytest.mark.parametrize("text", ['int returned = interface(surface);\n', 'auto s = "beside";  // as it lies\n'])
def test_names_that_are_no_private_words(tree, text):
    assert private_words.check(tree("src/pyflame/a.cpp", text)) == []
