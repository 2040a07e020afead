"""Training a model whose parameters, gradients and optimizer states are divided over processes, with checkpoints that any number of processes loads.

    python examples/fully_shard.py
    pyflame run --nproc 2 examples/fully_shard.py --checkpoint run
    pyflame run --nproc 3 examples/fully_shard.py --checkpoint run --epochs 8     (goes on where the two processes were)

Each process trains on its part of every batch. The batch size is that of all processes together, so the losses are the same for any number of
processes that divides it, up to rounding.
"""
# ci: --epochs 3 --expect 0.1
import argparse
import os

import pyflame as pf
import pyflame.distributed as dist
import pyflame.distributed.checkpoint as dcp
from pyflame.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from pyflame.distributed.fsdp import fully_shard
from pyflame.utils.data import DataLoader, DistributedSampler, TensorDataset


class Block(pf.nn.Module):
    """x + two layers of a normalized x; x has the shape (batch, width)."""

    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = pf.nn.LayerNorm(width), pf.nn.Linear(width, 4 * width), pf.nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(pf.nn.functional.gelu(self.up(self.norm(x))))


def data(n):
    """Inputs of shape (n, 8), and a smooth function of them of shape (n, 1)."""
    g = pf.Generator()
    g.manual_seed(0)
    x = pf.randn(n, 8, generator=g)
    return TensorDataset(x, pf.sin(x[:, :4].sum(1, keepdim=True)) + x[:, 4:].mean(1, keepdim=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=96, help="of all processes together")
    parser.add_argument("--checkpoint", help="a folder: the run goes on with it if it is there, and writes it after each epoch")
    parser.add_argument("--expect", type=float, help="fail unless the last loss is below this")
    args = parser.parse_args()

    dist.init_process_group()  # the variables of the launcher say who the others are; without any, this process is alone
    rank, world = dist.get_rank(), dist.get_world_size()
    if args.batch_size % world:
        parser.error(f"--batch-size: not a multiple of the number of processes; got {args.batch_size}; expected a multiple of {world}")

    pf.manual_seed(0)
    model = pf.nn.Sequential(pf.nn.Linear(8, args.width), Block(args.width), Block(args.width), pf.nn.Linear(args.width, 1))
    for block in model:
        if isinstance(block, Block):
            fully_shard(block)  # its parameters are whole only while it computes
    fully_shard(model)
    optimizer = pf.optim.AdamW(model.parameters(), lr=3e-3)
    dataset = data(6144)
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=args.batch_size // world, sampler=sampler)

    begin, loss = 0, None
    if args.checkpoint and os.path.exists(os.path.join(args.checkpoint, "checkpoint.json")):
        state = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer)), epoch=0)
        dcp.load(state, checkpoint_id=args.checkpoint)
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        begin = state["epoch"]
    for epoch in range(begin, args.epochs):
        sampler.set_epoch(epoch)
        total = pf.zeros(())
        for x, y in loader:
            optimizer.zero_grad()
            error = pf.nn.functional.mse_loss(model(x), y)
            error.backward()
            pf.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += error.detach()
        mean = total / len(loader)
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        loss = mean.item()
        if rank == 0:
            print(f"epoch {epoch + 1}: loss {loss:.4f} ({world} process{'es' * (world > 1)})")
        if args.checkpoint:
            dcp.save(dict(zip(("model", "optimizer"), get_state_dict(model, optimizer)), epoch=epoch + 1), checkpoint_id=args.checkpoint)
    if args.expect is not None and (loss is None or not loss < args.expect):
        raise SystemExit(f"the loss is too large: got {loss}; expected below {args.expect}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
