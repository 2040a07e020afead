"""`pyflame generate --model` and `pyflame chat`, whose command lines the program checks first."""
import contextlib
import json
import sys
import time
from functools import partial

import pyflame as pf
from pyflame._command_help import Parser
from pyflame._entry import command
from pyflame.llm import Grammar, SpeculativeConfig, _attention_backend, _kv_cache_gate, _loading
from pyflame.llm._errors import EngineDead
from pyflame.llm._kv_cache import check_name
from pyflame.llm._speculation import draft_model


def _arguments(words):
    parser = Parser(prog=" ".join(["pyflame", *words[:1]]), allow_abbrev=False)
    parser.add_argument("command", choices=("generate", "chat"))
    parser.add_argument("--model", required=True)
    parser.add_argument("--prompt", default="\n")
    parser.add_argument("--system")
    parser.add_argument("--device")
    parser.add_argument("--max_tokens", type=int, default=256)
    for name, kind in (("temperature", float), ("top_k", int), ("top_p", float), ("min_p", float), ("repetition_penalty", float), ("seed", int)):
        parser.add_argument("--" + name, type=kind)
    parser.add_argument("--stop", action="append", default=[])
    parser.add_argument("--json_schema")
    parser.add_argument("--grammar")
    parser.add_argument("--speculative_config")
    parser.add_argument("--lora")
    parser.add_argument("--tensor_parallel_size", type=int, default=1)
    parser.add_argument("--kv_cache_dtype", default="auto")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--attention_backend", default="auto")
    parser.add_argument("--kv_cache_gate", default=str(_kv_cache_gate.DEFAULT))
    parser.add_argument("--cpu_offload_gb", type=float, default=0.0)
    return parser.parse_args(words)


