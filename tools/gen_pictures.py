"""The pictures of the documentation: docs/images/*.svg. What they show of measurements is in benchmarks/results. With --check: fails when a file is not what would be written.

They are 400 units wide with text of 12 units or more, so that they can be read on a telephone.
"""
import json
import math
import pathlib
import random
import sys

from picture import INK, OURS, PALE, PAPER, THEIRS, Picture

ROOT = pathlib.Path(__file__).resolve().parents[1]
WIDE = 400
PROFILE = ROOT / "benchmarks" / "results" / "amd-epyc-2-cores" / "tutorial_profile.json"  # of benchmarks/tutorial_profile.py


def labelled(p, x, y, w, h, words, colour=OURS, opacity=0.15, size=13, ink=INK, bold=False, code=False):
    """A box with a text in its middle."""
    p.box(x, y, w, h, colour, opacity)
    p.text(x + w / 2, y + h / 2 + size * 0.36, words, colour=ink, anchor="middle", size=size, bold=bold, code=code)


def window():
    """Lines of a program on the left; the windows that they fill on the right."""
    p = Picture(WIDE, 296, "Calls append ops to a window; a read cuts it and starts the next one")
    p.text(20, 28, "your line", bold=True, colour=PALE)
    p.text(230, 28, "window", bold=True, colour=PALE)
    calls = (("h = x @ w", "matmul"), ("h = h + b", "add"), ("h = pf.gelu(h)", "gelu"), ("top = h.max()", "amax"))
    for i, (line, op) in enumerate(calls):
        y = 42 + 32 * i
        p.text(20, y + 18, line, size=13, code=True)
        p.arrow(150, 224, y + 13)
        labelled(p, 240, y, 130, 26, op)
    p.frame(230, 36, 150, 132, OURS)
    p.text(20, 190, "top.item()", size=13, code=True, colour=THEIRS, bold=True)
    p.line(110, 186, 380, 186, THEIRS, dashed=True)
    p.text(230, 206, "a read: cut, plan, run", size=13, colour=THEIRS)
    p.text(20, 242, "y = h - top", size=13, code=True)
    p.arrow(150, 224, 237)
    labelled(p, 240, 224, 130, 26, "sub")
    p.frame(230, 218, 150, 38, OURS, dashed=True)
    p.text(20, 280, "A call checks its arguments, and computes nothing.", size=13, colour=PALE)
    return p.done()


def fusion():
    """Six ops become two kernels; what goes through memory."""
    p = Picture(WIDE, 330, "Six ops become two kernels; one value goes through memory between them")
    p.text(20, 28, "memory", bold=True, colour=PALE)
    p.text(160, 28, "kernels", bold=True, colour=PALE)
    for i, name in enumerate("xwb"):
        labelled(p, 20 + 26 * i, 76, 24, 24, name, THEIRS, 0.35)
    p.arrow(104, 154, 88)
    p.frame(160, 40, 222, 98, OURS)
    for i, op in enumerate(("matmul", "+ b", "gelu")):
        labelled(p, 170 + 70 * i, 76, 62, 26, op, OURS, 0.25)
        if i:
            p.line(162 + 70 * i, 89, 170 + 70 * i, 89)
    p.text(170, 60, "kernel 1: matmul, epilogue", size=13, colour=OURS, bold=True)
    p.text(170, 126, "x·w and x·w + b are not stored", size=12, colour=PALE)
    p.line(272, 138, 272, 160)
    p.line(272, 160, 60, 160)
    p.line(60, 160, 46, 160)
    p.arrow_down(46, 160, 180)
    labelled(p, 34, 182, 24, 24, "h", THEIRS, 1, ink=PAPER)
    p.text(66, 199, "stored once", size=12, colour=PALE)
    p.arrow_down(46, 208, 226)
    p.arrow(60, 154, 240)
    p.text(20, 246, "read", size=12, colour=PALE)
    p.frame(160, 190, 222, 98, OURS)
    for i, op in enumerate(("sum", "/ n", "h − m")):
        labelled(p, 170 + 70 * i, 226, 62, 26, op, OURS, 0.25)
        if i:
            p.line(162 + 70 * i, 239, 170 + 70 * i, 239)
    p.text(170, 210, "kernel 2: loop over rows", size=13, colour=OURS, bold=True)
    p.text(170, 276, "sum and mean are not stored", size=12, colour=PALE)
    p.text(20, 314, "Op by op, five values would go through memory.", size=13, colour=PALE)
    return p.done()


