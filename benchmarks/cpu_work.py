"""The workloads of compare_torch.py on the CPU: each is written once, for both frameworks, and returns a function that does one step."""
import os


# ---------------------------------------------------------------- the frameworks
class Torch:
    """Eager at its fastest settings, or torch.compile of the models."""

    def __init__(self, threads, compiled=False):
        import torch

        self.m, self.nn, self.F, self.compiled = torch, torch.nn, torch.nn.functional, compiled
        torch.set_num_threads(threads)
        torch.manual_seed(0)
        self.version = torch.__version__

    def sync(self):
        pass

    def module(self, model):
        return self.m.compile(model) if self.compiled else model

    def function(self, f):
        return self.m.compile(f) if self.compiled else f

    def adam(self, params, fused=True, **kw):
        return self.m.optim.Adam(params, fused=fused, **kw)

    def adamw(self, params, **kw):
        return self.m.optim.AdamW(params, fused=True, **kw)

    def images(self, x):  # an image batch or a network of convolutions, in the layout that is fastest
        return x.to(memory_format=self.m.channels_last)

    def make_cache(self, heads, length, size):
        return self.m.zeros(1, heads, length, size), self.m.zeros(1, heads, length, size)

    def cached_attention(self, q, k, v, cache, position):
        end = position + q.shape[2]
        cache[0][:, :, position:end] = k
        cache[1][:, :, position:end] = v
        return self.F.scaled_dot_product_attention(q, cache[0][:, :, :end], cache[1][:, :, :end], is_causal=q.shape[2] > 1)


class PyFlame:
    def __init__(self, threads):
        os.environ.setdefault("PYFLAME_NUM_THREADS", str(threads))
        import pyflame

        self.m, self.nn, self.F = pyflame, pyflame.nn, pyflame.nn.functional
        pyflame.manual_seed(0)
        self.version = pyflame.__version__

    def sync(self):
        self.m.synchronize()

    def module(self, model):
        return model

    def function(self, f):
        return f

    def adam(self, params, fused=True, **kw):
        return self.m.optim.Adam(params, **kw)

    def adamw(self, params, **kw):
        return self.m.optim.AdamW(params, **kw)

    def images(self, x):  # a network keeps its weights as they are: they are turned as they are packed
        return x.contiguous(memory_format=self.m.channels_last) if isinstance(x, self.m.Tensor) else x

    def make_cache(self, heads, length, size):
        return self.m.zeros(1, heads, length, size), self.m.zeros(1, heads, length, size)

    def cached_attention(self, q, k, v, cache, position):
        end = position + q.shape[2]
        cache[0][:, :, position:end] = k
        cache[1][:, :, position:end] = v
        return self.F.scaled_dot_product_attention(q, cache[0], cache[1], is_causal=True, kv_length=end)


