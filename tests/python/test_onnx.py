"""pf.onnx: loading models, calling them, what is on the host, control flow, weights, errors, and the program."""
import json
import subprocess
import sys

import numpy as np
import pytest

import pyflame as pf

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

F, I = TensorProto.FLOAT, TensorProto.INT64


def info(name, dtype, shape):
    return helper.make_tensor_value_info(name, dtype, shape)


def model(nodes, inputs, outputs, constants=None, opset=17):
    weights = [numpy_helper.from_array(np.asarray(v), k) for k, v in (constants or {}).items()]
    graph = helper.make_graph(nodes, "test", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def perceptron():
    r = np.random.RandomState(0)
    constants = {"fc.weight": r.randn(4, 3).astype(np.float32), "fc.bias": r.randn(4).astype(np.float32)}
    nodes = [helper.make_node("Gemm", ["x", "fc.weight", "fc.bias"], ["h"], transB=1), helper.make_node("Relu", ["h"], ["y"])]
    return model(nodes, [info("x", F, ["n", 3])], [info("y", F, ["n", 4])], constants), constants


def test_load_call_and_describe(tmp_path):
    proto, c = perceptron()
    onnx.save(proto, tmp_path / "m.onnx")
    m = pf.onnx.load(tmp_path / "m.onnx")
    assert [tuple(i) for i in m.inputs] == [("x", "float32", ("n", 3))] and m.outputs[0].name == "y"
    x = np.random.RandomState(1).randn(5, 3).astype(np.float32)
    want = np.maximum(x @ c["fc.weight"].T + c["fc.bias"], 0)
    for call in (lambda: m(x), lambda: m(x=pf.tensor(x)), lambda: m(pf.tensor(x))):
        with pf.no_grad():
            np.testing.assert_allclose(call().numpy(), want, rtol=1e-5)
    assert list(m.state_dict()) == ["fc.weight", "fc.bias"] and not m.training


def test_weights_train():
    m = pf.onnx.load(perceptron()[0])
    optimizer = pf.optim.SGD(m.parameters(), lr=0.05)
    x, target = pf.randn(8, 3), pf.randn(8, 4)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = pf.nn.functional.mse_loss(m(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_changed_weights_reach_what_was_computed_of_them():
    w = np.arange(6, dtype=np.float32).reshape(2, 3)
    nodes = [helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]), helper.make_node("MatMul", ["x", "t"], ["y"])]
    m = pf.onnx.load(model(nodes, [info("x", F, [1, 3])], [info("y", F, [1, 2])], {"w": w}))
    x = pf.ones(1, 3)
    with pf.no_grad():
        for k in range(3):
            assert m(x).tolist() == [[3.0 + 3 * k, 12.0 + 3 * k]]
            assert m(x).tolist() == [[3.0 + 3 * k, 12.0 + 3 * k]]
            m.w.add_(1.0)


def convolved(x, w, b, stride, before, after):
    x = np.pad(x, ((0, 0), (0, 0), (before, after)))
    count = (x.shape[2] - w.shape[2]) // stride + 1
    return np.stack([np.tensordot(x[:, :, t * stride:t * stride + w.shape[2]], w, ([1, 2], [1, 2])) for t in range(count)], 2) + b[:, None]


@pytest.mark.parametrize("n, channels, length, kernel, stride, before, after, relu", [
    (1, 5, 4, 3, 1, 1, 1, True), (3, 5, 4, 3, 2, 1, 1, False), (1, 4, 1, 3, 1, 1, 1, True), (2, 4, 2, 3, 2, 1, 1, True), (2, 4, 3, 3, 1, 0, 0, False),
    (1, 3, 2, 5, 1, 2, 1, True), (2, 3, 70, 3, 1, 1, 1, True), (2, 1, 96, 32, 16, 0, 0, True), (1, 1, 96, 32, 16, 4, 0, False)])
@pytest.mark.parametrize("dims", [1, 2])
def test_convolutions_over_short_sequences(n, channels, length, kernel, stride, before, after, relu, dims):
    r = np.random.RandomState(0)
    c = {"w": r.randn(6, channels, kernel).astype(np.float32), "b": r.randn(6).astype(np.float32)}
    if dims == 1:
        weights, shape, attributes = c, [], dict(strides=[stride], pads=[before, after])
    else:
        weights, shape, attributes = {**c, "w": c["w"][..., None]}, [1], dict(strides=[stride, 1], pads=[before, 0, after, 0])
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["c"], **attributes)]
    nodes += [helper.make_node("Relu", ["c"], ["y"])] if relu else [helper.make_node("Neg", ["c"], ["y"])]
    m = pf.onnx.load(model(nodes, [info("x", F, ["n", channels, "l", *shape])], [info("y", F, None)], weights))
    assert m.report()["on_device"] == {"Conv": 1, "Relu" if relu else "Neg": 1}
    for scale in (1.0, 2.0):
        for grad in (False, True):
            x = r.randn(n, channels, length).astype(np.float32)
            want = convolved(x, c["w"] * scale, c["b"], stride, before, after)
            want = np.maximum(want, 0) if relu else -want
            with pf.set_grad_enabled(grad):
                for _ in range(3):
                    np.testing.assert_allclose(m(x if dims == 1 else x[..., None]).detach().numpy(), want if dims == 1 else want[..., None], rtol=1e-4, atol=1e-5)
        with pf.no_grad():
            m.w.mul_(2.0)