def arena():
    """Four intermediates of a chain, by time and address."""
    p = Picture(WIDE, 262, "Intermediates that are never alive at the same time share bytes of the arena")
    p.text(20, 28, "address", bold=True, colour=PALE)
    p.text(380, 246, "time: steps of the program", anchor="end", size=13, colour=PALE)
    left, step = 84, 58
    for i in range(5):
        p.text(left + step * i + step / 2, 226, f"step {i}", anchor="middle", size=12, colour=PALE)
        p.line(left + step * i, 44, left + step * i, 212, "#d0d7de", width=1)
    p.line(left, 212, 380, 212)
    rows = (("place 0", 44), ("place 1", 86))
    for name, y in rows:
        p.text(20, y + 22, name, size=13)
    for i in range(4):
        y = rows[i % 2][1]
        p.box(left + step * i + 4, y, 2 * step - 8, 34, OURS, 0.35 if i % 2 == 0 else 0.6)
        p.text(left + step * i + step, y + 22, f"t{i + 1}", anchor="middle")
    p.text(left + 5, 140, "the arena: two places for four values", size=13, colour=OURS)
    p.line(left, 152, 380, 152, "#d0d7de", dashed=True)
    p.text(20, 184, "result", size=13)
    p.box(left + step * 4 + 4, 162, 54, 34, THEIRS, 0.5)
    p.text(left + step * 4 + 31, 184, "y", anchor="middle")
    return p.done()


def cache():
    """Windows with one structure share a program."""
    p = Picture(WIDE, 250, "The key of a window has its structure, not its values")
    p.text(20, 28, "window", bold=True, colour=PALE)
    p.text(186, 28, "key", bold=True, colour=PALE)
    p.text(306, 28, "program", bold=True, colour=PALE)
    rows = (("w - 0.1 * g", 44, 0), ("w - 0.01 * g", 90, 0), ("w - 0.1 * g", 154, 1))
    for words, y, which in rows:
        labelled(p, 20, y, 124, 34, words, OURS, 0.12, code=True, size=12)
        colour = OURS if which == 0 else THEIRS
        labelled(p, 170, y, 104, 34, "64×64, mul, sub" if which == 0 else "64×65, mul, sub", colour, 0.25, size=12)
        p.arrow(146, 170, y + 17)
    p.parts.append(f'<path d="M276 61C288 61 288 84 296 84M276 107C288 107 285 84 296 84" fill="none" stroke="{PALE}" stroke-width="1.5"/>')
    labelled(p, 298, 62, 82, 44, "planned", OURS, 1, size=12, ink=PAPER)
    p.arrow(276, 298, 171)
    labelled(p, 298, 149, 82, 44, "another", THEIRS, 1, size=12, ink=PAPER)
    p.text(20, 222, "0.1 and 0.01 are params: arguments of the program.", size=13, colour=PALE)
    p.text(20, 240, "Another shape is another structure.", size=13, colour=PALE)
    return p.done()


def replay():
    """Host and device, launched one by one and replayed."""
    p = Picture(WIDE, 262, "Launched one by one the device waits for the host; replayed, it does not")
    left, unit = 84, 44

    def lanes(y, title, colour):
        p.text(20, y, title, bold=True, colour=colour)
        p.text(20, y + 28, "host", size=13)
        p.text(20, y + 60, "device", size=13)
        p.line(left, y + 72, 380, y + 72, "#d0d7de", width=1)

    lanes(30, "launched step by step", THEIRS)
    for i in range(6):
        labelled(p, left + unit * i, 42, unit - 4, 24, str(i + 1), THEIRS, 0.3, size=12)
        p.box(left + unit * (i + 1) - 4, 74, 16, 22, OURS, 0.8)
    p.text(left, 120, "six launches; in the gaps the device waits", size=12, colour=PALE)
    lanes(154, "one graph", OURS)
    labelled(p, left, 166, unit + 20, 24, "replay", OURS, 0.3, size=12)
    for i in range(6):
        p.box(left + unit + 24 + 18 * i, 198, 16, 22, OURS, 0.8)
    p.text(left, 244, "the same kernels, nothing between them", size=12, colour=PALE)
    return p.done()


