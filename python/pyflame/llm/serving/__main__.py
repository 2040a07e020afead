"""`pyflame serve MODEL`, whose command line the program checks first: loads the model, serves it, and ends in order at a signal."""
import asyncio
import contextlib
import ipaddress
import json
import logging
import os
import resource
import signal
import socket
import ssl
import sys

import pyflame as pf
from pyflame._command_help import Parser
from pyflame._entry import command
from pyflame.llm import EmbeddingModel, _kv_cache_gate, _loading
from pyflame.llm.serving._log import Log


def _object(name, text):
    """A JSON object of the command line. ValueError."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise ValueError(f"serve: --{name} is no JSON; got {text[:80]!r}: {e}; expected an object such as {{\"method\": \"ngram\"}}") from None
    if not isinstance(found, dict):
        raise ValueError(f"serve: --{name} has another form; got {text[:80]!r}; expected a JSON object")
    return found


def _arguments(words):
    p = Parser(prog="pyflame serve", allow_abbrev=False)
    p.add_argument("--model", required=True)
    p.add_argument("--host", default="127.0.0.1")
    p.add_argument("--port", type=int, default=8000)
    p.add_argument("--device")
    p.add_argument("--dtype")
    p.add_argument("--model_name")
    p.add_argument("--api_key", action="append", default=[])
    p.add_argument("--cors", action="append", default=[])
    p.add_argument("--max_model_len", type=int)
    p.add_argument("--max_num_seqs", type=int)
    p.add_argument("--max_num_batched_tokens", type=int, default=512)
    p.add_argument("--kv_cache_bytes", type=int)
    p.add_argument("--gpu_memory_utilization", type=float)
    p.add_argument("--enable_prefix_caching", action="store_true", default=True)
    p.add_argument("--no_enable_prefix_caching", dest="enable_prefix_caching", action="store_false")
    p.add_argument("--kv_cache_dtype", default="auto")
    p.add_argument("--kv_cache_gate", default=str(_kv_cache_gate.DEFAULT))
    p.add_argument("--attention_backend", default="auto")
    p.add_argument("--swap_space", type=float, default=0.0)
    p.add_argument("--cpu_offload_gb", type=float, default=0.0)
    p.add_argument("--tensor_parallel_size", type=int, default=1)
    p.add_argument("--replicas", type=int, default=1)
    p.add_argument("--max_clients", type=int, default=1024)
    p.add_argument("--max_choices", type=int, default=1024)
    p.add_argument("--max_body_bytes", type=int, default=4 << 20)
    p.add_argument("--request_seconds", type=float, default=600.0)
    p.add_argument("--drain_seconds", type=float, default=30.0)
    p.add_argument("--runner", choices=("auto", "generate", "pooling"), default="auto")
    p.add_argument("--pooler_config")
    p.add_argument("--speculative_config")
    p.add_argument("--lora_modules", action="append", default=[])
    p.add_argument("--ssl_certfile")
    p.add_argument("--ssl_keyfile")
    p.add_argument("--json", action="store_true")
    args = p.parse_args(words)
    args.api_key += [k for k in os.environ.get("PYFLAME_API_KEY", "").split(",") if k]
    if not all(args.api_key):
        raise ValueError("serve: an API key is empty; got ''; expected a text")
    if args.dtype not in (None, "float32", "float16", "bfloat16"):
        raise ValueError(f"serve: there is no such dtype for weights; got '{args.dtype}'; expected float32, float16 or bfloat16")
    for name in ("pooler_config", "speculative_config"):
        if getattr(args, name) is not None:
            setattr(args, name, _object(name, getattr(args, name)))
    args.kv_cache_gate = _kv_cache_gate.limit_of("serve", args.kv_cache_gate)
    if args.replicas < 1:
        raise ValueError(f"serve: --replicas is out of range; got {args.replicas}; expected a whole number from 1 upwards")
    if args.ssl_keyfile and not args.ssl_certfile:
        raise ValueError("serve: the key has no certificate; got --ssl_keyfile alone; expected --ssl_certfile, too")
    args.lora_modules = dict(_lora_module(m) for m in args.lora_modules)
    return args


def _lora_module(text):
    name, _, path = text.partition("=")
    if not name or not path:
        raise ValueError(f"serve: an adapter has another form; got --lora_modules {text!r}; expected NAME=FOLDER")
    return name, path


def _tls(certificate, key):
    """An SSLContext, or None without a certificate. OSError."""
    if certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key, password=lambda: "")  # and no question in the terminal
    except (OSError, ssl.SSLError) as e:
        raise OSError(f"serve: the certificate cannot be used; got {e} with {certificate} and {key or 'no other file'}; expected a certificate and its key without a password, in PEM") from None
    return context


def _listener(host, port):
    """A socket that is bound, and does not listen yet: a port that is taken is known before the model is loaded. OSError."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except socket.gaierror as e:
        raise OSError(f"serve: there is no such host; got '{host}': {e.strerror}; expected a name or address of this machine") from None
    s = socket.socket(family, kind, protocol)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        s.bind(address)
    except OSError as e:
        s.close()
        raise OSError(f"serve: the address cannot be used; got {host}, port {port}: {e.strerror}; expected a free one; hint: --port names another, --port 0 takes any") from None
    return s