@pytest.mark.parametrize("goal, mode, before", [(6, "NOTSET", 1), (6, "SAME_LOWER", 1), (6, "SAME_UPPER", 0), (5, "NOTSET", 1), (9, "NOTSET", 0), (9, "SAME_UPPER", 0)])
def test_the_size_of_a_transposed_convolution(goal, mode, before):
    r = np.random.RandomState(0)
    x, w = r.randn(1, 1, 3).astype(np.float32), r.randn(1, 2, 3).astype(np.float32)
    full = np.zeros((1, 2, 12), np.float32)
    for t in range(3):
        full[:, :, 2 * t:2 * t + 3] += x[:, :, t:t + 1] * w[0]
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2], output_shape=[goal], auto_pad=mode)
    m = pf.onnx.load(model([node], [info("x", F, [1, 1, 3])], [info("y", F, None)], {"w": w}))
    with pf.no_grad():
        np.testing.assert_allclose(m(x).numpy(), full[:, :, before:before + goal], rtol=1e-5, atol=1e-6)


def test_a_convolution_whose_places_move():
    r = np.random.RandomState(0)
    x, w, b = (r.randn(*shape).astype(np.float32) for shape in ((2, 4, 5, 6), (6, 2, 3, 2), (6,)))
    settings = dict(group=2, offset_group=2, strides=[2, 1], pads=[1, 0, 1, 1], dilations=[1, 2])
    out = 3, 5
    node = helper.make_node("DeformConv", ["x", "w", "offset", "b", "mask"], ["y"], **settings)
    inputs = [info("x", F, ["n", 4, 5, 6]), info("offset", F, ["n", 24, *out]), info("mask", F, ["n", 12, *out])]
    m = pf.onnx.load(model([node], inputs, [info("y", F, None)], {"w": w, "b": b}, opset=19))
    mask = r.rand(2, 12, *out).astype(np.float32)
    moves = r.randint(-2, 3, (2, 2, 3, 2, 2, *out))
    want = np.zeros((2, 6, *out)) + b[:, None, None]
    for n, o, c, i, j, p, q in np.ndindex(2, 6, 2, 3, 2, *out):  # whole steps, without interpolation
        channel = c + 2 * (o // 3)
        row, column = 2 * p - 1 + i + moves[n, channel // 2, i, j, 0, p, q], q + 2 * j + moves[n, channel // 2, i, j, 1, p, q]
        if 0 <= row < 5 and 0 <= column < 6:
            want[n, o, p, q] += x[n, channel, row, column] * w[o, c, i, j] * mask.reshape(2, 2, 3, 2, *out)[n, channel // 2, i, j, p, q]
    with pf.no_grad():
        np.testing.assert_allclose(m(x, moves.reshape(2, 24, *out).astype(np.float32), mask).numpy(), want, rtol=1e-4, atol=1e-5)
    plain = helper.make_node("DeformConv", ["x", "w", "offset"], ["y"])
    m = pf.onnx.load(model([plain], [info("x", F, [1, 1, 2, 3]), info("offset", F, [1, 2, 2, 3])], [info("y", F, None)], {"w": np.ones((1, 1, 1, 1), np.float32)}, opset=19))
    image = np.array([[[[0, 4, 8], [2, 6, 10]]]], np.float32)
    with pf.no_grad():
        got = m(image, np.full((1, 2, 2, 3), 0.5, np.float32)).numpy()[0, 0]
    np.testing.assert_allclose(got, [[3, 7, 4.5], [2, 4, 2.5]], rtol=1e-6)


@pytest.mark.parametrize("stride, before, after", [(1, 0, 0), (2, 0, 0), (1, 1, 2)])
def test_a_convolution_over_positions_that_lie_one_after_the_other(stride, before, after):
    r = np.random.RandomState(0)
    x, w = r.randn(1, 100, 3).astype(np.float32), r.randn(4, 3, 5).astype(np.float32)
    nodes = [helper.make_node("Transpose", ["x"], ["t"], perm=[0, 2, 1]), helper.make_node("Conv", ["t", "w"], ["y"], strides=[stride], pads=[before, after])]
    m = pf.onnx.load(model(nodes, [info("x", F, None)], [info("y", F, None)], {"w": w}))
    want = convolved(x.swapaxes(1, 2), w, np.zeros(4), stride, before, after)
    for grad in (False, True):
        with pf.set_grad_enabled(grad):
            for _ in range(2):
                np.testing.assert_allclose(m(x).detach().numpy(), want, rtol=1e-4, atol=1e-5)


def test_a_convolution_whose_result_is_used_twice_keeps_it():
    w = np.ones((1, 1, 1), np.float32)
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("Relu", ["c"], ["r"]), helper.make_node("Add", ["c", "r"], ["y"])]
    for outputs in (["y"], ["c", "r"]):
        m = pf.onnx.load(model(nodes, [info("x", F, [1, 1, 2])], [info(o, F, None) for o in outputs], {"w": w}))
        with pf.no_grad():
            got = m(np.array([[[-1.0, 2.0]]], np.float32))
        assert got.tolist() == [[[-1.0, 4.0]]] if outputs == ["y"] else [g.tolist() for g in got] == [[[[-1.0, 2.0]]], [[[0.0, 2.0]]]]


@pytest.mark.parametrize("steps, direction, layout, states", [(1, "forward", 0, True), (1, "bidirectional", 0, False), (4, "forward", 1, True), (3, "reverse", 0, False),
                                                              (3, "bidirectional", 1, True)])
def test_lstm(steps, direction, layout, states):
    r, hidden, batch, directions = np.random.RandomState(0), 3, 2, 2 if direction == "bidirectional" else 1
    c = {"w": r.randn(directions, 4 * hidden, 5), "r": r.randn(directions, 4 * hidden, hidden), "b": r.randn(directions, 8 * hidden)}
    c = {k: v.astype(np.float32) for k, v in c.items()}
    first = r.randn(2, directions, batch, hidden).astype(np.float32) * (1 if states else 0)
    given = [info("x", F, None), info("h", F, None), info("c", F, None)]
    node = helper.make_node("LSTM", ["x", "w", "r", "b", "", "h" if states else "", "c" if states else ""], ["y", "hn", "cn"], hidden_size=hidden, direction=direction, layout=layout)
    m = pf.onnx.load(model([node], given if states else given[:1], [info(o, F, None) for o in ("y", "hn", "cn")], c))
    x = r.randn(steps, batch, 5).astype(np.float32)

    def sigmoid(z):
        return 1 / (1 + np.exp(-z))

    def expected(scale):
        y, last = np.zeros((steps, directions, batch, hidden)), np.zeros((2, directions, batch, hidden))
        for d in range(directions):
            h, memory = first[0, d], first[1, d]
            for t in range(steps)[::-1 if d == 1 or direction == "reverse" else 1]:
                i, o, f, g = np.split(x[t] @ c["w"][d].T * scale + h @ c["r"][d].T + c["b"][d, :4 * hidden] + c["b"][d, 4 * hidden:], 4, 1)
                memory = sigmoid(f) * memory + sigmoid(i) * np.tanh(g)
                h = y[t, d] = sigmoid(o) * np.tanh(memory)
            last[:, d] = h, memory
        return (y.transpose(2, 0, 1, 3), *last.transpose(0, 2, 1, 3)) if layout else (y, *last)

    inputs = [x, *first][:3 if states else 1]
    inputs = [np.ascontiguousarray(v.swapaxes(0, 1)) for v in inputs] if layout else inputs
    for scale in (1.0, 2.0):
        for grad in (False, True):
            with pf.set_grad_enabled(grad):
                for _ in range(3):
                    for got, want in zip(m(*inputs), expected(scale)):
                        np.testing.assert_allclose(got.detach().numpy(), want, rtol=1e-4, atol=1e-5)
        with pf.no_grad():
            m.w.mul_(2.0)


def test_views_that_undo_each_other():
    turn = dict(perm=[1, 0])
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Transpose", ["a"], ["t"], **turn), helper.make_node("Transpose", ["t"], ["b"], **turn),
             helper.make_node("Unsqueeze", ["b", "zero"], ["u"]), helper.make_node("Squeeze", ["u", "zero"], ["s"]), helper.make_node("Add", ["s", "t"], ["y"])]
    m = pf.onnx.load(model(nodes, [info("x", F, [2, 2])], [info("y", F, None)], {"zero": np.array([0])}))
    for grad in (False, True):
        with pf.set_grad_enabled(grad):
            for k in range(3):
                x = pf.tensor([[1.0 + k, 2.0], [3.0, -4.0]], requires_grad=grad)
                y = m(x)
                assert y.tolist() == [[2.0 + 2 * k, 5.0], [5.0, 0.0]]
                if grad:
                    y.sum().backward()
                    assert x.grad.tolist() == [[2.0, 2.0], [2.0, 0.0]]


def shapes_model():
    """y = x reshaped by numbers that Shape, Gather and Concat make."""
    nodes = [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Gather", ["s", "zero"], ["n"]), helper.make_node("Concat", ["n", "minus"], ["to"], axis=0),
             helper.make_node("Reshape", ["x", "to"], ["y"])]
    return model(nodes, [info("x", F, ["a", "b", "c"])], [info("y", F, None)], {"zero": np.array([0], np.int64), "minus": np.array([-1], np.int64)})


def test_shapes_stay_on_the_host():
    m = pf.onnx.load(shapes_model())
    for shape in ((2, 3, 4), (5, 1, 2), (2, 3, 4)):
        assert m(pf.zeros(*shape)).shape == (shape[0], shape[1] * shape[2])
    report = m.report()
    assert len(report["on_host"]) == 2 and not report["waited_for_values"] and report["on_device"] == {"Reshape": 1}


def branches(then, other):
    graphs = [helper.make_graph([helper.make_node(op, ["x"], ["r"])], op, [], [info("r", F, None)]) for op in (then, other)]
    nodes = [helper.make_node("Greater", ["k", "zero"], ["c"]), helper.make_node("If", ["c"], ["y"], then_branch=graphs[0], else_branch=graphs[1])]
    return model(nodes, [info("x", F, [2]), info("k", I, [])], [info("y", F, [2])], {"zero": np.array(0, np.int64)})


def test_a_branch_is_chosen_in_each_call():
    m = pf.onnx.load(branches("Neg", "Relu"))
    x = pf.tensor([-1.0, 2.0])
    for k, want in ((1, [1.0, -2.0]), (0, [0.0, 2.0]), (1, [1.0, -2.0])):
        assert m(x, k).tolist() == want and m(x, np.array(k)).tolist() == want
    assert m.report()["control_flow"] and not m.report()["waited_for_values"]


def test_a_branch_that_depends_on_values_is_reported():
    graphs = [helper.make_graph([helper.make_node(op, ["x"], ["r"])], op, [], [info("r", F, None)]) for op in ("Neg", "Relu")]
    nodes = [helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0), helper.make_node("Greater", ["s", "zero"], ["c"]),
             helper.make_node("If", ["c"], ["y"], then_branch=graphs[0], else_branch=graphs[1])]
    m = pf.onnx.load(model(nodes, [info("x", F, [2])], [info("y", F, [2])], {"zero": np.array(0, np.float32)}))
    assert m(pf.tensor([-1.0, 2.0])).tolist() == [1.0, -2.0]
    assert m(pf.tensor([-3.0, 2.0])).tolist() == [0.0, 2.0]
    assert m.report()["waited_for_values"][0]["times"] == 2


