"""Products of 8-bit floats with scales, by PyTorch's names."""
from __future__ import annotations

import enum

from .. import _C

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from .._C import Tensor
    from .._annotations import DType, Shape


class ScalingType(enum.IntEnum):
    """How many elements a scale of scaled_mm is for: the whole matrix, a row of the first operand or a column of the second, a row's 128 elements, or 128 x 128
    elements. The types of blocks of 16 and 32 elements belong to formats that PyFlame does not have.

    Raises ValueError for a value of no member.
    """

    TensorWise = 0
    RowWise = 1
    BlockWise1x16 = 2
    BlockWise1x32 = 3
    BlockWise1x128 = 4
    BlockWise128x128 = 5


class SwizzleType(enum.IntEnum):
    """The order of the scales in memory. Only NO_SWIZZLE, the natural one, is available. Raises ValueError for a value of no member."""

    NO_SWIZZLE = 0
    SWIZZLE_32_4_4 = 1


def _only(value, name):
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    if len(values) != 1:
        raise ValueError(f"scaled_mm: several scales for one matrix; got {len(values)} as {name}; expected one")
    return values[0]


def _shape(recipe, rows, depth, first):
    """The shape of a matrix's scales, None for any with one element."""
    blocks = -(-depth // 128)
    if recipe == ScalingType.TensorWise:
        return None
    if recipe == ScalingType.RowWise:
        return (rows, 1) if first else (1, rows)
    if recipe == (ScalingType.BlockWise1x128 if first else ScalingType.BlockWise128x128):
        return (rows, blocks) if first else (blocks, -(-rows // 128))
    known = "TensorWise, RowWise or " + ("BlockWise1x128" if first else "BlockWise128x128")
    raise NotImplementedError(f"scaled_mm: not available for scales of the {'first' if first else 'second'} matrix; got {recipe!r}; expected ScalingType.{known}")


def scaled_mm(mat_a: Tensor, mat_b: Tensor, scale_a: Tensor | list[Tensor], scale_recipe_a: ScalingType | list[ScalingType], scale_b: Tensor | list[Tensor],
              scale_recipe_b: ScalingType | list[ScalingType], swizzle_a: SwizzleType | list[SwizzleType] | None = None,
              swizzle_b: SwizzleType | list[SwizzleType] | None = None, bias: Tensor | None = None, output_dtype: DType = _C.bfloat16,
              contraction_dim: Shape = (), use_fast_accum: bool = False) -> Tensor:
    """The product of two matrices of 8-bit floats, each times its scales: output = (mat_a * scale_a) @ (mat_b * scale_b) + bias.

    mat_a [M, K], mat_b [K, N]: float8 dtypes. scale_a, scale_b: float32, or a list of one such tensor; of the shape that the recipe asks for:
    TensorWise: one element. RowWise: scale_a [M, 1], scale_b [1, N]. BlockWise1x128 for mat_a: [M, K / 128] and BlockWise128x128 for mat_b: [K / 128, N / 128], rounded up.
    scale_recipe_a, scale_recipe_b: a ScalingType, or a list of one. swizzle_a, swizzle_b: None or SwizzleType.NO_SWIZZLE, or a list of that.
    bias [N] of output_dtype: float32, float16 or bfloat16. Sums are float32; use_fast_accum allows those of Hopper's matrix cores, which have some 13 bits and are
    faster there. contraction_dim changes nothing.
    A GPU multiplies the codes if its matrix cores take both formats (nn.functional.scaled_mm on gfx942: fnuz; gfx950, gfx12, NVIDIA from sm_89: OCP), K and N are multiples of 16
    and there are no blocks; otherwise the matrices are decoded, which is exact, and multiplied. There are no gradients; pf.float8.Float8Linear trains.
    TypeError, ValueError; NotImplementedError for other recipes, swizzles and for operands that require a gradient."""
    for name, swizzle in (("swizzle_a", swizzle_a), ("swizzle_b", swizzle_b)):
        if swizzle is not None and _only(swizzle, name) != SwizzleType.NO_SWIZZLE:
            raise NotImplementedError(f"scaled_mm: scales are taken in their natural order only; got {name}={swizzle!r}; expected SwizzleType.NO_SWIZZLE")
    if mat_a.ndim != 2 or mat_b.ndim != 2:
        raise ValueError(f"scaled_mm: not two matrices; got shapes {tuple(mat_a.shape)} and {tuple(mat_b.shape)}; expected [M, K] and [K, N]")
    scales = []
    for scale, recipe, name, sizes, first in ((scale_a, scale_recipe_a, "scale_a", mat_a.shape, True), (scale_b, scale_recipe_b, "scale_b", mat_b.shape[::-1], False)):
        scale = _only(scale, name)
        wanted = _shape(ScalingType(_only(recipe, f"scale_recipe_{name[-1]}")), *sizes, first)
        if scale.numel() != 1 if wanted is None else tuple(scale.shape) != wanted:
            raise ValueError(f"scaled_mm: {name} does not fit its recipe; got shape {tuple(scale.shape)}; expected {wanted or 'one element'}")
        scales.append(scale)
    return _C._scaled_mm(mat_a, mat_b, *scales, bias=bias, dtype=output_dtype, fast=use_fast_accum)


def _scaled_mm(input, mat2, scale_a, scale_b, bias=None, scale_result=None, out_dtype=None, use_fast_accum=False):
    """torch._scaled_mm: scaled_mm whose recipes are known by the shapes of the scales. out_dtype: default bfloat16. NotImplementedError for scale_result."""
    if scale_result is not None:
        raise NotImplementedError("_scaled_mm: the result is no 8-bit float; got scale_result; expected None; hint: pf.float8.quantize the result")
    return _C._scaled_mm(input, mat2, scale_a, scale_b, bias=bias, dtype=out_dtype or _C.bfloat16, fast=use_fast_accum)
