"""The entry of the commands that Python carries out: how they end where an error is told, after Ctrl-C, and where nobody reads the output any longer."""
import functools
import os
import select
import signal
import sys

READER_LEFT = 128 + signal.SIGPIPE  # the exit code that a shell shows for a program which SIGPIPE ended


def reader_left():
    """Whether the reader of the standard output or of the standard error has closed its end of the pipe. From then on, what is written there is thrown away."""
    poll = select.poll()
    for fd in (1, 2):
        poll.register(fd, 0)
    broken = [fd for fd, event in poll.poll(0) if event & select.POLLERR]
    if broken:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for fd in broken:  # Python flushes once more at its end
            os.dup2(nowhere, fd)
        os.close(nowhere)
    return bool(broken)


def _flush():
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            raise
        except (AttributeError, OSError, ValueError):  # None; a full disk, of which Python tells at its end; a stream that the program closed
            pass


def print_report(text, say, hint):
    """A report on standard output, behind what a program wrote there. A reader that has left ends nothing, because files of the report may still be to be written.
    say: tells of other errors, with the hint."""
    out = sys.__stdout__  # the program may have put another file in the place of sys.stdout
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
        out.write(text.encode(out.encoding, "backslashreplace").decode(out.encoding))
        out.flush()
    except BrokenPipeError:
        reader_left()
    except (OSError, ValueError) as e:  # a full disk; the program closed its output
        say(f"the report cannot be written to the standard output: {getattr(e, 'strerror', None) or e}; hint: {hint}")


def end_in_order():
    """From now on, SIGTERM and SIGHUP (the terminal is closed) end the program as sys.exit() does, so that it removes what it has not finished. A signal that is ignored, as with nohup,
    stays so."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda number, _: sys.exit(128 + number))


def _tell(error, *_):
    print(f"pyflame: {error}", file=sys.stderr)


def command(errors=(), tell=_tell):
    """A decorator of the function of a command, which returns an exit code. errors: exceptions that are told without a traceback, by tell(error, *arguments);
    the exit code is 1. Ctrl-C gives 130. A reader that leaves early, such as `head`, ends the command without a word."""

    def decorated(function):
        def told(arguments):
            try:
                return function(*arguments)
            except KeyboardInterrupt:
                return 128 + signal.SIGINT
            except errors as e:
                if isinstance(e, BrokenPipeError) and reader_left():
                    return READER_LEFT
                tell(e, *arguments)
                return 1

        @functools.wraps(function)
        def entry(*arguments):
            try:
                try:
                    return told(arguments)
                finally:
                    _flush()
            except BrokenPipeError:
                if not reader_left():
                    raise
                return READER_LEFT

        return entry

    return decorated
