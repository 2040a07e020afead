"""One test per user-visible error: the type, and a text that says the op, what it got and what it expected. Every case also checks that
the tensors involved are what they were."""
import os
import re

import numpy as np
import pytest

import pyflame as pf
import pyflame.nn as nn
from pyflame.data import DataLoader, TensorDataset
from pyflame.optim import SGD, Adam, lr_scheduler


def ones(*shape):
    return pf.ones(*shape)


def setitem(x, key, value):
    x[key] = value


# name: (exception, words of the text in order, what is wrong). Called with x [2, 3], y [4, 5], r [2] that requires a gradient.
CASES = {
    # making tensors
    "ragged lists": (ValueError, "tensor: ragged data; got a sequence of length 1 at depth 1; expected length 2", lambda x, y, r: pf.tensor([[1, 2], [3]])),
    "a list among numbers": (ValueError, "tensor: ragged data", lambda x, y, r: pf.tensor([1, [2]])),
    "a number among lists": (ValueError, "tensor: ragged data; a number stands at depth 1", lambda x, y, r: pf.tensor([[1], 2])),
    "text": (TypeError, "tensor: cannot make a tensor of this; got str", lambda x, y, r: pf.tensor("abc")),
    "text among numbers": (TypeError, "tensor: not a number; got 'a' .str.", lambda x, y, r: pf.tensor([1, "a"])),
    "None among numbers": (TypeError, "tensor: not a number; got None", lambda x, y, r: pf.tensor([None])),
    "integer beyond the dtype": (ValueError, "tensor: 300 does not fit into uint8", lambda x, y, r: pf.tensor([300], dtype=pf.uint8)),
    "integer beyond 64 bits": (ValueError, "tensor: integer out of range", lambda x, y, r: pf.tensor(2**70)),
    "integers beyond 64 bits in a list": (ValueError, "tensor: integer out of range", lambda x, y, r: pf.tensor([2**70])),
    "NaN as integer": (ValueError, "tensor: nan does not fit into int64", lambda x, y, r: pf.tensor([float("nan")], dtype=pf.int64)),
    "unknown dtype": (TypeError, "dtype: not a dtype of PyFlame; got 'flot'; expected float64", lambda x, y, r: pf.tensor(1, dtype="flot")),
    "dtype of the wrong type": (TypeError, "dtype: not a dtype of PyFlame; got 3", lambda x, y, r: pf.zeros(2, dtype=3)),
    "array of long doubles": (TypeError, "tensor: unsupported element type", lambda x, y, r: pf.tensor(np.ones(2, np.longdouble))),
    "negative size": (ValueError, "negative size; got shape .-1,.", lambda x, y, r: pf.zeros(-1)),
    "fractional size": (TypeError, "zeros: not sizes; got .1.5,.; expected integers", lambda x, y, r: pf.zeros(1.5)),
    "too many dims": (ValueError, "too many dimensions; .*expected at most 8", lambda x, y, r: pf.zeros(*[1] * 9)),
    "too many elements": (ValueError, "too many elements", lambda x, y, r: pf.zeros(1 << 62, 1 << 62)),
    "arange step 0": (ValueError, "arange: the step is 0", lambda x, y, r: pf.arange(0, 1, 0)),
    "randint of nothing": (ValueError, "randint: empty range; got low 5 and high 5", lambda x, y, r: pf.randint(5, 5, (2,))),
    "linspace": (ValueError, "linspace: negative number of steps; got -1", lambda x, y, r: pf.linspace(0, 1, -1)),
    "eye": (ValueError, "eye: negative size", lambda x, y, r: pf.eye(-1)),
    "seed": (TypeError, "manual_seed", lambda x, y, r: pf.manual_seed("a")),
    # devices
    "unknown device": (ValueError, "device: no such device; got 'gpu'; expected cpu, rocm", lambda x, y, r: pf.zeros(2, device="gpu")),
    "device of the wrong type": (TypeError, "device: not a device; got 3.5", lambda x, y, r: pf.zeros(2, device=3.5)),
    "bad device index": (ValueError, "device: bad device index; got 'rocm:x'", lambda x, y, r: pf.set_device("rocm:x")),
    "mixed devices": (ValueError, "add: tensors are on different devices; got cpu and reference", lambda x, y, r: x + x.to("reference")),
    "numpy of another device": (TypeError, "numpy: the tensor is on device 'null'", lambda x, y, r: pf.empty(2, device="null").numpy()),
    # arithmetic
    "broadcast": (ValueError, r"add: shapes do not broadcast; got \(2, 3\) and \(4, 5\)", lambda x, y, r: x + y),
    "matmul": (ValueError, r"matmul: inner dimensions differ; got \(2, 3\) @ \(4, 5\)", lambda x, y, r: x @ y),
    "mm": (ValueError, "mm: needs two matrices", lambda x, y, r: x.mm(ones(3))),
    "bmm": (ValueError, "bmm: not two batches of matrices", lambda x, y, r: pf.bmm(x, x)),
    "dot": (ValueError, "dot: needs two vectors", lambda x, y, r: x.dot(x)),
    "operator with text": (TypeError, "unsupported operand", lambda x, y, r: x + "a"),
    "function with text": (TypeError, r"add: wrong arguments; got \(Tensor, str\); expected add\(input: Tensor", lambda x, y, r: pf.add(x, "a")),
    "missing argument": (TypeError, r"add: wrong arguments; got \(Tensor\); expected add\(", lambda x, y, r: pf.add(x)),
    "unknown keyword": (TypeError, r"sum: wrong arguments; got \(Tensor, kwargs = \{ dims: int \}\)", lambda x, y, r: pf.sum(x, dims=1)),
    "array for a tensor": (TypeError, r"tanh: wrong arguments; got \(ndarray\).*hint: pyflame.tensor", lambda x, y, r: pf.tanh(np.ones(3))),
    "method with text": (TypeError, r"sum: wrong arguments; got \(Tensor, str\)", lambda x, y, r: x.sum("a")),
    "property": (TypeError, r"^attribute: wrong arguments; got \(Tensor, str\)", lambda x, y, r: setattr(x, "requires_grad", "a")),
    "layer with an array": (TypeError, r"linear: wrong arguments; got \(ndarray, ", lambda x, y, r: pf.nn.Linear(3, 2)(np.ones(3))),
    "negative index far out": (IndexError, r"index out of range", lambda x, y, r: x[pf.tensor([0, -3])].tolist()),
    "sizes of Linear": (TypeError, "Linear: in_features is not an integer; got 'a'", lambda x, y, r: pf.nn.Linear("a", 2)),
    "channels of Conv2d": (TypeError, "Conv2d: in_channels is not an integer", lambda x, y, r: pf.nn.Conv2d("a", 1, 1)),
    "kernel of Conv2d": (ValueError, "Conv2d: sizes must be positive; got kernel_size", lambda x, y, r: pf.nn.Conv2d(1, 1, 0)),
    "kernel of MaxPool2d": (TypeError, "MaxPool2d: kernel_size: not sizes; got 'a'", lambda x, y, r: pf.nn.MaxPool2d("a")),
    "p of Dropout": (TypeError, "Dropout: the probability is not a number; got None", lambda x, y, r: pf.nn.Dropout(None)),
    "dims of Flatten": (TypeError, "Flatten: start_dim is not an integer", lambda x, y, r: pf.nn.Flatten("a")),
    "heads": (TypeError, "MultiheadAttention: embed_dim is not an integer", lambda x, y, r: pf.nn.MultiheadAttention("a", 2)),
    "hook of a module": (TypeError, "register_forward_hook: not callable; got int", lambda x, y, r: pf.nn.ReLU().register_forward_hook(3)),
    "lr of text": (TypeError, "SGD: lr is not a number; got 'a'", lambda x, y, r: pf.optim.SGD([r], lr="a")),
    "betas": (TypeError, r"Adam: betas are not two numbers; got \(0.9,\)", lambda x, y, r: pf.optim.Adam([r], betas=(0.9,))),
    "params of None": (TypeError, "optimizer: params cannot be iterated; got NoneType", lambda x, y, r: pf.optim.SGD(None)),
    "schedule of None": (TypeError, "StepLR: not an optimizer; got NoneType", lambda x, y, r: pf.optim.lr_scheduler.StepLR(None, 1)),
    "max_norm": (TypeError, "clip_grad_norm_: max_norm is not a number; got 'a'", lambda x, y, r: pf.nn.utils.clip_grad_norm_([r], "a")),
    "max_norm of NaN": (ValueError, "clip_grad_norm_: max_norm is out of range", lambda x, y, r: pf.nn.utils.clip_grad_norm_([r], float("nan"))),
    "dataset of None": (TypeError, "DataLoader: not a dataset; got NoneType", lambda x, y, r: pf.data.DataLoader(None)),
    "backward of None in a list": (TypeError, "backward: not a tensor; got NoneType", lambda x, y, r: pf.autograd.backward([None])),
    "backward of None": (TypeError, "backward: not tensors; got NoneType", lambda x, y, r: pf.autograd.backward(None)),
    "grad for None": (TypeError, "grad: not a tensor; got NoneType", lambda x, y, r: pf.autograd.grad(r.sum(), [r, None])),
    "retain_graph": (TypeError, "backward: retain_graph is not a bool; got str", lambda x, y, r: r.sum().backward(retain_graph="a")),
    "checkpoint of None": (TypeError, "checkpoint: ", lambda x, y, r: pf.checkpoint(lambda a: None, r)),
    "checkpoint of Nones": (TypeError, "checkpoint: ", lambda x, y, r: pf.checkpoint(lambda a: (a, None), r)),
    "equal to None": (TypeError, "equal: not two tensors; got Tensor and NoneType", lambda x, y, r: pf.equal(x, None)),
    "bitwise on floats": (TypeError, "bitwise_and: only for integers; got float32", lambda x, y, r: x & x),
    "invert floats": (TypeError, "bitwise_not: not defined for floats; got float32", lambda x, y, r: ~x),
    "negative of bool": (TypeError, "neg: not defined for bool", lambda x, y, r: -(x > 0)),
    "clamp without bounds": (ValueError, "clamp: no bounds", lambda x, y, r: pf.clamp(x)),
    "gelu": (ValueError, "gelu: unknown approximation; got 'fast'", lambda x, y, r: pf.gelu(x, approximate="fast")),
    "mask of floats": (TypeError, "masked_fill: the mask is not bool; got float32", lambda x, y, r: pf.masked_fill(x, x, 0)),
    "condition of floats": (TypeError, "where: the condition is not bool; got float32", lambda x, y, r: pf.where(x, x, x)),
    "dropout": (ValueError, "dropout: the probability is out of range; got 1.5", lambda x, y, r: pf.dropout(x, 1.5)),
    # reductions
    "sum dim": (IndexError, "sum: dim out of range; got 5; expected -2 <= dim < 2", lambda x, y, r: x.sum(5)),
    "sum dim twice": (ValueError, "sum: a dim appears twice", lambda x, y, r: x.sum((0, 0))),
    "mean of integers": (TypeError, "mean: needs a float dtype; got int64", lambda x, y, r: pf.arange(3).mean()),
    "max of nothing": (IndexError, "max: no elements to choose from", lambda x, y, r: pf.zeros(0).max()),
    "max of two dims": (TypeError, "max: not a dim; got .0, 1.", lambda x, y, r: x.max((0, 1))),
    "max keepdim": (TypeError, "max: keepdim needs a dim", lambda x, y, r: pf.max(x, keepdim=True)),
    "argmax dim": (IndexError, "argmax: dim out of range; got 4", lambda x, y, r: x.argmax(4)),
    "topk": (ValueError, "topk: k is out of range; got k 9", lambda x, y, r: x.topk(9)),
    "softmax dim": (IndexError, "softmax: dim out of range; got 3", lambda x, y, r: pf.softmax(x, 3)),
    # shapes
    "view size": (ValueError, r"view: the shape does not fit; got \(7,\)", lambda x, y, r: x.view(7)),
    "view strides": (ValueError, "view: the strides do not allow this shape.*reshape", lambda x, y, r: x.T.view(6)),
    "two -1": (ValueError, "view: more than one size is -1", lambda x, y, r: x.view(-1, -1)),
    "reshape": (ValueError, "reshape: the shape does not fit", lambda x, y, r: x.reshape(4)),
    "expand": (ValueError, "expand: a size does not match", lambda x, y, r: x.expand(3, 3)),
    "permute count": (ValueError, "permute: the number of dims differs", lambda x, y, r: x.permute(0)),
    "permute twice": (ValueError, "permute: a dim appears twice", lambda x, y, r: x.permute(0, 0)),
    "transpose": (IndexError, "transpose: dim out of range; got 5", lambda x, y, r: x.transpose(0, 5)),
    "squeeze": (IndexError, "squeeze: dim out of range; got 9", lambda x, y, r: x.squeeze(9)),
    "unsqueeze": (IndexError, "unsqueeze: dim out of range; got 7", lambda x, y, r: x.unsqueeze(7)),
    "T of 3 dims": (ValueError, "T: only for up to 2 dimensions", lambda x, y, r: pf.ones(2, 2, 2).T),
    "mT of a vector": (ValueError, "mT: needs 2 dimensions", lambda x, y, r: r.mT),
    "narrow": (ValueError, "narrow: the length does not fit", lambda x, y, r: x.narrow(0, 1, 5)),
    "split": (ValueError, "split: the size is not positive", lambda x, y, r: x.split(0)),
    "chunk": (ValueError, "chunk: the number of chunks is not positive", lambda x, y, r: x.chunk(0)),
    "unbind": (IndexError, "unbind: dim out of range; got 4", lambda x, y, r: x.unbind(4)),
    "as_strided": (ValueError, "as_strided: reaches beyond the storage", lambda x, y, r: pf.as_strided(x, (5,), (3,), 0)),
    "cat of nothing": (ValueError, "cat: no tensors", lambda x, y, r: pf.cat([])),
    "cat": (ValueError, r"cat: the shapes do not fit; got \(2, 3\) and \(4, 5\)", lambda x, y, r: pf.cat([x, y])),
    "stack": (ValueError, "stack: the shapes differ", lambda x, y, r: pf.stack([x, y])),
    "pad count": (ValueError, "pad: the padding does not fit the shape", lambda x, y, r: pf.pad(x, (1,))),
    "pad mode": (ValueError, "pad: mode 'reflect' does not fit; got padding .1, 3. for dim 1 of size 3; expected at most 2", lambda x, y, r: pf.pad(x, (1, 3), mode="reflect")),
    "tril": (ValueError, "tril: not a matrix", lambda x, y, r: pf.tril(ones(3))),
    # indexing
    "index": (IndexError, "index out of range; got 5; expected -2 <= index < 2", lambda x, y, r: x[5]),
    "too many indices": (IndexError, "index: too many indices; got 3", lambda x, y, r: x[0, 0, 0]),
    "negative step": (ValueError, "index: the step of a slice must be positive; got -1", lambda x, y, r: x[::-1]),
    "mask": (IndexError, "index: the mask does not fit; got mask shape", lambda x, y, r: x[ones(3) > 0]),
    "float index": (IndexError, "index: not an index; got 1.5", lambda x, y, r: x[1.5]),
    "float tensor index": (IndexError, "index: indices must be integers or bools; got dtype float32", lambda x, y, r: x[r]),
    "two Ellipsis": (IndexError, "index: only one Ellipsis", lambda x, y, r: x[..., ...]),
    "index of a scalar": (IndexError, "index: a 0-d tensor cannot be indexed", lambda x, y, r: ones(())[0]),
    "tensor index": (IndexError, "index: index out of range; got 5.*expected -2 <= index < 2", lambda x, y, r: x[pf.tensor([5])].tolist()),
    "two tensor indices": (IndexError, "index: the indices do not broadcast", lambda x, y, r: x[pf.tensor([0, 1]), pf.tensor([0, 1, 0])]),
    "tensor index assignment": (ValueError, "index_put_: the value does not broadcast", lambda x, y, r: setitem(x, pf.tensor([0]), ones(5))),
    "tensor index assignment dtype": (RuntimeError, "index_put_: dtypes differ; got int64 for a tensor of float32", lambda x, y, r: setitem(x, pf.tensor([0]), pf.tensor([1]))),
    "assignment shape": (ValueError, "shapes do not broadcast", lambda x, y, r: setitem(x, 0, ones(7))),
    "mask shape": (IndexError, "index: the mask does not fit", lambda x, y, r: setitem(x, ones(3) > 0, 1)),
    "mask value": (ValueError, "index_put_: the value does not broadcast", lambda x, y, r: setitem(x, x > 0, ones(5))),
    "gather dtype": (TypeError, "gather: the index has the wrong dtype", lambda x, y, r: pf.gather(x, 0, ones(1, 1))),
    "gather range": (IndexError, "gather: index out of range; got 9", lambda x, y, r: pf.gather(x, 0, pf.tensor([[9]])).tolist()),
    "index_select rank": (ValueError, "index_select: the index is not a vector", lambda x, y, r: pf.index_select(x, 0, pf.tensor([[1]]))),
    "embedding range": (IndexError, "index out of range; got 7", lambda x, y, r: pf.embedding(pf.tensor([7]), x).tolist()),
    "embedding dtype": (TypeError, "embedding: the index has the wrong dtype", lambda x, y, r: pf.embedding(ones(1), x)),
    "index_add": (ValueError, "index_add: src does not fit", lambda x, y, r: x.index_add(0, pf.tensor([0]), y)),
    # Python's protocols
    "bool": (RuntimeError, "bool: the truth of a tensor with 6 elements is ambiguous", lambda x, y, r: bool(x)),
    "item": (ValueError, r"item: not one element; got a tensor of shape \(2, 3\)", lambda x, y, r: x.item()),
    "float": (ValueError, "item: not one element", lambda x, y, r: float(x)),
    "len": (TypeError, "len: a 0-d tensor has no length", lambda x, y, r: len(ones(()))),
    "iter": (TypeError, "iter: a 0-d tensor cannot be iterated", lambda x, y, r: iter(ones(()))),
    "index of a list": (TypeError, "index: only integer tensors", lambda x, y, r: [1][pf.tensor(0.5)]),
    "format": (TypeError, "format: only a 0-d tensor takes a format", lambda x, y, r: format(x, ".2f")),
    "to": (TypeError, "to: not a device, dtype or tensor; got 3.5", lambda x, y, r: x.to(3.5)),
    "to keyword": (TypeError, "to: unexpected keyword; got 'foo'", lambda x, y, r: x.to(foo=1)),
    # exchange
    "numpy with gradient": (RuntimeError, "numpy: the tensor requires a gradient.*detach", lambda x, y, r: r.numpy()),
    "numpy bfloat16": (TypeError, r"numpy: NumPy has no bfloat16.*float\(\)", lambda x, y, r: x.bfloat16().numpy()),
    "from_numpy list": (TypeError, "from_numpy: not an array; got list", lambda x, y, r: pf.from_numpy([1])),
    "from_numpy negative": (ValueError, "from_numpy: negative strides", lambda x, y, r: pf.from_numpy(np.ones(3)[::-1])),
    "from_numpy read-only": (ValueError, "from_numpy: the array is read-only", lambda x, y, r: pf.from_numpy(np.frombuffer(b"12345678", np.float64))),
    "from_numpy long doubles": (TypeError, "from_numpy: unsupported element type", lambda x, y, r: pf.from_numpy(np.ones(2, np.longdouble))),
    "frombuffer size": (ValueError, "frombuffer: 3 bytes are no whole number", lambda x, y, r: pf.frombuffer(b"123", dtype=pf.float32)),
    "frombuffer count": (ValueError, "frombuffer: too few bytes", lambda x, y, r: pf.frombuffer(b"1234", dtype=pf.float32, count=2)),
    "from_dlpack": (TypeError, "from_dlpack: no __dlpack__ method; got int", lambda x, y, r: pf.from_dlpack(3)),
    "memoryview with gradient": (BufferError, "buffer: the tensor requires a gradient", lambda x, y, r: memoryview(r)),
    "memoryview bfloat16": (BufferError, "buffer: there is no buffer format for bfloat16", lambda x, y, r: memoryview(x.bfloat16())),
    "pickle of a result": (RuntimeError, "only leaves can be pickled.*detach", lambda x, y, r: (r * 2).__reduce__()),
    # gradients
    "leaf in place": (RuntimeError, "a leaf tensor that requires grad", lambda x, y, r: r.add_(1)),
    "leaf filled": (RuntimeError, "fill_: a leaf tensor that requires grad", lambda x, y, r: r.fill_(0)),
    "gradient of integers": (ValueError, "requires_grad: only floating point and complex tensors", lambda x, y, r: pf.arange(3).requires_grad_()),
    "result without gradient": (ValueError, "requires_grad: cannot be switched off", lambda x, y, r: (r * 2).requires_grad_(False)),
    "backward without gradient": (RuntimeError, "backward: the output does not require grad", lambda x, y, r: x.sum().backward()),
    "backward of many": (RuntimeError, "backward: a gradient can be made up for one element only", lambda x, y, r: (r * 2).backward()),
    "backward shape": (RuntimeError, "backward: the gradient's shape is not the output's", lambda x, y, r: (r * 2).backward(ones(3))),
    "backward twice": (RuntimeError, r"a second time.*test_messages.py:\d+.*retain_graph", lambda x, y, r: (lambda s: (s.backward(), s.backward()))((r * r).sum())),
    "grad of unrelated": (RuntimeError, "grad: input 0 does not require grad", lambda x, y, r: pf.autograd.grad(r.sum(), x)),
    "hook": (TypeError, "register_hook: not callable", lambda x, y, r: r.register_hook(3)),
    "setting grad": (ValueError, "grad: does not fit", lambda x, y, r: setattr(r, "grad", ones(3))),
    "gradcheck dtype": (ValueError, "gradcheck: input 0 is pyflame.float32; expected pyflame.float64", lambda x, y, r: pf.autograd.gradcheck(lambda a: a, [r])),
    "checkpoint": (TypeError, "checkpoint: the function returned int", lambda x, y, r: pf.checkpoint(lambda a: 3, r)),
    "Function": (NotImplementedError, "Function: forward is not implemented", lambda x, y, r: pf.autograd.Function.apply(r)),
    # layers and losses
    "linear": (ValueError, "linear: input and weight do not fit", lambda x, y, r: nn.Linear(3, 2)(ones(2, 4))),
    "conv2d rank": (ValueError, "conv2d: wrong rank", lambda x, y, r: pf.conv2d(x, x)),
    "conv2d channels": (ValueError, "conv2d: input channels do not fit", lambda x, y, r: pf.conv2d(ones(1, 3, 4, 4), ones(2, 4, 3, 3))),
    "pool kernel": (ValueError, "max_pool2d: the kernel is larger", lambda x, y, r: pf.max_pool2d(ones(1, 1, 2, 2), 5)),
    "layer_norm": (ValueError, "layer_norm: normalized_shape is not the end", lambda x, y, r: pf.layer_norm(x, 4)),
    "batch_norm": (ValueError, "batch_norm: no statistics", lambda x, y, r: pf.batch_norm(x, None, None, training=False)),
    "BatchNorm2d": (ValueError, "BatchNorm2d: the input has 2 dimensions; expected 4", lambda x, y, r: nn.BatchNorm2d(3)(x)),
    "attention": (ValueError, "scaled_dot_product_attention: keys and values differ", lambda x, y, r: pf.scaled_dot_product_attention(x, x, y)),
    "cross_entropy shapes": (ValueError, "cross_entropy: input and target do not fit", lambda x, y, r: pf.cross_entropy(x, pf.tensor([0]))),
    "cross_entropy class": (IndexError, "out of range; got 7.*expected 0 <= .* < 3", lambda x, y, r: pf.cross_entropy(x, pf.tensor([0, 7])).item()),
    "cross_entropy weight": (ValueError, "cross_entropy: the weights do not fit the classes; got weight .2,. for input .2, 3.; expected .3,.",
                             lambda x, y, r: nn.CrossEntropyLoss(weight=ones(2))(x, pf.tensor([0, 1]))),
    "cross_entropy weight of integers": (TypeError, "cross_entropy", lambda x, y, r: pf.cross_entropy(x, pf.tensor([0, 1]), pf.tensor([1, 2, 3]))),
    "nll_loss weight": (ValueError, "nll_loss: the weights do not fit the classes", lambda x, y, r: pf.nll_loss(x, pf.tensor([0, 1]), ones(1, 3))),
    "einsum operands": (ValueError, "einsum: the equation 'ab,bc' has 2 operands; got 1", lambda x, y, r: pf.einsum("ab,bc", x)),
    "einsum rank": (ValueError, "einsum: the subscripts do not fit the operand; got 'abc' for 2 dimensions", lambda x, y, r: pf.einsum("abc", x)),
    "einsum label": (ValueError, "einsum: not a label in 'a1'", lambda x, y, r: pf.einsum("a1", x)),
    "einsum output": (ValueError, "einsum: the output of .* has a label twice, or one that no operand has", lambda x, y, r: pf.einsum("ab->abc", x)),
    "einsum sizes": (ValueError, "einsum: sizes of one label differ in 'ab,bc'; got 3 and 4", lambda x, y, r: pf.einsum("ab,bc", x, y)),
    "einsum diagonal": (ValueError, "einsum: sizes of one label differ; got 2 and 3", lambda x, y, r: pf.einsum("aa", pf.ones(2, 3))),
    "einsum sublist": (ValueError, "einsum: not a label in a sublist; got 52", lambda x, y, r: pf.einsum(x, [0, 52])),
    "einsum equation": (TypeError, "einsum: the equation is not text; got int", lambda x, y, r: pf.einsum(3, x)),
    "einsum operand": (TypeError, "einsum: not a tensor; got int", lambda x, y, r: pf.einsum("a", 3)),
    "setting of an activation": (TypeError, "ELU: no such setting; got beta; expected alpha", lambda x, y, r: nn.ELU(beta=1)),
    "settings of an activation": (TypeError, "Mish: takes at most 1 settings; got 2", lambda x, y, r: nn.Mish(False, 3)),
    "glu": (ValueError, "glu: the size along dim -1 is not even; got shape .2, 3.", lambda x, y, r: nn.GLU()(x)),
    "prelu": (ValueError, "prelu: the weight does not fit; got 2 numbers for input .2, 3.", lambda x, y, r: nn.PReLU(2)(x)),
    "smooth_l1_loss": (ValueError, "smooth_l1_loss: shapes differ; got .2, 3. and .4, 5.", lambda x, y, r: nn.SmoothL1Loss()(x, y)),
    "smooth_l1_loss beta": (ValueError, "smooth_l1_loss: beta must not be negative; got -1", lambda x, y, r: nn.SmoothL1Loss(beta=-1)(x, x)),
    "huber_loss delta": (ValueError, "huber_loss: delta must be positive; got 0", lambda x, y, r: nn.HuberLoss(delta=0)(x, x)),
    "kl_div reduction": (ValueError, "kl_div: unknown reduction; got 'avg'", lambda x, y, r: nn.functional.kl_div(x, x, "avg")),
    "conv_transpose2d rank": (ValueError, "conv_transpose2d: wrong rank; got input .2, 3. and weight .4, 5.", lambda x, y, r: pf.conv_transpose2d(x, y)),
    "conv_transpose2d channels": (ValueError, "conv_transpose2d: input channels do not fit the weight; got input .1, 3, 4, 4. and weight .2, 3, 2, 2. with groups 1; expected 2 channels",
                                  lambda x, y, r: pf.conv_transpose2d(pf.ones(1, 3, 4, 4), pf.ones(2, 3, 2, 2))),
    "conv_transpose2d output_padding": (ValueError, "conv_transpose2d: wrong output_padding; got .2, 2. with stride .2, 2. and dilation .1, 1.; expected 0 or more and less than stride or dilation",
                                        lambda x, y, r: pf.conv_transpose2d(pf.ones(1, 2, 4, 4), pf.ones(2, 3, 2, 2), stride=2, output_padding=2)),
    "conv1d rank": (ValueError, "conv1d: wrong rank; got input .2, 3. and weight .4, 5.", lambda x, y, r: pf.conv1d(x, y)),
    "Conv2d padding_mode": (ValueError, "Conv2d: no such padding_mode; got 'mirror'", lambda x, y, r: nn.Conv2d(1, 1, 3, padding_mode="mirror")),
    "Conv1d sizes": (TypeError, "kernel_size: not a size; got .2, 2.; expected an integer", lambda x, y, r: nn.Conv1d(1, 1, (2, 2))),
    "adaptive_avg_pool2d rank": (ValueError, "adaptive_avg_pool2d: wrong rank; got .2, 3.", lambda x, y, r: pf.adaptive_avg_pool2d(x, 1)),
    "adaptive_avg_pool2d of nothing": (ValueError, "adaptive_avg_pool2d: nothing to average; got output .0, 0.", lambda x, y, r: pf.adaptive_avg_pool2d(ones(1, 1, 2, 2), 0)),
    "adaptive_avg_pool2d sizes": (ValueError, "adaptive_avg_pool2d: output_size has the wrong length", lambda x, y, r: nn.AdaptiveAvgPool2d((1, 2, 3))(ones(1, 1, 2, 2))),
    "BatchNorm1d": (ValueError, "BatchNorm1d: the input has 4 dimensions; expected 2 .N, C. or 3", lambda x, y, r: nn.BatchNorm1d(3)(ones(1, 3, 2, 2))),
    "GroupNorm": (ValueError, "GroupNorm: num_groups must divide num_channels; got 2 and 3", lambda x, y, r: nn.GroupNorm(2, 3)),
    "group_norm": (ValueError, "group_norm: the groups do not divide the channels; got input .2, 3. and 2 groups", lambda x, y, r: nn.functional.group_norm(x, 2)),
    "reduction": (ValueError, "mse_loss: no such reduction; got 'avg'", lambda x, y, r: pf.mse_loss(x, x, reduction="avg")),
    "KLDivLoss reduction": (ValueError, "KLDivLoss: unknown reduction; got 'avg'; expected 'none', 'mean', 'sum' or 'batchmean'", lambda x, y, r: nn.KLDivLoss("avg")),
    "loss reduction": (ValueError, "MSELoss: unknown reduction; got 'avg'", lambda x, y, r: nn.MSELoss("avg")),
    "mse_loss": (ValueError, "mse_loss: shapes differ", lambda x, y, r: pf.mse_loss(x, y)),
    "Linear sizes": (ValueError, "Linear: sizes must not be negative", lambda x, y, r: nn.Linear(-1, 2)),
    "Conv2d groups": (ValueError, "Conv2d: groups must divide the channels", lambda x, y, r: nn.Conv2d(3, 4, 3, groups=2)),
    "Dropout": (ValueError, "Dropout: the probability is out of range; got 2", lambda x, y, r: nn.Dropout(2)),
    "heads": (ValueError, "MultiheadAttention: num_heads must divide embed_dim", lambda x, y, r: nn.MultiheadAttention(5, 2)),
    "attention mask": (ValueError, "MultiheadAttention: attn_mask does not fit", lambda x, y, r: nn.MultiheadAttention(4, 2)(*[ones(3, 1, 4)] * 3, attn_mask=ones(2, 2))),
    "padding_idx": (IndexError, "Embedding: padding_idx is out of range; got 7", lambda x, y, r: nn.Embedding(3, 2, padding_idx=7)),
    "forward missing": (NotImplementedError, "Module: forward is not implemented", lambda x, y, r: nn.Module()(x)),
    "parameter replaced by a tensor": (TypeError, "Linear: cannot assign Tensor to parameter 'weight'", lambda x, y, r: setattr(nn.Linear(1, 1), "weight", x)),
    "dotted name": (KeyError, "must not be empty or contain a dot", lambda x, y, r: nn.Module().register_buffer("a.b", x)),
    "no such child": (AttributeError, "has no child 'q'", lambda x, y, r: nn.Module().get_submodule("q")),
    "integer module": (TypeError, "to: a module takes only floating dtypes", lambda x, y, r: nn.Linear(1, 1).to(pf.int64)),
    "container index": (IndexError, "Sequential: index out of range; got 3", lambda x, y, r: nn.Sequential(nn.ReLU())[3]),
    "fans": (ValueError, "init: fans need two dimensions", lambda x, y, r: nn.init.kaiming_uniform_(r)),
    "gain": (ValueError, "calculate_gain: unknown nonlinearity", lambda x, y, r: nn.init.calculate_gain("x")),
    # optimizers and schedules
    "no parameters": (ValueError, "optimizer: the list of parameters is empty", lambda x, y, r: SGD([], 0.1)),
    "a tensor as parameters": (TypeError, "optimizer: params is a tensor", lambda x, y, r: SGD(r, 0.1)),
    "negative lr": (ValueError, "SGD: lr must not be negative; got -1", lambda x, y, r: SGD([r], -1)),
    "no leaf": (ValueError, "can only optimize leaf tensors", lambda x, y, r: SGD([r * 2], 1)),
    "parameter twice": (ValueError, "a parameter appears twice", lambda x, y, r: SGD([r, r])),
    "betas": (ValueError, "Adam: beta1 is out of range; got 1", lambda x, y, r: Adam([r], betas=(1, 2))),
    "nesterov": (ValueError, "SGD: nesterov needs a momentum", lambda x, y, r: SGD([r], nesterov=True)),
    "differentiable": (NotImplementedError, "Adam: differentiable steps are not available", lambda x, y, r: Adam([r], differentiable=True)),
    "optimizer state": (ValueError, "group 0 has 2 parameters; expected 1", lambda x, y, r: SGD([r]).load_state_dict(SGD([ones(1), ones(1)]).state_dict())),
    "step_size": (ValueError, "StepLR: step_size must be a positive integer; got 0", lambda x, y, r: lr_scheduler.StepLR(SGD([r]), 0)),
    "OneCycleLR": (ValueError, "OneCycleLR: the length is missing", lambda x, y, r: lr_scheduler.OneCycleLR(SGD([r], momentum=0.9), 1.0)),
    "milestones": (ValueError, "SequentialLR: got 1 schedulers and 1 milestones", lambda x, y, r: lr_scheduler.SequentialLR(SGD([r]), [lr_scheduler.StepLR(SGD([r]), 1)], [1])),
    # data
    "num_workers": (ValueError, "DataLoader: num_workers must be an integer that is not negative; got -1", lambda x, y, r: DataLoader([1], num_workers=-1)),
    "prefetch_factor": (ValueError, "DataLoader: prefetch_factor is too small; got 0; expected at least 1", lambda x, y, r: DataLoader([1], num_workers=1, prefetch_factor=0)),
    "timeout": (ValueError, "DataLoader: timeout must not be negative; got -1", lambda x, y, r: DataLoader([1], timeout=-1)),
    "no workers": (ValueError, "DataLoader: timeout, persistent_workers need workers; got num_workers=0", lambda x, y, r: DataLoader([1], timeout=1, persistent_workers=True)),
    "context of workers": (ValueError, "no such multiprocessing_context; got 'threads'; expected .*fork", lambda x, y, r: DataLoader([1], num_workers=1, multiprocessing_context="threads")),
    "number of batches ahead": (TypeError, "DataLoader: prefetch_factor is not a number; got 'x'", lambda x, y, r: DataLoader([1], prefetch_factor="x")),
    "seconds of a timeout": (TypeError, "DataLoader: timeout is not a number; got 'x'", lambda x, y, r: DataLoader([1], timeout="x")),
    "no sampler": (TypeError, "DataLoader: sampler cannot be iterated; got 3", lambda x, y, r: DataLoader([1], sampler=3)),
    "no sampler of batches": (TypeError, "DataLoader: batch_sampler cannot be iterated; got 3", lambda x, y, r: DataLoader([1], batch_sampler=3)),
    "no function that collates": (TypeError, "DataLoader: collate_fn is not a function; got 3", lambda x, y, r: DataLoader([1], collate_fn=3)),
    "no function for workers": (TypeError, "DataLoader: worker_init_fn is not a function; got 3", lambda x, y, r: DataLoader([1], worker_init_fn=3)),
    "no seed of a loader": (TypeError, "DataLoader: seed is not a number; got 'x'", lambda x, y, r: DataLoader([1], seed="x")),
    "no context of workers": (TypeError, "not a multiprocessing_context; got int", lambda x, y, r: DataLoader([1], num_workers=1, multiprocessing_context=3)),
    "batch_sampler": (ValueError, "batch_sampler and batch_size.* exclude each other", lambda x, y, r: DataLoader([1], batch_size=2, batch_sampler=[[0]])),
    "batch size": (ValueError, "DataLoader: batch_size must be a positive integer or None; got 0", lambda x, y, r: DataLoader([1], batch_size=0)),
    "nothing to drop": (ValueError, "DataLoader: without batches there is no last one to drop", lambda x, y, r: DataLoader([1], batch_size=None, drop_last=True)),
    "shuffle and sampler": (ValueError, "sampler and shuffle exclude", lambda x, y, r: DataLoader([1], shuffle=True, sampler=[0])),
    "TensorDataset": (ValueError, "TensorDataset: first sizes differ", lambda x, y, r: TensorDataset(x, y)),
    "random_split": (ValueError, "random_split: the lengths do not sum", lambda x, y, r: pf.data.random_split([1, 2], [3])),
    "collate": (TypeError, "collate: cannot make a batch of object", lambda x, y, r: pf.data.default_collate([object()])),
    "softmin dim": (IndexError, "^softmin: dim out of range", lambda x, y, r: pf.nn.functional.softmin(x, 5)),
    "softmin dtype": (TypeError, "^softmin: needs a floating dtype; got int64", lambda x, y, r: pf.nn.functional.softmin(x.long(), 1)),
    "embedding max_norm": (IndexError, "^embedding: index out of range; got 9", lambda x, y, r: pf.nn.functional.embedding(pf.tensor([9]), y, max_norm=1.0)),
    "cross_entropy, swapped": (TypeError, "cross_entropy: the input is not floating, and the target is; got int64 and float32; .*hint: cross_entropy.input, target", lambda x, y, r: pf.nn.functional.cross_entropy(pf.tensor([1, 0]), y[:2])),
    "one_hot below 0": (IndexError, "one_hot: index out of range; got -1; expected 0 or more", lambda x, y, r: pf.nn.functional.one_hot(pf.tensor([-1]))),
    "save a model": (TypeError, "save: cannot save Linear at the object itself; .*hint: save its state_dict", lambda x, y, r: pf.save(pf.nn.Linear(2, 2), os.devnull)),
    "tensor of dates": (TypeError, "tensor: cannot make a tensor of this; got numpy.ndarray of datetime64.D.; .*hint: convert with .astype", lambda x, y, r: pf.tensor(np.array(["2020-01-01"], dtype="datetime64[D]"))),
    "tensor of a table": (TypeError, "tensor: cannot make a tensor of this; got Table; .*hint: .to_numpy", lambda x, y, r: pf.tensor(type("Table", (), {"to_numpy": None})())),
    "optimizer of a module": (TypeError, "params cannot be iterated; got Linear; .*hint: .parameters", lambda x, y, r: pf.optim.Adam(pf.nn.Linear(2, 2))),
    "adaptive size": (ValueError, "^adaptive_max_pool1d: the output is too large; got output_size 1099511627776", lambda x, y, r: pf.nn.AdaptiveMaxPool1d(2**40)(x)),
    "adaptive size, empty": (ValueError, "^adaptive_max_pool1d: the output is too large", lambda x, y, r: pf.nn.AdaptiveMaxPool1d(2**70)(pf.ones(0, 2, 8))),
    # files
    "load nothing": (FileNotFoundError, "load: no such file; expected a file or a folder of tensors: '/nonexistent/x'", lambda x, y, r: pf.load("/nonexistent/x")),
    "save nowhere": (OSError, "cannot create a file in '/nonexistent'", lambda x, y, r: pf.save(x, "/nonexistent/x")),
    "save to no path": (TypeError, "save: not a file; got int", lambda x, y, r: pf.save(x, 3)),
    "save an object": (TypeError, "save: cannot save object at a.1", lambda x, y, r: pf.save({"a": [1, object()]}, os.devnull)),
    # the rest
    "threads": (ValueError, "set_num_threads: bad number of threads; got 0", lambda x, y, r: pf.set_num_threads(0)),
    "unknown name": (AttributeError, "module 'pyflame' has no attribute 'nosuch'", lambda x, y, r: pf.nosuch),
    "full that does not fit": (ValueError, "full: the number does not fit the dtype; got 300; expected -128 to 127 for int8",
                               lambda x, y, r: pf.full((2,), 300, dtype=pf.int8)),
    "fill_ that does not fit": (ValueError, "fill_: the number does not fit the dtype; got -1; expected 0 to 255 for uint8",
                                lambda x, y, r: pf.zeros(2, dtype=pf.uint8).fill_(-1)),
    "out of memory": (pf.OutOfMemoryError, "out of memory; got a request for 4096.00 GiB with .* in use by PyFlame; .*the machine has [0-9.]+ GiB", lambda x, y, r: pf.zeros(1 << 40).sum().item()),
}


