"""What `pyflame bench` measures by name. Each function yields Problems; `scale` divides sizes: 8 makes everything small enough for a CPU."""
from dataclasses import dataclass

import pyflame as pf

from .gemms import Gemm


@dataclass
class Problem:
    """A call with its work: flops and bytes are those that the call cannot do without."""

    name: str
    call: object
    flops: float = None
    bytes: float = None
    train: bool = False


def _name(dtype):
    return str(dtype).rsplit(".", 1)[-1]


def _operand(rows, columns, batch, transposed, dtype):
    shape = (columns, rows) if transposed else (rows, columns)
    whole = (*((batch,) if batch > 1 else ()), *shape)
    x = pf.randint(-128, 128, whole).to(dtype) if dtype == pf.int8 else pf.randn(*whole).to(dtype)
    return x.mT if transposed else x


def _of_float8(g, dtype):
    """With one scale for each matrix and a result of bfloat16."""
    if g.batch > 1:
        raise NotImplementedError(f"{g}: products of 8-bit floats have no batches; got {g.batch}; expected 1")
    (a, scale_a), (b, scale_b) = (pf.float8.quantize(_operand(*sizes, 1, side == "T", pf.float32), dtype) for sizes, side in (((g.m, g.k), g.layout[0]), ((g.k, g.n), g.layout[1])))
    return Problem(str(g), lambda: pf._scaled_mm(a, b, scale_a, scale_b), g.flops, g.m * g.k + g.k * g.n + 2 * g.m * g.n)


def of_gemm(g):
    """A product of a list (gemms.py). NotImplementedError if PyFlame, or its backend for the current device, does not multiply this dtype."""
    dtype = getattr(pf, g.dtype)
    if g.dtype.startswith("float8"):
        return _of_float8(g, dtype)
    a, b = _operand(g.m, g.k, g.batch, g.layout[0] == "T", dtype), _operand(g.k, g.n, g.batch, g.layout[1] == "T", dtype)
    return Problem(str(g), lambda: pf.matmul(a, b), g.flops, g.batch * (g.m * g.k + g.k * g.n + g.m * g.n) * a.itemsize)


