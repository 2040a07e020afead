"""Handwritten digits with a small convolutional network: 98 % of 2,000 test images after three epochs on 8,000, in seconds.

    python examples/mnist_cnn.py --data FOLDER

FOLDER holds MNIST's 10,000 test images and their labels, t10k-images-idx3-ubyte.gz and t10k-labels-idx1-ubyte.gz (or unpacked, without .gz),
from https://storage.googleapis.com/cvdf-datasets/mnist/ or another mirror. The first 8,000 are trained on, the last 2,000 are the test.
"""
# ci-needs: ../shared/data/mnist
# ci: --data ../shared/data/mnist --workers 2 --expect 0.97
import argparse
import gzip
import pathlib
import sys
import time

import numpy as np

import pyflame as pf
from pyflame import nn
from pyflame.data import DataLoader, TensorDataset
from pyflame.nn import functional as F

TRAIN = 8000


def read_idx(folder, name, dims):
    """An array of bytes from an IDX file: a magic number with the count of dims, the sizes in big-endian order, the values."""
    packed, plain = pathlib.Path(folder, name + ".gz"), pathlib.Path(folder, name)
    if not packed.exists() and not plain.exists():
        raise SystemExit(f"mnist_cnn: {plain}[.gz] is not there; see the top of this file for where to get it")
    data = gzip.decompress(packed.read_bytes()) if packed.exists() else plain.read_bytes()
    head = np.frombuffer(data, ">u4", 1 + dims)
    if head[0] != 0x800 + dims or len(data) != head.nbytes + np.prod(head[1:], dtype=np.int64):
        raise SystemExit(f"mnist_cnn: {name} is not an IDX file of {dims} dimensions")
    return np.frombuffer(data, np.uint8, offset=head.nbytes).reshape(head[1:])


def make_model():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 64), nn.ReLU(), nn.Linear(64, 10),
    )


def accuracy(model, images, labels):
    model.eval()
    with pf.no_grad():
        right = sum((model(images[i : i + 500]).argmax(1) == labels[i : i + 500]).sum() for i in range(0, len(labels), 500))
    model.train()
    return right.item() / len(labels)


def main(argv=None):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", required=True, help="the folder of the two files")
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--batch_size", type=int, default=32)
    p.add_argument("--lr", type=float, default=5e-3)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--workers", type=int, default=0, help="processes that make batches")
    p.add_argument("--device", default="cpu")
    p.add_argument("--expect", type=float, default=0.0, help="exit with 1 when the accuracy is less")
    a = p.parse_args(argv)

    images = pf.tensor(read_idx(a.data, "t10k-images-idx3-ubyte", 3)).float().unsqueeze(1) / 255
    labels = pf.tensor(read_idx(a.data, "t10k-labels-idx1-ubyte", 1)).long()
    test_images, test_labels = images[TRAIN:].to(a.device), labels[TRAIN:].to(a.device)

    pf.manual_seed(a.seed)
    model = make_model().to(a.device)
    optimizer = pf.optim.Adam(model.parameters(), lr=a.lr)
    loader = DataLoader(TensorDataset(images[:TRAIN], labels[:TRAIN]), a.batch_size, shuffle=True, num_workers=a.workers, persistent_workers=a.workers > 0)
    schedule = pf.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=a.lr, total_steps=a.epochs * len(loader))
    reached = 0.0
    for epoch in range(a.epochs):
        start, total = time.perf_counter(), 0.0
        for x, y in loader:
            loss = F.cross_entropy(model(x.to(a.device)), y.to(a.device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total = total + loss.detach()
        reached = accuracy(model, test_images, test_labels)
        print(f"epoch {epoch + 1}: loss {total.item() / len(loader):.4f}, test accuracy {100 * reached:.2f} %, {time.perf_counter() - start:.1f} s", flush=True)
    return 0 if reached >= a.expect else 1


if __name__ == "__main__":
    sys.exit(main())