def test_a_loop_counts_on_the_host_and_adds_on_the_device():
    body = helper.make_graph([helper.make_node("Add", ["a", "x"], ["b"]), helper.make_node("Identity", ["go"], ["on"])], "body",
                             [info("i", I, []), info("go", TensorProto.BOOL, []), info("a", F, None)], [info("on", TensorProto.BOOL, []), info("b", F, None)])
    nodes = [helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)]
    m = pf.onnx.load(model(nodes, [info("x", F, [2]), info("n", I, [])], [info("y", F, [2])]))
    assert m(pf.ones(2), 3).tolist() == [4.0, 4.0] and m(pf.ones(2), 0).tolist() == [1.0, 1.0] and m(pf.ones(2), 3).tolist() == [4.0, 4.0]


def test_a_loop_whose_body_decides_by_values_counts_anew_in_each_call():
    body = helper.make_graph([helper.make_node("Add", ["a", "a"], ["b"]), helper.make_node("ReduceMax", ["b"], ["m"], keepdims=0), helper.make_node("Less", ["m", "limit"], ["on"])], "body",
                             [info("i", I, []), info("go", TensorProto.BOOL, []), info("a", F, [2])], [info("on", TensorProto.BOOL, []), info("b", F, [2]), info("b", F, [2])])
    nodes = [helper.make_node("Loop", ["", "yes", "x"], ["y", "rows"], body=body)]
    m = pf.onnx.load(model(nodes, [info("x", F, [2])], [info("y", F, [2]), info("rows", F, None)], {"limit": np.array(10, np.float32), "yes": np.array(True)}))
    for _ in range(2):
        for x, want, rounds in (([1.0, 2.0], [8.0, 16.0], 3), ([9.0, 1.0], [18.0, 2.0], 1), ([0.5, 0.5], [16.0, 16.0], 5)):
            y, rows = m(pf.tensor(x))
            assert y.tolist() == want and rows.shape == (rounds, 2)
    assert m.report()["waited_for_values"] == [{"node": "Loop 'y'", "input": 1, "times": 18}]


