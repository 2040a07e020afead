"""The state machine: baseline, profile, one change after the other, composition. Each change passes a gate (the program computes the same) and a comparison
(the program is faster) before it counts."""
import json
import os
import re
import statistics
import subprocess
import time
from dataclasses import dataclass

from .. import _configuration
from ..benchmarking.compare import WORTH, Comparison, bootstrap
from ..benchmarking.measure import REJECTED, spread_of
from ..tuning import watch
from . import candidates, gate

BASELINES = 3
FEWEST_PAIRS = 3
MOST_ROUNDS = 3  # of pairs, where the first ones do not decide
NOISY_ROUNDS = 8  # the same for a program whose own figures spread widely
UNUSED = "it changes nothing in this program"


class Stopped(Exception):
    """The cycle cannot go on; the text says why and what to do. code: of the process."""

    def __init__(self, text, code=1):
        super().__init__(text)
        self.code = code


class Interrupted(Exception):
    """Ctrl-C."""


class BudgetEnded(Exception):
    """There is no time for another run."""


@dataclass
class Run:
    """One run of the program. figure: seconds a step, or the inverse of the rate; None with `why` if there is none."""

    figure: float = None
    why: str = ""
    records: list = None
    head: dict = None
    seconds: float = 0.0
    steps: int = 0


def rates(metric, text):
    """The numbers that stand beside the metric's name in a text: `tokens/s: 1234.5`, `1234.5 tokens/s`."""
    number, name = r"([0-9][0-9_,]*\.?[0-9]*(?:[eE][-+]?[0-9]+)?)", re.escape(metric)
    found = re.findall(rf"{number}\s*{name}(?!\w)|(?<!\w){name}\s*[:=]?\s*{number}", text)
    return [float((a or b).replace(",", "").replace("_", "")) for a, b in found]


_STARTED_WHILE_IMPORTED = ("An attempt has been made to start a new process before the", "a worker process began to run the program again")  # of multiprocessing, and of DataLoader


def _failure(code, text, program):
    """Why a run failed: its last lines, or what to write where Python's message is long and does not name the place."""
    if any(said in text for said in _STARTED_WHILE_IMPORTED):
        return (f"its processes import it, and it starts processes while it is imported; got {program}, exit code {code}; expected what it runs below `if __name__ == '__main__':`; "
                "hint: put what is not a def, a class or an import into `def main():`, and end the file with\n    if __name__ == '__main__':\n        main()")  # fmt: skip
    last = "\n".join(text.splitlines()[-20:])
    if code == 0:
        return f"it ended before Python did, so that what it computed is not known; got os._exit(0), or a library that ends the process; expected sys.exit(), or the end of the program; its last lines:\n{last}"
    return f"it failed with exit code {code}; its last lines:\n{last}"


