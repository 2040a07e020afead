"""Settings of the engine: for a part of a program (pf.settings, pf.no_fuse) and from a file (pf.load_settings, PYFLAME_SETTINGS).

A file is TOML:

    [environment]                       # variables; those that the environment has already count more
    PYFLAME_GPU_GRAPHS = "1"
    [engine]                            # the names that pf.settings takes
    float32_matmul_precision = "high"
    rewrites = ["merged_products"]
    [force]                             # pf.tuning.force
    matmul = "gpu.matmul_units"
"""
from __future__ import annotations

import contextlib
import functools
import os

from . import _C

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from typing import Any, Literal

    from ._annotations import Function

__all__ = ["load_settings", "no_fuse", "settings"]


# ---- the settings of the engine


def _is_bool(value):
    return isinstance(value, bool)


def _is_count(value):
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_names(value):
    return isinstance(value, (list, tuple)) and all(isinstance(v, str) for v in value)


def _threads(value):
    before = _C.get_num_threads()
    _C.set_num_threads(value)
    return before


def _precision(value):
    before = _C.get_float32_matmul_precision()
    _C.set_float32_matmul_precision(value)
    return before


def _conv_precision(value):
    before = _C.get_float32_conv_precision()
    _C.set_float32_conv_precision(value)
    return before


def _deterministic(value):
    before = _C.are_deterministic_algorithms_enabled()
    _C.use_deterministic_algorithms(value)
    return before


def _defer(value):
    from . import _deferred

    return _deferred.enable(value)


def _workers(value):
    from .data import loader

    before, loader.default_workers = loader.default_workers, value
    return before


def _checkpointing(value):
    from .nn import recompute

    return recompute.set_gradient_checkpointing(value)


def _merged_batches(value):
    from .train import _trainer

    before, _trainer.merged_batches = _trainer.merged_batches, value
    return before


def _channels_last(value):
    from .nn import layout

    return layout.set_channels_last(value)


def _tuning_file(value):
    before = _C._choices_file()
    _C._set_choices_file(value)
    _C.clear_program_cache()
    return before


def _rewrites(value):
    """Enables these of the rewrites, and disables those that an earlier setting enabled. Returns the names of the earlier setting."""
    try:
        from . import rewrites
    except ImportError:
        if value:
            raise ValueError(f"settings: this PyFlame has no rewrites; got rewrites={list(value)}") from None
        return []
    known = {r.name: r for r in rewrites.registry()}
    unknown = [name for name in value if name not in known]
    if unknown:
        raise ValueError(f"settings: there is no such rewrite; got {', '.join(unknown)}; expected {', '.join(sorted(known)) or 'none: there are no rewrites'}")
    before = list(_enabled)
    for name in set(before) - set(value):
        rewrites.disable(name)
    _enabled[:] = [name for name in value if name in before or not getattr(known[name], "enabled", False)]
    for name in set(_enabled) - set(before):
        rewrites.enable(name)
    return before


_enabled = []  # names of rewrites that settings enabled


class _Setting:
    """apply(value) makes the value hold and returns the one before; accepts(value) says whether it is one, and expected is the text for an error.
    Not a dataclass, because that module takes an eighth of the time of `import pyflame`."""

    __slots__ = ("accepts", "apply", "expected", "in_files")

    def __init__(self, apply, accepts, expected, in_files=True):
        self.apply, self.accepts, self.expected, self.in_files = apply, accepts, expected, in_files


_SETTINGS = {
    "float32_matmul_precision": _Setting(_precision, lambda v: v in ("highest", "high", "medium"), "'highest', 'high' or 'medium'"),
    "float32_conv_precision": _Setting(_conv_precision, lambda v: v in ("highest", "high", "medium"), "'highest', 'high' or 'medium'"),
    "deterministic": _Setting(_deterministic, _is_bool, "true or false"),
    "merged_batches": _Setting(_merged_batches, lambda v: _is_count(v) and v > 0, "a positive whole number"),
    "num_threads": _Setting(_threads, lambda v: _is_count(v) and v > 0, "a positive whole number"),
    "defer_reads": _Setting(_defer, _is_bool, "true or false"),
    "loader_workers": _Setting(_workers, _is_count, "a whole number that is not negative"),
    "channels_last": _Setting(_channels_last, _is_bool, "true or false"),
    "gradient_checkpointing": _Setting(_checkpointing, lambda v: v is False or _is_names(v), "false, or a list of names of modules"),
    "rewrites": _Setting(_rewrites, _is_names, "a list of names"),
    "tuning_file": _Setting(_tuning_file, lambda v: isinstance(v, str) and v, "the path of a file"),
    "fuse": _Setting(_C._set_fusing, _is_bool, "true or false", in_files=False),
}