@pytest.mark.parametrize("op", ["NonZero", "Compress", "Unique"])
@pytest.mark.parametrize("grad", [False, True])
def test_sizes_that_depend_on_values_are_found_in_each_call(op, grad):
    inputs = ["x", "mask"] if op == "Compress" else ["x"]
    nodes = [helper.make_node("Cast", ["x"], ["mask"], to=TensorProto.BOOL), helper.make_node(op, inputs, ["found"]), helper.make_node("Shape", ["found"], ["s"]),
             helper.make_node("Expand", ["one", "s"], ["y"])]
    m = pf.onnx.load(model(nodes, [info("x", F, [4])], [info("y", F, None), info("s", I, None)], {"one": np.array(1, np.float32)}))
    lead = [1] if op == "NonZero" else []
    with pf.set_grad_enabled(grad):
        for x, count in (([0.0, 0.0, 0.0, 5.0], {"Unique": 2}.get(op, 1)), ([1.0, 2.0, 0.0, 5.0], {"Unique": 4}.get(op, 3)), ([3.0, 3.0, 3.0, 3.0], {"Unique": 1}.get(op, 4))):
            y, s = m(pf.tensor(x))
            assert y.shape == (*lead, count) and s.tolist() == [*lead, count]


def test_random_numbers_are_drawn_in_each_call():
    nodes = [helper.make_node("RandomNormalLike", ["x"], ["y"])]
    m = pf.onnx.load(model(nodes, [info("x", F, [64])], [info("y", F, [64])]))
    x = pf.zeros(64)
    with pf.no_grad():
        assert len({m(x).sum().item() for _ in range(4)}) == 4