def figure_of(metric, outcome, text):
    """Smaller is better. A text says why there is none."""
    if metric == "step time":
        return outcome.step_seconds
    found = [r for r in rates(metric, text) if r > 0]
    if not found:
        return f"the program printed no number beside {metric!r}; expected a line such as '{metric}: 1234'; hint: --metric with the text that the program prints, or without, for the time of a step"
    return 1 / statistics.median(found[len(found) // 3:])


class Machine:
    """Runs the cycle. say: prints a line; show: Progress. allow_noise: a program whose own figures spread widely is no error; its comparisons take more runs."""

    def __init__(self, program, folder, journal, metric, budget, level, pairs, hang, say, progress, pyflame=None, plugins="", allow_noise=False):
        self.file, self.module, self.arguments = program
        self.folder, self.journal, self.metric, self.budget, self.level, self.pairs, self.hang = folder, journal, metric, budget, level, pairs, hang
        self._say, self._progress, self._start = say, progress, time.monotonic()
        self._work = os.path.abspath(folder)  # of the files of a run, which holds also where the program changes its folder
        self._pyflame, self._plugins = pyflame, plugins  # the program, for reports; modules that register entries
        own = os.environ.get("PYFLAME_SETTINGS")
        self.base = _configuration.read_settings(own) if own else {}
        self.kept, self.reference, self.head = [], None, None
        self._rounds, self._allow_noise = MOST_ROUNDS, allow_noise
        self._run_seconds = 0.0  # of one run, the longest of the baseline's
        self.result = os.path.join(folder, "pyflame.toml")

    # ---- runs

    def _path(self, name):
        return os.path.join(self._work, name)

    def tables(self, kept):
        result = self.base
        for candidate in kept:
            result = candidates.merged(result, candidate.changes)
        return result

    def left(self):
        return self.budget - (time.monotonic() - self._start)

    def run(self, kept, what):
        """The program with these changes."""
        if self.left() <= 0:
            raise BudgetEnded
        trial, report, observed, log = (self._path(name) for name in ("trial.toml", "steps", "observed", "log"))
        _configuration.write_settings(trial, self.tables(kept), "A trial of `pyflame optimize`.")
        for path in (observed, log):
            if os.path.exists(path):
                os.remove(path)
        words = watch.command(self.module, self.file, self.arguments, report, observed, plan=self.head is None)

        def stop(seconds):
            self._progress.show(1 - self.left() / self.budget, f"{what} ({seconds:.0f} s)")
            return "hung" if seconds > self.hang else None

        outcome = watch.run_once(words, report, log, {"PYFLAME_SETTINGS": trial, "PYTHONHASHSEED": "0"}, stop)
        if outcome.why == "interrupted":
            raise Interrupted
        return self._result(outcome, observed, log)

    def _result(self, outcome, observed, log):
        with open(log, encoding="utf-8", errors="replace") as file:
            text = file.read()
        if outcome.why == "hung":
            return Run(why=f"it ran for more than {self.hang:.0f} s", seconds=outcome.seconds)
        if outcome.why == "failed" or not os.path.exists(observed):
            return Run(why=_failure(outcome.code, text, self.file or self.module), seconds=outcome.seconds)
        head, records = gate.read(observed)
        figure = figure_of(self.metric, outcome, text)
        if isinstance(figure, str):
            return Run(why=figure, seconds=outcome.seconds)
        return Run(figure, "", records, head, outcome.seconds, len(outcome.steps) if outcome.blocks else 0)

    # ---- the baseline

    def baseline(self):
        """Runs the program as it is, and refuses what cannot be compared."""
        runs = []
        while len(runs) < BASELINES or len(runs) < 2 * BASELINES and spread_of([r.figure for r in runs]) > REJECTED:
            try:
                runs.append(self.run([], f"baseline, run {len(runs) + 1}"))
            except BudgetEnded:
                raise Stopped(f"the budget ended within the baseline; got {self.budget:.0f} s; expected time for many runs of the program; hint: a larger --budget") from None
            self._check_baseline(runs)
        first, figures = runs[0], [r.figure for r in runs]
        if spread_of(figures) > REJECTED:
            self._expect_noise(figures, first.steps)
        self.reference, self.head = first.records, first.head
        self._run_seconds = max(r.seconds for r in runs)
        if not first.steps and self.metric == "step time":
            self._say("the program has fewer than 8 steps (optimizer's steps, or calls of its module), so it is timed as a whole")
        return self.journal.add("baseline", figures=figures, spread=spread_of(figures), values=len(first.records), steps=first.steps, head=first.head, seconds=first.seconds, pairs=self._rounds * self.pairs)

    def _expect_noise(self, figures, steps):
        """For a program whose own figures spread widely: comparisons take more runs, as the interval of a few is too wide. Stopped unless that was asked for."""
        spread = spread_of(figures)
        if not self._allow_noise:
            raise Stopped(f"the program's own figures spread over {spread:.0%}, also with {len(figures) - BASELINES} more runs; got {', '.join(f'{f:.4g} s' for f in figures)}; expected at most {REJECTED:.0%}; "
                          f"hint: stop other programs, let the program run for more steps, or go on with --allow-noise, which compares a change in up to {NOISY_ROUNDS * self.pairs} pairs of runs"
                          + ("" if steps else "; the program has fewer than 8 steps, so that it was timed as a whole"))  # fmt: skip
        self._rounds = NOISY_ROUNDS
        self._say(f"the program's own figures spread over {spread:.0%} in {len(figures)} runs, so a change is compared in up to {NOISY_ROUNDS * self.pairs} pairs of runs")

    @staticmethod
    def _check_baseline(runs):
        first, last = runs[0], runs[-1]
        if last.why:
            raise Stopped(f"the program cannot be optimized, because {last.why}")
        if not first.records:
            raise Stopped("the program computes nothing that can be compared: it reads no value, calls no module and has no optimizer's step; hint: print a result, such as print(y.sum().item())")
        wrong = gate.difference(first.records, last.records)
        if wrong:
            raise Stopped(f"two runs of the program as it is differ, so that no change could be verified; {wrong}; "
                          "hint: seed what draws random numbers (numpy.random.default_rng(0)), and leave the time and process numbers out of what is computed")

    def profile(self):
        """What the profile says. A program that cannot be profiled is optimized without."""
        folder = self._path("profile")
        self._progress.show(1 - self.left() / self.budget, "profile")
        report, log = self._path("steps"), self._path("log")
        outcome = watch.run_once(candidates.profile_command(folder, self.file, self.module, self.arguments, self._pyflame), report, log, {}, lambda s: "hung" if s > self.hang else None)
        if outcome.why == "interrupted":
            raise Interrupted
        document, path = None, os.path.join(folder, "report.json")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                text = file.read()
            document = json.loads(text) if text else None
        facts = candidates.facts_of(document, self.head)
        self.journal.add("profile", verdict=facts.verdict or "there is no profile: " + outcome.why, device=facts.device, shares=facts.shares, waiting=facts.waiting, busy=facts.busy, capacity=facts.capacity, peak=facts.peak, retries=facts.retries, recomputation=facts.recomputation, accumulation=facts.accumulation, convolutions=facts.convolutions, channels_last=facts.channels_last, reads=facts.reads, steps=facts.steps, advice=facts.advice)
        return facts

    # ---- one change

    def prepare(self, candidate):
        """What a change needs before it is tried. A text says what went wrong."""
        if candidate.prepare != "measure":
            return ""
        path = candidate.changes["engine"]["tuning_file"]
        trial, log = self._path("trial.toml"), self._path("log")
        _configuration.write_settings(trial, self.tables([*self.kept, candidate]), "A trial of `pyflame optimize`.")
        budget = max(1.0, min(120.0, self.left() / 3))
        outcome = watch.measure(watch.command(self.module, self.file, self.arguments, self._path("steps")), self._path("steps"), log, path, "", budget, watch.Limits(), self._progress, {"PYFLAME_SETTINGS": trial})
        if outcome.why == "interrupted":
            raise Interrupted
        return "" if outcome.why in ("ended", "stopped") else "measuring failed"

    def compare(self, first, second, names, check, stop_early=False):
        """Runs both in turns. A Comparison, or a text: the second one failed or computed something else. check(run) says what is wrong with the second.
        stop_early: fewer turns will do where the second one is not faster. Where the second one seems to be faster, but the interval does not say so, there are more turns."""
        figures, wanted = ([], []), 2 * self.pairs
        for turn, which in enumerate(watch.in_turns(self._rounds * self.pairs)):
            if turn == wanted:
                if not self._undecided(self._compared(names, figures)):
                    break
                wanted += 2 * self.pairs
            try:
                run = self.run((first, second)[which], f"{names[1]}: run {turn + 1} of {wanted}")
            except BudgetEnded:
                if min(map(len, figures)) >= FEWEST_PAIRS:
                    break
                raise
            wrong = run.why or (check(run) if which else "")
            if wrong:
                return wrong if which else f"the program without it does not run any more: {wrong}"
            figures[which].append(run.figure)
            if stop_early and turn % 2 and min(map(len, figures)) >= FEWEST_PAIRS and self._compared(names, figures).high < 1 + WORTH:
                break
        return self._compared(names, figures)

    def _undecided(self, comparison):
        return comparison.ratio > 1 + WORTH >= comparison.low

    def _compared(self, names, figures):
        return Comparison(*names, *bootstrap(*figures, paired=True), paired=True)

    def gate(self, kept, rewrite=""):
        """What says whether a run with these changes computed something else."""
        precision = gate.coarsest(self.precision(kept), self.head.get("dtypes", ()))
        apart = {kind for c in kept for kind in c.incomparable}
        reference = [r for r in self.reference if r["kind"] not in apart]

        def check(run):
            if rewrite and not run.head["fired"].get(rewrite):
                return UNUSED
            return gate.difference(reference, [r for r in run.records if r["kind"] not in apart], precision)

        return check

    def precision(self, kept):
        """The least exact one of the changes."""
        order = [None, *gate.ROUNDING]
        return order[max((order.index(c.precision) for c in kept), default=0)]

    def attempt(self, candidate):
        """Tries one change on top of those that are kept. Keeps it, or not."""
        wrong = self.prepare(candidate)
        with_it = [*self.kept, candidate]
        check = self.gate(with_it, candidate.rewrite)
        result = wrong or self.compare(self.kept, with_it, ("without", candidate.name), check, stop_early=True)
        first = result
        if not isinstance(result, str) and result.verdict == "faster":  # the first comparison chose it, perhaps by chance; the second one decides
            result = self.compare(self.kept, with_it, ("without", f"{candidate.name} again"), check)
        if isinstance(result, str):
            self._revert(candidate, result)
            return
        keep = result.verdict == "faster"
        self.journal.add("candidate", **_entry(candidate), verdict="kept" if keep else "reverted", ratio=result.ratio, low=result.low, high=result.high, first_ratio=first.ratio, why="" if keep else result.verdict)
        self._say(f"{candidate.name}: {'kept' if keep else 'reverted'}: {result.ratio:.3f} times [{result.low:.3f}, {result.high:.3f}]")
        if keep:
            self.kept = with_it
            self.save()

    def _revert(self, candidate, why):
        self.journal.add("candidate", **_entry(candidate), verdict="unused" if why == UNUSED else "wrong", why=why)
        self._say(f"{candidate.name}: reverted: {why}")

    def used(self, todo):
        """Without the rewrites that find nothing in this program, not even beside all others: one run tells."""
        rewrites = [c for c in todo if c.rewrite]
        if len(rewrites) < 2:
            return todo
        run = self.run([*self.kept, *rewrites], "which rewrites find something")
        if run.why:
            return todo
        unused = [c for c in rewrites if not run.head["fired"].get(c.rewrite)]
        for candidate in unused:
            self._revert(candidate, UNUSED)
        return [c for c in todo if c not in unused]

    def compose(self):
        """All that are kept, against all without one of them. What does not help beside the others is left out."""
        for candidate in list(self.kept):
            if len(self.kept) < 2:
                break
            others = [c for c in self.kept if c is not candidate]
            result = self.compare(others, self.kept, (f"without {candidate.name}", f"composition with {candidate.name}"), self.gate(self.kept))
            if isinstance(result, str):
                self.journal.add("composition", name=candidate.name, verdict="wrong", why=result)
                self.kept = others
            else:
                keep = result.verdict == "faster"
                self.journal.add("composition", name=candidate.name, verdict="kept" if keep else "left out", ratio=result.ratio, low=result.low, high=result.high)
                self.kept = self.kept if keep else others
            self._say(f"composition: {candidate.name} {'stays' if candidate in self.kept else 'is left out'}")
            self.save()

    def total(self):
        """The program as it was against the program with everything that is kept."""
        if not self.kept:
            return None
        result = self.compare([], self.kept, ("the program as it was", "all together"), self.gate(self.kept))
        if isinstance(result, str):
            self.journal.add("total", verdict="wrong", why=result)
        else:
            self.journal.add("total", verdict=result.verdict, ratio=result.ratio, low=result.low, high=result.high)
        if isinstance(result, str) or result.verdict != "faster":
            self._say(f"all together: reverted: {result}")
            self.kept = []
            self.save()
            return None
        return result

    def save(self):
        """The best settings that are verified, as a file."""
        names = ", ".join(c.name for c in self.kept) or "nothing"
        _configuration.write_settings(self.result, self.tables(self.kept), f"Written by `pyflame optimize` for {self.file or self.module}. Verified: {names}.\nUse: PYFLAME_SETTINGS={self.result}, or pf.load_settings")

    # ---- the cycle

    def _seconds_at_the_end(self):
        """What the comparisons of the composition and of the whole take, at least, after one more trial of a few turns."""
        comparisons = 1 + (len(self.kept) if len(self.kept) > 1 else 0)
        return 2 * self._run_seconds * (comparisons * self.pairs + FEWEST_PAIRS)

    def resume(self):
        """Takes over what the journal has. Returns the names that were tried."""
        self.kept = [candidates.Candidate(e["name"], e["level"], e["changes"], e["reason"], e["precision"], e["expected"], incomparable=tuple(e.get("incomparable", ()))) for e in self.journal.kept()]
        return {e["name"] for e in self.journal.of("candidate")}

    def cycle(self, tried):
        """Everything. Returns the Comparison of the whole, or None."""
        try:
            base = self.baseline()
            self._say(f"baseline: {_figure(self.metric, statistics.median(base['figures']))}, spread {base['spread']:.1%}, {base['values']} values to compare")
            facts = self.profile()
            if facts.verdict:
                self._say(facts.verdict)
            self.save()
            todo = [c for c in candidates.candidates(self.level, facts, self.folder, self._pyflame, self._plugins) if c.name not in tried]
            for line in candidates.table(todo):
                self._say(line)
            todo = self.used(todo)
            for at, candidate in enumerate(todo):
                if self.kept and self.left() < self._seconds_at_the_end():
                    names = [c.name for c in todo[at:]]
                    self.journal.add("budget", seconds=self.budget, untried=names)
                    self._say(f"the rest of the budget of {self.budget:.0f} s is for the last comparisons; not tried: {', '.join(names)}; hint: --resume with a larger --budget goes on")
                    break
                self.attempt(candidate)
            self.compose()
            return self.total()
        except BudgetEnded:
            self.journal.add("budget", seconds=self.budget)
            self._say(f"the budget of {self.budget:.0f} s ended; hint: --resume with a larger --budget goes on")
            return None


def _entry(candidate):
    return {"name": candidate.name, "level": candidate.level, "changes": candidate.changes, "reason": candidate.reason, "precision": candidate.precision, "expected": candidate.gain, "incomparable": candidate.incomparable}


def _figure(metric, value):
    return f"{1000 * value:.3f} ms a step" if metric == "step time" else f"{1 / value:.6g} {metric}"


def commit_of(file):
    """Of the program's folder; None without git."""
    try:
        done = subprocess.run(["git", "-C", os.path.dirname(os.path.abspath(file or ".")), "describe", "--always", "--dirty"], capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None
