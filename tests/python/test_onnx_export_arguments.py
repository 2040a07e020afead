"""Arguments of functions that pf.onnx.export writes, and tensors that they write to: what each one changes is in the file, or the call is refused."""
import numpy as np
import pytest

import pyflame as pf

pytest.importorskip("onnx")
F = pf.nn.functional
X, OTHER = pf.linspace(-6, 7, 24).reshape(2, 3, 4), pf.linspace(5, -9, 24).reshape(2, 3, 4)
INTEGERS = pf.arange(24).reshape(2, 3, 4) * 7 % 11 - 5
IMAGE = pf.sin(pf.arange(2 * 4 * 6 * 7) * 0.7).reshape(2, 4, 6, 7)
QUERY = pf.sin(pf.arange(48) * 0.7).reshape(1, 2, 4, 6)
ROWS = pf.ones(4, 4, dtype=pf.bool)


class Of(pf.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def same(function, args, others=None):
    """The file computes what the function does: for the arguments of the export, and for others."""
    layer = function if isinstance(function, pf.nn.Module) else Of(function)
    proto = pf.onnx.export(layer.eval(), args, check=False)
    file = pf.onnx.load(proto)
    for given in (args, args if others is None else others):
        given = given if isinstance(given, tuple) else (given,)
        have, want = file(*given).detach(), layer(*given).detach()
        assert have.dtype == want.dtype
        np.testing.assert_allclose(have.numpy(), want.numpy(), rtol=1e-4, atol=1e-5)
    return [n.op_type for n in proto.graph.node if n.op_type != "Identity"]


@pytest.mark.parametrize("beta, threshold", [(1, 2.0), (2.0, 3.0), (1, 20), (3.0, 40)])
def test_the_threshold_of_softplus(beta, threshold):
    nodes = same(lambda x: F.softplus(x, beta, threshold), X, OTHER)
    assert ("Where" in nodes) == (threshold < 20)
    same(pf.nn.Softplus(beta, threshold), X, OTHER)


@pytest.mark.parametrize("call", [lambda x: x.round(decimals=1), lambda x: pf.round(x, decimals=-1), lambda x: x.round()])
def test_the_decimals_of_round(call):
    same(call, X, OTHER)


@pytest.mark.parametrize("call", [pf.round, pf.floor, pf.ceil, pf.relu, lambda x: (x + 6).rsqrt()])
def test_operators_that_take_no_integers_get_none(call):
    nodes = same(call, INTEGERS, INTEGERS.flip(0))
    assert not {"Round", "Floor", "Ceil", "Relu"} & set(nodes) and nodes[:3] in ([], ["Max"], ["Add", "Cast", "Sqrt"])


@pytest.mark.parametrize("call", [lambda x: x.swapaxes(axis0=1, axis1=2), lambda x: pf.swapdims(x, dim0=1, dim1=2), lambda x: x.transpose(dim0=2, dim1=0), lambda x: x.swapaxes(0, axis1=2),
                                  lambda x: x.narrow(2, -3, 2), lambda x: x.narrow(2, -2, 2), lambda x: x[:, :0].reshape(0, 5)])
def test_dims_and_places(call):
    same(call, X, OTHER)


@pytest.mark.parametrize("options, dim, nodes", [
    ({"scale_factor": 1.4, "mode": "bilinear"}, 4, ["Resize"]), ({"scale_factor": 1.4}, 4, ["Resize"]), ({"scale_factor": (0.6, 1.3), "mode": "bicubic"}, 4, ["Resize"]),
    ({"scale_factor": 1.4, "mode": "linear"}, 3, ["Resize"]), ({"scale_factor": 1.4, "mode": "bilinear", "recompute_scale_factor": True}, 4, ["Resize"]),
    ({"scale_factor": 1.4, "mode": "bilinear", "align_corners": True}, 4, ["Resize"]), ({"scale_factor": 2}, 4, ["Resize"]), ({"size": (9, 5), "mode": "bilinear"}, 4, ["Resize"]),
])
def test_the_factor_of_interpolate(options, dim, nodes):
    x = IMAGE if dim == 4 else IMAGE[0]
    assert same(lambda x: F.interpolate(x, **options), x, x.flip(0)) == nodes


@pytest.mark.parametrize("opset, node", [(18, "Gather"), (19, "Pad")])
@pytest.mark.parametrize("pad", [(1, 2), (2, 1, 0, 3), (-1, 1)])
def test_circular_pads_by_opset(opset, node, pad):
    layer = Of(lambda x: F.pad(x, pad, mode="circular"))
    proto = pf.onnx.export(layer, X, opset=opset, check=False)
    assert {n.op_type for n in proto.graph.node} == {node if min(pad) >= 0 else "Gather", "Identity"}
    np.testing.assert_array_equal(pf.onnx.load(proto)(OTHER).numpy(), layer(OTHER).numpy())


def test_one_hot_whose_size_the_values_decide():
    with pytest.raises(NotImplementedError, match=r"got one_hot\(Tensor\[2, 3, 4\]\) \(1x\)"):
        pf.onnx.export(Of(lambda i: F.one_hot(i)), INTEGERS + 5)
    same(lambda i: F.one_hot(i, 20), INTEGERS + 5, INTEGERS + 12)


@pytest.mark.parametrize("norm_type", [2.0, 1.0, 3.0])
def test_the_max_norm_of_rows_that_the_export_did_not_look_up(norm_type):
    table = pf.nn.Embedding(11, 4, max_norm=0.5, norm_type=norm_type)
    same(table, pf.tensor([1, 2]), pf.tensor([3, 4]))


@pytest.mark.parametrize("call", [lambda i, w: F.embedding(i, w, max_norm=0.5, norm_type=float("inf")), lambda i, w: F.embedding_bag(i.unsqueeze(0), w, max_norm=0.5)])
def test_other_max_norms_are_refused(call):
    table = pf.nn.Embedding(11, 4)
    model = Of(lambda i: call(i, table.weight))
    model.table = table
    with pytest.raises(NotImplementedError, match="onnx.export: functions or arguments without a rule; got .*max_norm"):
        pf.onnx.export(model, pf.tensor([1, 2]), check=False)


@pytest.mark.parametrize("call, text", [
    (lambda x: F.dropout(x, 0.5), r"dropout\(Tensor\[1, 2, 4, 6\], 0.5, True\) \(1x\)"), (lambda x: pf.dropout(x, 0.5, True), r"dropout\(Tensor\[1, 2, 4, 6\], 0.5, True\)"),
    (lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5), r"scaled_dot_product_attention\(Tensor.*, dropout_p=0.5\) \(1x\)"),
])
def test_dropout_that_trains_is_refused(call, text):
    with pytest.raises(NotImplementedError, match="onnx.export: functions or arguments without a rule; got " + text):
        pf.onnx.export(Of(call), QUERY, check=False)


