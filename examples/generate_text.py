"""Writes text with a language model: a GGUF file, or a folder in Hugging Face's layout.

    python examples/generate_text.py --model SmolLM2-135M-Instruct.gguf --prompt "Once upon a time"

Without --model, a small model with random weights is made, which writes nonsense: then only the way is shown.
"""
# ci: --max_tokens 12
import argparse
import os
import sys
import tempfile

import pyflame as pf
from pyflame.testing.language_models import write_random_model


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--model", help="a GGUF file or a folder")
    parser.add_argument("--prompt", default="Once upon a time")
    parser.add_argument("--max_tokens", type=int, default=100)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def main():
    args = arguments()
    with tempfile.TemporaryDirectory() as folder:
        model = args.model or write_random_model(os.path.join(folder, "model"))
        lm = pf.llm.load(model)
    print(lm, file=sys.stderr)
    sys.stdout.write(args.prompt)
    for piece in lm.generate(args.prompt, max_tokens=args.max_tokens, temperature=args.temperature, top_p=0.95, seed=args.seed, stream=True):
        sys.stdout.write(piece)
        sys.stdout.flush()
    print()
    before = pf.program_cache_stats()["misses"]
    lm.generate(args.prompt, max_tokens=8, temperature=0)
    print(f"programs that eight further tokens compiled: {pf.program_cache_stats()['misses'] - before}", file=sys.stderr)


if __name__ == "__main__":
    main()
