"""User-visible errors of indexing, of exchange with NumPy, DLPack and pickle, and of the updates: type and text."""
import copy
import pickle
import re

import numpy as np
import pytest

import pyflame as pf
import pyflame.nn.functional as F


def read_only():
    a = np.ones(3)
    a.flags.writeable = False
    return a


def misaligned():
    return np.frombuffer(bytearray(17), np.uint8)[1:].view(np.float64)


x = pf.ones(2, 3)
CASES = {
    "slice bounds": (TypeError, "index: slice bounds must be integers or None", lambda: x["a":]),
    "indices that do not broadcast": (IndexError, "index: the indices do not broadcast", lambda: x[pf.tensor([0, 0]), pf.tensor([0, 0, 0])]),
    "two Ellipses": (IndexError, "index: only one Ellipsis is allowed", lambda: x[..., ...]),
    "float index": (TypeError, "index: only integer tensors of one element are indices", lambda: [1, 2][pf.tensor(1.5)]),
    "read-only array": (ValueError, "the array is read-only and a tensor is not", lambda: pf.from_numpy(read_only())),
    "negative strides": (ValueError, "negative strides are not supported; .*copy", lambda: pf.from_numpy(np.ones(4)[::-1])),
    "misaligned array": (ValueError, "the data is not aligned to its elements", lambda: pf.from_numpy(misaligned())),
    "not a buffer": (TypeError, "not a buffer; got", lambda: pf.frombuffer(3, dtype=pf.float32)),
    "frombuffer offset": (ValueError, "frombuffer: offset out of range; got 9", lambda: pf.frombuffer(bytearray(8), dtype=pf.uint8, offset=9)),
    "array without a copy": (ValueError, "needs a copy and copy=False was asked", lambda: x.__array__(np.float64, copy=False)),
    "numpy of what failed": (IndexError, "index_select: index out of range; got 5", lambda: pf.index_select(pf.ones(2), 0, pf.arange(2) + 5).numpy()),
    "asarray of what failed": (IndexError, "index_select: index out of range; got 5", lambda: np.asarray(pf.index_select(pf.ones(2), 0, pf.arange(2) + 5))),
    "used capsule": (ValueError, "from_dlpack: not an unused DLPack capsule", lambda: _twice()),
    "dlpack of another device": ((BufferError, ValueError, TypeError, RuntimeError), "no DLPack export from 'null'", lambda: pf.empty(2, device="null").__dlpack_device__()),
    "pickle of a result": (RuntimeError, "pickle: only leaves can be pickled", lambda: pickle.dumps(pf.ones(2, requires_grad=True) * 2)),
    "deepcopy of a result": (RuntimeError, "deepcopy: only leaves can be pickled or deep-copied", lambda: copy.deepcopy(pf.ones(2, requires_grad=True) * 2)),
    "split of text": (TypeError, "split: not a size; got", lambda: x.split("a")),
    "absent device": (pf.DeviceError, "device: the device is not available; got 'rocm:0' .*; expected one of those found here: 'cpu'", lambda: pf.ones(2, device="rocm")),
}

def _twice():
    capsule = pf.ones(2).__dlpack__()
    pf.from_dlpack(capsule)
    pf.from_dlpack(capsule)


@pytest.mark.parametrize("name", list(CASES))
def test_message(name):
    kind, text, do = CASES[name]
    with pytest.raises(kind) as e:
        do()
    assert re.search(text, str(e.value), re.S), str(e.value)
    assert x.tolist() == [[1.0] * 3] * 2
