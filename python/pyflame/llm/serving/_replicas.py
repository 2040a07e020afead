"""Several engines behind one server: `pyflame serve --replicas N`.

The design. Each replica is a process with an Engine (_replica.py), a child of the server (_children.py). The server has the tokenizer and the template, but no weights. Replicas has the methods
of an Engine that the server calls, so the server does not know of it. Messages to a replica: a request's tokens and settings, or that it is not wanted any longer. Messages of a replica: each token, each
end, and its stats. A thread for each replica reads these and hands them on.

Which replica a request goes to. Its cost at a replica is the number of tokens that are computed before its first one: the tokens of prompts that wait there, and those of its own prompt that are not
in that replica's cache of beginnings, as far as the server knows: it remembers which blocks it has sent where, and forgets the ones it has not sent for longest, as many as the replica has room
for. The least cost wins, then the fewest texts, then the emptiest cache. So texts with the same beginning go to one replica until others have less to do; a replica that has far more texts than another
(half of max_num_seqs) is left out, because its cache would not make up for that.

A replica that ends: its texts end with an error that says so, the others go on, and it is started again, three times at most. Requests for it wait until it is ready; where all
replicas have ended for good, requests are refused, and /health says so."""
import itertools
import logging
import queue
import threading
from collections import OrderedDict

from .._blocks import ROOT
from .._children import Child, close_all
from .._intake import Intake
from .._paged import BLOCK
from .._request import Finished
from .._engine_cache import default_texts
from ..language_model import load_part

MOST_RESTARTS = 3  # of one replica
_END_SECONDS = 10.0  # that replicas have for their end
log = logging.getLogger("pyflame.serve")


def _chain(ids, adapter):
    """What stands for each full block of a text and all before it."""
    found, before = [], (ROOT, adapter)
    for begin in range(0, len(ids) - BLOCK + 1, BLOCK):
        before = hash((before, tuple(ids[begin:begin + BLOCK])))
        found.append(before)
    return found


class _Text:
    """A request, as submit() and submit_beams() return it. waits: the tokens of its prompt that are not computed yet; sequences: what a beam search has found."""

    def __init__(self, number, receive, replica, waits):
        self.number, self.receive, self.replica, self.waits, self.finished, self.sequences = number, receive, replica, waits, None, []


class _Replica:
    """state: 'starts', 'ready' or 'ended'. texts: by their numbers; outbox: messages to it, which a thread sends once it is ready, so that nobody waits for a replica that does not read."""

    def __init__(self, number, device):
        self.number, self.device, self.state, self.child, self.restarts, self.refusal = number, device, "starts", None, 0, None
        self.texts, self.outbox, self.stats, self.blocks, self.room = {}, queue.SimpleQueue(), {}, OrderedDict(), 0

    @property
    def name(self):
        return f"replica {self.number}"

    @property
    def waiting(self):
        return sum(t.waits for t in self.texts.values())

    def known(self, chain):
        """How many tokens of a text's beginning its cache may have."""
        return BLOCK * next((i for i, block in enumerate(chain) if block not in self.blocks), len(chain))

    def remember(self, chain):
        for block in reversed(chain):  # a beginning stays longer than what follows it
            self.blocks[block] = True
            self.blocks.move_to_end(block)
        while len(self.blocks) > self.room:
            self.blocks.popitem(last=False)