@pytest.mark.parametrize("call", [lambda x: F.dropout(x, 0.5, training=False), lambda x: F.dropout(x, 0.0), lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.0), pf.nn.Dropout(0.5)])
def test_dropout_that_does_nothing_has_no_node(call):
    assert "Where" not in same(call, QUERY, QUERY.flip(2))


@pytest.mark.parametrize("mask", [ROWS.tril(-1), pf.zeros(4, 4).masked_fill(ROWS.triu(), -float("inf"))])
def test_a_query_without_a_key_attends_to_nothing(mask):
    def attention(x, mask):
        return F.scaled_dot_product_attention(x, x, x, attn_mask=mask)

    assert not attention(QUERY, mask)[:, :, 0].any()
    same(lambda x: attention(x, mask), QUERY, QUERY.flip(2))
    same(attention, (QUERY, mask), (QUERY, mask.flip(0)))
    assert "Where" not in same(lambda x: attention(x, pf.zeros(4, 4)), QUERY)


@pytest.mark.parametrize("call", [
    lambda x: F.softmax(x, 1, dtype=pf.float64), lambda x: x.softmax(1, pf.float64), lambda x: F.log_softmax(x, 1, dtype=pf.float64), lambda x: x.cumsum(1, dtype=pf.float64),
    lambda x: x.cumsum(1, dtype=pf.int64), lambda x: x.cumprod(1, dtype=pf.float64), lambda x: x.sum(1, dtype=pf.float64),
])
def test_the_dtype_of_a_result(call):
    same(call, X, OTHER)


def test_extremes_of_bools():
    assert same(lambda x: (x > 0).amax(1), X, OTHER)[1:] == ["Cast", "ReduceMax", "Cast"]


def added(x):
    y = pf.zeros(2, 3, 4)
    y += x
    return y


def filled(x):
    y = pf.zeros(2, 3, 4)
    z = x + y
    y.fill_(1)
    y[0] = 2
    return z * 2 + (x + y)


def written_by_parts(x):
    y = pf.zeros_like(x)
    y[:, 1] += x[:, 0]
    y[..., 0] = x[..., 1]
    return y.mul_(2).clamp_(max=x + 1)


