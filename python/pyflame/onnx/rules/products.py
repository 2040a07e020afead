"""Rules of matrix products."""
import pyflame as pf

from ..table import op


@op("MatMul")
def matmul(node):
    def run(a, b):
        if not a.is_floating_point():
            return pf.matmul(a.double(), b.double()).to(dtype=a.dtype)
        return pf.matmul(a, b)

    return run


@op("Gemm")
def gemm(node):
    alpha, beta = node.attr("alpha", 1.0), node.attr("beta", 1.0)
    turn_a, turn_b = node.attr("transA", 0), node.attr("transB", 0)

    def run(a, b, c=None):
        a = a.t() if turn_a else a
        if alpha == 1 and beta == 1 and c is not None and c.dim() == 1 and a.is_floating_point():
            return pf.linear(a, b if turn_b else b.t(), c) if c.shape[0] == b.shape[0 if turn_b else 1] else pf.matmul(a, b.t() if turn_b else b) + c
        y = pf.matmul(a, b.t() if turn_b else b)
        y = y if alpha == 1 else y * alpha
        return y if c is None else y + (c if beta == 1 else c * beta)

    return run


@op("Einsum")
def einsum(node):
    equation = node.attr("equation").replace(" ", "")
    return lambda *xs: pf.einsum(equation, *xs)


@op("Det")
def det(node):
    return lambda x: pf.linalg.det(x)
