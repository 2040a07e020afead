"""utils.cpp_extension: ops of the user's in C++, built by the compiler of the machine."""
import inspect
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

import pyflame as pf
from pyflame.utils import cpp_extension

pytestmark = pytest.mark.skipif(not (os.environ.get("CXX") or shutil.which("c++")), reason="there is no C++ compiler")

SOURCE = r"""
#include <cmath>
#include <pyflame/extension.h>
#include "scale.h"
using namespace pyflame::extension;

template <class T>
void softplus(Input<T> x, double beta, Output<T> out) {
  for (int64_t i = 0; i < x.size(); ++i) out[i] = std::log1p(std::exp(T(beta) * x[i])) / T(beta);
}
template <class T>
void softplus_grad(Input<T> grad, Input<T> x, Input<T>, double beta, Output<T> dx) {
  for (int64_t i = 0; i < x.size(); ++i) dx[i] = grad[i] / (1 + std::exp(-T(beta) * x[i]));
}
// A number before a tensor, two outputs of other shapes and types.
void row_stats(bool absolute, Input<float> x, int64_t power, Output<double> sum, Output<int64_t> count) {
  for (double& s : sum) s = 0;
  for (int64_t i = 0; i < x.size(); ++i) {
    const double v = absolute ? std::fabs(x[i]) : x[i];
    sum[i / x.shape(-1)] += SCALE * std::pow(v, static_cast<double>(power));
  }
  count[0] = x.size();
}
void halves(Input<pyflame::bfloat16> x, Input<bool> keep, Output<pyflame::float16> out) {
  for (int64_t i = 0; i < x.size(); ++i) out[i] = pyflame::float16(keep[i] ? static_cast<float>(x[i]) / 2 : 0);
}
void fails(Input<float> x, Output<float>) { throw std::runtime_error("row " + std::to_string(x.size()) + " is odd"); }
void wrong_dim(Input<float> x, Output<float> out) { out[0] = static_cast<float>(x.shape(5)); }
void negative(Input<float>, Output<float>) {}
PYFLAME_OPS(ops) {
  ops.add<softplus<float>, softplus<double>>("softplus(x, beta) -> out").gradient("softplus_grad");
  ops.add<softplus_grad<float>, softplus_grad<double>>("softplus_grad(grad, x, out, beta) -> dx");
  ops.add<row_stats>("row_stats(absolute, x, power) -> sum, count").result([](const Arguments& a) {
    return std::vector<Shape>{{a.shape(0)[0]}, {a.integer(1) > 0 ? 1 : 2}};
  });
  ops.add<halves>("halves(x, keep) -> out");
  ops.add<fails>("fails(x) -> out");
  ops.add<wrong_dim>("wrong_dim(x) -> out");
  ops.add<negative>("negative(x) -> out").result([](const Arguments&) { return std::vector<Shape>{{-1}}; });
}
"""
HEAD = "#include <cstdlib>\n#include <pyflame/extension.h>\nusing namespace pyflame::extension;\nvoid f(Input<float> x, Output<float> out) { out[0] = x[0]; }\nvoid g(Input<float>, double, Output<float>) {}\nvoid n(double, Output<float>) {}\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("extension")
    (folder / "ops.cpp").write_text(SOURCE)
    (folder / "scale.h").write_text("#define SCALE 1\n")
    return folder


def built(folder):
    return cpp_extension.load("ops", [folder / "ops.cpp"], extra_cflags=["-O0"], build_directory=folder / "built")


@pytest.fixture(scope="module")
def ext(folder):
    return built(folder)


def small(name, ops, folder):
    return cpp_extension.load_inline(name, f"{HEAD}PYFLAME_OPS(ops) {{ {ops} }}\n", extra_cflags=["-O0"], build_directory=folder)


@pytest.mark.parametrize("dtype", [pf.float32, pf.float64])
def test_an_op_computes_in_each_of_its_dtypes(ext, dtype):
    x = pf.linspace(-3, 3, 40, dtype=dtype)
    for beta in (1.0, 2.0):
        got = ext.softplus(x, beta=beta)
        assert got.dtype == dtype
        np.testing.assert_allclose(got.numpy(), np.log1p(np.exp(beta * x.numpy())) / beta, rtol=1e-6)


def test_it_is_recorded_between_other_ops_and_takes_any_strides(ext):
    x = pf.arange(12.0).reshape(3, 4)
    y = ext.softplus((x * 0.1).t(), 1) * 2
    np.testing.assert_allclose(y.numpy(), 2 * np.log1p(np.exp(0.1 * x.numpy().T)), rtol=1e-6)
    text = str(pf.explain(lambda: ext.softplus(x, 1.0)))
    assert "softplus(float32(3, 4)" in text and "extension" in text


def test_an_op_shows_its_signature(ext):
    assert str(inspect.signature(ext.softplus)) == "(x: 'Tensor', beta: 'float') -> 'Tensor'"
    assert str(inspect.signature(ext.row_stats)) == "(absolute: 'bool', x: 'Tensor', power: 'int') -> 'tuple[Tensor, Tensor]'"