def first_run():
    """What happens when a program asks for a GPU."""
    p = Picture(WIDE, 300, "A program that asks for a GPU gets it, or an error that says why not")
    labelled(p, 110, 18, 180, 34, 'device="rocm"', OURS, 0.15, code=True)
    p.arrow_down(200, 54, 76)
    labelled(p, 110, 78, 180, 34, "can it be used?", OURS, 0.15)
    p.line(110, 95, 70, 95)
    p.arrow_down(70, 95, 136)
    p.text(78, 88, "no", size=13, colour=THEIRS, anchor="start")
    p.line(290, 95, 316, 95)
    p.arrow_down(316, 95, 136)
    p.text(296, 88, "yes", size=13, colour=OURS)
    labelled(p, 16, 138, 130, 34, "DeviceError", THEIRS, 0.25, bold=True)
    p.text(81, 192, "the reason, and a", size=13, anchor="middle")
    p.text(81, 210, "command that fixes it", size=13, anchor="middle")
    p.text(81, 236, "never the CPU", size=13, anchor="middle", colour=THEIRS, bold=True)
    p.text(81, 254, "instead", size=13, anchor="middle", colour=THEIRS, bold=True)
    labelled(p, 196, 138, 188, 34, "kernel in the cache?", OURS, 0.15)
    p.arrow_down(240, 174, 206)
    p.arrow_down(340, 174, 206)
    p.text(212, 194, "no", size=13)
    p.text(350, 194, "yes", size=13)
    labelled(p, 196, 208, 88, 34, "compile it", OURS, 0.35)
    labelled(p, 296, 208, 88, 34, "load it", OURS, 0.35)
    p.arrow_down(240, 244, 262)
    p.arrow_down(340, 244, 262)
    labelled(p, 196, 264, 188, 24, "run", OURS, 1, ink=PAPER)
    return p.done()


def gpt():
    """From characters to the probabilities of the next one, with shapes."""
    p = Picture(WIDE, 330, "A small GPT: from characters to the probabilities of the next one")
    rows = (("characters", "B × T", THEIRS, 0.2), ("embedding + position", "B × T × 64", OURS, 0.15), ("block: attention, MLP", "B × T × 64", OURS, 0.4),
            ("block: attention, MLP", "B × T × 64", OURS, 0.4), ("layer norm, linear", "B × T × characters", OURS, 0.15), ("cross entropy", "one number", THEIRS, 0.2))
    for i, (words, shape, colour, opacity) in enumerate(rows):
        y = 20 + 50 * i
        labelled(p, 20, y, 190, 34, words, colour, opacity)
        p.text(226, y + 22, shape, size=13, colour=PALE)
        if i:
            p.arrow_down(115, y - 16, y - 2)
    p.text(20, 320, "B texts of T characters; the next one is learnt.", size=13, colour=PALE)
    return p.done()


def lora():
    """y = W x + s B A x."""
    p = Picture(WIDE, 250, "LoRA: a frozen matrix and a path of small rank beside it")
    labelled(p, 16, 96, 40, 40, "x", THEIRS, 0.25, bold=True)
    p.line(56, 116, 84, 116)
    p.line(84, 60, 84, 180)
    p.arrow(84, 120, 60)
    p.arrow(84, 120, 180)
    labelled(p, 122, 22, 130, 76, "W, frozen", PALE, 0.3)
    labelled(p, 122, 150, 26, 60, "A", OURS, 1, ink=PAPER, bold=True)
    p.arrow(150, 194, 180)
    p.text(158, 172, "rank r", size=12, colour=PALE)
    labelled(p, 196, 166, 56, 28, "B", OURS, 1, ink=PAPER, bold=True)
    p.text(76, 230, "trained: r · (inputs + outputs) numbers", size=13, colour=OURS)
    p.line(252, 60, 300, 60)
    p.line(252, 180, 300, 180)
    p.line(300, 60, 300, 100)
    p.line(300, 132, 300, 180)
    p.text(258, 172, "× s", size=13)
    labelled(p, 284, 100, 32, 32, "+", THEIRS, 0.25, bold=True)
    p.arrow(318, 344, 116)
    labelled(p, 344, 96, 40, 40, "y", THEIRS, 0.25, bold=True)
    return p.done()


