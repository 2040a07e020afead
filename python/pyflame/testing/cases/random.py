"""Random numbers are Philox4x32-10 of (seed, offset, element); here it is written down a second time, in NumPy."""

import numpy as np

from . import Case, Spec, label, literal

SEED = 0x1234_5678_9ABC
MASK = np.uint64(0xFFFFFFFF)


def words(seed, offset, blocks):
    """[blocks, 4] words."""
    n = np.arange(blocks, dtype=np.uint64)
    c = [np.full(blocks, offset & 0xFFFFFFFF, np.uint64), np.full(blocks, offset >> 32, np.uint64), n & MASK, n >> np.uint64(32)]
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(p1 >> np.uint64(32)) ^ c[1] ^ np.uint64(k0), p1 & MASK, (p0 >> np.uint64(32)) ^ c[3] ^ np.uint64(k1), p0 & MASK]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack(c, axis=1)


def _words32(n, offset):
    return words(SEED, offset, (n + 3) // 4).reshape(-1)[:n]


def _words64(n, offset):
    w = words(SEED, offset, (n + 1) // 2)
    return (w[:, 0::2] | (w[:, 1::2] << np.uint64(32))).reshape(-1)[:n]


def uniform(shape, dtype, offset=0):
    n = int(np.prod(shape))
    if dtype == "float64":
        u = (_words64(n, offset) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    else:
        bits = {"float32": 24, "float16": 11, "bfloat16": 8}[dtype]
        u = (_words32(n, offset) >> np.uint64(32 - bits)).astype(np.float64) * 2.0**-bits
    return u.reshape(shape)


def gaussian(shape, dtype, offset=0):
    n = int(np.prod(shape))
    pairs = (n + 1) // 2
    if dtype == "float64":
        w = _words64(2 * pairs, offset).reshape(-1, 2) >> np.uint64(11)
        scale = 2.0**-53
    else:
        w = _words32(2 * pairs, offset).reshape(-1, 2) >> np.uint64(8)
        scale = 2.0**-24
    r = np.sqrt(-2 * np.log((w[:, 0].astype(np.float64) + 1) * scale))
    t = 2 * np.pi * (w[:, 1].astype(np.float64) * scale)
    return np.stack([r * np.cos(t), r * np.sin(t)], axis=1).reshape(-1)[:n].reshape(shape)


def randint(shape, low, high, offset=0):
    n = int(np.prod(shape))
    return (low + (_words64(n, offset) % np.uint64(high - low)).astype(np.int64)).reshape(shape)


def randperm(n, offset=0):
    keys = _words64(n, offset)
    return np.lexsort((np.arange(n), keys)).astype(np.int64)


def _seeded(f):
    def run(pf, *xs):
        pf.manual_seed(SEED)
        return f(pf, *xs)

    return run


def _dropout(x, p):
    return np.where(uniform(x.shape, "float32") < 1 - p, x / (1 - p), 0.0)


def _uniform_case(dtype, shape):
    return Case(f"rand-{dtype}-{label(shape)}", ("rand", "manual_seed"), ("rand_uniform",), (), _seeded(lambda pf: pf.rand(shape, dtype=dtype)), lambda: uniform(shape, dtype), out=dtype, layouts=False,
                reshaped=lambda s: _uniform_case(dtype, s))


def _gaussian_case(dtype, shape):
    """2 ulp, and the error of the angle near the zeros of sine and cosine."""
    return Case(f"randn-{dtype}-{label(shape)}", ("randn",), ("rand_normal",), (), _seeded(lambda pf: pf.randn(shape, dtype=dtype)), lambda: gaussian(shape, dtype), out=dtype, c=2, magnitude=lambda: np.ones(shape),
                layouts=False, reshaped=lambda s: _gaussian_case(dtype, s))


def _randint_case(low, high, shape):
    return Case(f"randint-{label(shape)}-{low}", ("randint",), ("rand_int",), (), _seeded(lambda pf: pf.randint(low, high, shape)), lambda: randint(shape, low, high), out="int64", layouts=False,
                reshaped=lambda s: _randint_case(low, high, s))


def _randperm_case(n):
    return Case(f"randperm-{n}", ("randperm",), ("randperm",), (), _seeded(lambda pf: pf.randperm(n)), lambda: randperm(n), out="int64", layouts=False, reshaped=lambda s: _randperm_case(int(np.prod(s))))


def cases():
    out = []
    shapes = ((), (0,), (1,), (63,), (64,), (65,), (31, 33), (101,))
    for dtype in ("float32", "float64", "float16", "bfloat16"):
        for shape in shapes:
            out += [_uniform_case(dtype, shape), _gaussian_case(dtype, shape)]
        x = Spec((31, 33), dtype)
        out.append(Case(f"dropout-{dtype}", ("dropout",), ("rand_uniform", "where"), (x,), _seeded(lambda pf, x: pf.dropout(x, 0.25)), lambda x: _dropout(x, 0.25), grad=(0,), c=2))
        out.append(Case(f"dropout-eval-{dtype}", ("dropout",), (), (x,), _seeded(lambda pf, x: pf.dropout(x, 0.25, False)), lambda x: x, grad=(0,)))
        drawn = "float64" if dtype == "float64" else "float32"
        out.append(Case(f"bernoulli-{dtype}", ("bernoulli",), ("rand_uniform", "lt"), (Spec((31, 33), dtype, lambda rng, s: rng.random(s)),), _seeded(lambda pf, p: pf.bernoulli(p)),
                        lambda p, d=drawn: (uniform(p.shape, d) < p).astype(np.float64)))
    for shape in shapes:
        for low, high in ((0, 10), (-5, 6), (-(2**40), 2**40)):
            out.append(_randint_case(low, high, shape))
    out += [_randperm_case(n) for n in (0, 1, 2, 63, 64, 65, 101)]
    out.append(Case("rng-state", ("get_rng_state", "set_rng_state"), ("rand_uniform",), (), _continue, lambda: (uniform((65,), "float32", 1), uniform((65,), "float32", 1)), out="float32", layouts=False))
    return out


def _continue(pf):
    pf.manual_seed(SEED)
    pf.rand((7,))
    state = pf.get_rng_state()
    first = pf.rand((65,))
    pf.set_rng_state(state)
    return first, pf.rand((65,))
