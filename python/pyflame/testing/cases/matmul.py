"""Matrix products: vectors, matrices, batches that broadcast, a matrix as weight."""

import numpy as np

from . import FLOATS, Case, Spec, away_from_zero, integers, label

PRODUCTS = (((7,), (7,)), ((5, 7), (7,)), ((7,), (7, 5)), ((1, 1), (1, 1)), ((63, 64), (64, 65)), ((31, 33), (33, 101)), ((2, 3, 5), (5, 7)), ((2, 4, 3, 5), (5, 7)), ((3, 5), (2, 5, 7)), ((2, 3, 5), (5,)),
            ((2, 1, 3, 5), (4, 5, 7)), ((5,), (2, 5, 7)), ((0, 5), (5, 3)), ((3, 0), (0, 5)), ((2, 0, 5), (5, 3)), ((1, 64), (64, 65)), ((65, 64), (64, 1)))


def _product(name, s, t, dtype):
    flops = lambda a, b: 2 * int(np.prod(a)) * (b[-1] if len(b) > 1 else 1)  # noqa: E731
    return Case(f"matmul-{dtype}-{label(s)}-{label(t)}", ("matmul",), ("matmul",), (Spec(s, dtype), Spec(t, dtype)), lambda pf, a, b: pf.matmul(a, b), lambda a, b: np.asarray(np.matmul(a, b)), grad=(0, 1), c=2,
                length=s[-1], magnitude=lambda a, b: np.asarray(np.matmul(np.abs(a), np.abs(b))), fused_exact=False, flops=flops, bytes=lambda a, b: int(np.prod(a)) + int(np.prod(b)))


EINSUMS = (("ab,bc->ca", (3, 5), (5, 4)), ("bac,dc", (2, 3, 5), (4, 5)), ("...ab,...bc->...ac", (2, 3, 5), (5, 4)), ("ab,cb->b", (3, 5), (2, 5)), ("a,b->ba", (3,), (4,)),
           ("abc,ad,bd->dc", (2, 3, 4), (2, 5), (3, 5)), ("ab,ab->", (3, 5), (3, 5)), ("ab,bc->c", (3, 1), (4, 2)), ("abc->b", (2, 3, 4)), ("...a->a...", (2, 3, 4)))


def _einsum(dtype, equation, *shapes):
    def reference(*x):
        return np.asarray(np.einsum(equation, *x))

    terms = int(np.prod([max(s) for s in shapes]))
    return Case(f"einsum-{dtype}-{equation}", ("einsum",), ("matmul", "mul", "sum"), tuple(Spec(s, dtype) for s in shapes), lambda pf, *x: pf.einsum(equation, *x), reference, grad=tuple(range(len(shapes))), c=3,
                length=terms, magnitude=lambda *x: reference(*map(np.abs, x)), composed=True, fused_exact=False)


def _ends(values):
    return Spec((len(values),), "int32", lambda rng, shape: np.array(values, np.int32))


def _by_groups(a, b, ends):
    begins = [0, *ends[:-1]]
    if b.ndim == 3:
        return np.concatenate([a[i:j] @ b[g] for g, (i, j) in enumerate(zip(begins, ends))])
    if a.ndim == 3:
        return np.concatenate([a[g] @ b[:, i:j] for g, (i, j) in enumerate(zip(begins, ends))], 1)
    return np.stack([a[:, i:j] @ b[i:j] for i, j in zip(begins, ends)])


# Empty groups, one group with all rows, groups that begin at odd rows, matrices in both orders in memory.
GROUPS = (((11, 24), (4, 24, 40), (3, 3, 10, 11)), ((5, 7), (3, 7, 9), (0, 5, 5)), ((150, 64), (2, 64, 72), (133, 150)), ((24, 11), (11, 40), (3, 3, 10, 11)), ((72, 150), (150, 64), (17, 150)), ((3, 5, 8), (8, 13), (2, 2, 13)),
          ((3, 40), (6, 40, 21), (0, 1, 1, 1, 3, 3)), ((0, 4), (2, 4, 3), (0, 0)))


def _grouped(dtype, s, t, ends, transposed):
    swapped = (*t[:-2], t[-1], t[-2]) if transposed else t

    def second(b):
        return b.swapaxes(-2, -1) if transposed else b

    def call(pf, a, b, offs):
        return pf.grouped_mm(a, b.transpose(-2, -1) if transposed else b, offs=offs)

    # The longest sum: all rows, where the groups divide the sum.
    length = s[-1]
    return Case(f"grouped_mm-{dtype}-{label(s)}-{label(t)}{'-transposed' if transposed else ''}", ("grouped_mm",), ("grouped_mm",), (Spec(s, dtype), Spec(swapped, dtype), _ends(ends)), call,
                lambda a, b, offs: _by_groups(a, second(b), offs), grad=(0, 1), c=2, length=length, magnitude=lambda a, b, offs: _by_groups(np.abs(a), second(np.abs(b)), offs), fused_exact=False, own_values=True)  # fmt: skip


def cases():
    out = []
    for dtype in FLOATS:
        out += [_einsum(dtype, *e) for e in EINSUMS]
        out += [_product("matmul", s, t, dtype) for s, t in (PRODUCTS if dtype in ("float32", "float64") else PRODUCTS[:8])]
        out += [_grouped(dtype, *shapes, transposed) for k, shapes in enumerate(GROUPS) for transposed in ((False, True) if k < len(GROUPS) - 1 else (False,))]
        out.append(Case(f"bmm-{dtype}", ("bmm",), ("matmul",), (Spec((3, 5, 7), dtype), Spec((3, 7, 4), dtype)), lambda pf, a, b: pf.bmm(a, b), np.matmul, grad=(0, 1), c=2, length=7,
                        magnitude=lambda a, b: np.abs(a) @ np.abs(b), fused_exact=False))
        x, w, b = Spec((2, 5, 7), dtype), Spec((4, 7), dtype), Spec((4,), dtype)
        out.append(Case(f"linear-{dtype}", ("linear",), ("matmul", "add"), (x, w, b), lambda pf, x, w, b: pf.linear(x, w, b), lambda x, w, b: x @ w.T + b, grad=(0, 1, 2), c=2, length=8, composed=True,
                        magnitude=lambda x, w, b: np.abs(x) @ np.abs(w).T + np.abs(b), fused_exact=False))
        out.append(Case(f"linear-no-bias-{dtype}", ("linear",), ("matmul",), (x, w), lambda pf, x, w: pf.linear(x, w), lambda x, w: x @ w.T, grad=(0, 1), c=2, length=7,
                        magnitude=lambda x, w: np.abs(x) @ np.abs(w).T, fused_exact=False))
        out.append(Case(f"linear-gelu-{dtype}", ("linear", "relu"), ("matmul", "add", "relu"), (Spec((33, 31), dtype), Spec((17, 31), dtype), Spec((17,), dtype, away_from_zero)),
                        lambda pf, x, w, b: pf.relu(pf.linear(x, w, b)), lambda x, w, b: np.maximum(x @ w.T + b, 0), grad=(0, 1, 2), c=2, length=32, composed=True,
                        magnitude=lambda x, w, b: np.abs(x) @ np.abs(w).T + np.abs(b), fused_exact=False))
    for dtype in ("int64", "int32"):
        out.append(Case(f"matmul-{dtype}", ("matmul",), ("matmul",), (Spec((5, 7), dtype, integers(-9, 9)), Spec((7, 3), dtype, integers(-9, 9))), lambda pf, a, b: pf.matmul(a, b), lambda a, b: (a @ b).astype(a.dtype)))
    return out