def written_by_index(x):
    y = pf.ones(2, 3, 4)
    y.index_put_((pf.tensor([0]),), x[:1], accumulate=True)
    y.scatter_add_(1, pf.zeros(2, 3, 4, dtype=pf.int64), x)
    return y.index_add_(1, pf.tensor([0, 0, 2]), x)


@pytest.mark.parametrize("call", [added, filled, written_by_parts, written_by_index, lambda x: pf.histc(x, 5, -3, 3)])
def test_writes_to_tensors_that_no_input_made(call):
    same(call, X, OTHER)


@pytest.mark.parametrize("options, text", [
    ({"input_names": ["a"]}, r"input_names do not fit; got \['a'\] for 2 arguments; expected a list with a name of its own for each"),
    ({"input_names": ["a", "b", "c"]}, "for 2 arguments"), ({"input_names": ["a", "a"]}, "for 2 arguments"), ({"input_names": "ab"}, "got 'ab' for 2 arguments"),
    ({"output_names": ["a"]}, r"output_names do not fit; got \['a'\] for 2 results; expected a list with a name of its own for each"), ({"output_names": ["a", "b", "c"]}, "for 2 results"),
    ({"input_names": ["a", "weight"]}, "inputs and parameters have the same names; got weight; expected other names in input_names"),
])
def test_names_that_do_not_fit(options, text):
    class Both(pf.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = pf.nn.Parameter(pf.ones(4))

        def forward(self, a, b):
            return a * self.weight, b + a

    with pytest.raises(ValueError, match="onnx.export: .*" + text):
        pf.onnx.export(Both(), (X, OTHER), check=False, **options)
    proto = pf.onnx.export(Both(), (X, OTHER), input_names=("a", "b"), output_names=["c", "d"])
    assert [i.name for i in proto.graph.input] == ["a", "b"] and [o.name for o in proto.graph.output] == ["c", "d"]


@pytest.mark.parametrize("opset, mode", [(17, "bilinear"), (18, "nearest"), (18, "bicubic"), (20, "bilinear"), (22, "bicubic")])
def test_grid_sample(opset, mode):
    grid = pf.sin(pf.arange(2 * 3 * 3 * 2) * 0.9).reshape(2, 3, 3, 2)
    for padding_mode, align_corners in (("zeros", True), ("border", False), ("reflection", False)):
        layer = Of(lambda x, g: F.grid_sample(x, g, mode, padding_mode, align_corners))
        file = pf.onnx.export(layer, (IMAGE, grid), opset=opset)  # compares the file with the layer
        assert [n.op_type for n in file.graph.node if n.op_type != "Identity"] == ["GridSample"]


def test_grid_sample_of_volumes():
    volume, grid = pf.sin(pf.arange(48.0)).reshape(1, 2, 2, 3, 4), pf.cos(pf.arange(24.0)).reshape(1, 2, 2, 2, 3)
    pf.onnx.export(Of(F.grid_sample), (volume, grid), opset=20)
    with pytest.raises(NotImplementedError, match="_grid_sample"):
        pf.onnx.export(Of(F.grid_sample), (volume, grid), opset=18)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_embeddings(mode):
    table, index = pf.sin(pf.arange(18.0)).reshape(6, 3), pf.tensor([[5, 1, 1], [0, 2, 4]])
    same(lambda i: F.embedding_bag(i, table, mode=mode), index, index.flip(0))
    same(lambda i: F.embedding_bag(i, table, pf.tensor([0, 2, 2]), mode=mode), index.flatten(), index.flip(0).flatten())
    if mode != "max":  # whose table of bags has the size of the longest one of the call
        offsets = pf.tensor([0, 1, 4])
        same(lambda i, o: F.embedding_bag(i, table, o, mode=mode), (index.flatten(), offsets), (index.flatten(), pf.tensor([0, 3, 3])))


def test_results_in_nested_tuples():
    file = pf.onnx.export(pf.nn.LSTM(4, 5), pf.randn(3, 2, 4))
    assert [o.name for o in file.graph.output] == ["output_0", "output_1", "output_2"]
    assert [tuple(d.dim_value for d in o.type.tensor_type.shape.dim) for o in file.graph.output] == [(3, 2, 5), (1, 2, 5), (1, 2, 5)]


def test_private_functions_without_a_rule_are_named():
    with pytest.raises(NotImplementedError, match="_pdist"):
        pf.onnx.export(Of(pf.pdist), pf.randn(4, 3))