def waves():
    """A workgroup of 128 threads as waves of 64 and of 32, and the sum over it."""
    p = Picture(WIDE, 290, "128 threads are two waves of 64 or four of 32; the sum has the same order")
    p.text(20, 28, "128 threads of a workgroup", bold=True, colour=PALE)

    def row(y, count, title):
        p.text(20, y + 16, title, size=13)
        wide = 260 / count
        for i in range(count):
            labelled(p, 120 + wide * i, y, wide - 4, 24, f"wave {i}", OURS, 0.3, size=12)

    row(42, 2, "CDNA: 64")
    row(76, 4, "RDNA: 32")
    p.text(20, 132, "over_group, on both", bold=True, colour=PALE)
    for i in range(4):
        labelled(p, 120 + 65 * i, 146, 61, 24, "32 lanes", OURS, 0.3, size=12)
        p.arrow_down(150 + 65 * i, 172, 192)
        labelled(p, 130 + 65 * i, 194, 41, 22, f"s{i}", THEIRS, 0.3, size=12)
        p.line(150 + 65 * i, 218, 250, 240)
    p.text(20, 162, "by shuffles", size=13)
    p.text(20, 210, "local memory", size=13)
    labelled(p, 190, 240, 120, 26, "s0+s1+s2+s3", THEIRS, 0.5, size=12)
    p.text(20, 284, "The order, and so each bit, is the same.", size=13, colour=PALE)
    return p.done()


def ranks():
    """Two processes, one model."""
    p = Picture(WIDE, 290, "Two processes take halves of a batch and average their gradients")
    for x, name in ((20, "rank 0"), (216, "rank 1")):
        p.frame(x, 34, 164, 240, PALE)
        p.text(x + 82, 26, name, bold=True, anchor="middle", colour=PALE)
        labelled(p, x + 16, 46, 132, 28, "half of the batch", THEIRS, 0.2)
        p.arrow_down(x + 82, 76, 92)
        labelled(p, x + 16, 94, 132, 28, "forward, backward", OURS, 0.25)
        p.arrow_down(x + 82, 124, 148)
        p.arrow_down(x + 82, 182, 206)
        labelled(p, x + 16, 208, 132, 28, "the same step", OURS, 0.25)
        p.text(x + 82, 260, "the same weights", anchor="middle", size=13, colour=PALE)
    labelled(p, 28, 150, 344, 30, "all_reduce: the average of the gradients", THEIRS, 1, ink=PAPER, bold=True)
    return p.done()


def batching():
    """Requests share the steps of an engine."""
    p = Picture(WIDE, 232, "Requests join and leave the engine's batch between two steps")
    p.text(20, 28, "steps of the engine", bold=True, colour=PALE)
    left, unit = 110, 30
    rows = (("curl", 0, 5), ("urllib", 1, 8), ("a browser", 3, 6))
    for i in range(9):
        p.text(left + unit * i + unit / 2, 50, str(i), anchor="middle", size=12, colour=PALE)
    for r, (name, begin, end) in enumerate(rows):
        y = 62 + 38 * r
        p.text(20, y + 19, name, size=13)
        for i in range(begin, end):
            p.box(left + unit * i + 2, y, unit - 4, 28, THEIRS if i == begin else OURS, 0.6)
    p.frame(left + unit * 3, 56, unit, 112, INK, dashed=True)
    p.text(20, 196, "Step 3 computes one batch for all three.", size=13)
    p.box(20, 208, 14, 12, THEIRS, 0.6)
    p.text(40, 219, "reads the prompt", size=12, colour=PALE)
    p.box(160, 208, 14, 12, OURS, 0.6)
    p.text(180, 219, "writes a token", size=12, colour=PALE)
    return p.done()


