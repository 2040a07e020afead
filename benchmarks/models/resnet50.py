#!/usr/bin/env python3
"""ResNet-50, trained on random images: PyFlame against PyTorch on the same device, the same source for both.

    python benchmarks/models/resnet50.py --device cuda --batch 64 --dtype bfloat16          # both, in turns
    python benchmarks/models/resnet50.py --device cpu --batch 2 --size 32 --width 8 --depths 1 1 1 1 --frameworks pyflame

Images and activations lie channels-last on both sides. A step is forward, cross-entropy, backward and SGD with momentum; the peer runs
PyTorch eager with cudnn.benchmark. Times are medians over turns that alternate; a ratio above 1 means that PyFlame is faster.
"""
import argparse
import json
import statistics
import time


def make_resnet(nn, depths=(3, 4, 6, 3), width=64, classes=1000):
    class Bottleneck(nn.Module):
        def __init__(self, channels, inner, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(channels, inner, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(inner)
            self.conv2 = nn.Conv2d(inner, inner, 3, stride=stride, padding=1, bias=False)
            self.bn2 = nn.BatchNorm2d(inner)
            self.conv3 = nn.Conv2d(inner, 4 * inner, 1, bias=False)
            self.bn3 = nn.BatchNorm2d(4 * inner)
            self.relu = nn.ReLU()
            self.shortcut = None
            if stride != 1 or channels != 4 * inner:
                self.shortcut = nn.Sequential(nn.Conv2d(channels, 4 * inner, 1, stride=stride, bias=False), nn.BatchNorm2d(4 * inner))

        def forward(self, x):
            y = self.relu(self.bn1(self.conv1(x)))
            y = self.relu(self.bn2(self.conv2(y)))
            y = self.bn3(self.conv3(y))
            return self.relu(y + (x if self.shortcut is None else self.shortcut(x)))

    class ResNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Sequential(nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
            blocks, channels = [], width
            for stage, depth in enumerate(depths):
                inner = width << stage
                for i in range(depth):
                    blocks.append(Bottleneck(channels, inner, 2 if stage > 0 and i == 0 else 1))
                    channels = 4 * inner
            self.blocks = nn.Sequential(*blocks)
            self.head = nn.Linear(channels, classes)

        def forward(self, x):
            return self.head(self.blocks(self.stem(x)).mean((2, 3)))

    return ResNet()


class PyFlame:
    name = "pyflame"

    def __init__(self, args):
        import pyflame as pf

        self.m = pf
        pf.manual_seed(0)
        pf.set_device(args.device)
        self.dtype = getattr(pf, args.dtype)
        self.model = make_resnet(pf.nn, args.depths, args.width, args.classes).to(args.device, dtype=self.dtype, memory_format=pf.channels_last)
        self.x = pf.randn(args.batch, 3, args.size, args.size).to(self.dtype).to(memory_format=pf.channels_last)
        self.y = pf.randint(0, args.classes, (args.batch,))
        self.optimizer = pf.optim.SGD(self.model.parameters(), lr=args.lr, momentum=0.9)
        self.loss_of = pf.nn.functional.cross_entropy

    def wait(self):
        self.m.synchronize()

    def step(self):
        self.optimizer.zero_grad()
        loss = self.loss_of(self.model(self.x), self.y)
        loss.backward()
        self.optimizer.step()
        return loss


class Torch(PyFlame):
    name = "torch"

    def __init__(self, args):
        import torch

        self.m = torch
        torch.manual_seed(0)
        torch.backends.cudnn.benchmark = True
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
        self.device = "cuda" if args.device == "rocm" else args.device
        layout = torch.channels_last
        self.model = make_resnet(torch.nn, args.depths, args.width, args.classes).to(self.device, getattr(torch, args.dtype), memory_format=layout)
        self.x = torch.randn(args.batch, 3, args.size, args.size, device=self.device, dtype=getattr(torch, args.dtype)).to(memory_format=layout)
        self.y = torch.randint(0, args.classes, (args.batch,), device=self.device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=args.lr, momentum=0.9, fused=self.device != "cpu")
        self.loss_of = torch.nn.functional.cross_entropy

    def wait(self):
        if self.device != "cpu":
            self.m.cuda.synchronize()


def turn(framework, steps):
    framework.wait()
    begin = time.perf_counter()
    for _ in range(steps):
        loss = framework.step()
    framework.wait()
    return (time.perf_counter() - begin) / steps, float(loss.float().item())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", choices=("float32", "float16", "bfloat16"))
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--depths", type=int, nargs=4, default=[3, 4, 6, 3])
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--warmup", type=int, default=8)
    parser.add_argument("--steps", type=int, default=10, help="steps of a turn")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--frameworks", nargs="+", default=["pyflame", "torch"], choices=("pyflame", "torch"))
    parser.add_argument("--json", help="file for the results")
    args = parser.parse_args()

    frameworks = [kind(args) for kind in (PyFlame, Torch) if kind.name in args.frameworks]
    times = {f.name: [] for f in frameworks}
    result = {"settings": vars(args), "frameworks": {}}
    for f in frameworks:
        first, loss = turn(f, 1)
        _, last = turn(f, max(args.warmup, 1))
        result["frameworks"][f.name] = {"first_step_s": first, "first_loss": loss, "loss_after_warmup": last}
    for _ in range(args.turns):
        for f in frameworks:
            times[f.name].append(turn(f, args.steps)[0])
    for name, t in times.items():
        median = statistics.median(t)
        result["frameworks"][name].update(step_ms=median * 1e3, least_ms=min(t) * 1e3, most_ms=max(t) * 1e3, images_per_s=args.batch / median)
        r = result["frameworks"][name]
        print(f"{name:8} {r['step_ms']:9.2f} ms a step ({r['least_ms']:.2f} to {r['most_ms']:.2f}), {r['images_per_s']:8.1f} images/s, first step {r['first_step_s']:.2f} s, "
              f"loss {r['first_loss']:.3f} -> {r['loss_after_warmup']:.3f}")
    if len(times) == 2:
        result["ratio"] = statistics.median(times["torch"]) / statistics.median(times["pyflame"])
        print(f"ratio    {result['ratio']:9.2f}")
    if args.json:
        with open(args.json, "w") as f:
            json.dump(result, f, indent=1)


if __name__ == "__main__":
    main()
