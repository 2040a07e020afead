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


@row()
def erfc_1mi(m):
    x = m.randn(1 << 20)
    return lambda: x.erfc()


@row()
def lgamma_1mi(m):
    y = m.rand(1 << 20) * 10 + 0.1
    return lambda: m.lgamma(y)


@row()
def digamma_1mi(m):
    y = m.rand(1 << 20) * 10 + 0.1
    return lambda: m.digamma(y)


@row()
def erfinv_1mi(m):
    u = m.rand(1 << 20) * 1.99 - 0.995
    return lambda: m.erfinv(u)


@row()
def i0_1mi(m):
    x = m.randn(1 << 20)
    return lambda: m.i0(x)


@row()
def i1e_1mi(m):
    x = m.randn(1 << 20)
    return lambda: m.special.i1e(x)


@row()
def ndtri_1mi(m):
    p = m.rand(1 << 20) * 0.99 + 0.005
    return lambda: m.special.ndtri(p)


@row()
def log_ndtr_1mi(m):
    x = m.randn(1 << 20)
    return lambda: m.special.log_ndtr(x)


@row()
def erfcx_1mi(m):
    x = m.randn(1 << 20)
    return lambda: m.special.erfcx(x)


@row()
def bessel_j0_1mi(m):
    x = m.randn(1 << 20)
    return lambda: m.special.bessel_j0(x)


@row()
def bessel_y1_1mi(m):
    y = m.rand(1 << 20) * 10 + 0.1
    return lambda: m.special.bessel_y1(y)


@row()
def modified_bessel_k0_1mi(m):
    y = m.rand(1 << 20) * 10 + 0.1
    return lambda: m.special.modified_bessel_k0(y)


@row()
def airy_ai_1mi(m):
    x = m.randn(1 << 20)
    return lambda: m.special.airy_ai(x)


@row()
def trigamma_1mi(m):
    y = m.rand(1 << 20) * 10 + 0.1
    return lambda: m.polygamma(1, y)


@row()
def frexp_1mi(m):
    x = m.randn(1 << 20)
    return lambda: m.frexp(x)[0]


@row()
def igamma_128ki(m):
    a, x = m.rand(1 << 17) * 20 + 0.1, m.rand(1 << 17) * 20 + 0.1
    return lambda: m.igamma(a, x)


@row()
def zeta_128ki(m):
    x, q = m.rand(1 << 17) * 5 + 1.1, m.rand(1 << 17) * 5 + 0.1
    return lambda: m.special.zeta(x, q)


@row()
def chebyshev_t_1mi(m):
    x = m.rand(1 << 20) * 2 - 1
    return lambda: m.special.chebyshev_polynomial_t(x, 6)


@row()
def bitwise_xor_4mi(m):
    a, b = m.randint(0, 1 << 20, (4 << 20,)), m.randint(0, 1 << 20, (4 << 20,))
    return lambda: a ^ b


@row()
def shift_int32_4mi(m):
    a = m.randint(0, 1 << 20, (4 << 20,), dtype=m.int32)
    return lambda: a << 3


@row()
def gcd_1mi(m):
    a, b = m.randint(1, 1 << 20, (1 << 20,)), m.randint(1, 1 << 20, (1 << 20,))
    return lambda: m.gcd(a, b)


@row()
def nextafter_4mi(m):
    x, y = m.randn(4 << 20), m.randn(4 << 20)
    return lambda: m.nextafter(x, y)


@row()
def cumprod_rows(m):
    x = m.rand(2048, 1024) + 0.5
    return lambda: x.cumprod(-1)


@row()
def cummax_rows(m):
    x = m.randn(2048, 1024)
    return lambda: x.cummax(-1)[0]


@row()
def cummax_columns(m):
    x = m.randn(2048, 1024)
    return lambda: x.cummax(0)[0]


@row()
def logcumsumexp_rows(m):
    x = m.randn(2048, 1024)
    return lambda: x.logcumsumexp(-1)


# ---------------------------------------------------------------- random numbers
@row()
def normal_4mi(m):
    return lambda: m.randn(4 << 20)


@row()
def uniform_4mi(m):
    return lambda: m.rand(4 << 20)


@row()
def normal_double_1mi(m):
    return lambda: m.randn(1 << 20, dtype=m.float64)


@row()
def randint_4mi(m):
    return lambda: m.randint(0, 1000, (4 << 20,))


@row()
def bernoulli_4mi(m):
    x = m.empty(4 << 20)
    return lambda: x.bernoulli_(0.3)


