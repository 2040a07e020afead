"""Private names of torch.nn.functional that programs import; functional finds them here."""
from .. import _C
from ..overrides import handle_torch_function, has_torch_function, has_torch_function_unary, has_torch_function_variadic  # noqa: F401
from .functional_attention import Projections, _as_additive
from .functional_attention import _project as _projections
from .modules.utils import _pair, _single, _triple  # noqa: F401


def _in_projection_packed(q, k, v, w, b=None):
    """[q, k, v] times the parts of w [3 E, E], plus those of b [3 E]."""
    return list(_projections(q, k, v, w.shape[1], Projections(w, bias=b)))


def _in_projection(q, k, v, w_q, w_k, w_v, b_q=None, b_k=None, b_v=None):
    """(q, k, v), each times its own weight, plus its bias."""
    return _C.linear(q, w_q, b_q), _C.linear(k, w_k, b_k), _C.linear(v, w_v, b_v)


def _none_or_dtype(input):
    """The dtype of a tensor, or None for None."""
    return None if input is None else input.dtype


def _canonical_mask(mask, mask_name, other_type, other_name, target_type, check_other=True):
    """A mask that is added to scores: -inf where a bool mask is true; a float mask is itself. RuntimeError: the mask is neither."""
    if mask is None or mask.is_floating_point():
        return mask
    if mask.dtype != _C.bool_:
        raise RuntimeError(f"{mask_name}: not a mask; got {mask.dtype}; expected bool or a float dtype")
    return _as_additive(mask, target_type)
