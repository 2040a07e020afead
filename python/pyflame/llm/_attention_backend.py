"""Which implementation computes attention over pages (attention_backend of an Engine), and why.

The names are those of the list of implementations of the op paged_attention, as pf.tuning.force takes them. What is forced holds for a process and forgets the programs that are
compiled, so it is set when the first engine begins and not for each step; all engines that are open in a process have the same attention_backend."""
import re
import threading

from .. import _C
from ._network import _on_gpu

_OP = "paged_attention"
_lock = threading.Lock()
_held = []  # the attention_backend of each open engine
_before = ""  # what was forced before the first of them


def check_name(op, name):
    """ValueError unless it is a text that could be a name. Which names exist depends on the device; measured() finds that out."""
    if not isinstance(name, str) or not name:
        raise ValueError(f"{op}: there is no such attention_backend; got {name!r}; expected 'auto' or the name of an implementation of {_OP}, such as 'reference'")


def hold(name):
    """Forces this implementation, or none with 'auto', until release(). ValueError where an open engine has another one."""
    global _before
    with _lock:
        other = next((n for n in _held if n != name), None)
        if other is not None:
            raise ValueError(f"Engine: attention_backend holds for the whole process; got {name!r} while an engine with {other!r} is open; expected the same for both; hint: close the other one first")
        if not _held and name != "auto":
            _C.synchronize()
            _before = _C._force_entry(_OP, name)
        _held.append(name)


def release(name):
    """Ends one hold()."""
    with _lock:
        _held.remove(name)
        if not _held and name != "auto":
            _C._force_entry(_OP, _before)


def _existing(network, run):
    """The names of the implementations for the network's device, in the order in which they are asked, as the core lists them where a name does not exist."""
    before = _C._force_entry(_OP, "gpu.?" if _on_gpu(network.device) else "?")  # a name of the other kind of device would be ignored
    try:
        run()
    except ValueError as e:
        if found := re.search(r"expected one of (.*?); hint", str(e)):
            return found.group(1)
        raise
    finally:
        _C._force_entry(_OP, before)
    raise RuntimeError(f"Engine: the implementations of {_OP} are not known; got no list of them; expected one")


def _steps(run):
    """The steps of paged_attention that run() computes, as pf.explain has them; None within a pf.explain of the caller."""
    _C.synchronize()
    try:
        _C._explain_begin(False)
    except RuntimeError:
        run()
        return None
    try:
        run()
    finally:
        found = _C._explain_end(False)
    return [s for p in found["programs"] for s in p["steps"] if any(line.startswith(_OP + "(") for line in s["lines"])]


def measured(network, pages, name):
    """(the implementation that computes attention over these pages, why), by a small problem with the model's heads and dtypes. (None, why) where that is not known.
    ValueError for a name that does not exist for the device, NotImplementedError for one that cannot compute it."""
    c, device = network.config, network.device
    table, lengths = (_C.tensor([value] * 8, dtype=_C.int32, device=device) for value in (0, 1))
    windows = {c.window if windowed else None: layer for layer, windowed in enumerate(c.windowed)}

    def run():
        for window, layer in windows.items():
            q = _C.zeros(1, c.heads, c.head_dim, dtype=network.dtype, device=device)
            y = pages.attention(layer, q, table.reshape(1, 8), lengths[:1], scale=c.scale, window=window, softcap=c.attention_cap or None)
            y.float().cpu().tolist()

    try:
        steps = _steps(run)
    except NotImplementedError as e:
        why = re.search(rf"{re.escape(name.partition(':')[0])}: ([^;\n]*)", str(e).partition("refusals: ")[2])
        raise NotImplementedError(f"Engine: the attention_backend cannot compute attention over this model's pages; got {name!r}: {why.group(1) if why else e}; "
                                  f"expected 'auto' or another one of {_existing(network, run)}") from None
    except ValueError as e:
        if "forced that does not exist" not in str(e):
            raise
        raise _unknown(name, network, run) from None
    if steps is None and name != "auto" and name.partition(":")[0] not in _existing(network, run).split(", "):
        raise _unknown(name, network, run)
    if steps is None:
        return None, "not known: the engine was made within pf.explain"
    used = list(dict.fromkeys(s["impl"] for s in steps))
    if name != "auto":
        if used != [name.partition(":")[0]]:  # a name of another kind of device has no effect
            raise _unknown(name, network, run)
        return used[0], f"attention_backend={name!r}"
    before = _C._force_entry(_OP, "")
    if before:
        _C._force_entry(_OP, before)
        return ", ".join(used), f"{before} is forced (PYFLAME_FORCE or pf.tuning.force)"
    refusals = list(dict.fromkeys(line.strip() for s in steps for line in s["lines"] if "refused" in line))
    return ", ".join(used), "auto: " + ("; ".join(refusals) if refusals else "the first of the list that computes this, or one that was measured to be faster")


def _unknown(name, network, run):
    return ValueError(f"Engine: there is no such attention_backend for {network.device}; got {name!r}; expected 'auto' or one of {_existing(network, run)}")
