"""How long the prompts and texts of `pyflame bench llm` are: drawn from a distribution, or those of a file. The same random numbers give the same lengths."""
import itertools
import json
import math

import numpy as np

DISTRIBUTIONS = ("uniform", "normal", "lognormal")
MOST_STD = 4  # a drawn length is at most the mean and so many standard deviations


class _Uniform:
    """Whole numbers between (1 - ratio) and (1 + ratio) times the mean, all equally likely. longest: the largest of them."""

    def __init__(self, mean, ratio):
        self._least, self.longest = max(1, math.floor(mean * (1 - ratio))), max(1, math.ceil(mean * (1 + ratio)))

    def draw(self, random):
        return int(random.integers(self._least, self.longest + 1))


class _Normal:
    """Rounded numbers of a normal distribution, from 1 to `longest`: what lies beyond becomes these."""

    def __init__(self, mean, std):
        self._mean, self._std, self.longest = mean, std, math.ceil(mean + MOST_STD * std)

    def _number(self, random):
        return random.normal(self._mean, self._std)

    def draw(self, random):
        return int(min(max(round(self._number(random)), 1), self.longest))


class _LogNormal(_Normal):
    """The same of a log-normal distribution, whose mean and standard deviation are these, and not those of the logarithms."""

    def _number(self, random):
        variance = math.log1p((self._std / self._mean) ** 2)
        return random.lognormal(math.log(self._mean) - variance / 2, math.sqrt(variance))


class Drawn:
    """Lengths of prompts and of texts that are drawn independently. longest: the most tokens of a prompt with its text."""

    def __init__(self, distribution, means, ratio, stds):
        if distribution == "uniform":
            self._input, self._output = (_Uniform(mean, ratio) for mean in means)
        else:
            kind = _Normal if distribution == "normal" else _LogNormal
            self._input, self._output = map(kind, means, stds)
        self.longest = self._input.longest + self._output.longest

    def pair(self, random):
        """(the length of a prompt, that of its text)"""
        return self._input.draw(random), self._output.draw(random)

    def output(self, random):
        """The length of a text whose prompt is there."""
        return self._output.draw(random)


class OfFile:
    """Pairs of lengths of a file with a JSON object in each line: input_len, output_len and perhaps count. Lines without count are taken one after the other, and from the first again. Lines with
    count are a histogram: each pair is drawn as often as its count says. longest: as of Drawn. OSError; ValueError for a file of another form."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as f:
            rows = [self._row(path, number, line) for number, line in enumerate(f, 1) if line.strip()]
        if not rows:
            raise ValueError(f"bench llm: the file has no lengths; got '{path}' without a line; expected an object with input_len and output_len in each line")
        self._pairs, counts = [row[:2] for row in rows], [row[2] for row in rows]
        if None in counts and any(c is not None for c in counts):
            raise ValueError(f"bench llm: some lines have a count; got '{path}' with {counts.count(None)} of {len(rows)} lines without one; expected it in all lines, for a histogram, or in none")
        self._shares = None if None in counts else np.array(counts) / sum(counts)
        self._next, self.longest = itertools.cycle(self._pairs), max(map(sum, self._pairs))

    @staticmethod
    def _row(path, number, line):
        """(input_len, output_len, count or None) of a line. ValueError."""
        def fits(value):
            return isinstance(value, int) and not isinstance(value, bool) and value >= 1

        try:
            document = json.loads(line)
        except (ValueError, RecursionError):
            document = None
        row = tuple(map(document.get, ("input_len", "output_len", "count"))) if isinstance(document, dict) else ()
        if not row or not all(map(fits, row[:2])) or not (row[2] is None or fits(row[2])):
            raise ValueError(f"bench llm: a line of lengths does not fit; got line {number} of '{path}': {line.strip()[:80]}; "
                             'expected an object such as {"input_len": 512, "output_len": 128}, with whole numbers from 1 upwards, and perhaps "count"')
        return row

    def pair(self, random):
        return next(self._next) if self._shares is None else self._pairs[random.choice(len(self._pairs), p=self._shares)]


def add_arguments(parser):
    """The options of lengths."""
    add = parser.add_argument
    add("--input_len", type=int, metavar="N", default=512, help="tokens of random prompts (default 512)")
    add("--output_len", type=int, metavar="N", default=128, help="tokens that are written (default 128)")
    add("--range_ratio", type=float, metavar="N", default=0.0, help="lengths are uniform between (1 - r) and (1 + r) times these (default 0)")
    add("--length_distribution", choices=DISTRIBUTIONS, default="uniform", help="or they are drawn from a normal or lognormal distribution with these means (default uniform)")
    add("--input_std", type=float, metavar="X", default=0.0, help="the standard deviation of the prompts' lengths there (default 0)")
    add("--output_std", type=float, metavar="X", default=0.0, help="that of the texts (default 0)")
    add("--lengths", metavar="FILE", help='a file of lengths instead: JSON with input_len and output_len in each line; with "count", a histogram')


def check(args):
    """What is wrong with the options of lengths, a text, or None."""
    stds = {name: getattr(args, name) for name in ("input_std", "output_std")}
    for name, value in stds.items():
        if not 0 <= value < math.inf:
            return f"--{name} is out of range; got {value:g}; expected a number from 0 upwards"
    if not 0 <= args.range_ratio < 1:
        return f"--range_ratio is out of range; got {args.range_ratio:g}; expected at least 0 and less than 1"
    given = [name for name, value in stds.items() if value]
    if args.length_distribution == "uniform" and given:
        return f"--{given[0]} belongs to --length_distribution normal or lognormal; got it with uniform; expected one of these"
    if args.length_distribution != "uniform" and args.range_ratio:
        return f"--range_ratio belongs to --length_distribution uniform; got it with {args.length_distribution}; expected --input_std and --output_std"
    if args.length_distribution != "uniform" and not given:
        return f"--length_distribution {args.length_distribution} needs a standard deviation; got none; expected --input_std or --output_std"
    if args.dataset and stds["input_std"]:
        return "--input_std belongs to random prompts; got it with --dataset; expected --output_std alone"
    others = [name for name in ("dataset", "range_ratio", *stds) if getattr(args, name)]
    if args.lengths and others:
        return f"--lengths and --{others[0]} exclude each other; got both; expected one of them"
    return None


def lengths_of(args):
    """The lengths that the options ask for. OSError and ValueError for a file."""
    if args.lengths:
        return OfFile(args.lengths)
    return Drawn(args.length_distribution, (args.input_len, args.output_len), args.range_ratio, (args.input_std, args.output_std))