@row()
def exponential_4mi(m):
    x = m.empty(4 << 20)
    return lambda: x.exponential_()


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


@row()
def sort_int_1mi(m):
    x = m.randint(0, 1 << 40, (1 << 20,))
    return lambda: x.sort()[0]


@row()
def unique_int_1mi(m):
    x = m.randint(0, 1000, (1 << 20,))
    return lambda: m.unique(x)


@row()
def unique_inverse_1mi(m):
    x = m.randint(0, 1000, (1 << 20,))
    return lambda: m.unique(x, return_inverse=True, return_counts=True)[1]


@row()
def topk_int_rows(m):
    x = m.randint(0, 1000, (1024, 1024))
    return lambda: x.topk(100)[1]


@row()
def argmax_columns(m):
    x = m.randn(1024, 1024)
    return lambda: x.argmax(0)


@row()
def mask_read_1mi(m):
    x = m.randn(1 << 20)
    mask = x > 0
    return lambda: x[mask]


@row()
def mask_write_1mi(m):
    x = m.randn(1 << 20)
    mask = x > 0
    v = x[mask]

    def call():
        x[mask] = v
        return x

    return call


@row()
def index_two_tensors_1mi(m):
    x, i, j = m.randn(1024, 1024), m.randint(0, 1024, (1 << 20,)), m.randint(0, 1024, (1 << 20,))
    return lambda: x[i, j]


@row()
def index_put_1mi(m):
    x, i, v = m.randn(1 << 20), m.randint(0, 1 << 20, (1 << 20,)), m.randn(1 << 20)
    return lambda: x.index_put((i,), v)


@row()
def index_put_accumulate_1mi(m):
    x, i, v = m.randn(1 << 20), m.randint(0, 1 << 20, (1 << 20,)), m.randn(1 << 20)
    return lambda: x.index_put((i,), v, accumulate=True)


@row()
def scatter_rows(m):
    x, i = m.randn(1024, 1024), m.randint(0, 1024, (1024, 1024))
    return lambda: x.scatter(1, i, x)


@row()
def scatter_columns(m):
    x, i = m.randn(1024, 1024), m.randint(0, 1024, (1024, 1024))
    return lambda: x.scatter(0, i, x)


@row()
def scatter_reduce_amax(m):
    x, i = m.randn(1024, 1024), m.randint(0, 1024, (1024, 1024))
    return lambda: x.scatter_reduce(1, i, x, "amax")


@row()
def scatter_add_int(m):
    x, i = m.randint(0, 9, (1024, 1024)), m.randint(0, 1024, (1024, 1024))
    return lambda: x.scatter_add(1, i, x)


@row()
def index_copy_rows(m):
    x, i = m.randn(1024, 1024), m.randperm(1024)
    return lambda: x.index_copy(0, i, x)


@row()
def median_rows(m):
    x = m.randn(1024, 1024)
    return lambda: x.median(1)[0]


@row()
def kthvalue_rows(m):
    x = m.randn(1024, 1024)
    return lambda: x.kthvalue(100)[0]


@row()
def quantile_rows(m):
    x = m.randn(1024, 1024)
    return lambda: x.quantile(0.5, dim=1)


@row()
def mode_rows(m):
    x = m.randint(0, 100, (1024, 1024))
    return lambda: x.mode()[0]


@row()
def searchsorted_1mi(m):
    s, x = m.randn(1 << 20).sort()[0], m.randn(1 << 20)
    return lambda: m.searchsorted(s, x)


@row()
def bucketize_1mi(m):
    x, edges = m.randn(1 << 20), m.linspace(-3, 3, 100)
    return lambda: m.bucketize(x, edges)


@row(gpu=False)
def histogram_1mi(m):
    x = m.randn(1 << 20)
    return lambda: m.histogram(x, 100)[0]


@row()
def histc_1mi(m):
    x = m.randn(1 << 20)
    return lambda: x.histc(100)


@row()
def bincount_1mi(m):
    x = m.randint(0, 1000, (1 << 20,))
    return lambda: x.bincount()


@row()
def multinomial_rows(m):
    x = m.rand(1024, 1024)
    return lambda: m.multinomial(x, 100)


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


# ---------------------------------------------------------------- linear algebra
def _positive(m, *shape):
    x = m.randn(*shape)
    return x @ x.mT + shape[-1] * m.eye(shape[-1])


