"""testing.check_op: cases of ops of extensions, which a compiler of the machine builds."""
import os
import shutil

import pytest

import pyflame as pf
from pyflame.testing import check_op
from pyflame.utils import cpp_extension

pytestmark = pytest.mark.skipif(not (os.environ.get("CXX") or shutil.which("c++")), reason="there is no C++ compiler")

SOURCE = r"""
#include <cmath>
#include <pyflame/extension.h>
using namespace pyflame::extension;

template <class T>
void softplus(Input<T> x, double beta, Output<T> out) {
  for (int64_t i = 0; i < x.size(); ++i) out[i] = std::log1p(std::exp(T(beta) * x[i])) / T(beta);
}
void softplus_16(Input<pyflame::bfloat16> x, double beta, Output<pyflame::bfloat16> out) {
  for (int64_t i = 0; i < x.size(); ++i) out[i] = pyflame::bfloat16(static_cast<float>(std::log1p(std::exp(beta * static_cast<float>(x[i]))) / beta));
}
template <class T>
void softplus_grad(Input<T> grad, Input<T> x, Input<T>, double beta, Output<T> dx) {
  for (int64_t i = 0; i < x.size(); ++i) dx[i] = T(grad[i] / (1 + std::exp(-beta * x[i])));
}
// Its gradient is wrong.
void forgetful_grad(Input<double> grad, Input<double>, Input<double>, double, Output<double> dx) {
  for (int64_t i = 0; i < grad.size(); ++i) dx[i] = grad[i];
}
// Wrong in float16 alone.
void third(Input<float> x, Output<float> out) { for (int64_t i = 0; i < x.size(); ++i) out[i] = x[i] / 3; }
void third_of_half(Input<pyflame::float16> x, Output<pyflame::float16> out) { for (int64_t i = 0; i < x.size(); ++i) out[i] = x[i]; }
void count(Input<float> x, Input<bool> keep, Output<int64_t> kept, Output<float> sum) {
  kept[0] = 0, sum[0] = 0;
  for (int64_t i = 0; i < x.size(); ++i) if (keep[i]) ++kept[0], sum[0] += x[i];
}
void on_gpus(Input<float>, Output<float>, Stream) {}
PYFLAME_OPS(ops) {
  ops.add<softplus<float>, softplus<double>, softplus_16>("softplus(x, beta) -> out").gradient("softplus_grad");
  ops.add<softplus_grad<float>, softplus_grad<double>>("softplus_grad(grad, x, out, beta) -> dx");
  ops.add<softplus<double>>("forgetful(x, beta) -> out").gradient("forgetful_grad");
  ops.add<forgetful_grad>("forgetful_grad(grad, x, out, beta) -> dx");
  ops.add<third, third_of_half>("third(x) -> out");
  ops.add<count>("count(x, keep) -> kept, sum").result([](const Arguments&) { return std::vector<Shape>{{1}, {1}}; });
  ops.add<on_gpus>("on_gpus(x) -> out");
  ops.add<third>("both(x) -> out");
  ops.add<on_gpus>("both(x) -> out");
}
"""
HAS_GPU = pf.rocm_is_available() or pf.cuda_is_available()


@pytest.fixture(scope="module")
def ext(tmp_path_factory):
    return cpp_extension.load_inline("cases", SOURCE, extra_cflags=["-O0"], build_directory=tmp_path_factory.mktemp("extension"))


def reference(x, beta):
    assert x.dtype == pf.float64
    return pf.log1p(pf.exp(beta * x)) / beta


def test_a_right_op_is_checked_in_each_dtype_and_its_gradient(ext):
    report = check_op(ext.softplus, [dict(x=[-1.0, 0.0, 3.0], beta=2.0), dict(x=pf.ones(2, 3).t(), beta=1.0), dict(x=[0.0], beta=1.0, expected=[0.6931471805599453])], reference)
    each = ["(float32) on cpu: values", "(float64) on cpu: values", "(bfloat16) on cpu: values", "on cpu: gradient"]
    assert report == [f"case {n} of softplus{',' if ':' in line and '(' in line else ''} {line}" for n in range(3) for line in each]