def _check(name, value, where, file=False):
    allowed = sorted(n for n, s in _SETTINGS.items() if s.in_files or not file)
    if name not in allowed:
        raise ValueError(f"{where}: there is no such setting; got {name!r}; expected {', '.join(allowed)}" + ("; hint: PYFLAME_FUSE=0 below [environment]" if name == "fuse" else ""))
    if not _SETTINGS[name].accepts(value):
        raise ValueError(f"{where}: not a value of {name}; got {value!r}; expected {_SETTINGS[name].expected}")


class settings(contextlib.ContextDecorator):
    """Within the context, or the decorated function, these settings hold; afterwards those from before.

    float32_matmul_precision: 'highest', 'high', 'medium', as set_float32_matmul_precision takes them.
    float32_conv_precision: the same for convolutions, as set_float32_conv_precision takes them.
    deterministic: as use_deterministic_algorithms takes it.
    num_threads: threads of the CPU.
    defer_reads: Tensor.item() gives an object that stands for the number, and the value is read when it is needed (docs/optimize.md).
    loader_workers: num_workers of each DataLoader that is made without.
    merged_batches: of the batches whose gradients pf.train.Trainer accumulates for an optimizer step, so many are computed as one. The update is that of the
        mean loss, if the loss is a mean over samples and no layer looks at the whole batch.
    channels_last: the first module with 2-d convolutions that the program calls, and the 4-d images that it is given, are in channels-last order, as with
        memory_format=channels_last. Strides show it, and a view() that needs row-major order is an error.
    gradient_checkpointing: False: checkpoint() and enable_gradient_checkpointing() keep all intermediates. A list of dotted names: these modules of the first
        module that the program calls in training are recomputed, beside those that it names itself; ValueError at that call if it has no such module.
    rewrites: names of pf.rewrites that are enabled, beside those that are on anyway.
    tuning_file: the file of pf.tuning.
    fuse: whether ops are fused and rewritten (pf.rewrites). It holds for the ops that this thread records; what is recorded before and after is computed apart.

    All but `fuse` hold for the whole process. ValueError for a setting or a value that does not exist; then nothing has changed.

        with pf.settings(float32_matmul_precision="high"):
            y = model(x)
    """

    def __init__(self, **values: Any) -> None:
        for name, value in values.items():
            _check(name, value, "settings")
        self._values, self._before = values, []

    def _recreate_cm(self):
        return type(self)(**self._values)

    def __enter__(self) -> settings:
        self._before.append(_apply(self._values))
        return self

    def __exit__(self, *exc: object) -> Literal[False]:
        _restore(self._before.pop())
        return False


def _restore(before):
    for name, value in reversed(before):
        _SETTINGS[name].apply(value)


def _apply(values):
    """Applies all or none. Returns [(name, value before)]."""
    before = []
    try:
        for name, value in values.items():
            before.append((name, _SETTINGS[name].apply(value)))
    except BaseException:
        _restore(before)
        raise
    return before


def no_fuse(function: Function) -> Function:
    """A decorator: each op of this function is computed by itself: none is fused with what is before or after it, and no rewrite (pf.rewrites) replaces it. The gradients are computed when
    backward() runs, which is outside of the function, and are fused as always. For a part of a function: `with pf.settings(fuse=False):`.
    TypeError if it cannot be called."""
    if not callable(function):
        raise TypeError(f"no_fuse: not a function; got {type(function).__name__}; expected something to call; hint: with pf.settings(fuse=False)")

    @functools.wraps(function)
    def unfused(*args, **kwargs):
        with settings(fuse=False):
            return function(*args, **kwargs)

    return unfused


