"""Runs the lints: `python tools/lint/run.py [--root DIR] [name ...]`. Exit code 1 when one that counts has findings."""
import argparse
import importlib
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from common import ROOT  # noqa: E402

# name -> does a finding fail the run
LINTS = {"includes": True, "definitions": True, "devices": True, "private_words": True, "vendor": True, "paths": True, "mentions": True, "headers": True,
         "formatting": True, "sizes": False}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=pathlib.Path, default=ROOT)
    parser.add_argument("names", nargs="*", help=", ".join(LINTS))
    arguments = parser.parse_args()
    unknown = [n for n in arguments.names if n not in LINTS]
    if unknown:
        parser.error(f"no such lint: {', '.join(unknown)}; there are {', '.join(LINTS)}")
    failed = False
    for name in arguments.names or LINTS:
        start = time.monotonic()
        try:
            findings = importlib.import_module(name).check(arguments.root)
        except Exception as e:  # a lint says by an exception of its own that it could not run
            if type(e).__name__ != "Skipped":
                raise
            print(f"{name}: SKIPPED, {e}")
            continue
        for finding in findings:
            print(finding if LINTS[name] else f"{finding} (warning)")
        failed |= bool(findings) and LINTS[name]
        print(f"{name}: {len(findings)} {'finding' if len(findings) == 1 else 'findings'}, {time.monotonic() - start:.1f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
