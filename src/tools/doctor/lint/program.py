"""Findings of the LINT rules in one Python file: `python3 -I -c SOURCE FILE` prints one JSON document.

{"findings": [{"id", "line", "column", "what", "fix"}], "env": [{"name", "value", "line", "after_import"}], "problems": [text]}

The file is parsed, never run. Its statements are followed once, in the order they would run: a name has the value that it was last
given (an import, a tensor with its device and shape, a reading of the clock), and functions are followed when they are first called. If
a value is not known, no rule fires: users switch off a lint with false alarms. A line with the comment `pyflame: ignore` (all rules) or
`pyflame: ignore LINT-09` has no findings.

The work is done in a child process with limits of memory and time, so that a source file that is made to break a parser ends in a message.
"""
import ast
import json
import os
import re
import signal
import stat
import sys
import warnings

from .values import Stop
from .walk import Lint

MAX_BYTES = 2 << 20
MAX_FINDINGS = 1000
MEMORY = 3 << 30
SECONDS = 20


def source(path, problems):
    """Bytes of a file, or None with the reason in `problems`."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except (OSError, ValueError) as e:
        problems.append(f"cannot be opened: {getattr(e, 'strerror', None) or e}")
        return None
    kind = os.fstat(handle).st_mode
    if not stat.S_ISREG(kind):  # os.fdopen refuses a folder with an exception
        os.close(handle)
        problems.append("is a folder; hint: name one Python file" if stat.S_ISDIR(kind) else "is not a plain file")
        return None
    with os.fdopen(handle, "rb") as file:
        try:
            data = file.read(MAX_BYTES + 1)
        except OSError as e:
            problems.append(f"cannot be read: {e.strerror}")
            return None
    if len(data) > MAX_BYTES:
        problems.append(f"is larger than {MAX_BYTES >> 20} MiB, which is too large for a program written by hand; it was not read")
        return None
    return data


def parsed(data, problems):
    """The syntax tree and the bytes it was made from, or None."""
    if b"\0" in data:
        problems.append(f"has a NUL byte at offset {data.index(0)}: this is not Python source")
        return None, data
    if data.lstrip()[:1] == b"{" and b'"cells"' in data and b'"nbformat"' in data:
        problems.append("is a notebook; hint: `jupyter nbconvert --to script` converts it to a Python file")
        return None, data
    for attempt in (0, 1):
        try:
            return ast.parse(data), data
        except SyntaxError as e:
            encoding = "codec can't decode" in str(e) or "encoding" in str(e)
            if encoding and not attempt:
                problems.append("is not in the encoding that it declares (UTF-8 if it declares none); invalid bytes were read as Latin-1")
                data = re.sub(rb"\A(\xef\xbb\xbf)?((?:[^\n]*\n)?[^\n]*?)coding[:=]", rb"\2c0ding:", data.decode("latin-1").encode("utf-8"), count=1)
                continue
            at = f"line {e.lineno}: " if e.lineno else ""
            old = re.search(rb"^\s*(print\s+[\"'\w]|exec\s+[\"'\w]|except\s+\w[\w.]*\s*,\s*\w+\s*:|raise\s+\w+\s*,)", data, re.M)
            hint = "; hint: this looks like Python 2, which `2to3` converts" if old else ""
            problems.append(f"cannot be parsed by Python {sys.version_info[0]}.{sys.version_info[1]}: {at}{e.msg}{hint}")
            return None, data
        except (RecursionError, MemoryError):
            problems.append("is nested too deeply to be parsed")
            return None, data
        except (ValueError, OverflowError) as e:
            problems.append(f"cannot be parsed: {e}")
            return None, data
    return None, data


def clean(value):
    """Text that every reader of JSON takes: no lone surrogates, and a limited length."""
    if isinstance(value, str):
        return value[:4096].encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {k: clean(v) for k, v in value.items()}
    if isinstance(value, list):
        return [clean(v) for v in value]
    return value


def document(path):
    problems, findings, env = [], [], []
    data = source(path, problems)
    if data is not None:
        tree, data = parsed(data, problems)
        if tree is not None:
            lint = None
            try:
                lint = Lint(tree, data.splitlines(), path)
                lint.run()
            except (RecursionError, MemoryError):
                problems.append("is nested too deeply, so it was not followed to its end; the findings so far are reported")
            except Stop:
                problems.append(f"took more than {SECONDS} seconds to follow; the findings so far are reported")
            if lint is not None:
                findings, env = lint.findings, lint.env
    findings.sort(key=lambda x: (x["line"], x["column"], x["id"]))
    if len(findings) > MAX_FINDINGS:
        problems.append(f"has {len(findings)} findings, of which the first {MAX_FINDINGS} are shown")
    return clean({"findings": findings[:MAX_FINDINGS], "env": env[:MAX_FINDINGS], "problems": problems})


def child(path, out):
    import resource

    def stop(*_):
        raise Stop
    signal.signal(signal.SIGXCPU, stop)
    for what, soft, hard in ((resource.RLIMIT_AS, MEMORY, MEMORY), (resource.RLIMIT_CPU, SECONDS, SECONDS + 5), (resource.RLIMIT_CORE, 0, 0)):
        try:
            resource.setrlimit(what, (soft, hard))
        except (OSError, ValueError):
            pass  # there is a lower limit already
    warnings.simplefilter("ignore")
    sys.setrecursionlimit(6000)
    with os.fdopen(out, "w", encoding="ascii") as pipe:
        pipe.write(json.dumps(document(path)))


def main():
    if len(sys.argv) != 2:
        sys.stderr.write("usage: lint FILE\n")
        return 2
    if sys.version_info < (3, 9):  # its syntax trees have other forms
        said = "was not read: this needs Python 3.9 or later, and python3 is {}.{}".format(*sys.version_info[:2])
        sys.stdout.write(json.dumps({"findings": [], "env": [], "problems": [said]}) + "\n")
        return 0
    read, write = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(read)
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 2)
            child(sys.argv[1], write)
            code = 0
        finally:
            os._exit(code)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        text = pipe.read()
    _, status = os.waitpid(pid, 0)
    try:
        json.loads(text)
    except ValueError:
        how = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "an error of the linter"
        text = json.dumps({"findings": [], "env": [], "problems": [f"could not be followed: reading it ended in {how}"]}).encode()
    sys.stdout.write(text.decode("ascii") + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
