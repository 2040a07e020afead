"""A small ResNet with batch norm, on images in NCHW: training, or evaluation with --eval.

    python examples/optimize/resnet.py --small
    pyflame optimize examples/optimize/resnet.py --small --eval
"""
import argparse

import pyflame as pf
import pyflame.nn.functional as F
from pyflame import nn


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        self.short = nn.Sequential() if stride == 1 and inputs == outputs else nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.short(x))


class ResNet(nn.Module):
    def __init__(self, widths, classes=10):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, widths[0], 3, 1, 1, bias=False), nn.BatchNorm2d(widths[0]), nn.ReLU())
        self.blocks = nn.Sequential(*(block for i, (a, b) in enumerate(zip((widths[0], *widths), widths)) for block in (Block(a, b, 1 if i == 0 else 2), Block(b, b, 1))))
        self.head = nn.Linear(widths[-1], classes)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--small", action="store_true", help="sizes for a CPU: seconds")
    p.add_argument("--eval", action="store_true")
    p.add_argument("--device", default="cpu")
    p.add_argument("--steps", type=int, default=0)
    args = p.parse_args()
    widths, size, batch, steps = ((8, 16), 16, 8, 20) if args.small else ((64, 128, 256, 512), 64, 128, 40)
    pf.set_device(args.device)
    pf.manual_seed(0)
    model = ResNet(widths)
    images, labels = pf.randn(batch, 3, size, size), pf.randint(0, 10, (batch,))
    if args.eval:
        model.eval()
        with pf.no_grad():
            for _ in range(args.steps or steps):
                scores = model(images)
        print("mean of the scores", scores.mean().item())
        return
    optimizer = pf.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for _ in range(args.steps or steps):
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("last loss", loss.item())


if __name__ == "__main__":
    main()