def test_gradients(ext):
    x = pf.linspace(-2, 2, 7, dtype=pf.float64, requires_grad=True)
    assert pf.autograd.gradcheck(lambda x: ext.softplus(x, 3.0), (x,))
    with pytest.raises(NotImplementedError, match=r"halves: the kernel has no gradient; .* expected \.gradient\(op\) in PYFLAME_OPS"):
        ext.halves(pf.ones(2, dtype=pf.bfloat16, requires_grad=True), pf.ones(2, dtype=pf.bool))


def test_numbers_several_outputs_and_shapes_of_results(ext):
    x = pf.tensor([[1.0, -2.0], [3.0, -4.0]])
    total, count = ext.row_stats(True, x, 2)
    assert total.tolist() == [5.0, 25.0] and total.dtype == pf.float64 and count.tolist() == [4] and count.dtype == pf.int64
    total, count = ext.row_stats(absolute=False, x=x, power=1)
    assert total.tolist() == [-1.0, -1.0]


def test_halves_and_bools(ext):
    got = ext.halves(pf.tensor([3.0, 5.0], dtype=pf.bfloat16), pf.tensor([True, False]))
    assert got.dtype == pf.float16 and got.tolist() == [1.5, 0.0]


def test_shapes_are_known_without_computing(ext):
    assert ext.softplus(pf.ones(2, 3, device="meta"), 1.0).shape == (2, 3)


def test_empty_tensors(ext):
    assert ext.softplus(pf.ones(0, 3), 1.0).shape == (0, 3)


def test_what_an_extension_is(ext):
    assert repr(ext) == "pyflame.extension(ops: softplus, softplus_grad, row_stats, halves, fails, wrong_dim, negative)"
    assert repr(ext.row_stats) == "pyflame.extensionop(row_stats(x, absolute, power) -> sum, count)" and "softplus" in dir(ext)
    with pytest.raises(AttributeError, match="ops: there is no such op; got sigmoid; expected softplus"):
        ext.sigmoid  # noqa: B018


def test_an_exception_of_the_function_is_an_error_at_the_read(ext):
    y = ext.fails(pf.ones(3))
    with pytest.raises(RuntimeError, match="fails: the plug-in .* failed; got status 1: row 3 is odd; expected 0"):
        y.tolist()
    with pytest.raises(RuntimeError, match="the tensor has no dim 5: it has 1"):
        ext.wrong_dim(pf.ones(3)).tolist()
    assert ext.softplus(pf.zeros(1), 1.0).item() == pytest.approx(np.log(2))


@pytest.mark.parametrize("error, text, call", [
    (TypeError, "softplus: arguments are missing; got no beta; expected x, beta", lambda e: e.softplus(pf.ones(2))),
    (TypeError, "softplus: too many arguments; got 3", lambda e: e.softplus(pf.ones(2), 1.0, 2.0)),
    (TypeError, "softplus: an argument is given twice or unknown; got gamma", lambda e: e.softplus(pf.ones(2), gamma=1.0)),
    (TypeError, "softplus: x is no tensor; got list", lambda e: e.softplus([1.0], 1.0)),
    (TypeError, "softplus: beta is no number of its type; got 'a'; expected float64", lambda e: e.softplus(pf.ones(2), "a")),
    (TypeError, "row_stats: power is no integer; got 1.5; expected int64", lambda e: e.row_stats(True, pf.ones(2, 2), 1.5)),
    (ValueError, "softplus: the extension refuses the arguments: no function for these dtypes; got (int64); expected (float32) or (float64)", lambda e: e.softplus(pf.tensor([1]), 1.0)),
    (ValueError, "negative: the extension gives a result a negative size; got -1", lambda e: e.negative(pf.ones(2))),
])
def test_errors_of_calls(ext, error, text, call):
    with pytest.raises(error) as e:
        call(ext)
    assert text in str(e.value)


def test_it_is_built_once_and_again_after_a_change_of_a_header(folder, ext, monkeypatch):
    files = sorted((folder / "built").iterdir())
    x = pf.tensor([[1.0, 2.0]])
    with monkeypatch.context() as m:
        m.setattr(cpp_extension._Build, "_object", None)  # a build would fail
        again = built(folder)
        assert again.row_stats(False, x, 1)[0].item() == 3 and again.__file__ == ext.__file__ and sorted((folder / "built").iterdir()) == files
    (folder / "scale.h").write_text("#define SCALE 10\n")
    other = built(folder)
    assert other.__file__ != ext.__file__ and other.row_stats(False, x, 1)[0].item() == 30 and ext.row_stats(False, x, 1)[0].item() == 3
    (folder / "scale.h").write_text("#define SCALE 1\n")


def test_a_damaged_listing_is_written_anew(tmp_path):
    first = small("again", 'ops.add<f>("f(x) -> out");', tmp_path)
    for listing in tmp_path.glob("*.json"):
        listing.write_text("{")
    second = small("again", 'ops.add<f>("f(x) -> out");', tmp_path)
    assert first.f(pf.ones(1)).item() == second.f(pf.full((1,), 2.0)).item() - 1


