"""Calls of PyTorch."""
import ast

from .names import FACTORIES, GEMMS, INIT, LIKE, QUIET, VIEWS, WAITS
from .rules_memory import cache_emptied_in_steps
from .rules_settings import no_such_pool
from .rules_tensors import edges_as_bins, rows_on_one_channel
from .rules_training import autocast_with_device, data_parallel, gloo_on_gpu
from .values import Entry, UNKNOWN, V, device_is_gpu, flipped, text_of


class TorchCalls:
    """Follows calls of PyTorch; part of Lint."""

    def call_torch(self, f, n, name, args, kw):
        rest = name[6:]
        last = rest.split(".")[-1]
        first = args[0] if args else UNKNOWN
        if rest.startswith("cuda."):
            if not rest[5:].startswith(QUIET):
                self.moment("gpu", n)
            special = self.call_cuda(f, n, rest[5:], args, kw)
            if special is not None:
                return special
        if last == "autocast" and rest in ("autocast", "amp.autocast", "cuda.amp.autocast", "amp.autocast_mode.autocast", "cuda.amp.autocast_mode.autocast"):
            return self.autocast(f, n, rest, args, kw)
        if last == "GradScaler":
            enabled = kw.get("enabled", V("const", const=True))
            self.scalers.append((n, f, enabled.const is True))
            return V("scaler", node=n)
        if rest in ("set_grad_enabled", "autograd.set_grad_enabled", "autograd.grad_mode.set_grad_enabled"):
            return V("grad_mode", const=first.const if args else kw.get("mode", UNKNOWN).const)
        if rest in ("enable_grad", "autograd.enable_grad"):
            return V("grad_mode", const=True)
        if last == "DataParallel" and rest.startswith("nn."):
            data_parallel(self, n, args, kw)
            return V("module", gpu=first.gpu if args else None)
        if rest == "compile":
            self.moment("compile", n)
            model = first if args else kw.get("model", UNKNOWN)
            value = V("module", gpu=model.gpu, node=n)
            if f.tries:
                f.compiled.append((n, value))
            return value
        if rest in ("distributed.init_process_group",):
            self.moment("group", n)
            backend = kw.get("backend", first).const
            gloo_on_gpu(self, f, n, backend)
            return UNKNOWN
        if rest in ("accelerator.synchronize", "distributed.barrier", "distributed.monitored_barrier"):
            self.wait(f, n)
            return UNKNOWN
        if rest == "device":
            return V("device", gpu=self.device_of(first))
        if rest in ("autograd.backward", "autograd.grad"):
            self.trains(f, n)
            return UNKNOWN
        if rest.startswith("optim."):
            return V("optimizer") if not rest.startswith("optim.lr_scheduler") else UNKNOWN
        if rest == "utils.data.DataLoader":
            return V("loader")
        if rest.startswith("nn.") and not rest.startswith(("nn.functional.", "nn.init.", "nn.utils.", "nn.parallel.")) and last[:1].isupper():
            on = self.device_of(kw["device"]) if "device" in kw else None
            return V("module", gpu=on) if last != "Parameter" else first
        if rest == "nn.parallel.DistributedDataParallel":
            return V("module", gpu=first.gpu)
        if last in ("load", "load_state_dict", "save", "manual_seed", "set_default_device", "set_default_dtype", "no_grad", "inference_mode", "is_tensor", "Size"):
            return UNKNOWN
        if rest.startswith(("profiler.", "utils.", "backends.", "distributed.", "multiprocessing.", "_dynamo.", "_inductor.", "_logging.", "version.", "jit.", "fx.", "export.", "cuda.", "library.")):
            return UNKNOWN
        return self.torch_op(f, n, rest, last, args, kw)

    def call_cuda(self, f, n, rest, args, kw):
        """Functions of torch.cuda. None for a function that is no special case."""
        if rest in ("memory.MemoryPool", "MemoryPool", "memory.set_allocator", "set_allocator"):
            no_such_pool(self, n, rest)
            return UNKNOWN
        if rest == "Event":
            return V("event")
        if rest == "synchronize":
            self.wait(f, n)
            return UNKNOWN
        if rest == "empty_cache":
            if not f.conditions:
                f.trace.append(Entry("empty", n, tuple(f.loops)))
            cache_emptied_in_steps(self, f, n)
            return UNKNOWN
        if rest == "mem_get_info" or rest == "memory.mem_get_info":
            return V("mem_info")
        if rest in ("memory_reserved", "memory_allocated", "max_memory_reserved", "max_memory_allocated", "memory_cached"):
            return V("memused")
        if rest in ("memory_stats", "memory.memory_stats"):
            return V("memstats")
        if rest in ("current_stream", "Stream", "default_stream"):
            return V("stream")
        return None

    def device_of(self, v):
        """True on a GPU, False on another device, None if it is not known."""
        if v is None or v.kind == "const" and v.const is None:
            return None
        gpu = device_is_gpu(v)
        return gpu if gpu is not None else (True if self.on_gpu else None)

    def cpu_branch(self, f):
        """Inside of `if not torch.cuda.is_available()`, or the else of it."""
        return any("is_available" in text_of(c, 400) and isinstance(c, ast.UnaryOp) for c in f.conditions)

    def autocast(self, f, n, rest, args, kw):
        dtype = kw.get("dtype", args[1] if len(args) > 1 and not rest.startswith("cuda") else UNKNOWN)
        enabled = kw.get("enabled", V("const", const=True)).const
        given = "dtype" in kw or len(args) > 1 and not rest.startswith("cuda")
        if enabled is not False:
            self.autocasts.append((n, f, dtype.dtype if given else "float16"))
        if rest.startswith("cuda."):
            autocast_with_device(self, n, args, kw)
        return UNKNOWN

    def torch_op(self, f, n, rest, last, args, kw):
        first = args[0] if args else kw.get("input", UNKNOWN)
        if last in FACTORIES or last in LIKE:
            return self.factory(f, n, last, args, kw, first)
        if last in ("bucketize", "searchsorted"):
            edges = (kw.get("boundaries") or (args[1] if len(args) > 1 else UNKNOWN)) if last == "bucketize" else (kw.get("sorted_sequence") or first)
            gpu = True if any(a.gpu for a in args) else first.gpu
            self.launch(f, n, last, V(gpu=gpu), tuple(args))
            if edges.kind == "tensor" and edges.count is not None:
                return V("bins", node=n, count=edges.count, gpu=gpu)
            return V("tensor", gpu=gpu)
        if last == "histc":
            self.launch(f, n, last, first, tuple(args))
            bins = n.args[1] if len(n.args) > 1 else next((k.value for k in n.keywords if k.arg == "bins"), None)
            return V("tensor", gpu=first.gpu, shape=(self.extent(f, bins) if bins is not None else 100,))
        if last in GEMMS:
            operands = args[1:] if last in ("addmm", "baddbmm", "einsum") else args
            a, b = (list(operands) + [UNKNOWN, UNKNOWN])[:2]
            return self.gemm(f, n, last, a, b)
        tensors = [a for a in args + list(kw.values()) if a.kind in ("tensor", "moved")]
        tensors += [u for a in args if a.kind == "tuple" for u in a.users if u.kind in ("tensor", "moved")]
        if not tensors:
            return V("tensor") if last[:1].islower() else UNKNOWN
        gpu = True if any(t.gpu for t in tensors) else tensors[0].gpu
        if last in ("equal", "allclose", "is_nonzero"):
            self.wait(f, n)
            return UNKNOWN
        value = V("tensor", gpu=gpu, shape=tensors[0].shape if last in ("relu", "exp", "sqrt", "abs", "clone", "sigmoid", "tanh") else None, dtype=tensors[0].dtype)
        if last in ("transpose", "t") and first.kind == "tensor":
            return first.but(turned=not first.turned, shape=flipped(first.shape))
        self.launch(f, n, last, value, tuple(tensors), deep=last in ("scaled_dot_product_attention", "conv2d", "conv1d", "conv3d"))
        return value

    def factory(self, f, n, last, args, kw, first):
        if last in LIKE:
            gpu, shape, dtype = first.gpu, first.shape, first.dtype
        else:
            gpu, dtype = False, "float32"
            if last in ("linspace", "logspace", "arange"):
                shape = None
            elif last in ("tensor", "as_tensor", "from_numpy", "normal"):
                shape, dtype = None, None
                gpu = first.gpu if last == "as_tensor" and first.kind == "tensor" else False
            else:
                sizes = n.args[:1] if last == "full" else n.args[2:] if last == "randint" and len(n.args) > 2 else n.args[1:] if last == "randint" else n.args
                sizes = next((k.value for k in n.keywords if k.arg == "size"), None) or (sizes[0] if len(sizes) == 1 and isinstance(sizes[0], (ast.Tuple, ast.List)) else sizes)
                sizes = sizes.elts if isinstance(sizes, (ast.Tuple, ast.List)) else sizes if isinstance(sizes, list) else [sizes]
                known = not (len(sizes) == 1 and isinstance(sizes[0], ast.BinOp) and any(isinstance(x, ast.Tuple) for x in ast.walk(sizes[0])))
                shape = tuple(self.extent(f, s) for s in sizes) or None if known else None  # (n,) + other.shape
        if "device" in kw:
            gpu = self.device_of(kw["device"])
        if "dtype" in kw:
            dtype = kw["dtype"].dtype
        count = None
        if last == "linspace":
            steps = n.args[2] if len(n.args) > 2 else next((k.value for k in n.keywords if k.arg == "steps"), None)
            count = self.extent(f, steps) if steps is not None else None
            shape = (count,)
        value = V("tensor", gpu=gpu, shape=shape, dtype=dtype, init=INIT.get(last), count=count)
        if gpu:
            self.moment("gpu", n)
            if last not in ("empty", "empty_like"):  # nothing is written
                self.launch(f, n, last, value)
        return value

    def gemm(self, f, n, key, a, b):
        gpu = True if a.gpu or b.gpu else a.gpu if a.kind == "tensor" else b.gpu
        value = V("tensor", gpu=gpu, dtype=a.dtype or b.dtype)
        self.launch(f, n, "gemm " + key, value, (a, b), deep=True)
        for loop in f.loops:
            loop.works = True
        if gpu:
            rows_on_one_channel(self, n, key, a, b)
        return value

    def moved(self, f, n, base, attr, args, kw):
        kind = base.kind if base.kind in ("tensor", "module") else "moved"
        if attr == "cuda":
            self.moment("gpu", n)
            return base.but(kind=kind, gpu=True)
        if attr != "to":
            return base.but(kind=kind, dtype={"half": "float16", "float": "float32", "double": "float64"}.get(attr, attr))
        dtype = kw.get("dtype", next((a for a in args if a.dtype and a.kind == "name"), UNKNOWN)).dtype
        where = kw.get("device") or next((a for a in args if not (a.dtype and a.kind == "name")), None)
        if where is None:
            return base.but(kind=kind, dtype=dtype or base.dtype) if dtype else base.but(kind=kind)
        gpu = where.gpu if where.kind == "tensor" else self.device_of(where)
        if gpu:
            self.moment("gpu", n)
        if gpu is False and base.kind != "module":
            self.wait(f, n)
        return base.but(kind=kind, gpu=gpu, dtype=dtype or base.dtype)

    def tensor_method(self, f, n, base, attr, args, kw):
        gpu = base.gpu
        if attr in WAITS:
            if gpu is not False:
                self.wait(f, n)
            return V("tensor", gpu=False) if attr in ("cpu", "nonzero") else UNKNOWN
        if attr in ("t", "transpose") and base.kind == "tensor":
            return base.but(turned=not base.turned, shape=flipped(base.shape))
        if attr in ("size", "numel", "nelement", "dim"):
            return V("extent", base=base)
        if attr in VIEWS or attr in ("contiguous", "clone"):
            return base if attr in ("detach", "contiguous", "clone", "requires_grad_") else V("tensor", gpu=gpu, dtype=base.dtype)
        if attr in ("matmul", "mm", "bmm"):
            return self.gemm(f, n, attr, base, args[0] if args else UNKNOWN)
        if attr in ("zero_", "fill_") and isinstance(n.func, ast.Attribute) and isinstance(n.func.value, ast.Name):
            f.names[n.func.value.id] = base.but(init=INIT[attr])
        elif attr in ("normal_", "uniform_", "random_", "copy_") and isinstance(n.func, ast.Attribute) and isinstance(n.func.value, ast.Name):
            f.names[n.func.value.id] = base.but(init=None)
        for a in args:
            if a.kind == "bins" and attr in ("index_add_", "index_add", "scatter_add_", "scatter_add", "index_copy_", "index_put_", "scatter_") and a.count is not None and base.shape and base.shape[0] == a.count:
                edges_as_bins(self, a, n.func.value, base)
        self.launch(f, n, attr, base, (base, *args))
        return V("tensor", gpu=gpu, dtype=base.dtype, init=INIT.get(attr))
