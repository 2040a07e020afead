"""Words of PyTorch, and what they mean to the rules."""
import re

SIZES = {"float64": 8, "double": 8, "float32": 4, "float": 4, "float16": 2, "half": 2, "bfloat16": 2, "int8": 1, "uint8": 1,
         "int32": 4, "int64": 8, "long": 8, "float8_e4m3fn": 1, "float8_e4m3fnuz": 1, "float8_e5m2": 1, "float8_e5m2fnuz": 1}
# What a name means in a fragment of a program that does not define it.
CONVENTIONS = {"torch": "torch", "nn": "torch.nn", "F": "torch.nn.functional", "dist": "torch.distributed", "os": "os", "time": "time",
               "np": "numpy", "subprocess": "subprocess", "GradScaler": "torch.cuda.amp.GradScaler", "autocast": "torch.cuda.amp.autocast",
               "DDP": "torch.nn.parallel.DistributedDataParallel", "DataLoader": "torch.utils.data.DataLoader"}
IMPORTS_TORCH = {"torch", "torchvision", "torchaudio", "lightning", "pytorch_lightning", "timm", "deepspeed", "accelerate", "vllm"}
CLOCKS = {"time.time", "time.perf_counter", "time.monotonic", "time.process_time", "time.time_ns", "time.perf_counter_ns",
          "time.monotonic_ns", "timeit.default_timer", "datetime.datetime.now", "datetime.datetime.utcnow"}
FACTORIES = {"tensor", "as_tensor", "zeros", "ones", "empty", "full", "rand", "randn", "randint", "randperm", "arange", "linspace",
             "logspace", "eye", "normal", "from_numpy"}
LIKE = {"zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "randint_like"}
INIT = {"zeros": "zeros", "zeros_like": "zeros", "ones": "ones", "ones_like": "ones", "full": "one value", "full_like": "one value",
        "zero_": "zeros", "fill_": "one value", "new_zeros": "zeros", "new_ones": "ones", "new_full": "one value"}
GEMMS = {"matmul", "mm", "bmm", "addmm", "baddbmm", "linear", "_scaled_mm", "einsum", "_grouped_mm", "dot", "mv"}
# Methods of a tensor that wait for the GPU, and methods that launch nothing.
WAITS = {"item", "tolist", "cpu", "numpy", "nonzero", "is_nonzero", "__bool__"}
VIEWS = {"size", "dim", "view", "reshape", "t", "transpose", "numel", "data_ptr", "stride", "is_contiguous", "detach", "expand", "permute",
         "squeeze", "unsqueeze", "element_size", "requires_grad_", "get_device", "storage_offset", "type_as", "unbind", "chunk", "split",
         "flatten", "nelement", "backward_hooks", "register_hook", "view_as", "unflatten", "movedim", "swapaxes", "swapdims"}
# Functions of torch.cuda that do not start the GPU.
QUIET = ("amp", "Event", "Stream", "CUDAGraph", "is_initialized", "manual_seed", "manual_seed_all", "nvtx", "empty_cache", "device",
         "is_bf16_supported_doc", "graphs", "profiler", "jiterator", "OutOfMemoryError", "CUDAGraphs", "random")
MODELISH = re.compile(r"(^|_)(model|net|network|module|layer|encoder|decoder|unet|vae|transformer|llm)\d*$|^(fn|func|kernel|op|forward|generate)$", re.I)
MAKER = re.compile(r"_*(pre)?(compile|load|get|make|build|create|init|save|read|write|parse|check|is|has|set|add|register|find)(_|$)", re.I)
STEPISH = re.compile(r"(^|_)(step|steps|batch|batches|iter|iteration|it|idx|i|batch_idx|batch_index|global_step)$", re.I)
LOADERISH = re.compile(r"load|batch(?!_?size)|data|(^|_)dl$|samples|sampler", re.I)
SYNCISH = re.compile(r"sync|barrier|block_until_ready|wait", re.I)
