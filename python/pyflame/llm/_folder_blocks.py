"""Weights of GPTQ and AWQ folders, one matrix at a time: in GGUF's blocks of 4 bits where these have the same groups, otherwise decoded to floats.

Both store a matrix (in, out) as integers of a few bits in words of 32 bits, with a scale and a zero for each group of rows of a column:
w[i, o] = scales[g, o] * (q[i, o] - zero[g, o]). GPTQ packs rows of q, lowest bits first; AWQ (version gemm) packs columns, in the order 0 2 4 6 1 3 5 7.
GPTQ's files in the first format store zero - 1. What the formats leave open is refused."""
import numpy as np

from .. import tensor as make
from ._packed import PackedWeight, blocks_of_4_bits

_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def settings(form, folder):
    """(method, bits, group size, what to add to a stored zero, whether g_idx is needed) of config.json's quantization_config. NotImplementedError for what cannot be read."""
    method = form.get("quant_method", "no quant_method") if isinstance(form, dict) else type(form).__name__
    if method not in ("gptq", "awq"):
        raise NotImplementedError(f"llm: '{folder}' has quantized weights, which are not available in this layout; got quantization_config of {method!r}; expected gptq, awq, fp8, compressed-tensors or float weights; "
                                  "hint: take a GGUF file of the model, or its folder without quantization")
    bits, group = form.get("bits"), form.get("group_size")
    form_name = form.get("version" if method == "awq" else "checkpoint_format") or ("gemm" if method == "awq" else "gptq")
    good = (4,) if method == "awq" else (4, 8)
    names = ("gemm",) if method == "awq" else ("gptq", "gptq_v2")
    form_name = form_name.lower() if isinstance(form_name, str) else form_name
    if type(bits) is not int or bits not in good or form_name not in names or type(group) is not int or (group < 1 and group != -1):
        raise NotImplementedError(f"llm: '{folder}' has {method} weights of a kind that is not available; got bits {bits!r}, group_size {group!r}, format {form_name!r}; "
                                  f"expected bits {' or '.join(map(str, good))}, a group_size of -1 or at least 1, format {' or '.join(names)}")
    return method, bits, group, int(form_name == "gptq"), method == "gptq" and bool(form.get("desc_act"))


def _unpacked(words, bits, axis, order=None):
    count = 32 // bits
    parts = (words.view(np.uint32)[..., None] >> (np.arange(count, dtype=np.uint32) * np.uint32(bits)) & np.uint32(2**bits - 1)).astype(np.uint8)
    if order:
        parts = parts[..., np.argsort(order)]
    if axis == 0:
        return parts.transpose(0, 2, 1).reshape(-1, words.shape[1])
    return parts.reshape(words.shape[0], -1)


def _checked(name, parts, method, bits, group, add, ordered):
    """(q (in, out), scales and zeros (groups, out), the group of each row)."""
    def wrong(what, got, expected):
        return ValueError(f"llm: the {method} weight '{name}' {what}; got {got}; expected {expected}")

    missing = [k for k in ("qweight", "qzeros", "scales") + ("g_idx",) * ordered if k not in parts]
    if missing:
        raise wrong("is not complete", "no " + ", ".join(missing), "qweight, qzeros and scales, and g_idx where desc_act is true")
    for key, value in parts.items():
        if value.dim() != (1 if key == "g_idx" else 2) or (key != "scales" and str(value.dtype).rpartition(".")[2] != "int32"):
            raise wrong(f"has a wrong {key}", f"shape {tuple(value.shape)}, {value.dtype}", "a vector of int32" if key == "g_idx" else "a matrix" + (" of int32" if key != "scales" else ""))
    order = _AWQ_ORDER if method == "awq" else None
    q = _unpacked(parts["qweight"].numpy(), bits, 1 if order else 0, order)
    zeros, scales = _unpacked(parts["qzeros"].numpy(), bits, 1, order), parts["scales"].float().numpy()
    rows, columns = q.shape
    size = rows if group == -1 else group
    groups = -(-rows // size) if rows else 0
    if not rows or not columns or scales.shape != (groups, columns) or zeros.shape != (groups, columns):
        raise wrong("has shapes that do not fit", f"scales {scales.shape}, zeros {zeros.shape}", f"({groups}, {columns}) for a matrix of {q.shape} in groups of {size}")
    if add and (zeros == 2**bits - 1).any():
        raise NotImplementedError(f"llm: the gptq weight '{name}' has a zero that readers of this format understand in two ways; got {2**bits - 1}; expected less; hint: convert the folder to gptq_v2")
    index = parts["g_idx"].numpy() if "g_idx" in parts else np.arange(rows) // size
    if index.shape != (rows,) or index.min() < 0 or index.max() >= groups:
        raise wrong("has a wrong g_idx", f"shape {index.shape}, values {index.min() if index.size else None} to {index.max() if index.size else None}", f"{rows} values from 0 to {groups - 1}")
    return q, scales, zeros.astype(np.float32) + add, index


def _weight(name, parts, dtype, method, bits, group, *rest):
    q, scales, zeros, index = _checked(name, parts, method, bits, group, *rest)
    rows = q.shape[0]
    size = rows if group == -1 else group
    # w = scale q + (-scale zero), rounded to float16, which the format's own scales are.
    if dtype is None and bits == 4 and size % 32 == 0 and rows % 32 == 0 and (index == np.arange(rows) // size).all():
        each = np.arange(rows // 32) * 32 // size
        scale, shift = scales.T[:, each].astype(np.float16), (-scales * zeros).T[:, each].astype(np.float16)
        if np.isfinite(scale).all() and np.isfinite(shift).all():
            return PackedWeight(make(blocks_of_4_bits(q.T, scale, shift), device="cpu"), "Q4_1", rows)
    weight = make(np.ascontiguousarray((scales[index] * (q.astype(np.float32) - zeros[index])).T), device="cpu")
    return weight if dtype is None else weight.to(dtype)


def taken(tensors, form, dtype):
    """The tensors of a folder, with a `weight` (out, in) in place of each qweight, qzeros, scales and g_idx: of dtype, or without a dtype a PackedWeight where
    blocks have the same groups, else float32. It changes the given dict, so that the integers of a matrix are freed when it is done."""
    for base in sorted({n.rpartition(".")[0] for n in tensors if n.rpartition(".")[2] in ("qweight", "qzeros", "scales", "g_idx")}):
        parts = {k: tensors.pop(f"{base}.{k}") for k in ("qweight", "qzeros", "scales", "g_idx") if f"{base}.{k}" in tensors}
        tensors[base + ".weight"] = _weight(base, parts, dtype, *form)
    return tensors
