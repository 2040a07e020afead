"""The document as one HTML file, which loads nothing else."""
from html import escape

from .document import lasting
from .text import by_cost, counted, expected, of_cut, of_end, of_fallback, of_rewrite, size, time, totals, work

STYLE = """
:root { color-scheme: light dark; --paper: #faf9f7; --panel: #fff; --ink: #1f1d1a; --soft: #5d5850; --line: #e4e0d9; --accent: #b93c0b; }
@media (prefers-color-scheme: dark) { :root { --paper: #161513; --panel: #1e1d1a; --ink: #ece8e1; --soft: #b5aea3; --line: #34312c; --accent: #f0874a; } }
body { margin: 0 auto; max-width: 1180px; padding: 24px 28px 60px; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; font-variant-numeric: tabular-nums; }
h1 { font-size: 26px; overflow-wrap: anywhere; } h2 { font-size: 19px; margin: 36px 0 10px; }
p { max-width: 80ch; } .soft { color: var(--soft); }
.scroll { overflow-x: auto; background: var(--panel); border: 1px solid var(--line); border-radius: 8px; }
table { border-collapse: collapse; width: 100%; } th, td { text-align: left; padding: 6px 12px; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--soft); font-weight: 500; } td.n, th.n { text-align: right; white-space: nowrap; }
code, pre { font-family: ui-monospace, monospace; font-size: 13px; } pre { overflow-x: auto; margin: 0; padding: 12px 16px; }
details { background: var(--panel); border: 1px solid var(--line); border-radius: 8px; margin: 0 0 10px; } summary { cursor: pointer; padding: 10px 14px; overflow-wrap: anywhere; }
.bar { display: inline-block; height: 9px; background: var(--accent); border-radius: 2px; }
"""


def _table(head, rows, numbers=()):
    cell = lambda tag, k, text: f'<{tag}{" class=n" if k in numbers else ""}>{text}</{tag}>'  # noqa: E731
    line = lambda tag, cells: "<tr>" + "".join(cell(tag, k, c) for k, c in enumerate(cells)) + "</tr>"  # noqa: E731
    return f'<div class=scroll><table><thead>{line("th", head)}</thead><tbody>{"".join(line("td", r) for r in rows)}</tbody></table></div>'


def _section(title, lead, body):
    return f"<h2>{escape(title)}</h2><p class=soft>{escape(lead)}</p>{body}" if body else ""


def _costs(d):
    whole = sum(map(lasting, d["costs"])) or 1
    known = lambda us: time(us) if us is not None else ""  # noqa: E731
    rows = [(f'<span class=bar style="width:{120 * lasting(r) / whole:.1f}px"></span> {100 * lasting(r) / whole:.0f} %', f"<code>{escape(r['name'])}</code>", escape(r["place"]), str(r["runs"]), size(r["bytes"] or 0),
             work(r["flops"]) if r["flops"] else "", expected(r) if r["expected_us"] is not None else "", known(r["measured_us"]), r["limit"]) for r in d["costs"]]
    return _table(("share", "step", "line", "runs", "bytes", "FLOP", "expected", "measured", "limit"), rows, (3, 4, 5, 6, 7)) if rows else ""


def _cuts(d):
    return _table(("times", "where and why", "what fusing across would save"), [(str(c["count"]), escape(of_cut({**c, "saves": 0})), f"{size(c['saves'])} ({escape(c['across'])})" if c["saves"] else "") for c in d["cuts"]], (0,)) if d["cuts"] else ""


def _ends(d):
    return _table(("saves", "line", "why"), [(size(e["saves"]), escape(e["place"]), escape(of_end(e))) for e in d["ends"]], (0,)) if d["ends"] else ""


def _rewrites(d):
    return "<ul>" + "".join(f"<li>{escape(of_rewrite(r))}{'' if r['fired'] else ' (left as it was)'}</li>" for r in d["rewrites"]) + "</ul>" if d["rewrites"] else ""


def _programs(d):
    """by_cost's lines: those without an indent begin a program."""
    parts = []
    for line in by_cost(d):
        if line.startswith("program "):
            parts.append((line, []))
        else:
            parts[-1][1].append(line)
    return "".join(f"<details{' open' if k == 0 else ''}><summary>{escape(title)}</summary><pre>{escape(chr(10).join(lines))}</pre></details>" for k, (title, lines) in enumerate(parts))


def render(d, title):
    """The whole page."""
    fallbacks = "".join(f"<li>{escape(of_fallback(f))}</li>" for f in d["fallbacks"])
    return "".join((
        f'<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content="width=device-width, initial-scale=1"><title>{escape(title)} - PyFlame explain</title><style>{STYLE}</style>',
        f"<h1>{escape(title)}: {escape(counted(d['windows'], 'window'))}</h1>", *(f"<p>{escape(line)}</p>" for line in totals(d)),
        _section("The steps that cost most", "A step is a kernel. Expected: the time for its bytes and FLOPs at the ceilings; equal steps of one line are one row, with all their runs.", _costs(d)),
        _section("Where windows were cut", "What is recorded on both sides of a cut is never fused.", _cuts(d)),
        _section("Rewrites", "Patterns of ops that were replaced by cheaper ones, and what is nearly such a pattern.", _rewrites(d)),
        _section("Where fusion ends", "Inside a window: a step reads from memory what an earlier one stored there. The traffic is that of all runs.", _ends(d)),
        _section("Fallbacks", "What ran slower, or elsewhere, than asked.", f"<ul>{fallbacks}</ul>" if fallbacks else "<p>none</p>"),
        _section("Programs", "Each window is compiled to a program once. The most expensive one comes first.", _programs(d)), "</html>\n"))