# ---------------------------------------------------------------- models
def make_gpt(fw, vocab=65, n_layer=4, n_head=4, n_embd=128, block=64):
    nn, F = fw.nn, fw.F

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1 = nn.LayerNorm(n_embd)
            self.qkv = nn.Linear(n_embd, 3 * n_embd)
            self.proj = nn.Linear(n_embd, n_embd)
            self.ln_2 = nn.LayerNorm(n_embd)
            self.fc = nn.Linear(n_embd, 4 * n_embd)
            self.out = nn.Linear(4 * n_embd, n_embd)

        def heads(self, x):
            b, t, _ = x.shape
            q, k, v = self.qkv(x).split(n_embd, dim=2)
            return [z.view(b, t, n_head, n_embd // n_head).transpose(1, 2) for z in (q, k, v)]

        def forward(self, x, cache=None, position=0):
            b, t, _ = x.shape
            q, k, v = self.heads(self.ln_1(x))
            if cache is None:
                y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            else:
                y = fw.cached_attention(q, k, v, cache, position)
            x = x + self.proj(y.transpose(1, 2).reshape(b, t, n_embd))
            return x + self.out(F.gelu(self.fc(self.ln_2(x))))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte = nn.Embedding(vocab, n_embd)
            self.wpe = nn.Embedding(block, n_embd)
            self.blocks = nn.ModuleList([Block() for _ in range(n_layer)])
            self.ln_f = nn.LayerNorm(n_embd)
            self.head = nn.Linear(n_embd, vocab)

        def forward(self, index, caches=None, position=0):
            t = index.shape[1]
            x = self.wte(index) + self.wpe(fw.m.arange(position, position + t, device=index.device))
            for i, b in enumerate(self.blocks):
                x = b(x, None if caches is None else caches[i], position)
            return self.head(self.ln_f(x))

    return GPT()


def make_basic_block(fw):
    nn, F = fw.nn, fw.F

    class BasicBlock(nn.Module):
        def __init__(self, inputs, outputs, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
            self.bn1 = nn.BatchNorm2d(outputs)
            self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
            self.bn2 = nn.BatchNorm2d(outputs)
            self.short = None
            if stride != 1 or inputs != outputs:
                self.short = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs))

        def forward(self, x):
            y = F.relu(self.bn1(self.conv1(x)))
            return F.relu(self.bn2(self.conv2(y)) + (x if self.short is None else self.short(x)))

    return BasicBlock


def make_resnet18(fw):
    nn, F, Block = fw.nn, fw.F, make_basic_block(fw)

    class ResNet18(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
            self.bn1 = nn.BatchNorm2d(64)
            layers, width = [], 64
            for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
                layers += [Block(width, outputs, stride), Block(outputs, outputs, 1)]
                width = outputs
            self.layers = nn.Sequential(*layers)
            self.fc = nn.Linear(512, 1000)

        def forward(self, x):
            x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, stride=2, padding=1)
            return self.fc(self.layers(x).mean((2, 3)))

    return ResNet18()


# ---------------------------------------------------------------- work
def training(fw, model, opt, loss_of, clip=False):
    model_ = fw.module(model)

    def step():
        loss = loss_of(model_)
        opt.zero_grad()
        loss.backward()
        if clip:
            fw.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        return loss

    return step


def without_grad(fw, f):
    f = fw.function(f)

    def call():
        with fw.m.no_grad():
            return f()

    return call


def mlp(fw, fused=True):
    nn = fw.nn
    model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
    x, y = fw.m.randn(32, 784), fw.m.randint(0, 10, (32,))
    return training(fw, model, fw.adam(model.parameters(), fused=fused, lr=1e-3), lambda m: fw.F.cross_entropy(m(x), y))


def mlp_norm(fw):
    nn = fw.nn
    model = nn.Sequential(nn.Linear(64, 128), nn.SiLU(), nn.LayerNorm(128), nn.Linear(128, 64), nn.SiLU(), nn.LayerNorm(64), nn.Linear(64, 1))
    x, y = fw.m.randn(64, 64), fw.m.randn(64, 1)
    return training(fw, model, fw.adam(model.parameters(), lr=1e-3), lambda m: fw.F.mse_loss(m(x), y))


def lenet(fw):
    """A LeNet-like network on batches of the size of MNIST's images."""
    nn = fw.nn
    model = fw.images(nn.Sequential(nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 5), nn.ReLU(), nn.MaxPool2d(2),
                                    nn.Flatten(), nn.Linear(32 * 5 * 5, 128), nn.ReLU(), nn.Linear(128, 10)))
    x, y = fw.images(fw.m.randn(64, 1, 28, 28)), fw.m.randint(0, 10, (64,))
    return training(fw, model, fw.adam(model.parameters(), lr=1e-3), lambda m: fw.F.cross_entropy(m(x), y))


def resnet18(fw, train):
    model = fw.images(make_resnet18(fw))
    x, y = fw.images(fw.m.randn(8, 3, 224, 224)), fw.m.randint(0, 1000, (8,))
    if train:
        return training(fw, model, fw.adamw(model.parameters(), lr=1e-3), lambda m: fw.F.cross_entropy(m(x), y))
    model.eval()
    return without_grad(fw, lambda: model(x))


def gpt_train(fw):
    model = make_gpt(fw)
    x, y = fw.m.randint(0, 65, (12, 64)), fw.m.randint(0, 65, (12, 64))
    return training(fw, model, fw.adamw(model.parameters(), lr=1e-3), lambda m: fw.F.cross_entropy(m(x).view(-1, 65), y.view(-1)), clip=True)


def gpt_generate(fw):
    """Greedy, 60 tokens after a prompt of 4; reads every token, as a user who streams does."""
    model = make_gpt(fw)
    model.eval()
    prompt = fw.m.randint(0, 65, (1, 4))

    def tokens():
        with fw.m.inference_mode():
            caches = [fw.make_cache(4, 64, 32) for _ in range(4)]
            index, position = prompt, 0
            for _ in range(60):
                logits = model(index, caches, position)
                position += index.shape[1]
                index = fw.m.tensor([[int(logits[0, -1].argmax().item())]])
        return index

    return tokens


