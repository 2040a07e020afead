"""User-visible errors of the op families: the type, and a text that says what happened. Those of the surface (tensors, modules, files)
are in test_messages.py."""
import re

import pytest

import pyflame as pf
import pyflame.nn.functional as F


def ones(*shape):
    return pf.ones(*shape)


def index(*values):
    return pf.tensor(list(values))


def varlen(offsets, dtype=pf.int32, pending=False):
    q, k = ones(offsets[-1] if len(offsets) > 2 else 5, 2, 4), ones(3, 2, 4)
    begins = pf.tensor(offsets, dtype=dtype)
    ends = pf.tensor([0] * (len(offsets) - 1) + [3], dtype=pf.int32)
    return pf.nn.attention.varlen.varlen_attn(q, k, k, begins + 0 if pending else begins, ends, 4, 3)


def twice(loss):
    loss.backward()
    loss.backward()


def leaf(*shape):
    return pf.ones(*shape, requires_grad=True)


def grad_of(shape, **kw):
    x = leaf(*shape)
    x.grad = pf.ones(*kw.get("to", shape), dtype=kw.get("dtype"), device=kw.get("device"))


class Wrong(pf.autograd.Function):
    """Its gradient has another shape than its input."""

    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, g):
        return pf.ones(7)


CASES = {
    # losses
    "loss of a number": (ValueError, "the input has no dimensions", lambda: F.cross_entropy(pf.tensor(1.0), pf.tensor(0))),
    "label smoothing": (ValueError, "label_smoothing is out of range; got 1.5", lambda: F.cross_entropy(ones(2, 3), index(0, 1), label_smoothing=1.5)),
    "class probabilities": (ValueError, "class probabilities do not fit", lambda: F.cross_entropy(ones(2, 3), ones(2, 4))),
    "class weights": (ValueError, "nll_loss: the weights do not fit the classes; got weight .4,.", lambda: F.nll_loss(ones(2, 3), index(0, 1), weight=ones(4))),
    "target shape": (ValueError, "input and target do not fit", lambda: F.nll_loss(ones(2, 3), index(0))),
    "target value": (IndexError, "cross_entropy: index out of range; got 3 at position 1", lambda: F.cross_entropy(ones(2, 3), index(0, 3))),
    "reduction": (ValueError, "reduction", lambda: F.mse_loss(ones(2), ones(2), reduction="average")),
    "bce weight": (ValueError, "binary_cross_entropy_with_logits: shapes do not broadcast", lambda: F.binary_cross_entropy_with_logits(ones(2, 3), ones(2, 3), weight=ones(4))),
    # random
    "bernoulli of integers": (TypeError, "probabilities are not floats; got int64", lambda: pf.bernoulli(index(1))),
    "dropout": (ValueError, "dropout", lambda: F.dropout(ones(2), p=1.5)),
    # indexing
    "gather ranks": (ValueError, "gather: ranks differ", lambda: pf.gather(ones(2, 3), 0, index(0))),
    "gather size": (ValueError, "gather: the index is larger than the input", lambda: pf.gather(ones(2, 3), 0, pf.zeros(1, 4, dtype=pf.int64))),
    "gather value": (IndexError, "gather: index out of range; got 2", lambda: pf.gather(ones(2, 3), 0, pf.tensor([[2, 2, 2]]))),
    "gather dtype": (TypeError, "gather: the index has the wrong dtype; got float32", lambda: pf.gather(ones(2, 3), 0, ones(1, 3))),
    "embedding weight": (ValueError, "embedding: the weight is not a matrix", lambda: F.embedding(index(0), ones(3))),
    "embedding padding": (IndexError, "embedding: padding_idx is out of range; got 5", lambda: F.embedding(index(0), ones(3, 2), padding_idx=5)),
    "embedding value": (IndexError, "embedding: index out of range; got -1", lambda: F.embedding(index(-1), ones(3, 2))),
    "scatter_add ranks": (ValueError, "scatter_add: ranks differ; got src", lambda: pf.scatter_add(ones(2, 3), 0, pf.zeros(1, 3, dtype=pf.int64), ones(3))),
    "scatter_add size": (ValueError, "scatter_add: the index is larger than src", lambda: pf.scatter_add(ones(2, 3), 0, pf.zeros(2, 3, dtype=pf.int64), ones(1, 3))),
    "index_select of a number": (ValueError, "index_select: a 0-d input has one element", lambda: pf.index_select(pf.tensor(1.0), 0, index(0, 0))),
    "index_select matrix": (ValueError, "index_select: the index is not a vector", lambda: pf.index_select(ones(2, 3), 0, pf.zeros(1, 1, dtype=pf.int64))),
    "take_along_dim": (ValueError, "take_along_dim: ranks differ", lambda: pf.take_along_dim(ones(2, 3), index(0), dim=0)),
    "one_hot of nothing": (ValueError, "one_hot: the number of classes cannot be read from an empty index", lambda: F.one_hot(pf.zeros(0, dtype=pf.int64))),
    "one_hot classes": (ValueError, "one_hot: the number of classes is not positive", lambda: F.one_hot(index(0), num_classes=0)),
    "topk": (ValueError, "topk", lambda: pf.topk(ones(3), 4)),
    # views and joining
    "cat of numbers": (ValueError, "cat: a tensor without dimensions cannot be joined", lambda: pf.cat([pf.tensor(1.0), pf.tensor(2.0)])),
    "cat shapes": (ValueError, "cat: the shapes do not fit", lambda: pf.cat([ones(2, 3), ones(2, 4)])),
    "cat of nothing": (ValueError, "cat: no tensors", lambda: pf.cat([])),
    "select of a number": (IndexError, "without dimensions", lambda: pf.tensor(1.0).select(0, 0)),
    "flatten": (ValueError, "flatten: start_dim comes after end_dim", lambda: ones(2, 3).flatten(1, 0)),
    "expand to fewer": (ValueError, "expand: too few dims", lambda: ones(2, 3).expand(3)),
    "expand -1": (ValueError, "expand: -1 for a dim that the tensor does not have", lambda: ones(3).expand(-1, 3)),
    "narrow": (IndexError, "narrow: start out of range; got 4", lambda: ones(3).narrow(0, 4, 1)),
    "as_strided lengths": (ValueError, "as_strided: shape and strides differ in length", lambda: ones(4).as_strided((2, 2), (1,))),
    "as_strided offset": (ValueError, "as_strided: negative offset", lambda: ones(4).as_strided((2,), (1,), -1)),
    "split sizes": (ValueError, "split: the sizes do not add up", lambda: ones(4).split([1, 2])),
    "pad mode": (ValueError, "pad: no such mode; got 'mirror'; expected 'constant', 'reflect'", lambda: F.pad(ones(1, 2, 3), (1, 1), mode="mirror")),
    # matmul
    "matmul of a number": (ValueError, "matmul: an operand has no dimensions", lambda: pf.matmul(pf.tensor(1.0), ones(2))),
    "matmul dtypes": (TypeError, "matmul: dtypes differ; got float32 and float64", lambda: ones(2, 2) @ ones(2, 2).double()),
    "linear": (ValueError, "linear: input and weight do not fit", lambda: F.linear(ones(2, 3), ones(4, 5))),
    "linear bias": (ValueError, "linear: the bias does not fit", lambda: F.linear(ones(2, 3), ones(4, 3), ones(3))),
    # convolution and pooling
    "conv stride": (ValueError, "stride is not positive", lambda: F.conv2d(ones(1, 1, 4, 4), ones(1, 1, 3, 3), stride=0)),
    "conv padding": (ValueError, "padding is negative", lambda: F.conv2d(ones(1, 1, 4, 4), ones(1, 1, 3, 3), padding=-1)),
    "conv dilation": (ValueError, "dilation is not positive", lambda: F.conv2d(ones(1, 1, 4, 4), ones(1, 1, 3, 3), dilation=0)),
    "conv kernel": (ValueError, "conv2d: the kernel is larger than the padded input", lambda: F.conv2d(ones(1, 1, 2, 2), ones(1, 1, 3, 3))),
    "conv empty kernel": (ValueError, "conv2d: empty kernel", lambda: F.conv2d(ones(1, 1, 2, 2), ones(1, 1, 0, 3))),
    "conv channels": (ValueError, "conv2d: input channels do not fit the weight", lambda: F.conv2d(ones(1, 2, 4, 4), ones(1, 1, 3, 3))),
    "conv groups": (ValueError, "conv2d: groups does not divide the output channels", lambda: F.conv2d(ones(1, 4, 4, 4), ones(3, 2, 3, 3), groups=2)),
    "conv bias": (ValueError, "conv2d: the bias does not fit", lambda: F.conv2d(ones(1, 1, 4, 4), ones(2, 1, 3, 3), ones(3))),
    "pool kernel": (ValueError, "kernel size is not positive", lambda: F.max_pool2d(ones(1, 1, 4, 4), 0)),
    "pool padding": (ValueError, "too much padding", lambda: F.max_pool2d(ones(1, 1, 4, 4), 2, padding=2)),
    "pool window": (ValueError, "the kernel is larger than the padded input", lambda: F.avg_pool2d(ones(1, 1, 2, 2), 3)),
    # norms
    "batch_norm of one value": (ValueError, "batch_norm: one value per channel has no variance", lambda: F.batch_norm(ones(1, 3), None, None, training=True)),
    "layer_norm shape": (ValueError, "layer_norm", lambda: F.layer_norm(ones(2, 3), (4,))),
    # attention
    "attention heads of k and v": (ValueError, "keys and values have different heads", lambda: F.scaled_dot_product_attention(ones(1, 2, 3, 4), ones(1, 2, 3, 4), ones(1, 1, 3, 4))),
    "varlen offsets": (ValueError, "varlen_attn: cu_seq_q do not begin with 0 or not end with the number of rows; got 0 and 4; expected 0 and 5", lambda: varlen([0, 4])),
    "varlen order": (ValueError, "varlen_attn: cu_seq_q decrease; got 2 after 3", lambda: varlen([0, 3, 2, 5])),
    "varlen length": (ValueError, "varlen_attn: a sequence is longer than the given maximum; got 5 rows of cu_seq_q; expected at most 4", lambda: varlen([0, 5])),
    "varlen dtype": (TypeError, "varlen_attn: the offsets have the wrong dtype; got int64; expected int32", lambda: varlen([0, 5], pf.int64)),
    "varlen at the read": (ValueError, "varlen_attn: (the offsets|cu_seq_q) decrease; got 2 after 3", lambda: varlen([0, 3, 2, 5], pending=True).sum().item()),
    "attention heads": (ValueError, "the heads differ; .*enable_gqa", lambda: F.scaled_dot_product_attention(ones(1, 4, 3, 4), ones(1, 2, 3, 4), ones(1, 2, 3, 4))),
    "attention groups": (ValueError, "the heads do not group", lambda: F.scaled_dot_product_attention(ones(1, 3, 3, 4), ones(1, 2, 3, 4), ones(1, 2, 3, 4), enable_gqa=True)),
    "attention width": (ValueError, "queries and keys differ in width", lambda: F.scaled_dot_product_attention(ones(1, 2, 3, 4), ones(1, 2, 3, 5), ones(1, 2, 3, 5))),
    "attention length": (ValueError, "keys and values differ in length", lambda: F.scaled_dot_product_attention(ones(1, 2, 3, 4), ones(1, 2, 3, 4), ones(1, 2, 5, 4))),
    "attention mask dtype": (TypeError, "the mask has the wrong dtype", lambda: F.scaled_dot_product_attention(ones(1, 2, 3, 4), ones(1, 2, 3, 4), ones(1, 2, 3, 4), attn_mask=pf.ones(3, 3, dtype=pf.int64))),
    "attention mask shape": (ValueError, "scaled_dot_product_attention: shapes do not broadcast", lambda: F.scaled_dot_product_attention(ones(1, 2, 3, 4), ones(1, 2, 3, 4), ones(1, 2, 3, 4), attn_mask=ones(4, 4))),
    "attention mask and causal": (ValueError, "is_causal and attn_mask exclude each other", lambda: F.scaled_dot_product_attention(ones(1, 2, 3, 4), ones(1, 2, 3, 4), ones(1, 2, 3, 4), attn_mask=ones(3, 3), is_causal=True)),
    "attention dropout": (ValueError, "dropout_p is not a probability", lambda: F.scaled_dot_product_attention(ones(1, 2, 3, 4), ones(1, 2, 3, 4), ones(1, 2, 3, 4), dropout_p=2.0)),
    "attention kv_length": (ValueError, "kv_length is out of range; got 4 for 3 keys", lambda: F.scaled_dot_product_attention(ones(1, 2, 3, 4), ones(1, 2, 3, 4), ones(1, 2, 3, 4), kv_length=4)),
    # autograd
    "backward twice": (RuntimeError, "backward a second time", lambda: twice((leaf(3) * leaf(3)).sum())),
    "backward of many": (RuntimeError, "one element", lambda: (leaf(3) * 2).backward()),
    "backward of a constant": (RuntimeError, "does not require grad", lambda: ones(3).sum().backward()),
    "gradient shape": (RuntimeError, "the gradient's shape is not the output's", lambda: (leaf(3) * 2).backward(ones(4))),
    "gradient device": (ValueError, "the gradient is on another device", lambda: (leaf(3) * 2).backward(ones(3).to("reference"))),
    "numbers of outputs": (ValueError, "got 2 gradients for 1 outputs", lambda: pf.autograd.grad([leaf(3).sum()], [leaf(3)], [ones(1), ones(1)])),
    "unused input": (RuntimeError, "was not used to compute the outputs", lambda: pf.autograd.grad(leaf(3).sum(), [leaf(3)])),
    "Function's gradient": (RuntimeError, "gradient of the wrong shape; got .7,.; expected .3,.", lambda: Wrong.apply(leaf(3)).sum().backward()),
    "hook": (RuntimeError, "register_hook: the tensor does not require grad", lambda: ones(3).register_hook(lambda g: g)),
    "grad's shape": (ValueError, r"grad: does not fit; got shape \(4,\)", lambda: grad_of((3,), to=(4,))),
    "grad's dtype": (ValueError, "grad: does not fit; got shape .* dtype float64", lambda: grad_of((3,), dtype=pf.float64)),
    "grad's device": (ValueError, "grad: the device is not the tensor's", lambda: grad_of((3,), device="reference")),
    "requires_grad of integers": (ValueError, "only floating point and complex tensors can require gradients", lambda: index(1).requires_grad_()),
}


@pytest.mark.parametrize("name", list(CASES))
def test_message(name):
    kind, text, do = CASES[name]
    with pytest.raises(kind) as e:
        do()
    assert re.search(text, str(e.value), re.S), str(e.value)
    assert (pf.ones(2, 3) + 1).sum().item() == 12  # the process goes on
