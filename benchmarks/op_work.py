"""The rows of compare_ops.py: one op or layer each, written once for both frameworks.

A row is a function with the name of the row. It gets `m`, which is torch or pyflame, makes its inputs, and returns the call to time.
`@row(train=True)` marks a call that computes a gradient too; the others run without one. `@row(gpu=False)` marks a row that makes no sense
on a GPU. A call should take between 0.1 and 100 ms on two cores.
"""
ROWS = {}


def row(gpu=True, train=False):
    def add(make):
        ROWS[make.__name__] = (make, gpu, train)
        return make

    return add


def backward_of(m, f, *leaves):
    """A call that computes f() and the gradients of its sum (of the first output, where there are several)."""
    for leaf in leaves:
        leaf.requires_grad_()

    def call():
        for leaf in leaves:
            leaf.grad = None
        out = f()
        (out[0] if isinstance(out, tuple) else out).sum().backward()
        return leaves[0].grad

    return call


# ---------------------------------------------------------------- elementwise and scans
@row()
def tan_4mi(m):
    x = m.randn(4 << 20)
    return lambda: x.tan()


@row()
def atan2_4mi(m):
    x, y = m.randn(4 << 20), m.randn(4 << 20)
    return lambda: m.atan2(x, y)


@row()
def cumsum_rows(m):
    x = m.randn(2048, 1024)
    return lambda: x.cumsum(-1)


@row()
def cumsum_columns(m):
    x = m.randn(2048, 1024)
    return lambda: x.cumsum(0)


@row()
def logaddexp_1mi(m):
    x, y = m.randn(1 << 20), m.randn(1 << 20)
    return lambda: m.logaddexp(x, y)


# ---------------------------------------------------------------- random numbers
@row()
def normal_4mi(m):
    return lambda: m.randn(4 << 20)


@row()
def uniform_4mi(m):
    return lambda: m.rand(4 << 20)


# ---------------------------------------------------------------- order and indices
@row()
def sort_float_1mi(m):
    x = m.randn(1 << 20)
    return lambda: x.sort()[0]


@row()
def sort_rows(m):
    x = m.randn(1024, 1024)
    return lambda: x.sort(-1)[0]


@row()
def argmax_int_rows(m):
    x = m.randint(0, 1 << 30, (1024, 1024))
    return lambda: x.argmax(-1)


@row()
def topk_rows(m):
    x = m.randn(256, 32000)
    return lambda: x.topk(50)[0]


@row()
def scatter_add_1mi(m):
    x, i = m.randn(1 << 20), m.randint(0, 1 << 16, (1 << 20,))
    zero = m.zeros(1 << 16)
    return lambda: zero.scatter_add(0, i, x)


@row()
def index_select_rows(m):
    x, i = m.randn(65536, 64), m.randint(0, 65536, (65536,))
    return lambda: x.index_select(0, i)


# ---------------------------------------------------------------- images
@row()
def interpolate_bilinear(m):
    x = m.randn(4, 16, 128, 128)
    return lambda: m.nn.functional.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)


@row()
def interpolate_nearest(m):
    x = m.randn(4, 16, 128, 128)
    return lambda: m.nn.functional.interpolate(x, scale_factor=2)


# ---------------------------------------------------------------- layers and losses
@row(train=True)
def batch_norm_3d_train(m):
    x, layer = m.randn(4, 16, 16, 32, 32), m.nn.BatchNorm3d(16)
    return backward_of(m, lambda: layer(x) ** 2, x, *layer.parameters())