def test_functions_of_a_model_are_expanded():
    opsets = [helper.make_opsetid("", 17)]
    function = helper.make_function("mine", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], opsets)
    graph = helper.make_graph([helper.make_node("Twice", ["x"], ["y"], domain="mine")], "g", [info("x", F, [2])], [info("y", F, [2])])
    proto = helper.make_model(graph, functions=[function], opset_imports=opsets + [helper.make_opsetid("mine", 1)])
    assert pf.onnx.load(proto)(pf.ones(2)).tolist() == [2.0, 2.0]


def test_external_data(tmp_path):
    proto, c = perceptron()
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0, location="weights.bin")
    assert (tmp_path / "weights.bin").exists()
    m = pf.onnx.load(tmp_path / "m.onnx")
    np.testing.assert_array_equal(m.state_dict()["fc.weight"].numpy(), c["fc.weight"])


def test_a_cast_module_computes_in_that_dtype():
    m = pf.onnx.load(perceptron()[0])
    x = pf.randn(2, 3)
    with pf.no_grad():
        first = m(x)
        second = m.double()(x.double())
    assert second.dtype == pf.float64
    np.testing.assert_allclose(first.numpy(), second.numpy(), rtol=1e-5, atol=1e-6)


# ---- errors


def test_unknown_operators_are_listed_at_once():
    nodes = [helper.make_node("Foo", ["x"], ["a"], name="first"), helper.make_node("Bar", ["a"], ["y"], domain="other")]
    proto = model(nodes, [info("x", F, [1])], [info("y", F, [1])])
    with pytest.raises(NotImplementedError, match=r"2 nodes .*Foo 'first', other.Bar 'y'"):
        pf.onnx.load(proto)


