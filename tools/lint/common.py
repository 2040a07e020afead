"""What the lints share: the list of files (git's, so that build outputs are never looked at) and the form of a finding."""
import pathlib
import subprocess
from typing import Iterable, List, NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Finding(NamedTuple):
    path: str
    line: int
    text: str

    def __str__(self):
        return f"{self.path}:{self.line}: {self.text}"


def tracked(root: pathlib.Path, suffixes: Iterable[str] = ()) -> List[str]:
    """Files that git knows or would add, as paths relative to root; outside a git checkout every file."""
    run = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=root, capture_output=True, text=True)
    if run.returncode == 0:
        names = run.stdout.split("\n")
    else:
        names = [str(p.relative_to(root)) for p in root.rglob("*")]
    suffixes = tuple(suffixes)
    return sorted(n for n in set(names) if n and (not suffixes or n.endswith(suffixes)) and (root / n).is_file())


def lines(root: pathlib.Path, name: str) -> List[str]:
    return (root / name).read_text(encoding="utf-8", errors="replace").split("\n")
