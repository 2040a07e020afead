"""Rules about training: precision, several GPUs, compilation, gradients."""
from .registry import rule
from .values import UNKNOWN, text_of

BROAD = {"builtins.Exception", "builtins.BaseException", "builtins.RuntimeError"}


@rule("LINT-04")
def scaler_with_bfloat16(lint):
    """Checked over the whole file, because scaler and autocast are rarely in one function."""
    kinds = {dtype for _, _, dtype in lint.autocasts}
    for node, frame, enabled in lint.scalers:
        if not enabled or not lint.autocasts:
            continue
        near = {dtype for _, f, dtype in lint.autocasts if f is frame and frame in lint.sides}
        if kinds == {"bfloat16"} or near == {"bfloat16"}:
            lint.report("LINT-04", node, "a GradScaler with bfloat16 autocast: bfloat16 has the exponent range of float32, so nothing underflows, and the check for infinities costs time in each step",
                        "delete the scaler: loss.backward(); optimizer.step()")


@rule("LINT-05")
def autocast_with_device(lint, n, args, kw):
    if "device_type" in kw or bool(args) and isinstance(args[0].const, str):
        what = "takes no device_type: it raises TypeError" if "device_type" in kw else "takes `enabled` as its first argument, so the name of the device is used for that"
        lint.report("LINT-05", n, f"torch.cuda.amp.autocast {what}", 'write torch.autocast("cuda", dtype=…)')


@rule("LINT-06")
def data_parallel(lint, n, args, kw):
    ids = kw.get("device_ids", args[1] if len(args) > 1 else UNKNOWN)
    if ids.kind == "tuple" and len(ids.users) == 1:
        detail = f"DataParallel is given the one device {text_of(next((k.value for k in n.keywords if k.arg == 'device_ids'), n.args[1] if len(n.args) > 1 else n))}: only one GPU works, and the wrapper costs time"
    else:
        detail = "DataParallel copies the model to each GPU in every step, from one Python process"
    lint.report("LINT-06", n, detail, "use torch.nn.parallel.DistributedDataParallel with a process per GPU (torchrun --nproc_per_node=…)")


def catches_compilation(kinds, body_raises):
    """Whether an except clause for these exceptions is meant for a failed compilation."""
    return not body_raises and any(k in BROAD or k.startswith("torch._dynamo") for k in kinds)


@rule("LINT-07")
def compile_in_try(lint, compiled, entries):
    """`compiled`: calls of torch.compile inside a try whose except would catch its failure; `entries`: what the try does."""
    for node, value in compiled:
        if not any(any(o is value for o in e.operands) for e in entries):
            lint.report("LINT-07", node, "torch.compile only wraps the model. It compiles at the first call, outside of this try, so the except clause never sees a failed compilation",
                        "call the compiled model once inside the try, or set torch._dynamo.config.suppress_errors = True for a fallback to eager")


@rule("ENV-64")
def backward_without_gradients(lint, f, node):
    """A step of training while gradients are switched off in this function or in the module."""
    if lint.grad_off is None:
        return
    off, frame = lint.grad_off
    if frame is f or frame is lint.module:
        lint.report("ENV-64", off, f"gradients are switched off here for the whole thread, and line {node.lineno} calls backward: it raises an error, or the model learns nothing",
                    "delete it; write `with torch.inference_mode():` around inference only")
        lint.grad_off = None


@rule("ENV-98")
def gloo_on_gpu(lint, f, n, backend):
    if isinstance(backend, str) and backend.lower() == "gloo" and lint.on_gpu and not lint.cpu_branch(f):
        lint.report("ENV-98", n, "the gloo backend in a program that uses the GPU: its collectives go through host memory",
                    'use backend="nccl" (RCCL on AMD GPUs), or "cpu:gloo,cuda:nccl" for both')