def _is_loopback(host):
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@contextlib.contextmanager
def _progress(log, text):
    """A line with the seconds that something takes; on a terminal one that says how many bytes of a model have been read, too."""
    if log.as_json or not sys.stderr.isatty():
        log.say(text, "loading")
    with _loading.shown(f"pyflame serve: {text}") as loading:
        yield
    read = f", {_loading.size_text(loading.total)}" if loading.total else ""
    log.say(f"{text}: done in {loading.seconds:.1f} s{read}", "loaded", seconds=loading.seconds, bytes=loading.total)


def _announce(log, server, host, port, keys, scheme):
    shown = f"[{host}]" if ":" in host else host
    key = " -H 'Authorization: Bearer KEY'" if keys else ""
    url = f"{scheme}://{shown}:{port}"
    log.say(f"{server.name} is at {url} (a page to chat; OpenAI's API below /v1)", "start", model=server.name, url=url, host=host, port=port)
    path, body = ("embeddings", '{"input": "Hello"}') if isinstance(server.model, EmbeddingModel) else ("chat/completions", '{"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 40}')
    log.say(f"try: curl {url}/v1/{path} -H 'Content-Type: application/json'{key} -d '{body}'", "example")
    if not keys and not _is_loopback(host):
        log.say(f"WARNING: {host} can be reached from other machines, and there is no API key: everybody may use the model; hint: --api_key KEY, or --host 127.0.0.1", "no_api_key", logging.WARNING, host=host)


async def serve(server, listener, drain_seconds, ready, log):
    """Serves until SIGINT or SIGTERM, then finishes what runs; a second signal ends at once. ready() is called once requests are answered. Returns the exit code: 0 if
    every answer was finished."""
    loop, signals = asyncio.get_running_loop(), asyncio.Queue()
    for s in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(s, signals.put_nowait, s)
    await server.start(listener)
    ready()
    number = await signals.get()
    name, waiting = signal.Signals(number).name, len(server.answers)
    log.say(f"{name}: new requests are refused; answers that are finished first, for at most {drain_seconds:g} s: {waiting}; a second signal ends at once", "drain", signal=name, answers=waiting)
    drained, second = loop.create_task(server.drain(drain_seconds)), loop.create_task(signals.get())
    await asyncio.wait((drained, second), return_when=asyncio.FIRST_COMPLETED)
    whole = drained.done() and drained.result()
    left = len(server.answers)
    for task in (drained, second):
        task.cancel()
    await server.stop()
    log.say("every answer was finished" if whole else f"ended; answers that were not finished: {left}", "end", unfinished_answers=0 if whole else left)
    return 0 if whole else 128 + number


