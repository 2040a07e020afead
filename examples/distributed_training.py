"""Data-parallel training: one script for one process, several, and several hosts.

    python examples/distributed_training.py
    pyflame run --nproc 4 examples/distributed_training.py
    pyflame run --nproc 4 --nnodes 2 --node-rank 0 --rdzv HOST0:29500 examples/distributed_training.py   (on each host)

The model learns a function of eight numbers. Each process trains on its part of the data, and DistributedDataParallel averages the gradients. The batch
size is that of all processes together, so the losses are the same for any number of processes that divides it, up to rounding.
"""
# ci: --epochs 4 --expect 0.05
import argparse

import pyflame as pf
import pyflame.distributed as dist
from pyflame.nn.parallel import DistributedDataParallel
from pyflame.utils.data import DataLoader, DistributedSampler, TensorDataset


def data(n):
    """Inputs of shape (n, 8), and a smooth function of them of shape (n, 1)."""
    g = pf.Generator()
    g.manual_seed(0)
    x = pf.randn(n, 8, generator=g)
    return TensorDataset(x, pf.sin(x[:, :4].sum(1, keepdim=True)) + x[:, 4:].mean(1, keepdim=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64, help="of all processes together")
    parser.add_argument("--expect", type=float, help="fail unless the last loss is below this")
    args = parser.parse_args()

    dist.init_process_group()  # the variables of the launcher say who the others are; without any, this process is alone
    rank, world = dist.get_rank(), dist.get_world_size()
    if args.batch_size % world:
        parser.error(f"--batch-size: not a multiple of the number of processes; got {args.batch_size}; expected a multiple of {world}")

    pf.manual_seed(0)
    model = pf.nn.Sequential(pf.nn.Linear(8, 128), pf.nn.GELU(), pf.nn.Linear(128, 128), pf.nn.GELU(), pf.nn.Linear(128, 1))
    model = DistributedDataParallel(model)
    optimizer = pf.optim.AdamW(model.parameters(), lr=3e-3)
    dataset = data(8192)
    loader = DataLoader(dataset, batch_size=args.batch_size // world, sampler=DistributedSampler(dataset))

    for epoch in range(args.epochs):
        total = pf.zeros(())
        for x, y in loader:
            optimizer.zero_grad()
            loss = pf.nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        mean = total / len(loader)
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        if rank == 0:
            print(f"epoch {epoch + 1}: loss {mean.item():.4f} ({world} process{'es' * (world > 1)})")
    if args.expect is not None and not mean.item() < args.expect:
        raise SystemExit(f"the loss is too large: got {mean.item():.4f}; expected below {args.expect}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
