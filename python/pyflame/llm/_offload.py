"""cpu_offload_gb (vLLM's name): the matrices of the last layers lie in host memory, where a GPU has no room for all of them.

A product with such a matrix copies it to the device first and frees the copy afterwards. The copy has the same bits, and the device computes as it does without it, so the
results are the same. Norms, biases and routers stay on the device: they are small. Host memory is ordinary memory; the copy goes through the backend's pinned blocks and a stream of
its own. What was recorded before it is started first, so the device computes while the copy is on its way."""
from .. import _C
from .._notes import once
from ._packed import PackedWeight

GIB = 1 << 30


def check(op, cpu_offload_gb):
    """The bytes. ValueError for what is no number of GiB."""
    if isinstance(cpu_offload_gb, bool) or not isinstance(cpu_offload_gb, (int, float)) or not 0 <= cpu_offload_gb < 1 << 20:
        raise ValueError(f"{op}: cpu_offload_gb is out of range; got {cpu_offload_gb!r}; expected a number of GiB from 0 upwards")
    return int(cpu_offload_gb * GIB)


def can_offload(device):
    """Whether the device has memory of its own. Otherwise a warning says that nothing is offloaded."""
    if str(device) != "cpu":
        return True
    once("cpu_offload_gb", "the weights are in host memory already, because the device is cpu; nothing is offloaded")
    return False


def nbytes_of(weight):
    """The bytes of a weight, a tensor, a PackedWeight or a HostWeight."""
    return weight.nbytes if isinstance(weight, (PackedWeight, HostWeight)) else weight.numel() * weight.dtype.itemsize


def first_offloaded(sizes, nbytes):
    """The first of the last layers whose matrices, of sizes[i] bytes each, take at most nbytes together. ValueError where the last one takes more."""
    if nbytes and sizes and sizes[-1] > nbytes:
        raise ValueError(f"llm: cpu_offload_gb is too small for a layer; got {nbytes / GIB:.3g}; expected at least {-(-sizes[-1] * 1000 // GIB) / 1000:g}, for the matrices of the last layer")
    first = len(sizes)
    while first and sizes[first - 1] <= nbytes:
        first -= 1
        nbytes -= sizes[first]
    return first


class HostWeight:
    """A matrix, or a stack of them, in host memory: a tensor or a PackedWeight, of `shape`."""

    def __init__(self, weight):
        self.shape, self.nbytes, self._device = tuple(weight.shape), nbytes_of(weight), weight.device
        self._host = weight.moved("cpu") if isinstance(weight, PackedWeight) else weight.cpu()

    def on_device(self):
        """A copy on the device."""
        _C.cut()  # the device computes this meanwhile; and what it has used is freed, so that there are never more than a few copies
        return self._host.moved(self._device) if isinstance(self._host, PackedWeight) else self._host.to(self._device)


def on_device(weight):
    """The weight as a product needs it."""
    return weight.on_device() if isinstance(weight, HostWeight) else weight


def to_host(weight):
    """The weight in host memory, if it is a matrix, or a stack of them."""
    return weight if weight is None or isinstance(weight, HostWeight) or len(weight.shape) < 2 else HostWeight(weight)