def _one_matrix(name, n, make):
    """Rows for one matrix of n x n and for 256 of 32 x 32."""

    def single(m):
        return make(m, _positive(m, n, n))

    def batch(m):
        return make(m, _positive(m, 256, 32, 32))

    for suffix, function in (("", single), ("_batch", batch)):
        function.__name__ = f"{name}{suffix}"
        row(gpu=False)(function)


_one_matrix("cholesky", 768, lambda m, a: lambda: m.linalg.cholesky(a))
_one_matrix("lu_factor", 768, lambda m, a: lambda: m.linalg.lu_factor(a)[0])
_one_matrix("solve", 512, lambda m, a: lambda: m.linalg.solve(a, a[..., :16]))
_one_matrix("inv", 384, lambda m, a: lambda: m.linalg.inv(a))
_one_matrix("det", 512, lambda m, a: lambda: m.linalg.det(a / a.shape[-1]))
_one_matrix("qr", 384, lambda m, a: lambda: m.linalg.qr(a)[0])
_one_matrix("eigh", 256, lambda m, a: lambda: m.linalg.eigh(a)[1])
_one_matrix("svd", 192, lambda m, a: lambda: m.linalg.svd(a)[0])
_one_matrix("pinv", 192, lambda m, a: lambda: m.linalg.pinv(a))
_one_matrix("matrix_exp", 256, lambda m, a: lambda: m.linalg.matrix_exp(a / (4 * a.shape[-1])))
_one_matrix("solve_triangular", 768, lambda m, a: lambda: m.linalg.solve_triangular(a, a, upper=False))
_one_matrix("lstsq", 256, lambda m, a: lambda: m.linalg.lstsq(a, a[..., :4])[0])


@row(gpu=False, train=True)
def cholesky_train(m):
    a = _positive(m, 384, 384)
    return backward_of(m, lambda: m.linalg.cholesky(a), a)


@row(gpu=False, train=True)
def slogdet_train(m):
    a = _positive(m, 384, 384)
    return backward_of(m, lambda: m.linalg.slogdet(a)[1], a)


@row()
def cdist_1000(m):
    x, y = m.randn(1000, 64), m.randn(1000, 64)
    return lambda: m.cdist(x, y)


@row()
def pdist_500(m):
    x = m.randn(500, 64)
    return lambda: m.pdist(x)


@row()
def vector_norm_3(m):
    x = m.randn(1 << 20)
    return lambda: m.linalg.vector_norm(x, 3)


@row(train=True)
def linear_cross_entropy_8k(m):
    x, w, t = m.randn(512, 256), m.randn(8192, 256), m.randint(0, 8192, (512,))
    return backward_of(m, lambda: m.nn.functional.linear_cross_entropy(x, w, t), x, w)


# ---------------------------------------------------------------- complex numbers and Fourier transforms
def complex_randn(m, *shape):
    return m.randn(*shape, dtype=m.complex64)


@row()
def complex_mul_1mi(m):
    x, y = complex_randn(m, 1 << 20), complex_randn(m, 1 << 20)
    return lambda: x * y


@row()
def complex_mul_64ki(m):
    x, y = complex_randn(m, 1 << 16), complex_randn(m, 1 << 16)
    return lambda: x * y


@row()
def complex_div_1mi(m):
    x, y = complex_randn(m, 1 << 20), complex_randn(m, 1 << 20)
    return lambda: x / y


@row()
def complex_exp_1mi(m):
    x = complex_randn(m, 1 << 20)
    return lambda: x.exp()


@row()
def complex_abs_1mi(m):
    x = complex_randn(m, 1 << 20)
    return lambda: x.abs()


@row()
def complex_sum_1mi(m):
    x = complex_randn(m, 1024, 1024)
    return lambda: x.sum(1)


@row()
def complex_matmul_512(m):
    x, y = complex_randn(m, 512, 512), complex_randn(m, 512, 512)
    return lambda: x @ y


@row()
def fft_rows_4096(m):
    x = complex_randn(m, 64, 4096)
    return lambda: m.fft.fft(x)


@row()
def fft_rows_1000(m):
    x = complex_randn(m, 256, 1000)
    return lambda: m.fft.fft(x)


@row()
def fft_rows_prime(m):
    x = complex_randn(m, 64, 1009)
    return lambda: m.fft.fft(x)


@row()
def fft_1mi(m):
    x = complex_randn(m, 1 << 20)
    return lambda: m.fft.fft(x)


@row()
def rfft_rows_4096(m):
    x = m.randn(64, 4096)
    return lambda: m.fft.rfft(x)