@pytest.mark.parametrize("name", list(CASES))
def test_message(name):
    kind, text, do = CASES[name]
    x, y, r = pf.arange(6).float().view(2, 3) - 2, pf.ones(4, 5), pf.tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(kind) as e:
        do(x, y, r)
    assert re.search(text, str(e.value), re.S), str(e.value)
    assert x.tolist() == [[-2, -1, 0], [1, 2, 3]] and y.tolist() == [[1.0] * 5] * 4 and r.tolist() == [1, 2] and r.requires_grad
    assert (x + 1).sum().item() == 9  # the process goes on


def test_an_error_is_raised_once():
    with pytest.raises(pf.OutOfMemoryError):
        (pf.zeros(1 << 40) + 1).sum().item()
    pf.synchronize()


def test_forward_that_returns_nothing():
    class Nothing(pf.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            a * 2

    with pytest.raises(TypeError, match="Nothing: forward returned NoneType; expected a tensor"):
        Nothing.apply(pf.ones(2, requires_grad=True))


def test_hierarchy():
    assert issubclass(pf.OutOfMemoryError, MemoryError) and issubclass(pf.DeviceError, RuntimeError)


def test_errors_in_a_window_name_the_line_and_poison_only_the_result():
    x = pf.ones(2, 3)
    good = x * 2
    if os.environ.get("PYFLAME_WINDOW") == "1":  # the index is computed at once, so its values are checked at the call
        with pytest.raises(IndexError):
            pf.index_select(x, 0, pf.tensor([4]) + 5)
        return
    bad = pf.index_select(x, 0, pf.tensor([4]) + 5)  # the index is not known yet when the op is recorded
    later = x * 3
    with pytest.raises(IndexError, match=r"test_messages.py:\d+"):
        bad.tolist()
    with pytest.raises(IndexError):
        bad.tolist()
    assert good.tolist() == [[2] * 3] * 2 and later.tolist() == [[3] * 3] * 2


def test_memory_limit():
    used = pf.memory_stats()["allocated"]
    pf.set_memory_limit(used + (64 << 20))
    try:
        with pytest.raises(pf.OutOfMemoryError):
            pf.zeros(256 << 20).sum().item()
        assert pf.ones(10).sum().item() == 10
    finally:
        pf.set_memory_limit(0)