def engine():
    """The rows of a step of pf.llm.Engine, and the blocks of its cache."""
    p = Picture(WIDE, 372, "A step of the engine is one matrix of rows; keys and values lie in blocks")
    p.text(20, 28, "wait", bold=True, colour=PALE)
    p.text(128, 28, "one step: the rows of one matrix", bold=True, colour=PALE)
    for i, name in enumerate("ED"):
        labelled(p, 20 + 34 * i, 62, 28, 28, name, PALE, 0.25, bold=True)
    p.arrow(90, 122, 76)
    rows = (("A", "its next token", OURS), ("B", "its next token", OURS), ("C", "", THEIRS), ("C", "a part of its prompt", THEIRS), ("C", "", THEIRS))
    for i, (name, what, colour) in enumerate(rows):
        labelled(p, 132, 42 + 20 * i, 90, 17, name, colour, 0.35, size=12, bold=True)
        if what:
            p.text(232, 55 + 20 * i, what, size=13)
    p.frame(128, 38, 98, 105, INK, dashed=True)
    p.text(20, 172, "blocks of each text", bold=True, colour=PALE)
    tables = (("A", (0, 1, 4), OURS), ("B", (0, 1, 6), OURS), ("C", (2, 5), THEIRS))
    for r, (name, blocks, colour) in enumerate(tables):
        p.text(20, 202 + 32 * r, name, size=13, bold=True)
        for i, block in enumerate(blocks):
            labelled(p, 44 + 40 * i, 184 + 32 * r, 36, 26, str(block), colour, 0.6 if block < 2 else 0.25)
    p.frame(40, 180, 84, 66, INK, dashed=True)
    p.text(182, 202, "A and B begin alike:", size=13)
    p.text(182, 220, "the same blocks serve both", size=13)
    p.text(20, 304, "memory of the cache: 16 tokens in a block", bold=True, colour=PALE)
    used = {block: colour for _, blocks, colour in tables for block in blocks}
    for block in range(9):
        labelled(p, 20 + 40 * block, 314, 36, 26, str(block), used.get(block, PALE), 0.6 if block < 2 else 0.25 if block in used else 0.08)
    p.text(20, 360, "3, 7 and 8 are free: D can begin in the next step.", size=13, colour=PALE)
    return p.done()


def extension():
    """An op of an extension stands between others."""
    p = Picture(WIDE, 210, "An op of an extension is a step of the window like any other")
    p.text(20, 30, "one window", bold=True, colour=PALE)
    p.frame(20, 40, 360, 84, OURS)
    for i, (words, colour) in enumerate((("matmul + b", OURS), ("yours", THEIRS), ("mul, sum", OURS))):
        labelled(p, 32 + 118 * i, 64, 100, 36, words, colour, 0.3 if colour == OURS else 1, ink=INK if colour == OURS else PAPER, bold=colour == THEIRS)
        if i:
            p.arrow(134 + 118 * (i - 1), 150 + 118 * (i - 1), 82)
    p.line(200, 102, 200, 146, THEIRS)
    p.text(200, 162, "compiled by your compiler, once", size=13, anchor="middle", colour=THEIRS)
    p.text(200, 188, "memory, order, gradients and errors: the engine's", size=13, anchor="middle", colour=PALE)
    return p.done()