def test_dtypes_of_their_own_several_results_and_no_gradient(ext):
    report = check_op(ext.count, [dict(x=[1.0, 2.0, 3.0], keep=[True, False, True])], lambda x, keep: (keep.sum().reshape(1), x[keep].sum().reshape(1)))
    assert report == ["case 0 of count, (float32, bool) on cpu: values", "case 0 of count on cpu: no gradient, because PYFLAME_OPS names none"]
    check_op(ext.count, [dict(x=[1.0, 2.0], keep=[True, False], expected=([1], [1.0]))])


@pytest.mark.skipif(HAS_GPU, reason="the GPU is looked at")
def test_what_is_not_checked_is_said(ext):
    assert check_op(ext.both, [dict(x=[3.0], expected=[1.0])])[-1] == "case 0 of both: not checked on a GPU, of which there is none"
    wide = check_op(ext.softplus_grad, [dict(grad=[1.0], x=[0.0], out=[0.0], beta=1.0, expected=[0.5])])
    assert wide[-1] == "case 0 of softplus_grad on cpu: no gradient, because PYFLAME_OPS names none"


def test_a_wrong_value_names_case_dtype_and_device(ext):
    with pytest.raises(AssertionError, match=r"^check_op: case 1 of softplus, \(float32\) on cpu: out: 1 of 2 elements differ"):
        check_op(ext.softplus, [dict(x=[0.0], beta=1.0, expected=[0.6931472]), dict(x=[0.0, 1.0], beta=1.0, expected=[0.6931472, 1.0])])
    with pytest.raises(AssertionError, match=r"^check_op: case 0 of third, \(float16\) on cpu: out: "):
        check_op(ext.third, [dict(x=[3.0])], lambda x: x / 3)
    check_op(ext.third, [dict(x=[3.0], expected=[2.0])], rtol=0.0, atol=2.0)


def test_a_wrong_gradient_is_found(ext):
    with pytest.raises(RuntimeError, match="^check_op: the gradient of case 0 of forgetful on cpu is wrong: gradcheck"):
        check_op(ext.forgetful, [dict(x=[0.5], beta=1.0)], reference)


@pytest.mark.parametrize("error, text, call", [
    (TypeError, "check_op: this is no op of an extension; got str; expected such as ext.softplus", lambda e: check_op("softplus", [])),
    (ValueError, "check_op: softplus has no cases; got []; expected a dict for each, with the arguments x, beta", lambda e: check_op(e.softplus, [])),
    (ValueError, "check_op: case 0 of softplus has other arguments; got x; expected x, beta, and 'expected'", lambda e: check_op(e.softplus, [dict(x=[1.0])], reference)),
    (ValueError, "check_op: nothing says what case 0 of softplus should compute", lambda e: check_op(e.softplus, [dict(x=[1.0], beta=1.0)])),
    (ValueError, "check_op: the op has no function for the dtypes of case 0 of softplus; got (int64)", lambda e: check_op(e.softplus, [dict(x=[1], beta=1.0)], reference)),
    (ValueError, "check_op: case 0 of count has another number of results; got 1 that are expected; expected 2: kept, sum", lambda e: check_op(e.count, [dict(x=[1.0], keep=[True], expected=[1])])),
    (TypeError, "softplus: beta is no number of its type; got 'two'", lambda e: check_op(e.softplus, [dict(x=[1.0], beta="two")], reference)),
])
def test_errors(ext, error, text, call):
    with pytest.raises(error) as e:
        call(ext)
    assert text in str(e.value)


@pytest.mark.skipif(HAS_GPU, reason="there is a GPU")
def test_an_op_of_gpus_alone_is_an_error_without_one(ext):
    with pytest.raises(ValueError, match="check_op: on_gpus cannot be run here; got only functions with a Stream and no GPU"):
        check_op(ext.on_gpus, [dict(x=[1.0], expected=[1.0])])