@row()
def irfft_rows_4096(m):
    x = complex_randn(m, 64, 2049)
    return lambda: m.fft.irfft(x)


@row()
def fft2_images(m):
    x = complex_randn(m, 8, 256, 256)
    return lambda: m.fft.fft2(x)


@row()
def stft_speech(m):
    x, window = m.randn(4, 160000), m.ones(400)
    return lambda: m.stft(x, 400, 160, window=window, return_complex=True)


@row()
def istft_speech(m):
    x, window = complex_randn(m, 4, 201, 1001), m.ones(400)
    return lambda: m.istft(x, 400, 160, window=window)


@row(train=True)
def spectral_loss_train(m):
    x = m.randn(16, 16384)
    return backward_of(m, lambda: m.fft.rfft(x).abs() ** 2, x)


# ---------------------------------------------------------------- products of groups: 16 experts of 768 x 2048
def _experts_product(m, rows):
    x, w = m.randn(rows, 2048).bfloat16(), m.randn(16, 768, 2048).bfloat16()
    ends = [rows * (i + 1) // 16 - (i % 3 if rows > 64 and i < 15 else 0) for i in range(16)]
    offs = m.tensor(ends, dtype=m.int32)
    return lambda: m.nn.functional.grouped_mm(x, w.transpose(1, 2), offs=offs)


@row()
def grouped_mm_prompt(m):
    return _experts_product(m, 2048)


@row()
def grouped_mm_decode(m):
    return _experts_product(m, 16)


# ---------------------------------------------------------------- convolutions, pools and windows
@row()
def conv3d_first(m):
    x, w, b = m.randn(2, 3, 16, 64, 64), m.randn(32, 3, 3, 3, 3), m.randn(32)
    return lambda: m.nn.functional.conv3d(x, w, b, padding=1)


@row()
def conv3d_inner(m):
    x, w, b = m.randn(2, 32, 16, 32, 32), m.randn(64, 32, 3, 3, 3), m.randn(64)
    return lambda: m.nn.functional.conv3d(x, w, b, padding=1)


@row(train=True)
def conv3d_train(m):
    x, w, b = m.randn(2, 32, 16, 32, 32), m.randn(64, 32, 3, 3, 3), m.randn(64)
    return backward_of(m, lambda: m.nn.functional.conv3d(x, w, b, padding=1), w, x, b)


@row(train=True)
def conv3d_strided_train(m):
    x, w = m.randn(4, 32, 8, 28, 28), m.randn(64, 32, 3, 3, 3)
    return backward_of(m, lambda: m.nn.functional.conv3d(x, w, stride=2, padding=1), w, x)


@row()
def conv_transpose3d(m):
    x, w = m.randn(2, 32, 8, 16, 16), m.randn(32, 16, 2, 2, 2)
    return lambda: m.nn.functional.conv_transpose3d(x, w, stride=2)


@row()
def max_pool3d(m):
    x = m.randn(4, 32, 16, 32, 32)
    return lambda: m.nn.functional.max_pool3d(x, 2)


@row(train=True)
def max_pool3d_train(m):
    x = m.randn(4, 16, 16, 32, 32)
    return backward_of(m, lambda: m.nn.functional.max_pool3d(x, 3, 2, 1), x)


@row()
def avg_pool3d(m):
    x = m.randn(4, 32, 16, 32, 32)
    return lambda: m.nn.functional.avg_pool3d(x, 2)


@row()
def adaptive_max_pool2d(m):
    x = m.randn(16, 64, 28, 28)
    return lambda: m.nn.functional.adaptive_max_pool2d(x, 7)


@row()
def lp_pool2d(m):
    x = m.rand(8, 32, 56, 56)
    return lambda: m.nn.functional.lp_pool2d(x, 2, 2)


@row()
def max_unpool2d(m):
    x, at = m.nn.functional.max_pool2d(m.randn(8, 32, 64, 64), 2, return_indices=True)
    return lambda: m.nn.functional.max_unpool2d(x, at, 2)


@row()
def unfold_3x3(m):
    x = m.randn(8, 32, 56, 56)
    return lambda: m.nn.functional.unfold(x, 3, padding=1)


@row()
def fold_3x3(m):
    x = m.randn(8, 288, 3136)
    return lambda: m.nn.functional.fold(x, (56, 56), 3, padding=1)


@row()
def unfold_patches(m):
    x = m.randn(16, 3, 224, 224)
    return lambda: m.nn.functional.unfold(x, 16, stride=16)


@row()
def grid_sample_image(m):
    x, g = m.randn(8, 3, 128, 128), m.rand(8, 128, 128, 2) * 2 - 1
    return lambda: m.nn.functional.grid_sample(x, g, align_corners=False)


@row(train=True)
def grid_sample_image_train(m):
    x, g = m.randn(8, 3, 128, 128), m.rand(8, 128, 128, 2) * 2 - 1
    return backward_of(m, lambda: m.nn.functional.grid_sample(x, g, align_corners=False), x, g)


@row(train=True)
def grid_sample_train(m):
    x, g = m.randn(4, 32, 64, 64), m.rand(4, 64, 64, 2) * 2 - 1
    return backward_of(m, lambda: m.nn.functional.grid_sample(x, g, align_corners=False), x, g)


@row()
def interpolate_bicubic(m):
    x = m.randn(4, 16, 64, 64)
    return lambda: m.nn.functional.interpolate(x, scale_factor=2, mode="bicubic")


@row(train=True)
def interpolate_bilinear_train(m):
    x = m.randn(4, 32, 64, 64)
    return backward_of(m, lambda: m.nn.functional.interpolate(x, scale_factor=2, mode="bilinear"), x)


@row()
def interpolate_trilinear(m):
    x = m.randn(2, 16, 16, 32, 32)
    return lambda: m.nn.functional.interpolate(x, scale_factor=2, mode="trilinear")


# ---------------------------------------------------------------- recurrent layers and losses over sequences
def recurrent(m, kind, steps, batch, inputs, hidden, train=False, layers=1):
    layer, x = getattr(m.nn, kind)(inputs, hidden, layers), m.randn(steps, batch, inputs)
    return backward_of(m, lambda: layer(x), *layer.parameters()) if train else lambda: layer(x)[0]


@row()
def lstm_small(m):
    return recurrent(m, "LSTM", 35, 20, 200, 200, layers=2)


@row()
def lstm_large(m):
    return recurrent(m, "LSTM", 35, 20, 650, 650)


@row()
def lstm_one_sequence(m):
    return recurrent(m, "LSTM", 35, 1, 128, 128)


@row(train=True)
def lstm_small_training(m):
    return recurrent(m, "LSTM", 35, 20, 200, 200, True, 2)


@row(train=True)
def lstm_large_training(m):
    return recurrent(m, "LSTM", 35, 20, 650, 650, True)


@row()
def gru_small(m):
    return recurrent(m, "GRU", 35, 20, 200, 200, layers=2)


@row(train=True)
def gru_small_training(m):
    return recurrent(m, "GRU", 35, 20, 200, 200, True, 2)


@row(train=True)
def rnn_small_training(m):
    return recurrent(m, "RNN", 35, 20, 200, 200, True, 2)


@row()
def transformer_encoder(m):
    layer, x = m.nn.TransformerEncoderLayer(256, 8, 1024, 0.0, batch_first=True), m.randn(8, 128, 256)
    return lambda: layer(x)


@row(train=True)
def transformer_encoder_training(m):
    layer, x = m.nn.TransformerEncoderLayer(256, 8, 1024, 0.0, batch_first=True), m.randn(8, 128, 256)
    return backward_of(m, lambda: layer(x), *layer.parameters())


@row(train=True)
def ctc_loss_training(m):
    x, labels = m.randn(100, 32, 40), m.randint(1, 40, (32, 20))
    return backward_of(m, lambda: m.nn.functional.ctc_loss(x.log_softmax(2), labels, [100] * 32, [20] * 32), x)


@row()
def embedding_bag_rows(m):
    table, i = m.randn(50000, 64), m.randint(0, 50000, (1024, 32))
    return lambda: m.nn.functional.embedding_bag(i, table, mode="mean")


@row()
def embedding_bag_offsets(m):
    table, i, offsets = m.randn(50000, 64), m.randint(0, 50000, (32768,)), m.arange(0, 32768, 32)
    return lambda: m.nn.functional.embedding_bag(i, table, offsets, mode="sum")


@row()
def trunc_normal_1mi(m):
    x = m.empty(1 << 20)
    return lambda: m.nn.init.trunc_normal_(x)


@row()
def categorical_samples(m):
    d = m.distributions.Categorical(logits=m.randn(4096, 100))
    return lambda: d.sample()


@row()
def gamma_samples(m):
    d = m.distributions.Gamma(m.rand(1 << 16) + 0.5, m.ones(1 << 16))
    return lambda: d.sample()
