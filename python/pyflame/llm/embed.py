"""`pyflame embed`: embeddings of texts, one JSON object in a line for each, or the cosines between them."""
import json
import os
import sys

import numpy as np

import pyflame as pf

from .._command_help import Parser
from .._entry import command
from .embedding import POOLINGS, PoolerConfig, load_embedding


def _arguments(words):
    p = Parser(prog="pyflame embed", allow_abbrev=False)
    p.add_argument("--file")
    p.add_argument("--pooling", choices=POOLINGS)
    p.add_argument("--raw", action="store_true")
    p.add_argument("--similarity", action="store_true")
    p.add_argument("--json", action="store_true")
    p.add_argument("--device")
    p.add_argument("--dtype", choices=("float32", "float16", "bfloat16"))
    p.add_argument("model")
    p.add_argument("texts", nargs="*")
    return p.parse_args(words)


def _run(args):
    texts = list(args.texts)
    if args.file:
        with open(args.file, encoding="utf-8") as f:
            texts += [line for line in f.read().splitlines() if line.strip()]
    if not texts:
        raise ValueError("embed: there is no text; got none; expected texts, or --file")
    model = load_embedding(args.model, getattr(pf, args.dtype) if args.dtype else None, args.device, PoolerConfig(args.pooling, False if args.raw else None))
    vectors = model.embed(texts)
    if args.similarity:
        unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        if args.json:
            print(json.dumps({"texts": texts, "similarity": (unit @ unit.T).tolist()}, ensure_ascii=False))
            return 0
        for row in unit @ unit.T:
            print(" ".join(f"{x:6.3f}" for x in row))
        return 0
    for text, vector in zip(texts, vectors):
        print(json.dumps({"text": text, "embedding": [float(x) for x in vector]}, ensure_ascii=False))
    return 0


@command((OSError, ValueError, TypeError, ImportError, NotImplementedError, MemoryError, pf.DeviceError))
def main(words=None):
    return _run(_arguments(words))


if __name__ == "__main__":
    sys.exit(main())
