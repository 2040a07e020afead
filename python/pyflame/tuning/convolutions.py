"""Convolutions as the file of measurements and those of other software name them."""
from dataclasses import dataclass

from .database import attributes, operands

IMAGE, WEIGHT, RESULT = range(3)
MADE = {"conv2d": RESULT, "conv2d_grad_input": IMAGE, "conv2d_grad_weight": WEIGHT}  # which tensor an op computes from the two others
LAYOUTS = ("NCHW", "NHWC")
DTYPES = {"float32": 4, "float16": 2, "bfloat16": 2}  # bytes of an element
MOST_ELEMENTS = 2**31 - 1  # of a tensor: libraries count them as int


@dataclass(frozen=True)
class Convolution:
    """op: which of the three is computed: the result of a convolution, or the gradient of its image or weight. The sizes are those of the forward one for all three: image
    [n, c, *size], weight [k, c / groups, *kernel]. Pairs are of height and width. layout: NCHW or NHWC, the order of all tensors in memory."""

    op: str
    n: int
    c: int
    k: int
    size: tuple
    kernel: tuple
    stride: tuple
    padding: tuple
    dilation: tuple
    groups: int
    dtype: str
    layout: str

    @property
    def out(self):
        """Height and width of the result."""
        return tuple((s + 2 * p - d * (k - 1) - 1) // t + 1 for s, k, t, p, d in zip(self.size, self.kernel, self.stride, self.padding, self.dilation))

    @property
    def shapes(self):
        """The shapes of image, weight and result."""
        return (self.n, self.c, *self.size), (self.k, self.c // self.groups, *self.kernel), (self.n, self.k, *self.out)

    def __str__(self):
        image, weight, _ = ("x".join(map(str, shape)) for shape in self.shapes)
        stride, padding, dilation = ("x".join(map(str, pair)) for pair in (self.stride, self.padding, self.dilation))
        groups = f" groups {self.groups}" if self.groups > 1 else ""
        return f"{self.op} {image} with {weight} stride {stride} padding {padding} dilation {dilation}{groups} {self.dtype} {self.layout}"


def check(c):
    """ValueError with the reason if there is no such convolution, or if PyFlame asks no library for it."""
    numbers = (c.n, c.c, c.k, c.groups, *c.size, *c.kernel, *c.stride, *c.dilation)
    if min(numbers) < 1 or min(c.padding) < 0:
        raise ValueError("a size, stride, dilation or number of groups that is not above 0")
    if c.c % c.groups or c.k % c.groups:
        raise ValueError(f"channels that the groups do not divide; got {c.c} and {c.k} channels in {c.groups} groups")
    if min(c.out) < 1:
        raise ValueError("a kernel that is larger than the image with its padding")
    for shape in c.shapes:
        elements = 1
        for n in shape:
            elements *= n
        if elements > MOST_ELEMENTS:
            raise ValueError(f"a tensor of {elements} elements; expected {MOST_ELEMENTS} at most")


def strides(shape, layout):
    """The strides of a tensor without padding in this layout."""
    _, c, h, w = shape
    return (c * h * w, h * w, w, 1) if layout == "NCHW" else (c * h * w, 1, c * w, c)


def layouts(shape, given):
    """Which of LAYOUTS these strides are of. A dim of one element may have any stride."""
    return [name for name in LAYOUTS if all(size == 1 or a == b for size, a, b in zip(shape, given, strides(shape, name)))]


@dataclass(frozen=True)
class Problem:
    """A problem of the file of measurements. layouts: of image, weight and result, which each may be laid out in more than one way; any_order, rounded: as in its text."""

    convolution: Convolution
    layouts: tuple
    any_order: int
    rounded: int

    @property
    def given(self):
        """The layouts that both operands have."""
        return [name for name in LAYOUTS if all(name in side for i, side in enumerate(self.layouts) if i != MADE[self.convolution.op])]


def problem_of(text):
    """The Problem of a text; None if it is not one 2-D convolution alone."""
    op = text.partition("(")[0]
    if " | " in text or op not in MADE:
        return None
    found, a = operands(text), attributes(text)
    if len(found) != 3 or any(len(shape) != 4 for _, shape, _ in found):
        return None
    order = {"conv2d": (0, 1, 2), "conv2d_grad_input": (2, 1, 0), "conv2d_grad_weight": (1, 2, 0)}[op]
    (dtype, image, _), (_, weight, _), _ = sides = [found[i] for i in order]
    pairs = (tuple(a[f"{name}_{side}"] for side in "hw") for name in ("stride", "pad", "dilation"))
    where = tuple(tuple(layouts(shape, given)) for _, shape, given in sides)
    return Problem(Convolution(op, image[0], image[1], weight[0], tuple(image[2:]), tuple(weight[2:]), *pairs, a["groups"], dtype, "NCHW"), where, a["any_order"], a["rounded"])


def call_of(c):
    """A function that computes the convolution on the current device and nothing else. Its operands are computed here."""
    import pyflame as pf

    dtype, order = getattr(pf, c.dtype), pf.channels_last if c.layout == "NHWC" else pf.contiguous_format
    image, weight, gradient = (pf.randn(*shape).to(dtype).to(memory_format=order) for shape in c.shapes)
    forward = {"stride": c.stride, "padding": c.padding, "dilation": c.dilation, "groups": c.groups}
    if c.op == "conv2d":
        return lambda: pf.conv2d(image, weight, **forward)
    asked = image if c.op == "conv2d_grad_input" else weight
    asked.requires_grad = True
    result = pf.conv2d(image, weight, **forward)
    return lambda: pf.autograd.grad(result, asked, gradient, retain_graph=True)