def _options(args):
    return {name: getattr(args, name) for name in ("max_tokens", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed")} | {"stop": tuple(args.stop), "grammar": _grammar(args)}


def _speculation(args):
    """The SpeculativeConfig of the command line, or None."""
    if args.speculative_config is None:
        return None
    try:
        return SpeculativeConfig.of(json.loads(args.speculative_config))
    except (json.JSONDecodeError, RecursionError) as e:
        raise ValueError(f"{args.command}: --speculative_config is no JSON; got {args.speculative_config[:80]!r}: {e}; expected a JSON object") from None


@contextlib.contextmanager
def _writer(args):
    """(the LanguageModel, the options of its texts that need it). With --tensor_parallel_size, --kv_cache_dtype or --attention_backend an engine writes, which ends with this."""
    config = _speculation(args)
    check_name(args.command, args.kv_cache_dtype)
    _attention_backend.check_name(args.command, args.attention_backend)
    limit = _kv_cache_gate.limit_of(args.command, args.kv_cache_gate)
    if args.tensor_parallel_size == 1 and args.kv_cache_dtype == args.attention_backend == "auto":
        with _loading.shown(f"loading {args.model}"):
            lm = pf.llm.load(args.model, device=args.device, cpu_offload_gb=args.cpu_offload_gb)
            draft_model(config, lm)  # loads it once
        yield lm, {"speculative_config": config, "lora": None if args.lora is None else lm.load_lora(args.lora)}
        return
    from ._single import SingleWriter  # the engine is much to import, and other texts do without it

    with _loading.shown(f"loading {args.model}"):
        writer = SingleWriter(args.model, args.device, args.tensor_parallel_size, config, args.lora, args.kv_cache_dtype, limit, args.attention_backend, args.cpu_offload_gb)
    with writer:
        yield writer.model, {"tokens": writer.tokens}


def _grammar(args):
    """The Grammar of a file, or None."""
    path = args.json_schema or args.grammar
    if path is None:
        return None
    with open(path, encoding="utf-8") as f:
        text = f.read()
    return Grammar.json_schema(text) if args.json_schema else Grammar.of(grammar=text)


def _write(pieces):
    """Prints pieces of text as they come. Returns the text."""
    text = []
    for piece in pieces:
        text.append(piece)
        sys.stdout.write(piece)
        sys.stdout.flush()
    sys.stdout.write("\n")
    sys.stdout.flush()
    return "".join(text)


def _generate(args, lm, of_model):
    clock = _Clock()
    pieces = lm._generate(args.prompt, True, stream=True, **_timed(lm, {**_options(args), **of_model}, clock))  # wrong arguments fail here, before anything is printed
    if args.json:
        _print_object({"object": "text_completion", "model": args.model, "prompt": args.prompt, **_result("text", pieces, clock)})
        return 0
    sys.stdout.write(args.prompt)
    text = _write(pieces)
    seconds, tokens = time.perf_counter() - clock.begin, len(lm.tokenizer.encode(text, add_special=False))
    print(f"{tokens} tokens in {seconds:.2f} s, with the prompt", file=sys.stderr)
    return 0


def _print_object(document):
    """One JSON object on a line, at once: a program may wait for it."""
    print(json.dumps(document), flush=True)


def _result(name, pieces, clock):
    """The fields that generate and chat share, once the text is written. name: of the text; finish_reason and usage are OpenAI's, the lists of ids vLLM's."""
    text = []
    while True:
        try:
            text.append(next(pieces))
        except StopIteration as end:
            stopped = end.value
            break
    seconds, prompt, written = time.perf_counter() - clock.begin, clock.prompt, clock.written
    return {
        name: "".join(text), "finish_reason": "stop" if stopped else clock.reason, "prompt_token_ids": prompt, "token_ids": written,
        "usage": {"prompt_tokens": len(prompt), "completion_tokens": len(written), "total_tokens": len(prompt) + len(written)},
        "seconds": seconds, "seconds_to_first_token": clock.first and clock.first - clock.begin, "tokens_per_second": clock.rate,
    }  # fmt: skip


# Of a chat with a model whose files name no settings of sampling: where any token may come, small models soon write nonsense.
CHAT_SAMPLING = {"temperature": 0.7, "top_k": 40, "top_p": 0.9, "min_p": 0.05}


def _with_chat_sampling(options, lm):
    """The options, with CHAT_SAMPLING for those that neither the command line nor the model's files give."""
    return options if lm.defaults else {**options, **{name: value for name, value in CHAT_SAMPLING.items() if options[name] is None}}


_HELP = "/clear forgets the conversation, /system TEXT sets what the model is told first, /help shows this, /exit ends. Ctrl-C ends an answer."


class _Clock:
    """Counts the tokens of a text, and says how fast they were written. prompt, written: the ids; reason: why the text ended, None where it was cut off at a stop text."""

    def __init__(self):
        self.prompt, self.written, self.reason = [], [], None
        self.begin, self.first, self.last = time.perf_counter(), None, None

    def tokens(self, prompt, written):
        """The tokens of a generator, counted. written: what LanguageModel._tokens or SingleWriter.tokens returns."""
        self.prompt = list(prompt)
        while True:
            try:
                token = next(written)
            except StopIteration as end:
                self.reason = end.value
                return
            self.written.append(token)
            self.last = time.perf_counter()
            self.first = self.first or self.last
            yield token

    @property
    def rate(self):
        """Tokens per second after the first one, None for fewer than two."""
        return (len(self.written) - 1) / (self.last - self.first) if self.written and self.last > self.first else None

    def __str__(self):
        count = len(self.written)
        if not count:
            return "0 tokens"
        rate = "" if self.rate is None else f", then {self.rate:.1f} tokens/s"
        return f"{count} token{'s' * (count != 1)}: the first after {self.first - self.begin:.2f} s{rate}"


def _timed(lm, options, clock):
    """The options with tokens that the clock counts."""
    write = options.get("tokens") or partial(lm.tokens, speculative_config=options["speculative_config"], lora=options["lora"])
    return {**options, "tokens": lambda ids, *what: clock.tokens(ids, write(ids, *what))}


def _answer(args, lm, ids, options):
    """Prints an answer: as it is written, or as an object with --json. (its text, its _Clock)"""
    clock = _Clock()
    pieces = lm._generate(ids, False, stream=True, **_timed(lm, options, clock))
    if not args.json:
        return _write(pieces), clock
    result = _result("message", pieces, clock)
    text = result["message"]
    _print_object({"object": "chat.completion", "model": args.model, **result, "message": {"role": "assistant", "content": text}})
    return text, clock


def _next_line(interactive, as_json):
    """The next line of standard input without its end, None where there is no more. In a terminal it can be edited, and the arrow keys bring earlier ones back, where Python has
    readline."""
    if interactive and not as_json:
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  input() uses it then
        try:
            return input("> ")
        except EOFError:
            return None
    if interactive:
        print("> ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline() or None


def _chat(args, lm, of_model):
    interactive = sys.stdin.isatty()
    start = [{"role": "system", "content": args.system}] if args.system else []
    messages, options = list(start), {**_with_chat_sampling(_options(args), lm), **of_model}
    if interactive:
        print(f"{lm}\n{_HELP}", file=sys.stderr)
    while True:
        line = _next_line(interactive, args.json)
        words = (line or "").strip()
        if line is None or words == "/exit":
            return 0
        if words == "/clear":
            messages = list(start)
        elif words.split()[:1] == ["/system"]:
            start = [{"role": "system", "content": words[7:].strip()}] if words[7:].strip() else []
            messages = list(start)
        elif words == "/help":
            print(_HELP, file=sys.stderr)
        elif words.startswith("/"):
            print(f"chat: there is no such command; got {words.split()[0]}; expected one of these: {_HELP}", file=sys.stderr)
        elif words:
            asked = [*messages, {"role": "user", "content": words}]
            try:
                text, clock = _answer(args, lm, lm.chat_ids(asked), options)
                messages = [*asked, {"role": "assistant", "content": text}]
                if interactive:
                    print(f"({clock})", file=sys.stderr)
            except KeyboardInterrupt:
                if not interactive:
                    raise
                print(file=sys.stderr)
            except ValueError as e:  # such as a conversation that the context has no room for; the earlier answers stay
                if not interactive:
                    raise
                print(f"pyflame: {e}; hint: /clear forgets the conversation", file=sys.stderr)


@command((OSError, ValueError, TypeError, ImportError, NotImplementedError, MemoryError, pf.DeviceError, EngineDead))
def main(words):
    args = _arguments(words)
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a terminal's encoding may lack what a model writes
    with _writer(args) as (lm, of_model):
        return (_generate if args.command == "generate" else _chat)(args, lm, of_model)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