def gemm(scale=1):
    """Square products of three dtypes, and products with few rows."""
    for dtype in ("float32", "float16", "bfloat16"):
        for n in (512, 1024, 2048, 4096):
            yield of_gemm(Gemm(n // scale, n // scale, n // scale, dtype))
    for m in (1, 16, 64):
        yield of_gemm(Gemm(m, 4096 // scale, 4096 // scale))


def conv(scale=1):
    """Convolutions of ResNet-50."""
    batch = max(1, 32 // scale)
    for c, size, k, kernel, stride in ((3, 224, 64, 7, 2), (64, 56, 64, 3, 1), (128, 28, 128, 3, 1), (256, 14, 256, 3, 1), (512, 7, 512, 3, 1), (256, 14, 1024, 1, 1)):
        c, k, size = max(1, c // scale), max(1, k // scale), max(kernel, size // scale)
        x, w = pf.randn(batch, c, size, size), pf.randn(k, c, kernel, kernel)
        y = pf.nn.functional.conv2d(x, w, stride=stride, padding=kernel // 2)
        yield Problem(f"conv {kernel}x{kernel} {c}->{k} {size}x{size} b{batch} float32", lambda x=x, w=w, s=stride, p=kernel // 2: pf.nn.functional.conv2d(x, w, stride=s, padding=p),
                      2 * y.numel() * c * kernel * kernel, 4 * (x.numel() + w.numel() + y.numel()))


def elementwise(scale=1):
    """Functions of each element."""
    F, n = pf.nn.functional, (64 << 20) // scale**3
    x, y = pf.randn(n), pf.randn(n)
    for what, call, arrays in (("copy", lambda: x.clone(), 2), ("add", lambda: x + y, 3), ("relu", lambda: F.relu(x), 2), ("gelu", lambda: F.gelu(x), 2),
                               ("silu", lambda: F.silu(x), 2), ("gelu(x * y + y) + x", lambda: F.gelu(x * y + y) + x, 3)):
        yield Problem(f"{what} {n} float32", call, None, arrays * n * 4)


def reduce(scale=1):
    """Sums, softmax and norms."""
    F, rows, width = pf.nn.functional, max(1, (64 << 20) // scale**3 // 4096), 4096
    x = pf.randn(rows, width)
    for what, call, arrays in (("sum", lambda: x.sum(), 1), ("sum of rows", lambda: x.sum(1), 1), ("sum of columns", lambda: x.sum(0), 1), ("softmax", lambda: F.softmax(x, -1), 2),
                               ("layer_norm", lambda: F.layer_norm(x, (width,)), 2)):
        yield Problem(f"{what} {rows}x{width} float32", call, None, arrays * x.numel() * 4)


def attention(scale=1):
    """Causal attention of heads of 64 and 128."""
    t = max(16, 2048 // scale)
    for d in (64, 128):
        q = pf.randn(4, 16 // min(scale, 16), t, d).to(pf.bfloat16)
        yield Problem(f"attention {'x'.join(map(str, q.shape))} causal bfloat16", lambda q=q: pf.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True),
                      2 * q.shape[0] * q.shape[1] * t * t * d, 4 * q.numel() * 2)


def memory(scale=1):
    """Copies from 64 KiB up, and copies between host and device."""
    for kib in (64, 1 << 10, 16 << 10, 256 << 10):
        x = pf.randn(max(1, (kib << 8) // scale))
        yield Problem(f"copy of {x.nbytes >> 10} KiB", lambda x=x: x.clone(), None, 2 * x.nbytes)
    x = pf.randn((16 << 20) // scale)
    if x.device.type in ("cuda", "rocm"):
        host = x.cpu()
        yield Problem(f"host to device, {x.nbytes >> 20} MiB", lambda: host.to(x.device), None, x.nbytes)
        yield Problem(f"device to host, {x.nbytes >> 20} MiB", lambda: x.cpu(), None, x.nbytes)


def comm(scale=1):
    """Copies between host and devices, in both directions, and between two devices of one kind."""
    here = pf.device(pf.get_device())
    if here.type not in ("cuda", "rocm"):
        raise ValueError(f"comm: copies need a device with its own memory; got {here}; expected --device rocm or cuda")
    others = [f"{here.type}:{i}" for i in range(pf.cuda_device_count() if here.type == "cuda" else pf.rocm_device_count()) if i != (here.index or 0)]
    for mib in (1, 16, 256):
        n = max(1, (mib << 18) // scale)
        x = pf.randn(n)
        host = x.cpu()
        yield Problem(f"host to {here}, {x.nbytes >> 10} KiB", lambda host=host: host.to(here), None, x.nbytes)
        yield Problem(f"{here} to host, {x.nbytes >> 10} KiB", lambda x=x: x.cpu(), None, x.nbytes)
        for other in others:
            y = x.to(other)
            yield Problem(f"{here} to {other}, {x.nbytes >> 10} KiB", lambda x=x, other=other: x.to(other), None, x.nbytes)
            yield Problem(f"{other} to {here}, {x.nbytes >> 10} KiB", lambda y=y: y.to(here), None, x.nbytes)


def launch(scale=1):
    """What one op costs that does nearly nothing."""
    x = pf.randn(16)
    yield Problem("one op of 16 elements", lambda: x + 1.0)
    yield Problem("ten ops of 16 elements that depend on each other", lambda: (((((((((x + 1) * 2) + 1) * 2) + 1) * 2) + 1) * 2) + 1) * 2)


def model(scale=1):
    """A training step of a small network, with Adam."""
    nn, F = pf.nn, pf.nn.functional
    net = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = pf.optim.Adam(net.parameters(), lr=1e-3)
    x, y = pf.randn(32, 784), pf.randint(0, 10, (32,))

    def step():
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()

    yield Problem("training step 784-256-128-10 b32", step, train=True)


GROUPS = {"gemm": gemm, "conv": conv, "attention": attention, "elementwise": elementwise, "reduce": reduce, "memory": memory, "launch": launch, "comm": comm, "model": model}
