"""Images and volumes read at any places: grid_sample, and the grids of affine maps. nn.functional has their names."""
from __future__ import annotations

from .. import _C
from .._keywords import naming
from ._arguments import _tensor

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from .._C import Tensor
    from .._annotations import Shape
    from ._annotations import GridMode, GridPadding

_MODES = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")


def grid_sample(input: Tensor, grid: Tensor, mode: GridMode = "bilinear", padding_mode: GridPadding = "zeros", align_corners: bool | None = None) -> Tensor:
    """input [N, C, H, W] at the places of grid [N, H', W', 2], or [N, C, D, H, W] at [N, D', H', W', 3] -> [N, C, H', W'].

    The last dim of grid is (x, y) or (x, y, z), where -1 and 1 are the ends of the image: the centres of the outermost elements with
    align_corners, otherwise their outer edges. mode: 'bilinear' (trilinear for volumes), 'nearest' or 'bicubic'. padding_mode: what is outside of the
    image: 'zeros', 'border' (the nearest element) or 'reflection'. The gradient is of both; that of 'nearest' by grid is 0.

    Raises ValueError for shapes that do not fit, an image without elements, and an unknown mode or padding_mode; TypeError where the dtypes of input and
    grid differ, and for what is no tensor and a mode that is no text.
    """
    _tensor("grid_sample", "input", input)
    _tensor("grid_sample", "grid", grid)
    for what, given, names in (("mode", mode, _MODES), ("padding_mode", padding_mode, _PADDINGS)):
        if not isinstance(given, str):
            raise TypeError(f"grid_sample: {what} is not a text; got {given!r}; expected " + ", ".join(map(repr, names)))
    return _C._grid_sample(input, grid, mode, padding_mode, bool(align_corners))


def _modes(op, interpolation_mode, padding_mode):
    """The names that these numbers stand for. ValueError."""
    for what, number, names in (("interpolation_mode", interpolation_mode, _MODES), ("padding_mode", padding_mode, _PADDINGS)):
        if number not in range(len(names)):
            raise ValueError(f"{op}: {what} is out of range; got {number}; expected " + ", ".join(f"{i} ({name})" for i, name in enumerate(names)))
    return _MODES[interpolation_mode], _PADDINGS[padding_mode]


def grid_sampler_2d(input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool | None) -> Tensor:
    """grid_sample of images, with modes by number: 0 'bilinear', 1 'nearest', 2 'bicubic'; 0 'zeros', 1 'border', 2 'reflection'.

    interpolation_mode: the number of mode. padding_mode: that of the mode of the padding. The other arguments are those of nn.functional.grid_sample.

    ValueError for another number of a mode, and where input and grid do not fit. TypeError where the dtypes differ, for integers, and for what is not a
    tensor.
    """
    return grid_sample(input, grid, *_modes("grid_sampler_2d", interpolation_mode, padding_mode), align_corners)


def grid_sampler_3d(input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool | None) -> Tensor:
    """grid_sample of volumes, with modes by number: 0 'bilinear' (trilinear), 1 'nearest', 2 'bicubic' (tricubic, which PyTorch lacks); 0 'zeros', 1 'border', 2 'reflection'. The arguments are those of grid_sampler_2d.

    ValueError for another number of a mode, and where input and grid do not fit. TypeError where the dtypes differ, for integers, and for what is not a
    tensor.
    """
    return grid_sample(input, grid, *_modes("grid_sampler_3d", interpolation_mode, padding_mode), align_corners)


def grid_sampler(input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool | None) -> Tensor:
    """grid_sample of images or volumes with modes by number. The arguments are those of grid_sampler_2d.

    ValueError for another number of a mode, and where input and grid do not fit. TypeError where the dtypes differ, for integers, and for what is not a
    tensor.
    """
    return grid_sample(input, grid, *_modes("grid_sampler", interpolation_mode, padding_mode), align_corners)


def affine_grid(theta: Tensor, size: Shape, align_corners: bool | None = None) -> Tensor:
    """The grid with which grid_sample maps by theta: [N, 2, 3] for size (N, C, H, W) -> [N, H, W, 2]; [N, 3, 4] for (N, C, D, H, W).

    Place (x, y) of the result is theta @ (x, y, 1). align_corners: as in grid_sample.

    Raises ValueError where theta is not floating or does not fit size, and for a size below 1.
    """
    dims = len(size) - 2
    if dims not in (2, 3) or not theta.is_floating_point() or tuple(theta.shape) != (size[0], dims, dims + 1):
        raise ValueError(f"affine_grid: theta does not fit the size; got {theta.dtype} {tuple(theta.shape)} for {tuple(size)}; "
                         "expected floats (N, 2, 3) for (N, C, H, W), or (N, 3, 4) for (N, C, D, H, W)")
    if any(n < 1 for n in size):
        raise ValueError(f"affine_grid: an empty size; got {tuple(size)}; expected 1 or more")
    parts = []
    for d, n in enumerate(reversed(size[2:])):
        line = _C.linspace(-1, 1, n, dtype=theta.dtype, device=theta.device) if n > 1 else _C.zeros(1, dtype=theta.dtype, device=theta.device)
        line = line if align_corners else line * ((n - 1) / n)
        parts.append(line.reshape(*[-1 if e == dims - 1 - d else 1 for e in range(dims)]).expand(*size[2:]))
    parts.append(_C.ones(tuple(size[2:]), dtype=theta.dtype, device=theta.device))
    base = _C.stack(parts, -1).reshape(1, -1, dims + 1)
    return _C.matmul(base, theta.transpose(1, 2)).reshape(size[0], *size[2:], dims)


def affine_grid_generator(theta: Tensor, size: Shape, align_corners: bool | None) -> Tensor:
    """nn.functional.affine_grid(theta, size, align_corners), by a name that PyTorch has too. Shapes, dtypes and errors are those of affine_grid."""
    return affine_grid(theta, size, align_corners)


naming(globals(), __name__)