# ---- files

_TABLES = ("environment", "engine", "force")


def _parse_simple(text, path):
    """TOML without its rarer parts, for Pythons before 3.11: tables, and one `name = value` a line whose value is also JSON."""
    import json
    import re

    found, table = {}, None
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        head = re.fullmatch(r"\[\s*([\w.-]+)\s*\]\s*(#.*)?", line)
        name, equals, value = line.partition("=")
        try:
            if head:
                table = found.setdefault(head[1], {})
            elif not equals:
                raise ValueError("neither [table] nor name = value")
            else:
                decoded, end = json.JSONDecoder().raw_decode(value.strip())
                rest = value.strip()[end:].strip()
                if rest and not rest.startswith("#"):
                    raise ValueError(f"{rest!r} follows the value")
                (found if table is None else table)[name.strip().strip('"')] = decoded
        except ValueError as e:
            raise ValueError(f"load_settings: {path} is not TOML; line {number}: {e}; got {line!r}") from None
    return found


def _parse(path):
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as e:
        raise ValueError(f"load_settings: the file cannot be read; got {os.fspath(path)!r}: {getattr(e, 'strerror', None) or e}; expected a file that `pyflame optimize` wrote") from None
    try:
        import tomllib
    except ImportError:
        return _parse_simple(text, path)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as e:
        raise ValueError(f"load_settings: {path} is not TOML; {e}") from None


def read_settings(path):
    """The tables of a file, checked: a dict with 'environment', 'engine' and 'force'. ValueError says what is wrong."""
    found = _parse(path)
    for table, values in found.items():
        if table not in _TABLES or not isinstance(values, dict):
            raise ValueError(f"load_settings: {path} has something that is no setting; got {table!r}; expected the tables {', '.join(f'[{t}]' for t in _TABLES)}")
    for table in ("environment", "force"):
        for name, value in found.get(table, {}).items():
            if not isinstance(value, str):
                raise ValueError(f"load_settings: {path}, [{table}]: the value of {name} is no text; got {value!r}; expected it between quotes")
    for name, value in found.get("engine", {}).items():
        _check(name, value, f"load_settings: {path}", file=True)
    return {table: dict(found.get(table, {})) for table in _TABLES}


def load_settings(path: str | os.PathLike[str]) -> dict[str, dict[str, Any]]:
    """Makes the settings of a file hold for this process, and returns them as a dict with the tables 'environment', 'engine' and 'force'.

    Call it right after `import pyflame`: a variable that was read already can no longer change. PYFLAME_SETTINGS=FILE loads the file during the import, before
    anything is read. A variable that the environment has already counts more than the file's.
    ValueError: the file cannot be read, is not TOML, or has something that is no setting. RuntimeError: a variable was read already. Then nothing has changed."""
    found = read_settings(path)
    new = {name: value for name, value in found["environment"].items() if name not in os.environ}
    late = [name for name in new if _C._env_was_read(name)]
    if late:
        raise RuntimeError(f"load_settings: too late for {', '.join(late)}, which was read already; got {os.fspath(path)!r}; "
                           f"hint: load the settings right after `import pyflame`, or start the program with PYFLAME_SETTINGS={os.fspath(path)}")
    before = _apply(found["engine"])
    try:
        for op, entry in found["force"].items():
            _C._force_entry(op, entry)
    except BaseException:
        _restore(before)
        raise
    os.environ.update(new)
    return found


def write_settings(path, tables, title):
    """Writes a file as load_settings reads it, at once: a reader sees the old file or the new one."""
    import json

    lines = [*(f"# {line}" for line in title.splitlines()), ""]
    for table in _TABLES:
        if tables.get(table):
            lines += [f"[{table}]", *(f"{name} = {json.dumps(value)}" for name, value in tables[table].items()), ""]
    temporary = f"{os.fspath(path)}.new"
    with open(temporary, "w", encoding="utf-8") as file:
        file.write("\n".join(lines))
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def load_from_environment():
    """What `import pyflame` does with PYFLAME_SETTINGS. The engine's settings come after the import, because they may need submodules."""
    path = os.environ.get("PYFLAME_SETTINGS")
    if path:
        load_settings(path)
