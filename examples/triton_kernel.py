"""A Triton kernel on PyFlame's tensors: a row-wise softmax, compared with PyFlame's.

    pip install triton                               (on AMD GPUs also PyTorch for ROCm, which Triton asks for the GPU)
    python examples/triton_kernel.py
    python examples/triton_kernel.py --rows 4096 --columns 1000

Triton takes any object with data_ptr() and dtype as a pointer, so PyFlame's tensors are arguments as they are. PyFlame and Triton queue their work in
different streams, and neither knows of the other's. Hence the order in triton_softmax(): pf.synchronize() waits until PyFlame has computed what the
kernel reads, and wait_for_triton() until the kernel has written what PyFlame reads next.

Without Triton or a GPU it says what is missing and ends.
"""
# ci: --rows 64 --columns 100
import argparse
import ctypes
import sys

import pyflame as pf

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None


def missing(device):
    """What is not there; None if the kernel can run."""
    if triton is None:
        return "Triton is not installed: pip install triton"
    if device is None:
        return "there is no GPU that PyFlame can use; pf.rocm_unavailable_reason() and pf.cuda_unavailable_reason() say why"
    if device == "rocm":
        try:
            import torch  # noqa: F401
        except ImportError:
            return "Triton asks PyTorch for AMD GPUs, and PyTorch is not installed"
    return None


def kernel_of_softmax():
    @triton.jit
    def softmax(x, out, columns, BLOCK: tl.constexpr):  # a program for each row
        at = tl.arange(0, BLOCK)
        first = tl.program_id(0).to(tl.int64) * columns
        row = tl.load(x + first + at, mask=at < columns, other=-float("inf")).to(tl.float32)
        e = tl.exp(row - tl.max(row, axis=0))
        tl.store(out + first + at, e / tl.sum(e, axis=0), mask=at < columns)

    return softmax


def wait_for_triton():
    """Returns when the GPU has done everything that was queued, in whichever stream."""
    if "torch" in sys.modules:  # then Triton's stream is PyTorch's
        sys.modules["torch"].cuda.synchronize()
        return
    status = ctypes.CDLL("libcuda.so.1").cuCtxSynchronize()
    if status != 0:
        raise RuntimeError(f"triton_kernel: the GPU did not finish; got CUDA's status {status}; expected 0")


def triton_softmax(kernel, x):
    """The softmax of each row of x, a matrix on a GPU."""
    x = x.detach().contiguous()  # the kernel takes elements in a row as neighbours
    out = pf.empty_like(x)
    rows, columns = x.shape
    pf.synchronize()  # what PyFlame queued is done, and both tensors have their memory
    kernel[(rows,)](x, out, columns, BLOCK=triton.next_power_of_2(columns))
    wait_for_triton()  # what follows reads what the kernel has written
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--columns", type=int, default=1000)
    arguments = parser.parse_args()
    device = "rocm" if pf.rocm_is_available() else "cuda" if pf.cuda_is_available() else None
    if what := missing(device):
        print(f"The kernel is not run: {what}.")
        return 0
    pf.manual_seed(0)
    x = pf.randn(arguments.rows, arguments.columns, device=device) * 3  # PyFlame's work before the kernel
    y = triton_softmax(kernel_of_softmax(), x)
    error = (y - pf.softmax(x, dim=-1)).abs().max().item()  # and after it
    print(f"{pf.device_info(device)['name']}: the largest difference from PyFlame's softmax is {error:.2g}")
    return 0 if error < 1e-5 else 1


if __name__ == "__main__":
    sys.exit(main())
