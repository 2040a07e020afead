"""Fused updates against the algorithms as they are published, tensor by tensor."""

import numpy as np

from . import FLOATS, Case, Spec, positive
from ..tolerance import EPS, accumulator

SHAPES = ((31, 33), (65,), (), (0,), (1,))


def _sgd(momentum, dampening, weight_decay, nesterov, maximize, first, lr=0.1):
    settings = dict(lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay, nesterov=nesterov, maximize=maximize, first=first)

    def call(pf, *xs):
        n = len(SHAPES)
        xs = [pf.clone(x) for x in xs]
        p, g, m = xs[:n], xs[n:2 * n], xs[2 * n:]
        pf.sgd_step(p, g, m if momentum else [], **settings)
        return (*p, *m) if momentum else tuple(p)

    def reference(*xs):
        n = len(SHAPES)
        ps, ms = [], []
        for p, g, m in zip(xs[:n], xs[n:2 * n], xs[2 * n:]):
            g = (-g if maximize else g) + weight_decay * p
            if momentum:
                m = g if first else momentum * m + (1 - dampening) * g
                g = g + momentum * m if nesterov else m
            ps.append(p - lr * g)
            ms.append(m)
        return (*ps, *ms) if momentum else tuple(ps)

    return call, reference


def _adam(decoupled, maximize, weight_decay, step, lr=1e-2, b1=0.9, b2=0.95, eps=1e-8):
    def call(pf, *xs):
        n = len(SHAPES)
        xs = [pf.clone(x) for x in xs]
        pf.adam_step(xs[:n], xs[n:2 * n], xs[2 * n:3 * n], xs[3 * n:], lr=lr, beta1=b1, beta2=b2, eps=eps, weight_decay=weight_decay, step=step, decoupled=decoupled, maximize=maximize)
        return (*xs[:n], *xs[2 * n:])

    def reference(*xs):
        n = len(SHAPES)
        ps, ms, vs = [], [], []
        for p, g, m, v in zip(xs[:n], xs[n:2 * n], xs[2 * n:3 * n], xs[3 * n:]):
            g = -g if maximize else g
            if decoupled:
                p = p * (1 - lr * weight_decay)
            else:
                g = g + weight_decay * p
            m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
            ps.append(p - lr / (1 - b1**step) * m / (np.sqrt(v) / np.sqrt(1 - b2**step) + eps))
            ms.append(m)
            vs.append(v)
        return (*ps, *ms, *vs)

    return call, reference


def _clip(max_norm):
    def call(pf, *xs):
        ps = []
        for x in xs:
            p = pf.clone(x.detach()).requires_grad_()
            p.grad = pf.clone(x.detach())
            ps.append(p)
        norm = pf.clip_grad_norm_(ps, max_norm)
        return (norm, *[p.grad for p in ps])

    def reference(*xs):
        norm = np.sqrt(sum((x * x).sum() for x in xs))
        factor = min(1.0, max_norm / (norm + 1e-6))
        return (np.asarray(norm), *[x * factor for x in xs])

    return call, reference


def cases():
    out = []
    for dtype in FLOATS:
        tensors = tuple(Spec(s, dtype) for s in SHAPES)
        squares = tuple(Spec(s, dtype, positive) for s in SHAPES)
        # p - lr * g cancels where they are alike: errors count against the operands.
        near = lambda *xs: 20.0  # noqa: E731
        # What the kernel does between its loads and stores is rounded once; adam's quotient adds a few.
        common = dict(c=4, magnitude=near, fused_exact=False, layouts=False)
        for i, args in enumerate(((0.0, 0.0, 0.0, False, False, True), (0.9, 0.0, 0.0, False, False, True), (0.9, 0.1, 0.01, False, False, False), (0.9, 0.0, 0.01, True, True, False), (0.0, 0.0, 0.1, False, True, False))):
            call, reference = _sgd(*args)
            out.append(Case(f"sgd_step-{dtype}-{i}", ("sgd_step",), ("sgd_step",), tensors * 3, call, reference, **common))
        for i, args in enumerate(((False, False, 0.0, 1), (False, True, 0.01, 7), (True, False, 0.1, 1), (True, False, 0.1, 1000))):
            call, reference = _adam(*args)
            out.append(Case(f"adam_step-{dtype}-{i}", ("adam_step",), ("adam_step",), tensors * 3 + squares, call, reference, **common))
        total = lambda *xs: np.asarray(np.sqrt(sum((x * x).sum() for x in xs)))  # noqa: E731
        out.append(Case(f"total_norm-{dtype}", ("total_norm",), ("sum_squares", "sqrt"), tensors, lambda pf, *xs: pf.total_norm(xs), total, out="float32", c=2, layouts=False))
        for max_norm in (1.0, 1e6):
            call, reference = _clip(max_norm)
            # The factor is a float32 whatever it scales.
            factor_error = EPS["float32"] / EPS[accumulator(dtype)]
            size = lambda *xs, f=factor_error: f * max(np.abs(x).max(initial=0) for x in xs)  # noqa: E731
            out.append(Case(f"clip_grad_norm_-{dtype}-{max_norm}", ("clip_grad_norm_",), ("scale_all", "sum_squares"), tensors, call, reference, out=("float32", *[dtype] * len(SHAPES)), c=3, magnitude=size, layouts=False))
    return out
