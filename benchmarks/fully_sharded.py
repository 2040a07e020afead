"""Training of a GPT of 1.31 billion parameters that is divided over the GPUs of this host, by fully_shard of PyFlame and of PyTorch (FSDP2).

    python benchmarks/fully_sharded.py [--gpus 4] [--json FILE]

Master weights and AdamW's states are float32, products and gathered weights bfloat16, gradients are reduced in float32 by default (--reduce_dtype). Each block and the whole
model are divided; 8 x 1024 tokens a GPU. Two settings: `kept`: whole weights stay from the forward pass to the backward pass; `given_up`: they are gathered again
(PyTorch's default), for which PyFlame computes each block's forward pass again, as with activation checkpointing. Tokens a second of all GPUs together, by the wall clock of rank 0, the median of
`--turns` turns, each of which is a number of steps between two synchronisations; the largest memory of rank 0; the losses. The programs run one after the other.
"""
import argparse
import json
import os
import pathlib
import statistics
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
SHAPE = {"vocab": 50304, "n_layer": 22, "n_head": 16, "n_embd": 2048, "block": 1024}


def worker(name, kept, args):
    """One rank; rank 0 prints a JSON object."""
    from compare_gpu import PyFlame, Torch
    from cpu_work import make_gpt

    world, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_RANK"])
    device = f"cuda:{rank}"
    if name == "torch":
        import torch
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        torch.cuda.set_device(rank)
        torch.distributed.init_process_group("nccl", device_id=torch.device(device))
        fw = Torch(device, "eager")
    else:
        import pyflame
        from pyflame.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        pyflame.distributed.init_process_group(device="cuda")
        fw = PyFlame(device, "eager")
    shape = {**SHAPE, "n_layer": args.layers}
    model = make_gpt(fw, **shape)
    parameters = sum(p.numel() for p in model.parameters())
    policy = MixedPrecisionPolicy(param_dtype=fw.m.bfloat16, reduce_dtype=getattr(fw.m, args.reduce_dtype))
    for part in [*model.blocks, model]:
        fully_shard(part, mp_policy=policy, reshard_after_forward=not kept)
    opt = fw.adamw(model.parameters(), lr=1e-4)
    fw.m.manual_seed(rank)
    x, y = (fw.m.randint(0, 50257, (args.batch, 1024), device=device) for _ in range(2))

    def step():
        opt.zero_grad(set_to_none=True)
        loss = fw.F.cross_entropy(model(x).view(-1, shape["vocab"]), y.view(-1))
        loss.backward()
        opt.step()
        return loss

    losses = [float(step().item()) for _ in range(4)]
    fw.fresh()
    times = []
    for _ in range(args.turns):
        fw.sync()
        begin = time.perf_counter()
        for _ in range(args.steps):
            loss = step()
        fw.sync()
        times.append((time.perf_counter() - begin) / args.steps)
    losses.append(float(loss.item()))
    if rank == 0:
        tokens = args.batch * 1024 * world
        print(json.dumps({"version": fw.version, "parameters": parameters, "tokens_per_s": tokens / statistics.median(times), "seconds": sorted(times), "peak_bytes": fw.peak(), "losses": losses}),
              flush=True)
    fw.m.distributed.destroy_process_group()


def main():
    from data_parallel import run_ranks

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=4)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--steps", type=int, default=5, help="in a turn")
    parser.add_argument("--batch", type=int, default=8, help="sequences of 1024 tokens a GPU")
    parser.add_argument("--layers", type=int, default=SHAPE["n_layer"])
    parser.add_argument("--reduce_dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--timeout", type=float, default=120, help="seconds of one program")
    parser.add_argument("--only", action="append", choices=["pyflame", "torch"], help="repeatable")
    parser.add_argument("--setting", action="append", choices=["kept", "given_up"], help="repeatable")
    parser.add_argument("--json", help="a file for the result")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        name, kept = args.worker.split(",")
        return worker(name, kept == "kept", args)
    from machine import slug

    rows = {}
    words = ["--turns", args.turns, "--steps", args.steps, "--batch", args.batch, "--layers", args.layers, "--reduce_dtype", args.reduce_dtype]
    for setting in args.setting or ("kept", "given_up"):
        for name in args.only or ("pyflame", "torch"):
            found = rows[f"{name}_{setting}"] = run_ranks(__file__, ["--worker", f"{name},{setting}", *map(str, words)], args.gpus, args.timeout)
            if "failed" in found:
                print(f"{name}, {setting}: {found['failed']}", flush=True)
            else:
                print(f"{name}, {setting}: {found['tokens_per_s']:,.0f} tokens/s on {args.gpus} GPUs, {found['peak_bytes'] / 1e9:.1f} GB a GPU, losses {found['losses']}", flush=True)
    if args.json:
        about = {"benchmark": "fully_sharded", "machine": slug(), "gpus": args.gpus, "batch": args.batch, "layers": args.layers, "reduce_dtype": args.reduce_dtype, "turns": args.turns, "steps": args.steps}
        pathlib.Path(args.json).write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