class Replicas(Intake):
    """count engines of the model at `path`. dtype: its name or None; devices: one for each; threads: of each on a CPU; options: arguments of Engine.

    It returns when all are ready. ValueError with what a replica says where one does not start. submit(), submit_beams(), cancel(), stats() and close() are those of Engine."""

    def __init__(self, path, count, dtype=None, devices=None, threads=None, **options):
        self._path, self._dtype, self._options, self._threads = path, dtype, options, threads
        self.enable_prefix_caching = options.get("enable_prefix_caching", True)  # as of Engine
        self._change, self._closing, self._numbers, self._most = threading.Condition(), False, itertools.count(), options.get("max_num_seqs") or default_texts(devices[0] if devices else "cpu")
        self.model, self.max_model_len, self.lora_names = None, None, []
        self._replicas = [_Replica(i, devices[i] if devices else None) for i in range(count)]
        try:
            for replica in self._replicas:
                self._start(replica)
                threading.Thread(target=self._live, args=(replica,), name=f"pyflame {replica.name}", daemon=True).start()
            self.model = load_part(path, weights=False)
            with self._change:
                self._change.wait_for(lambda: all(r.state == "ready" for r in self._replicas) or any(r.refusal for r in self._replicas))
            refused = [r.refusal for r in self._replicas if r.refusal]
            if refused:
                raise ValueError(refused[0])
        except BaseException:
            self.close(drain=False)
            raise

    def _start(self, replica):
        replica.child = Child("pyflame.llm.serving._replica", replica.name, threads=self._threads)
        replica.child.is_quiet = False
        try:
            replica.child.send("start", self._path, self._dtype, replica.device, self._options)
        except OSError:  # it has ended; the thread that reads from it says so
            pass

    # The thread of a replica.

    def _live(self, replica):
        while True:
            try:
                name, *arguments = replica.child.receive()
            except EOFError:
                if not self._go_on(replica):
                    return
            else:
                getattr(self, "_got_" + name)(replica, *arguments)

    def _got_ready(self, replica, max_model_len, lora_names, blocks):
        with self._change:
            self.max_model_len, self.lora_names = max_model_len, lora_names
            replica.state, replica.room = "ready", blocks
            threading.Thread(target=self._forward, args=(replica.child, replica.outbox), name=f"pyflame {replica.name} outbox", daemon=True).start()
            self._change.notify_all()
        if replica.restarts:
            log.info("%s is ready again", replica.name)

    @staticmethod
    def _forward(child, outbox):
        for message in iter(outbox.get, None):
            try:
                child.send(*message)
            except (OSError, ValueError):  # it has ended; the thread that reads from it ends its texts
                return

    def _got_refused(self, replica, text):
        with self._change:
            replica.refusal = text
            self._change.notify_all()

    def _got_stats(self, replica, stats):
        replica.stats = stats

    def _got_event(self, replica, number, event, sequences=()):
        with self._change:
            text = replica.texts.get(number)
            if text is None:
                return
            text.waits = 0
            if isinstance(event, Finished):
                del replica.texts[number]
                text.finished, text.sequences = event, list(sequences)
        text.receive(event)

    def _go_on(self, replica):
        """A replica has ended: its texts do, too, and it starts again. False where it does not."""
        replica.child.close(1.0)
        with self._change:
            if self._closing:
                return False
            first = self.max_model_len is None or not replica.room  # it was never ready
            again = not first and replica.restarts < MOST_RESTARTS
            replica.state = "starts" if again else "ended"
            left, replica.texts = list(replica.texts.values()), {}
            replica.outbox.put(None)
            replica.outbox = queue.SimpleQueue()
            replica.stats = {**replica.stats, "num_requests_running": 0, "num_requests_waiting": 0, "kv_cache_usage": 0.0}
            replica.blocks.clear()
            if first:
                replica.refusal = replica.refusal or f"serve: a replica did not start; got {replica.child.words()}; expected one that is ready"
            self._change.notify_all()
        if not first:
            said = f"is started again ({replica.restarts + 1} of {MOST_RESTARTS})" if again else f"is not started again, because it was {MOST_RESTARTS} times"
            log.error("%s; texts that end with it: %d; it %s", replica.child.words(), len(left), said)
        for text in left:
            text.finished = Finished("error", f"{replica.name} has ended before the text was complete")
            text.receive(text.finished)
        if again:
            replica.restarts += 1
            with self._change:
                if self._closing:
                    return False
                self._start(replica)
        return again

    # What the server calls.

    def _choose(self, chain, length):
        """The replica for a text. RuntimeError where all have ended."""
        alive = [r for r in self._replicas if r.state == "ready"] or [r for r in self._replicas if r.state == "starts"]
        if not alive:
            raise RuntimeError("generate: there is no replica; got a request after all of them had ended; expected it before")
        least = min(len(r.texts) for r in alive)
        fair = [r for r in alive if len(r.texts) <= least + self._most // 2]
        # The last token is computed in any case.
        return min(fair, key=lambda r: (r.waiting + length - min(r.known(chain), length - 1), len(r.texts), len(r.blocks), r.number))

    def submit(self, prompt_ids, sampling=None, max_tokens=256, *, stop_ids=None, logprobs=None, prompt_logprobs=None, priority=0, client=None, lora=None, receive):
        """As Engine.submit(). receive(event) is called on the thread of a replica."""
        ids = self._prompt("generate", prompt_ids, priority, client, lora, receive)
        sampling, _, stops = self._settings(sampling, max_tokens, stop_ids, logprobs, prompt_logprobs)
        options = {"stop_ids": stops, "logprobs": logprobs, "prompt_logprobs": prompt_logprobs, "priority": priority, "client": client, "lora": lora}
        return self._put("generate", receive, lora, ids, ("submit", sampling, max_tokens, options))

    def submit_beams(self, prompt_ids, params, *, priority=0, client=None, lora=None, receive):
        """As Engine.submit_beams(). receive(event) is called on the thread of a replica."""
        ids = self._prompt("beam_search", prompt_ids, priority, client, lora, receive)
        return self._put("beam_search", receive, lora, ids, ("submit_beams", params, {"priority": priority, "client": client, "lora": lora}))

    def _put(self, op, receive, lora, ids, message):
        """Sends a message of (name, what follows the number and the tokens) to the replica that is best for it. Returns its _Text."""
        chain = _chain(ids, lora)
        with self._change:
            if self._closing:
                raise RuntimeError(f"{op}: the engine is closed; got a request after close(); expected it before")
            replica = self._choose(chain, len(ids))
            number = next(self._numbers)
            text = replica.texts[number] = _Text(number, receive, replica, len(ids) - min(replica.known(chain), len(ids) - 1))
            replica.remember(chain)
            replica.outbox.put((message[0], number, ids, *message[1:]))
        return text

    def cancel(self, text):
        """As Engine.cancel()."""
        with self._change:
            if text.finished is None and text.number in text.replica.texts:
                text.replica.outbox.put(("cancel", text.number))

    @property
    def has_failed(self):
        """Whether all replicas have ended for good."""
        return all(r.state == "ended" for r in self._replicas)

    def stats(self):
        """The sums of the replicas' stats; kv_cache_usage, cpu_cache_usage and perplexities are means. Each is of the last second, or of the last text that ended."""
        each = [s for _, s in self.stats_of_each()]
        total = {}
        for key in dict.fromkeys(k for s in each for k in s):
            values = [s[key] for s in each if key in s]
            if not isinstance(values[0], (int, float, list)):  # such as a name, which all have alike
                total[key] = values[0]
            elif isinstance(values[0], list):
                total[key] = [sum(v) for v in zip(*values)]
            else:
                total[key] = sum(values) / len(values) if key.endswith("_usage") or "_perplexity" in key else sum(values)
        return total

    def stats_of_each(self):
        """[(number of a replica, its stats)]"""
        return [(str(r.number), r.stats) for r in self._replicas]

    def close(self, drain=True):
        """Ends the replicas. Texts that are not finished end with the reason 'cancelled'. With drain, they are finished first."""
        with self._change:
            if drain:
                self._change.wait_for(lambda: not any(r.texts for r in self._replicas))
            self._closing = True
            left = [t for r in self._replicas for t in r.texts.values()]
            for r in self._replicas:
                r.texts = {}
                r.outbox.put(None)
        close_all([r.child for r in self._replicas if r.child is not None], _END_SECONDS)
        for text in left:
            text.finished = Finished("cancelled", "the engine was closed before the text was complete")
            text.receive(text.finished)