def profile():
    """Where the time of a step went, in three versions of a program."""
    programs = json.loads(PROFILE.read_text())["programs"]
    p = Picture(WIDE, 282, "Shares of a training step: planning, between steps, in steps, before and after two repairs")
    left, wide = 20, 360
    colours = {"planning": THEIRS, "between": PALE, "steps": OURS}
    for i, (name, d) in enumerate(programs.items()):
        y = 38 + 64 * i
        step = f"{d['median_us'] / 1000:.2f} ms a step" if d["median_us"] >= 100 else f"{d['median_us']:.0f} µs a step"
        p.text(left, y - 8, name, bold=True, size=13)
        p.text(left + wide, y - 8, step, anchor="end", size=13)
        x = left
        for part, colour in colours.items():
            w = wide * d[part]
            if w < 1:
                continue
            p.box(x, y, w, 28, colour)
            if w > 40:
                p.text(x + w / 2, y + 19, f"{100 * d[part]:.0f} %", colour=PAPER, anchor="middle", size=13)
            x += w
    for i, (words, colour) in enumerate((("planning of new windows", THEIRS), ("between steps: Python, recording, look-up", PALE), ("steps (kernels) run", OURS))):
        p.box(left, 214 + 20 * i, 14, 12, colour)
        p.text(left + 20, 225 + 20 * i, words, size=13)
    return p.done()


def roofline():
    """Products of three heights below the roof of the CPU that was measured."""
    d = json.loads(PROFILE.read_text())
    gbs, gflops = d["roof"]["gbs"], d["roof"]["gflops"]
    p = Picture(WIDE, 300, "Roofline of a CPU: products of few rows are limited by memory, those of many by arithmetic")
    left, right, top, bottom = 52, 384, 34, 244
    low, high = math.log10(0.25), math.log10(200)
    least, most = math.log10(4), math.log10(2 * gflops)
    at = lambda i, g: (left + (right - left) * (math.log10(i) - low) / (high - low), bottom - (bottom - top) * (math.log10(g) - least) / (most - least))  # noqa: E731
    for g in (10, 100):
        y = at(1, g)[1]
        p.line(left, y, right, y, "#d0d7de", width=1)
        p.text(left - 6, y + 4, str(g), anchor="end", size=12, colour=PALE)
    for i in (1, 10, 100):
        x = at(i, 10)[0]
        p.line(x, top, x, bottom, "#d0d7de", width=1)
        p.text(x, bottom + 18, str(i), anchor="middle", size=12, colour=PALE)
    ridge = gflops / gbs
    p.curve([at(0.25, 0.25 * gbs), at(ridge, gflops), at(200, gflops)], INK)
    p.text(20, 22, "GFLOP/s", size=12, colour=PALE)
    p.text(right, bottom + 36, "FLOP a byte", anchor="end", size=12, colour=PALE)
    p.text(at(0.3, 10)[0] + 4, at(1, 0.9 * gbs)[1] - 26, f"{gbs:.0f} GB/s", size=13)
    p.text(right, at(1, gflops)[1] - 8, f"{gflops:.0f} GFLOP/s", anchor="end", size=13)
    for product in d["products"]:
        x, y = at(product["intensity"], min(product["gflops"], 2 * gflops))
        p.dot(x, y, 5, OURS)
        rows = product["rows"]
        p.text(x + 9, y + 16, f"{rows} row{'s' if rows > 1 else ''}", size=12, colour=OURS)
    p.text(left, bottom + 48, "x·w by rows of x; w is 8192 × 8192", size=13, colour=PALE)
    return p.done()


def pixels(p, values, x, y, size):
    """An image of numbers from 0 to 1, in four levels of grey."""
    for level in range(4):
        path = "".join(f"M{x + size * c:g} {y + size * r:g}h{size:g}v{size:g}h-{size:g}z" for r, row in enumerate(values) for c, v in enumerate(row) if min(3, max(0, int(4 * v))) == level)
        if path and level:
            p.parts.append(f'<path d="{path}" fill="{INK}" fill-opacity="{level / 3:.2f}"/>')