def test_errors_name_the_node():
    m = pf.onnx.load(perceptron()[0])
    with pytest.raises(ValueError, match="node Gemm 'h'"):
        m(pf.zeros(2, 7))
    assert m(pf.zeros(2, 3)).shape == (2, 4)


@pytest.mark.parametrize("call, text", [(lambda m, x: m(), "missing"), (lambda m, x: m(x, x), "too many"), (lambda m, x: m(z=x), "unexpected input; got 'z'")])
def test_wrong_inputs(call, text):
    with pytest.raises(TypeError, match=text):
        call(pf.onnx.load(perceptron()[0]), pf.zeros(1, 3))


def test_files_that_are_no_models(tmp_path):
    (tmp_path / "bad.onnx").write_bytes(b"\xff\xff not a model")
    with pytest.raises(ValueError, match="not a model"):
        pf.onnx.load(tmp_path / "bad.onnx")
    (tmp_path / "empty.onnx").write_bytes(b"")
    with pytest.raises(ValueError, match="no graph"):
        pf.onnx.load(tmp_path / "empty.onnx")
    with pytest.raises(FileNotFoundError):
        pf.onnx.load(tmp_path / "none.onnx")


def test_without_the_package_the_error_says_what_to_install():
    code = "import sys; sys.modules['onnx'] = None\nimport pyflame as pf\ntry:\n    pf.onnx.load('x')\nexcept ImportError as e:\n    print(e)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "hint: pip install onnx" in out


# ---- the program