def _engine(args, dtype, log):
    """The Engine, or what stands for several."""
    from .._workers import devices_of
    from ..engine import Engine
    from ..language_model import Source
    from ._replicas import Replicas

    options = dict(max_num_seqs=args.max_num_seqs, max_num_batched_tokens=args.max_num_batched_tokens, max_model_len=args.max_model_len, kv_cache_bytes=args.kv_cache_bytes, max_waiting=args.max_choices,
                   speculative_config=args.speculative_config, lora_modules=args.lora_modules, swap_space=args.swap_space, tensor_parallel_size=args.tensor_parallel_size,
                   kv_cache_dtype=args.kv_cache_dtype, kv_cache_gate=args.kv_cache_gate, attention_backend=args.attention_backend, cpu_offload_gb=args.cpu_offload_gb,
                   gpu_memory_utilization=args.gpu_memory_utilization, enable_prefix_caching=args.enable_prefix_caching)  # fmt: skip
    processes = args.replicas * args.tensor_parallel_size
    if processes == 1:
        with _progress(log, f"loading {args.model}"):
            model = pf.llm.load(args.model, dtype, args.device, cpu_offload_gb=args.cpu_offload_gb)
        return Engine(model, **options)
    with _progress(log, f"loading {args.model} in {processes} processes"):
        if args.replicas == 1:
            return Engine(Source(args.model, dtype, args.device), **options)
        devices = devices_of(args.device, processes)[::args.tensor_parallel_size]
        threads = max(1, pf._C.get_num_threads() // processes) if devices[0] == "cpu" else None
        return Replicas(args.model, args.replicas, args.dtype, devices, threads, **options)


def _run(args):
    from ..embedding import load_embedding, makes_embeddings
    from . import Limits, Server
    from ._embeddings import Embedder

    log = Log(args.json)
    log.begin()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < args.max_clients + 256:
        wanted = args.max_clients + 256
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(hard, wanted), hard))
    context = _tls(args.ssl_certfile, args.ssl_keyfile)
    listener = _listener(args.host, args.port)
    dtype = getattr(pf, args.dtype) if args.dtype else None
    pools = makes_embeddings(args.model, args.runner)
    if not pools and args.pooler_config is not None:
        raise ValueError("serve: --pooler_config belongs to embeddings; got it with a model that writes texts; expected --runner pooling")
    for name in ("speculative_config", "lora_modules"):
        if pools and getattr(args, name):
            raise ValueError(f"serve: --{name} belongs to models that write texts; got it with one for embeddings; expected none")
    for name in ("tensor_parallel_size", "replicas"):
        if pools and getattr(args, name) != 1:
            raise ValueError(f"serve: --{name} belongs to models that write texts; got {getattr(args, name)} with one for embeddings; expected 1")
    for name in ("kv_cache_dtype", "attention_backend"):
        if pools and getattr(args, name) != "auto":
            raise ValueError(f"serve: --{name} belongs to models that write texts; got {getattr(args, name)} with one for embeddings; expected none")
    if pools and args.gpu_memory_utilization is not None:
        raise ValueError(f"serve: --gpu_memory_utilization belongs to models that write texts; got {args.gpu_memory_utilization:g} with one for embeddings; expected none")
    if pools and not args.enable_prefix_caching:
        raise ValueError("serve: --no_enable_prefix_caching belongs to models that write texts; got it with one for embeddings; expected none")
    if pools and args.cpu_offload_gb:
        raise ValueError(f"serve: --cpu_offload_gb belongs to models that write texts; got {args.cpu_offload_gb:g} with one for embeddings; expected none")
    if pools:
        with _progress(log, f"loading {args.model}"):
            model = load_embedding(args.model, dtype, args.device, args.pooler_config)
        engine = Embedder(model)
    else:
        engine = _engine(args, dtype, log)
        model = engine.model
    if model.tokenizer is None:
        engine.close(drain=False)
        raise ValueError("serve: the model's files have no tokenizer; got none; expected one")
    limits = Limits(body_bytes=args.max_body_bytes, clients=args.max_clients, choices=args.max_choices, request_seconds=args.request_seconds)
    name = args.model_name or os.path.basename(os.path.abspath(args.model)).removesuffix(".gguf")
    server = Server(model, engine, name, args.api_key, limits, args.cors, context)
    code = asyncio.run(serve(server, listener, args.drain_seconds, lambda: _announce(log, server, args.host, listener.getsockname()[1], args.api_key, "https" if context else "http"), log))
    engine.close(drain=False)
    return code


@command((OSError, ValueError, TypeError, ImportError, NotImplementedError, MemoryError, pf.DeviceError))
def main(words):
    return _run(_arguments(words))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