def embedding_step(fw):
    """Rows of a table taken twice, embedding and gather, with the table's gradient and an update."""
    table = fw.nn.Embedding(32768, 256)
    index, columns = fw.m.randint(0, 32768, (4096,)), fw.m.randint(0, 256, (4096, 64))
    opt = fw.m.optim.SGD(table.parameters(), lr=0.1)
    return training(fw, table, opt, lambda m: m(index).gather(1, columns).square().mean())


def gelu_chain(fw):
    x, w, b, r = (fw.m.randn(16 << 20) for _ in range(4))
    return without_grad(fw, lambda: fw.F.gelu(x * w + b) + r)


def rows(fw, what):
    x = fw.m.randn(4096, 1024)
    y = fw.m.randint(0, 1024, (4096,))
    weight, bias = fw.m.randn(1024), fw.m.randn(1024)
    return without_grad(fw, {
        "softmax": lambda: x.softmax(-1),
        "layer_norm": lambda: fw.F.layer_norm(x, (1024,), weight, bias),
        "sum_rows": lambda: x.sum(1),
        "sum_columns": lambda: x.sum(0),
        "cross_entropy": lambda: fw.F.cross_entropy(x, y),
        "copy": lambda: x.clone(),
    }[what])


def matmul(fw, m, n, k):
    a, b = fw.m.randn(m, k), fw.m.randn(k, n)
    return without_grad(fw, lambda: a @ b)


def convolution(fw, channels, size, outputs, kernel, stride):
    x = fw.images(fw.m.randn(8, channels, size, size))
    w = fw.images(fw.m.randn(outputs, channels, kernel, kernel))
    return without_grad(fw, lambda: fw.F.conv2d(x, w, stride=stride, padding=kernel // 2))


# name: (builder, calls of a turn, ratio to reach, columns beside PyTorch eager)
WORK = {
    "mlp": (mlp, 200, 1.5, ("compile",)),
    "mlp_default_adam": (lambda fw: mlp(fw, fused=False), 200, 2.0, ()),
    "mlp_silu_layer_norm": (mlp_norm, 200, 2.0, ("compile",)),
    "gpt_train": (gpt_train, 5, 1.5, ("compile",)),
    "gpt_generate": (gpt_generate, 2, 2.0, ()),
    "lenet": (lenet, 10, 1.3, ("compile",)),
    "resnet18_train": (lambda fw: resnet18(fw, True), 1, 1.0, ("compile",)),
    "resnet18_inference": (lambda fw: resnet18(fw, False), 1, 1.0, ("compile",)),
    "embedding_gather_step": (embedding_step, 10, 1.0, ("compile",)),
    "gelu_16Mi": (gelu_chain, 3, 3.0, ("compile",)),
}
for _what in ("softmax", "layer_norm", "sum_rows", "sum_columns", "cross_entropy"):
    WORK[f"{_what}_4096x1024"] = (lambda fw, what=_what: rows(fw, what), 20, 1.0, ("compile",))
for _n in (64, 128, 256, 512, 1024, 2048):
    WORK[f"matmul_{_n}"] = (lambda fw, n=_n: matmul(fw, n, n, n), max(1, (1 << 28) // _n**3), 0.95, ())
for _m in (1, 4, 16, 64):
    WORK[f"matmul_{_m}x1024x1024"] = (lambda fw, m=_m: matmul(fw, m, 1024, 1024), max(4, 400 // _m), 0.95, ())
for _c, _size, _o, _k, _s in ((3, 224, 64, 7, 2), (64, 56, 64, 3, 1), (64, 56, 128, 3, 2), (128, 28, 128, 3, 1), (128, 28, 256, 3, 2), (256, 14, 256, 3, 1),
                              (256, 14, 512, 3, 2), (512, 7, 512, 3, 1), (64, 56, 128, 1, 2), (256, 14, 512, 1, 2)):
    WORK[f"conv_{_c}x{_size}_{_o}of{_k}x{_k}_s{_s}"] = (lambda fw, a=(_c, _size, _o, _k, _s): convolution(fw, *a), 5, 0.95, ())