def test_program(run, tmp_path):
    onnx.save(perceptron()[0], tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", np.ones((6, 3), np.float32))
    r = run("run", tmp_path / "m.onnx", "--input", f"x={tmp_path}/x.npy", "--output", tmp_path / "out.npz", "--report", tmp_path / "r.json", "--json", "--python",
            sys.executable)
    j = json.loads(r.stdout)
    assert j["outputs"]["y"]["shape"] == [6, 4] and j["parameters"] == 16 and j["median_s"] > 0
    assert np.load(tmp_path / "out.npz")["y"].shape == (6, 4) and json.loads((tmp_path / "r.json").read_text())["device"] == "cpu"
    text = run("run", tmp_path / "m.onnx", "--shape", "x=2,3", "--python", sys.executable).stdout
    assert "y: float32 [2, 4]" in text and "x: float32 [2, 3] (random)" in text
    assert "no such input" in run("run", tmp_path / "m.onnx", "--shape", "z=2,3", "--python", sys.executable, code=1).stderr


# ---- export


class Net(pf.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.pool, self.fc = pf.nn.Conv2d(3, 8, 3, padding=1), pf.nn.BatchNorm2d(8), pf.nn.MaxPool2d(2), pf.nn.Linear(128, 5)

    def forward(self, x):
        x = self.pool(pf.nn.functional.relu(self.norm(self.conv(x))))
        return pf.nn.functional.log_softmax(self.fc(x.view(x.shape[0], -1)), 1)


@pytest.mark.parametrize("opset", [17, 18, 20, 22])
def test_export_and_load(tmp_path, opset):
    net, x = Net().eval(), pf.randn(2, 3, 8, 8)
    proto = pf.onnx.export(net, x, tmp_path / "m.onnx", opset=opset)
    assert [n.op_type for n in proto.graph.node][:3] == ["Conv", "BatchNormalization", "Relu"]
    m = pf.onnx.load(tmp_path / "m.onnx")
    assert set(m.state_dict()) >= {n for n, _ in net.named_parameters()}
    with pf.no_grad():
        np.testing.assert_allclose(m(x).numpy(), net.eval()(x).numpy(), rtol=1e-4, atol=1e-6)


def test_activations_with_limits_are_one_node():
    for layer, nodes in ((pf.nn.ReLU6(), ["Clip"]), (pf.nn.Hardtanh(-2, 3), ["Clip"]), (pf.nn.Hardsigmoid(), ["HardSigmoid"]), (pf.nn.Hardswish(), ["HardSwish"])):
        x = pf.linspace(-8, 8, 9)
        proto = pf.onnx.export(layer, x)
        assert [n.op_type for n in proto.graph.node if n.op_type != "Identity"] == nodes
        np.testing.assert_allclose(pf.onnx.load(proto)(x).detach().numpy(), layer(x).numpy(), atol=1e-6)


def test_export_lists_what_has_no_rule():
    class Odd(pf.nn.Module):
        def forward(self, x):
            return pf.lgamma(x) + x.erfinv() * pf.special.entr(x)

    with pytest.raises(NotImplementedError, match=r"erfinv \(1x\), lgamma \(1x\), special_entr \(1x\)"):
        pf.onnx.export(Odd(), pf.randn(4))
    assert type(pf.add).__name__ == "nb_func"  # nothing stays wrapped


def test_export_notices_what_it_does_not_see():
    class Reads(pf.nn.Module):
        def forward(self, x):
            return x * 2 + x.sum().item()

    with pytest.raises(RuntimeError, match=r"differs from the model's; got other numbers first from add\(\), its call 1"):
        pf.onnx.export(Reads(), pf.ones(4))


class Of(pf.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


X, POSITIVE, INTEGERS = pf.linspace(-2, 3, 24).reshape(2, 3, 4), pf.linspace(0.1, 0.9, 24).reshape(2, 3, 4).flip(2), pf.arange(24).reshape(2, 3, 4) * 7 % 11
IMAGE = pf.sin(pf.arange(2 * 4 * 6 * 6) * 0.7).reshape(2, 4, 6, 6)


def written(x):
    y = x * 2
    y[:, 0] = 5.0
    y[..., -1] += 1
    return y


EXPORTED = {
    "numbers": lambda x, p, i: (p.log1p() + p.log2() + p.log10() + p.expm1() + p.exp2() + p.sinh() + p.cosh() + p.asinh() + (p + 1).acosh() + p.atanh() + p.erfc(), x.trunc()),
    "kinds": lambda x, p, i: ((x / 0).isnan(), (x / 0).isinf(), pf.isfinite(x / (x - x.floor())), (x > 0) ^ (p > 0.5), ~(x > 0), pf.logical_xor(x, p)),
    "quotients": lambda x, p, i: (x // 2, x % 2, i // 3, (i - 5) % 3, (i - 5) // 3, 2 // p, 2 ** x, pf.div(x, p, rounding_mode="floor"), pf.fmod(x, 2), pf.add(x, p, alpha=2)),
    "bits": lambda x, p, i: (i & 3, i | 8, i ^ 5, ~i, i << 2, i >> 1),
    "limits": lambda x, p, i: (pf.clamp(x, min=p), x.clamp_min(0.5), pf.fmax(x, p), pf.atan2(x, p), pf.hypot(x, p), pf.nan_to_num(x / 0), pf.logaddexp(x, p)),
    "reductions": lambda x, p, i: (x.std(-1), x.var((1, 2), unbiased=False), pf.var_mean(x, 1)[0], x.norm(), x.norm(1, dim=1), (x > 0).any(1), x.all(), x.logsumexp(1), x.max(1)[0], x.min(1)[1],
                                   x.argmax(), x.sum(axis=1, keepdims=True), pf.nn.functional.normalize(x, dim=1), x.amax(0)),
    "orders": lambda x, p, i: (*p.sort(1), p.argsort(-1, descending=True), p.median(1)[0], p.kthvalue(2, 1)[0], p.quantile(0.3, dim=1), p.topk(2)[0]),
    "up to each": lambda x, p, i: (x.cumprod(1), x.cummax(2)[0], x.logcumsumexp(0), x.cumsum(1)),
    "shapes": lambda x, p, i: (x.mT, x[0].T, x.diagonal(0, 1, 2), x[0, 0].diag(), x[0].diag_embed(), x.flip(1), x.roll(1, 2), x.rot90(1, (1, 2)), x.unfold(2, 2, 1), x.movedim(0, 2),
                               x.repeat_interleave(2, 1), *pf.broadcast_tensors(x, p[0])),
    "places": lambda x, p, i: (x[[1, 0]], x[:, pf.tensor([0, 2])], x[i[0, :, 0] % 2, i[0, :, 1] % 3], x.take_along_dim(i % 3, 1), x.gather(1, i % 3), pf.bucketize(x, pf.tensor([0.0, 1.0])),
                               pf.nn.functional.one_hot(i, 11)),
    "writes": lambda x, p, i: (x.scatter(1, i % 3, 1.5), x.scatter_add(1, i % 3, p), x.index_add(1, pf.tensor([0, 0, 2]), p), x.index_copy(1, pf.tensor([1, 0, 2]), p), x.index_fill(1, pf.tensor([1]), 2.0),
                               x.scatter_reduce(1, i % 3, p, "amax"), written(x)),
    "products": lambda x, p, i: (pf.outer(x[0, 0], p[0, 0]), x[0, 0].dot(p[0, 0]), pf.einsum("bij,bkj->bik", x, p), pf.cdist(x, p), pf.cosine_similarity(x, p, 1), x @ p.mT),
    "losses": lambda x, p, i: (pf.nn.functional.mse_loss(x, p), pf.nn.functional.l1_loss(x, p), pf.nn.functional.cross_entropy(x, i[:, 0] % 3), pf.nn.functional.nll_loss(x, i[:, 0] % 3),
                               pf.nn.functional.binary_cross_entropy_with_logits(x, p), pf.nn.functional.softplus(x, 2.0)),
}


@pytest.mark.parametrize("name", EXPORTED)
def test_exported_functions(name):
    proto = pf.onnx.export(Of(EXPORTED[name]), (X, POSITIVE, INTEGERS))
    for have, want in zip(pf.onnx.load(proto)(X, POSITIVE, INTEGERS), EXPORTED[name](X, POSITIVE, INTEGERS)):
        assert have.dtype == want.dtype
        np.testing.assert_allclose(have.detach().numpy(), want.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", [
    lambda: pf.nn.Conv2d(4, 6, 3), lambda: pf.nn.MaxPool2d(2), lambda: pf.nn.AdaptiveAvgPool2d(4), lambda: pf.nn.AdaptiveMaxPool2d(4), lambda: pf.nn.MaxPool2d(2, return_indices=True),
    lambda: pf.nn.BatchNorm2d(4, track_running_stats=False), lambda: pf.nn.Unfold(3, padding=1), lambda: Of(lambda x: pf.nn.functional.interpolate(x, (4, 9), mode="area")), lambda: pf.nn.Upsample(scale_factor=2),
    lambda: Of(lambda x: pf.nn.functional.fold(pf.nn.functional.unfold(x, 2, stride=2), (6, 6), 2, stride=2)),
])
def test_exported_layers(make):
    layer = make().eval()
    for x in (IMAGE, IMAGE[0]) if isinstance(layer, (pf.nn.Conv2d, pf.nn.MaxPool2d)) and not getattr(layer, "return_indices", False) else (IMAGE,):
        have, want = pf.onnx.load(pf.onnx.export(layer, x))(x), layer(x)
        for a, b in zip(*(((v,) if isinstance(v, pf.Tensor) else v) for v in (have, want))):
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layer", [pf.nn.LSTM(4, 5, 2, batch_first=True, bidirectional=True), pf.nn.GRU(4, 5), pf.nn.RNN(4, 5)])
def test_exported_recurrent_layers(layer):
    proto = pf.onnx.export(Of(lambda x: layer(x)[0]), X)
    np.testing.assert_allclose(pf.onnx.load(proto)(X).detach().numpy(), layer(X)[0].detach().numpy(), rtol=1e-4, atol=1e-5)


taken = pf.tanh


def test_functions_under_other_names_are_seen():
    class Keeps(pf.nn.Module):
        def __init__(self):
            super().__init__()
            self.act = pf.nn.functional.gelu

        def forward(self, x):
            return self.act(taken(x))

    net = Keeps()
    proto = pf.onnx.export(net, X, opset=20)
    assert [n.op_type for n in proto.graph.node] == ["Tanh", "Gelu", "Identity"]
    assert type(net.act).__name__ == type(taken).__name__ == "nb_func"
    layer = pf.nn.TransformerEncoderLayer(4, 1, 8, activation="gelu", batch_first=True)
    np.testing.assert_allclose(pf.onnx.load(pf.onnx.export(layer, X))(X).detach().numpy(), layer.eval()(X).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_nodes_that_nobody_needs_are_left_out():
    proto = pf.onnx.export(Of(lambda x: (x.exp(), pf.nn.functional.max_pool1d(x, 2))[1]), X)
    assert "Exp" not in [n.op_type for n in proto.graph.node] and "Mod" not in [n.op_type for n in proto.graph.node]


def test_a_tensor_given_twice_is_two_inputs():
    proto = pf.onnx.export(Of(lambda a, b: a - b), (X, X))
    np.testing.assert_allclose(pf.onnx.load(proto)(X, POSITIVE).numpy(), (X - POSITIVE).numpy(), rtol=1e-6)


@pytest.mark.parametrize("args, options, error", [((1,), {}, TypeError), (pf.ones(1), {"opset": 30}, ValueError)])
def test_export_wrong_arguments(args, options, error):
    with pytest.raises(error, match="onnx.export"):
        pf.onnx.export(pf.nn.ReLU(), args, **options)
