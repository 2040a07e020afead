"""Modules on several devices, by PyTorch's names."""
from .. import _C, _refused
from .._notes import once
from .module import Module

_ADVICE = "training with several processes comes later; run one process"
DistributedDataParallel = _refused.cls("nn.parallel.DistributedDataParallel", _ADVICE)


class DataParallel(Module):
    """The module itself, as `.module`, with PyTorch's names in the state dict. It computes on one device, which is noted once where there are several GPUs."""

    def __init__(self, module, device_ids=None, output_device=None, dim=0):
        super().__init__()
        self.module = module
        self.device_ids, self.output_device, self.dim = device_ids or [], output_device, dim
        if max(_C.rocm_device_count(), _C.cuda_device_count()) > 1:
            once("nn.DataParallel", "computes on one GPU; a larger batch with gradient accumulation, or one process on each GPU for separate runs, uses more")

    def forward(self, *inputs, **kwargs):
        return self.module(*inputs, **kwargs)


def data_parallel(module, inputs, device_ids=None, output_device=None, dim=0, module_kwargs=None):
    """Calls the module, on one device."""
    return module(*(inputs if isinstance(inputs, tuple) else (inputs,)), **(module_kwargs or {}))