WRONG = {  # what stands in PYFLAME_OPS, and the error
    "": None,
    'ops.add<f>("f(x) = out");': "a signature makes no sense; got 'f(x) = out'",
    'ops.add<f>("f(x, y) -> out");': "a signature does not fit its function; got 'f(x, y) -> out'; expected names for 1 arguments and then 1 outputs",
    'ops.add<f>("f(x) -> x");': "names of a signature are unusable",
    'ops.add<f>("f(x) -> out"); ops.add<f>("f(x) -> out");': "an op is listed twice; got f",
    'ops.add<f>("f(x) -> out").gradient("h");': "the gradient of f does not fit; got 'h'; expected an op of 3 tensors",
    'ops.add<n>("n(y) -> out");': "an op has no tensor; got 'n(y) -> out'",
    'ops.add<f, g>("f(x) -> out");': "f(x) -> out: its functions have different kinds of arguments",
}


@pytest.fixture(scope="module")
def wrong(tmp_path_factory):
    """A library with the definitions of WRONG. The environment variable WRONG tells which ones it lists."""
    folder = tmp_path_factory.mktemp("wrong")
    cases = "\n".join(f"case {i}: {{ {ops} }} break;" for i, ops in enumerate(WRONG))
    return small("wrong", f'switch (std::atoi(std::getenv("WRONG") ? std::getenv("WRONG") : "0")) {{\n{cases}\n}}', folder).__file__


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_wrong_definitions(tmp_path, monkeypatch, wrong, number):
    text = list(WRONG.values())[number]
    path = shutil.copy(wrong, tmp_path / "bad.so")  # the same file would not be loaded again
    monkeypatch.setenv("WRONG", str(number))
    if text is None:
        assert repr(cpp_extension.Extension("bad", path)) == "pyflame.extension(bad: )"
        return
    with pytest.raises(ValueError) as e:
        cpp_extension.Extension("bad", path)
    assert f"cpp_extension.load: bad: {text}" in str(e.value)


def test_errors_of_builds(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="the name is no identifier; got 'a b'"):
        cpp_extension.load("a b", "x.cpp")
    with pytest.raises(ValueError, match="x has no sources"):
        cpp_extension.load("x", [])
    with pytest.raises(FileNotFoundError, match="there is no such source; got 'nowhere.cpp'"):
        cpp_extension.load("x", ["nowhere.cpp"])
    with pytest.raises(RuntimeError, match=r"(?s)the compiler refuses .*x\.cpp; got status 1; expected 0.*x\.cpp:1:\d+.*what"):
        cpp_extension.load_inline("x", "int what what;\n", build_directory=tmp_path)
    with pytest.raises(RuntimeError, match="the library lists no ops; got x; expected a source with PYFLAME_OPS"):
        cpp_extension.load_inline("x", "int x;\n", build_directory=tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="the library cannot be kept; got '.*file' .*; expected a folder that can be written; hint: build_directory"):
        cpp_extension.load_inline("x", "int x;\n", build_directory=tmp_path / "file")
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(RuntimeError, match=r"there is no compiler; got no-such-compiler; .* hint: install one \(the package g\+\+\), or name it in the environment variable CXX"):
        cpp_extension.load_inline("x", "int x;\n", build_directory=tmp_path)
    with pytest.raises(NotImplementedError, match="cpp_extension.CUDAExtension: not available"):
        cpp_extension.CUDAExtension("x", [])


def test_it_is_kept_in_the_cache_for_the_next_process(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(f"import pyflame as pf\next = pf.utils.cpp_extension.load_inline('kept', {HEAD + 'PYFLAME_OPS(ops) { ops.add<f>(' + chr(34) + 'f(x) -> out' + chr(34) + '); }'!r}, verbose=True)\n"
                      "print(ext.f(pf.ones(1)).item(), ext.__file__)\n")
    env = {**os.environ, "PYFLAME_CACHE_DIR": str(tmp_path / "cache")}
    runs = [subprocess.run([sys.executable, script], capture_output=True, text=True, env=env, check=True) for _ in range(2)]
    assert runs[0].stdout == runs[1].stdout and runs[0].stdout.startswith(f"1.0 {tmp_path / 'cache' / 'extensions'}")
    assert "-shared" in runs[0].stderr and "-shared" not in runs[1].stderr


def test_headers_lie_beside_links_to_the_files_of_a_clone(tmp_path):
    """`pip install -e python` and `make develop` install such links."""
    subprocess.run(["cp", "-rs", pathlib.Path(pf.__file__).parent, tmp_path / "pyflame"], check=True)
    code = "from pyflame.utils import cpp_extension; print(*cpp_extension.include_paths())"
    said = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)
    assert said.stdout.split() == [str(tmp_path / "pyflame" / "include")], said


def test_headers_lie_where_include_paths_says():
    (folder,) = cpp_extension.include_paths()
    assert (pathlib.Path(folder) / "pyflame" / "extension.h").is_file() and pf.tuning.plugin_header() == os.path.join(folder, "pyflame", "plugin.h")