def digits():
    """The glyphs of the page, and images that are made of some of them."""
    page = (ROOT / "docs" / "tutorials" / "classify-images.md").read_text(encoding="utf-8")
    rows = [line.split() for line in page.split('GLYPHS = """')[1].split('"""')[0].strip().splitlines()]
    glyphs = [[[float(c == "#") for c in row[d]] for row in rows] for d in range(10)]
    p = Picture(WIDE, 210, "Ten glyphs of 5 by 7 points, and images of 20 by 20 that are made of four of them")
    for d, glyph in enumerate(glyphs):
        pixels(p, glyph, 22 + 36 * d, 18, 5)
    p.text(20, 74, "enlarged, moved, brightness changed, noise:", size=13, colour=PALE)
    noise = random.Random(0)
    for i, (d, down, right, light) in enumerate(((3, 1, 8, 0.9), (7, 5, 2, 0.7), (0, 3, 5, 1.0), (8, 0, 0, 0.6))):
        image = [[light * (glyphs[d][(r - down) // 2][(c - right) // 2] if 0 <= r - down < 14 and 0 <= c - right < 10 else 0) + noise.gauss(0, 0.3) for c in range(20)] for r in range(20)]
        pixels(p, image, 20 + 92 * i, 84, 4)
        p.frame(20 + 92 * i, 84, 80, 80, PALE)
        p.text(60 + 92 * i, 186, str(d), anchor="middle", colour=OURS, bold=True)
    return p.done()


def kept():
    """Memory of a validation batch by batch: with a tape that is kept, and without one. A batch keeps four activations of 128 × 1024 float32."""
    p = Picture(WIDE, 232, "Memory in use after each of eight batches: it grows by 2 MiB a batch with a tape, and stays without one")
    unit, base = 18, 180
    for x, title, colour, mib in ((20, "with a tape", THEIRS, lambda i: 0.5 + 2 * (i + 1)), (214, "under no_grad()", OURS, lambda i: 1.5)):
        p.text(x, 28, title, bold=True, colour=colour)
        for i in range(8):
            height = round(mib(i) * 7.6)
            p.box(x + (unit + 2) * i, base - height, unit, height, colour, 0.7)
            p.text(x + (unit + 2) * i + unit / 2, base + 16, str(i + 1), anchor="middle", size=12, colour=PALE)
        p.line(x, base, x + 160, base)
        p.text(x + (unit + 2) * 7 + unit, base - round(mib(7) * 7.6) - 5, f"{mib(7):g} MiB", anchor="end", size=12)
    p.text(20, 220, "memory after each batch, beyond the model's", size=13, colour=PALE)
    return p.done()


def tune():
    """Who does what when products of PyTorch are tuned."""
    p = Picture(WIDE, 282, "PyTorch records its products, PyFlame measures kernels for them, PyTorch reads the file")
    p.text(82, 28, "PyTorch", bold=True, anchor="middle", colour=THEIRS)
    p.text(310, 28, "PyFlame", bold=True, anchor="middle", colour=OURS)
    p.line(200, 40, 200, 230, "#d0d7de", dashed=True)
    for y, left, right in ((44, "runs, records", "doctor, profile"), (110, "", "tune: measures"), (176, "runs with the file", "exports")):
        if left:
            labelled(p, 16, y, 132, 34, left, THEIRS, 0.25)
        labelled(p, 244, y, 132, 34, right, OURS, 0.25)
    p.line(82, 78, 82, 127)
    p.arrow(82, 244, 127)
    p.text(112, 120, "shapes", size=12, colour=PALE)
    p.arrow_down(310, 78, 110)
    p.arrow_down(310, 144, 176)
    p.parts.append(f'<path d="M244 193H156m6 -5l-8 5l8 5" fill="none" stroke="{PALE}" stroke-width="1.5"/>')
    p.text(162, 184, "kernels", size=12, colour=PALE)
    p.text(20, 254, "It stays only if the whole program is faster.", size=13, colour=PALE)
    return p.done()


PICTURES = {f.__name__.replace("_", "-"): f for f in (window, fusion, arena, cache, replay, first_run, gpt, lora, waves, ranks, batching, engine, extension, profile, roofline, digits, kept, tune)}


def main(arguments):
    stale = []
    for name, draw in PICTURES.items():
        path, text = ROOT / "docs" / "images" / f"{name}.svg", draw()
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        if "--check" in arguments:
            stale.append(str(path.relative_to(ROOT)))
        else:
            path.write_text(text, encoding="utf-8")
    if stale:
        print(f"{', '.join(stale)}: not what tools/gen_pictures.py draws; run `make docs`", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
