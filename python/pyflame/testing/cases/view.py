"""Views: the result shares memory, the gradient finds its way back."""

import numpy as np
from numpy.lib.stride_tricks import as_strided

from . import Case, Spec

def _parts(x, size):
    return tuple(x[i:i + size] for i in range(0, max(len(x), 1), size))


VIEWS = {
    "view": ((4, 6), lambda pf, x: x.view(2, -1, 3), lambda x: x.reshape(2, -1, 3)),
    "reshape": ((4, 6), lambda pf, x: x.transpose(0, 1).reshape(8, 3), lambda x: x.T.reshape(8, 3)),
    "flatten": ((2, 3, 4, 5), lambda pf, x: pf.flatten(x, 1, 2), lambda x: x.reshape(x.shape[0], x.shape[1] * x.shape[2], *x.shape[3:])),
    "transpose": ((2, 3, 4), lambda pf, x: pf.transpose(x, 0, -1), lambda x: x.transpose(2, 1, 0)),
    "permute": ((2, 3, 4), lambda pf, x: pf.permute(x, (2, 0, 1)), lambda x: x.transpose(2, 0, 1)),
    "expand": ((3, 1), lambda pf, x: x.expand(2, -1, 5), lambda x: np.broadcast_to(x, (2, x.shape[0], 5))),
    "squeeze": ((1, 3, 1, 4), lambda pf, x: pf.squeeze(x), np.squeeze),
    "squeeze-dim": ((1, 3, 1, 4), lambda pf, x: pf.squeeze(x, 2), lambda x: x.squeeze(2) if x.shape[2] == 1 else x),
    "unsqueeze": ((3, 4), lambda pf, x: pf.unsqueeze(x, -2), lambda x: x[:, None]),
    "narrow": ((5, 9), lambda pf, x: pf.narrow(x, 1, 2, 5), lambda x: x[:, 2:7]),
    "select": ((5, 9), lambda pf, x: pf.select(x, 0, -2), lambda x: x[-2]),
    "slice": ((5, 9), lambda pf, x: x[1:, ::3], lambda x: x[1:, ::3]),
    "slice-ellipsis": ((3, 4, 5), lambda pf, x: x[..., None, 2:-1], lambda x: x[..., None, 2:-1]),
    "slice-empty": ((5, 9), lambda pf, x: x[3:3], lambda x: x[3:3]),
    "split": ((7, 3), lambda pf, x: tuple(pf.split(x, 3)), lambda x: _parts(x, 3)),
    "split-sizes": ((7, 3), lambda pf, x: tuple(pf.split(x, [1, 6])), lambda x: (x[:1], x[1:])),
    "chunk": ((7, 3), lambda pf, x: tuple(pf.chunk(x, 3)), lambda x: _parts(x, -(-len(x) // 3))),
    "as_strided": ((40,), lambda pf, x: pf.as_strided(x, (3, 4), (7, 2), 5), lambda x: as_strided(x[5:], (3, 4), (7 * x.itemsize, 2 * x.itemsize)).copy()),
}


def cases():
    out = []
    for name, (shape, call, reference) in VIEWS.items():
        function = name.split("-")[0]
        for dtype in ("float32", "float64", "float16", "bfloat16", "int64", "bool"):
            # as_strided reads the storage, so a strided input means something else to it; view refuses most of them.
            out.append(Case(f"{name}-{dtype}", (function,), ("cast",) if function == "reshape" else (), (Spec(shape, dtype),), call, reference, grad=(0,) if "float" in dtype else (),
                            layouts=function not in ("view", "as_strided")))
    return out
