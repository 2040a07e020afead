"""Rules about settings: when they are read, how they are written, and names that do nothing."""
import re

from .registry import rule
from .values import text_of

# When settings are read that are read only once. The first pattern that matches counts.
READ_ONCE = (
    (re.compile(r"VLLM_|NCCL_SOCKET_NTHREADS$"), None),
    (re.compile(r"(HIP|CUDA|ROCR)_VISIBLE_DEVICES$|GPU_DEVICE_ORDINAL$|(HIP|HSA|HSAKMT|AMD|GPU(?!_ARCHS|_TARGETS)|ROC|DEBUG_CLR|DEBUG_HIP)_|CUDA_LAUNCH_BLOCKING$|CUDA_DEVICE_ORDER$"), "gpu"),
    (re.compile(r"PYTORCH_(HIP_|CUDA_)?ALLOC_CONF$|PYTORCH_NO_(HIP|CUDA)_MEMORY_CACHING$|TORCH_BLAS_PREFER_HIPBLASLT$|TORCH_ROCM_"), "gpu"),
    (re.compile(r"TORCH_LOGS$|TORCH_COMPILE_DEBUG$|(OMP|MKL|OPENBLAS)_NUM_THREADS$|KMP_|GOMP_"), "import"),
    (re.compile(r"TORCHINDUCTOR_|TORCHDYNAMO_|TRITON_"), "compile"),
    (re.compile(r"(TORCH_)?(NCCL|RCCL)_"), "group"),
    (re.compile(r"MIOPEN_|ROCBLAS_|HIPBLASLT_|TENSILE_|PYTORCH_TUNABLEOP_|PYTORCH_MIOPEN_"), "launch"),
)


@rule("LINT-08")
def set_too_late(lint, node, name):
    """An environment variable is set at `node`. `lint.moments` has the lines where torch was imported, the GPU was started and so on."""
    when = next((w for pattern, w in READ_ONCE if pattern.match(name)), None)
    if when is None:
        return
    imported, gpu = lint.moments["import"], lint.moments["gpu"]
    if when == "gpu" and gpu:
        lint.report("LINT-08", node, f"{name} is set after the GPU was started at line {gpu}, so it is ignored: it is read at the start",
                    "set it before the first `import torch`, or in the shell that starts the program")
    elif when in ("gpu", "import") and imported is not None:
        where = f"at line {imported}" if imported else "before this code"
        lint.report("LINT-08", node, f"{name} is set after torch was imported {where}: torch and the GPU runtime read it when they start, so it may be ignored",
                    "set it before the first `import torch`, or in the shell that starts the program")
    elif when in ("compile", "group", "launch") and lint.moments[when]:
        what = {"compile": "torch.compile was called", "group": "the process group was made", "launch": "the first work was given to the GPU"}[when]
        lint.report("LINT-08", node, f"{name} is set after {what} at line {lint.moments[when]}: it is read only before that",
                    "set it before the first `import torch`, or in the shell that starts the program")


@rule("LINT-13")
def exported_command(lint, n, command):
    """`command` is a command for a shell."""
    for part in re.split(r"[;\n]|&&|\|\|", command.const[:20000] if isinstance(command.const, str) else ""):
        words = part.split()
        if len(words) > 2 and words[0] == "export" and re.match(r"[A-Za-z_]\w*=", words[1]):
            program = next((w for w in words[2:] if not re.match(r"[A-Za-z_]\w*(=|$)", w) or re.match(r"[a-z][a-z0-9_]*$", w)), None)
            if program and not program.startswith(("#", "|", "&", ">", "\"", "'")):
                lint.report("LINT-13", n, f"`export {words[1]} {program} …` runs nothing: the shell treats {program} as the name of a variable",
                            f"write {words[1]} {program} … (without export), or export on a line of its own")


@rule("LINT-14")
def removed_provider(lint, n):
    if n.value == "ROCMExecutionProvider":
        lint.report("LINT-14", n, "ONNX Runtime has removed ROCMExecutionProvider: the program runs on the CPU, without a message",
                    'use "MIGraphXExecutionProvider", and check session.get_providers()')


@rule("LINT-14")
def no_such_pool(lint, n, name):
    lint.report("LINT-14", n, f"PyTorch has no torch.cuda.{name}",
                "use torch.cuda.MemPool with torch.cuda.use_mem_pool, or torch.cuda.memory.change_current_allocator")


@rule("LINT-14")
def autotune_attribute(lint, target, base):
    if base.dotted == "torch._inductor.config.max_autotune":
        lint.report("LINT-14", target, f"torch._inductor.config.max_autotune is True or False and has no {target.attr}",
                    f"write torch._inductor.config.max_autotune_{target.attr}")


@rule("ENV-63")
def split_size_attribute(lint, target, base, n):
    if base.kind == "name" and target.attr == "max_split_size_mb" and base.dotted.split(".")[0] == "torch":
        lint.report("ENV-63", target, f"{base.dotted}.{target.attr} = {text_of(n.value) if hasattr(n, 'value') else '…'} sets an attribute that nothing reads",
                    "set PYTORCH_HIP_ALLOC_CONF=max_split_size_mb:… before torch is imported, or delete the line")


@rule("ENV-63")
def split_size_setattr(lint, n, dotted):
    lint.report("ENV-63", n, f"setattr sets {dotted}.max_split_size_mb, an attribute that nothing reads",
                "set PYTORCH_HIP_ALLOC_CONF=max_split_size_mb:… before torch is imported, or delete the line")
