"""Joining and padding."""

import numpy as np

from . import Case, Spec, integers


def cases():
    out = []
    for dtype in ("float32", "float64", "float16", "bfloat16", "int64", "uint8", "bool"):
        g = "float" in dtype
        a, b, c = Spec((3, 5), dtype), Spec((1, 5), dtype), Spec((0, 5), dtype)
        out.append(Case(f"cat-{dtype}", ("cat",), ("cast",), (a, b, c), lambda pf, *x: pf.cat(x), lambda *x: np.concatenate(x), grad=(0, 1, 2) if g else ()))
        out.append(Case(f"cat-last-{dtype}", ("cat",), ("cast",), (a, Spec((3, 64), dtype)), lambda pf, *x: pf.cat(x, dim=-1), lambda *x: np.concatenate(x, axis=-1), grad=(0, 1) if g else ()))
        for dim in (0, 1, -1):
            out.append(Case(f"stack-{dtype}-{dim}", ("stack",), ("cast",), (a, a), lambda pf, *x, d=dim: pf.stack(x, dim=d), lambda *x, d=dim: np.stack(x, axis=d), grad=(0, 1) if g else ()))
        out.append(Case(f"pad-{dtype}", ("pad",), ("full", "cast"), (Spec((3, 5), dtype),), lambda pf, x: pf.pad(x, (1, 2, 0, 3)), lambda x: np.pad(x, ((0, 3), (1, 2))), grad=(0,) if g else ()))
        out.append(Case(f"pad-value-{dtype}", ("pad",), ("full", "cast"), (Spec((4,), dtype),), lambda pf, x: pf.pad(x, (65, 1), value=1), lambda x: np.pad(x, (65, 1), constant_values=1), grad=(0,) if g else ()))
        out.append(Case(f"pad-crop-{dtype}", ("pad",), (), (Spec((5, 7), dtype),), lambda pf, x: pf.pad(x, (-2, 1)), lambda x: np.pad(x[:, 2:], ((0, 0), (0, 1))), grad=(0,) if g else ()))
        for mode, numpy_mode in (("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap")):
            out.append(Case(f"pad-{mode}-{dtype}", ("pad",), ("index_select",), (Spec((2, 4, 5), dtype),), lambda pf, x, m=mode: pf.pad(x, (4, 1, 0, 3), m),
                            lambda x, m=numpy_mode: np.pad(x, ((0, 0), (0, 3), (4, 1)), mode=m), grad=(0,) if g else (), c=3 if g else 0, fused_exact=False))
    for mode, at in (("reflect", [1, 2, 3, 2]), ("replicate", [1, 2, 3, 3]), ("circular", [1, 2, 3, 1])):
        out.append(Case(f"pad-{mode}-crop-float32", ("pad",), ("index_select",), (Spec((3, 4), "float32"),), lambda pf, x, m=mode: pf.pad(x, (-1, 1), m), lambda x, at=at: x[:, at], own_values=True,
                        grad=(0,), c=2, fused_exact=False))
    out.append(Case("cat-promotes", ("cat",), ("cast",), (Spec((3,), "int64", integers(-9, 9)), Spec((2,), "float32")), lambda pf, *x: pf.cat(x), lambda a, b: np.concatenate([a.astype(np.float64), b]), out="float32"))
    return out
