"""How the commands that Python reads help and refuse: as the others, which the program itself reads."""
import argparse
import os
import re
import shutil

_NARROWEST, _WIDEST = 60, 120  # columns


def _columns():
    columns = os.environ.get("COLUMNS", "")
    return int(columns) if columns.isdigit() and int(columns) > 0 else shutil.get_terminal_size((100, 40)).columns


class HelpFormatter(argparse.HelpFormatter):
    """One spelling of each option with its value behind it, lines of 60 columns or more, and a line for each example."""

    def __init__(self, prog):
        super().__init__(prog, width=min(max(_columns(), _NARROWEST), _WIDEST))

    def _format_action_invocation(self, action):
        if not action.option_strings or action.nargs == 0:
            return ", ".join(_one_spelling(action.option_strings)) or super()._format_action_invocation(action)
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{', '.join(_one_spelling(action.option_strings))} {value}"

    def _format_args(self, action, default_metavar):
        if action.nargs == argparse.REMAINDER:  # argparse says `...`
            return self._metavar_formatter(action, default_metavar)(1)[0]
        return super()._format_args(action, default_metavar)

    def _fill_text(self, text, width, indent):
        return text if text.startswith("Examples:") else super()._fill_text(text, width, indent)


class HelpWithDefaults(HelpFormatter):
    """Also says the defaults. None and False are no values that one would type."""

    def _get_help_string(self, action):
        if action.default in (None, False, argparse.SUPPRESS) or not action.option_strings:
            return action.help
        value = ",".join(map(str, action.default)) if isinstance(action.default, list) else str(action.default)  # as it is typed
        return f"{action.help} (default: {value.replace('%', '%%')})"


# What argparse says of a value, and how it is said here: what is wrong, what was given, what is expected.
_SAID = (
    (r"invalid int value: (.*)", r"not a whole number; got \1; expected one such as 3"),
    (r"invalid float value: (.*)", r"not a number; got \1; expected one such as 0.5"),
    (r"invalid choice: (.*) \(choose from (.*)\)", lambda m: f"there is no such choice; got {m[1]}; expected {m[2].replace(chr(39), '')}"),
    (r"expected (one|at least one) argument", r"there is no value; got none; expected \1"),
)


def _as_a_sentence(message):
    """What argparse says of a wrong command line, as PyFlame says it."""
    named = re.fullmatch(r"argument ([^\s:/]+)[^\s:]*: (.*)", message, re.DOTALL)
    name, text = (f"{named[1]}: ", named[2]) if named else ("", message)
    for pattern, said in _SAID:
        if re.fullmatch(pattern, text, re.DOTALL):
            return name + re.sub(pattern, said, text, flags=re.DOTALL)
    return name + re.sub(r"^unrecognized arguments: (.*)", lambda m: f"not understood: '{m[1]}'", text, flags=re.DOTALL)


class Parser(argparse.ArgumentParser):
    """The parser of every command that Python carries out. It tells of a wrong command line in one line, as the program does. help_of: the command whose --help has the options, if it is
    not the parser's own name."""

    def __init__(self, *args, help_of=None, **kwargs):
        super().__init__(*args, **kwargs)
        self._help_of = help_of or self.prog

    def error(self, message):
        message = _as_a_sentence(message)
        self.exit(2, f"{self.prog}: {message}{', and' if '; hint: ' in message else '; hint:'} `{self._help_of} --help` shows what there is\n")


def _one_spelling(names):
    """The names of an option without those that differ from an earlier one in `-` and `_` alone."""
    return list({name.replace("_", "-"): name for name in reversed(names)}.values())[::-1]


def examples(*pairs):
    """The end of a help: each example with what it does."""
    return "\n".join(["Examples:", *(f"  {command}\n      {meaning}" for command, meaning in pairs)])


def program_of(args):
    """The words behind the options: a program and its arguments. The `--` that ends the options is not among them."""
    return args.program[args.program[:1] == ["--"]:]
