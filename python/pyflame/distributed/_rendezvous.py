"""How the launchers of several hosts meet: at a store on host 0. Host 0 also decides how a start of the job ended, so that all of them do the same."""
import json
import secrets
import socket
import sys
import threading
import time

from . import _store

_POLL = 0.1  # seconds between two looks at the store
_PATIENCE = 5.0  # seconds for which a rank that blames another one is not yet the cause
_FAREWELL = 10.0  # seconds for which host 0 waits until the others know how the job ended


class _Store(_store.TCPStore):
    _SERVER, _HINT, _OP = "host 0", "--rdzv", "pyflame run"

    def hold(self, key, value):
        """Sets the value of a key that has none, until this connection ends. Whether it had none."""
        return self._ask(b"hold", _store._bytes(key), _store._bytes(value))[0] == b"1"

    def limit_silence(self):
        """From here on, a server that does not answer for half a minute counts as gone."""
        self._connection.settimeout(_store._SILENCE)

    def here(self, key):
        """The value of a key on the server itself, or None; asks nobody."""
        with self._server.changed:
            return self._server.values.get(key.encode())

    def set_here(self, key, value):
        """Sets the value of a key on the server itself."""
        with self._server.changed:
            self._server.values[key.encode()] = value.encode()
            self._server.changed.notify_all()

    def wait_for_change(self, timeout):
        """On the server itself: waits until a key has changed, or for so many seconds."""
        with self._server.changed:
            self._server.changed.wait(timeout)


class Gone(Exception):
    """This host cannot go on: the text says why."""


def free_port(address=""):
    """A port that nobody uses at the moment."""
    with socket.socket() as s:
        s.bind((address, 0))
        return s.getsockname()[1]


class Rendezvous:
    """One launcher among those of several hosts. `nproc` is the number of its processes; other hosts may have other numbers."""

    def __init__(self, host, port, nnodes, node_rank, nproc, max_restarts=0, timeout=600.0, job=""):
        self.host, self.port, self.nnodes, self.node_rank, self.nproc, self.max_restarts, self.timeout = host, port, nnodes, node_rank, nproc, max_restarts, timeout
        self._token, self._gone = secrets.token_hex(8), None
        try:
            self.store = _Store(host, port, is_master=node_rank == 0, timeout=timeout)
            own = {"nnodes": nnodes, "job": job, "max_restarts": max_restarts}
            if node_rank == 0:
                self.store.set("job", json.dumps(own))
                self.store.set("round", "0")
            self._agree(own, json.loads(self.store.get("job")))
            self.round = int(self.store.get("round"))
            self.store.limit_silence()
        except (RuntimeError, OSError) as e:
            raise Gone(str(e)) from None

    def _agree(self, own, job):
        for name, option in (("job", "--rdzv-id"), ("nnodes", "--nnodes"), ("max_restarts", "--max-restarts")):
            if own[name] != job[name]:
                raise Gone(f"pyflame run: the hosts differ in {option}; got {own[name]!r} on host {self.node_rank}; expected {job[name]!r}, as on host 0 ({self.host}:{self.port})")

    def _call(self, function, *args):
        if self._gone is None:
            try:
                return function(*args)
            except RuntimeError:
                self._gone = self._gone or f"pyflame run: host 0 ({self.host}:{self.port}) is gone: its launcher was killed, or cannot be reached; the processes of host {self.node_rank} were ended"
                self.store.close()  # calls of other threads need not wait for an answer
        raise Gone(self._gone)

    def _read(self, key, timeout=0.0):
        value = self._call(self.store._get, f"{self.round}/{key}", timeout)
        return None if value is None else json.loads(value)

    def _write(self, key, value):
        self._call(self.store.set, f"{self.round}/{key}", json.dumps(value))

    def meet(self):
        """Waits for all hosts; returns their plan, a dict: first (the lowest rank of each host), world, address, port, job."""
        until = time.monotonic() + self.timeout
        self._join(until)
        if self.node_rank == 0:
            plan = self._make_plan(until)
            self._write("plan", plan)
            if "error" not in plan:
                threading.Thread(target=self._decide, args=(plan,), name="pyflame hosts", daemon=True).start()
        plan = None
        while plan is None:
            plan = self._read("plan", _POLL)
            if plan is None and time.monotonic() > until + _FAREWELL:
                raise Gone(f"pyflame run: timed out after {self.timeout:g} s; the hosts did not all come; expected {self.nnodes} hosts; hint: host 0 says which ones are missing")
        if "error" in plan:
            self._say_goodbye()
            raise Gone(plan["error"])
        return plan

    def _join(self, until):
        """Says that this host is here. Where the former launcher of this host was part of the start that runs, it waits for the next one."""
        place = json.dumps({"host": socket.gethostname(), "nproc": self.nproc, "token": self._token})
        doubled = None
        while True:
            if self._read("plan") is None and self._call(self.store.hold, f"{self.round}/here/{self.node_rank}", place):
                return
            doubled = doubled or time.monotonic() + _FAREWELL
            if time.monotonic() > min(doubled, until):
                other = self._read(f"here/{self.node_rank}") or {"host": "?"}
                raise Gone(f"pyflame run: host {self.node_rank} is there already; got --node-rank {self.node_rank} here and on {other['host']}; expected another number on each host")
            time.sleep(_POLL)
            self.round = int(self._call(self.store.get, "round"))

    def _make_plan(self, until):
        here, notice = [None] * self.nnodes, time.monotonic() + _store._NOTICE
        while None in here:
            here = [self._read(f"here/{k}") for k in range(self.nnodes)]
            missing = [str(k) for k in range(self.nnodes) if here[k] is None]
            if missing and time.monotonic() > until:
                return {"error": f"pyflame run: timed out after {self.timeout:g} s; host{'s' * (len(missing) > 1)} {', '.join(missing)} did not come; expected {self.nnodes} hosts with --rdzv {self.host}:{self.port}"}
            if missing and notice and time.monotonic() > notice:
                notice = None
                print(f"pyflame run: waits up to {self.timeout:g} s for host{'s' * (len(missing) > 1)} {', '.join(missing)} at {self.host}:{self.port}", file=sys.stderr)
            if missing:
                time.sleep(_POLL)
        first = [sum(h["nproc"] for h in here[:k]) for k in range(self.nnodes)]
        return {"hosts": here, "first": first, "world": sum(h["nproc"] for h in here), "address": self.host, "port": free_port(), "job": secrets.token_hex(8)}

    def watch(self, decided):
        """Calls decided(outcome) on a thread when host 0 knows how this start ended, or with the Gone that says why it cannot be asked."""
        def wait():
            outcome = None
            try:
                while outcome is None:
                    outcome = self._read("outcome", _POLL)
            except Gone as e:
                outcome = e
            decided(outcome)

        threading.Thread(target=wait, name="pyflame hosts", daemon=True).start()

    def report(self, failure):
        """Tells host 0 how the processes of this host ended: None, or what failed (a dict)."""
        if failure is None:
            self._write(f"done/{self.node_rank}", True)
        else:
            self._write(f"failed/{self.node_rank}", failure)

    def end(self, again):
        """After the outcome: goes on to the next start, or says goodbye."""
        if not again:
            return self._say_goodbye()
        self._write(f"seen/{self.node_rank}", True)
        self.round += 1
        if self.node_rank == 0:
            self._call(self.store.set, "round", str(self.round))

    def _say_goodbye(self):
        try:
            self._write(f"seen/{self.node_rank}", True)
            until = time.monotonic() + _FAREWELL
            while self.node_rank == 0 and time.monotonic() < until and any(self._read(f"here/{k}") and not self._read(f"seen/{k}") for k in range(self.nnodes)):
                time.sleep(_POLL)
        except Gone:
            pass
        self.store.close()

    def _decide(self, plan):
        """On host 0: writes how this start ended, as soon as it is known."""
        number, patient = self.round, None

        def read(key):
            value = self.store.here(f"{number}/{key}")
            return None if value is None else json.loads(value)

        while True:
            done = [read(f"done/{k}") for k in range(self.nnodes)]
            failed = [f for f in (read(f"failed/{k}") for k in range(self.nnodes)) if f]
            lost = [k for k in range(self.nnodes) if (read(f"here/{k}") or {}).get("token") != plan["hosts"][k]["token"]]
            cause = next((f for f in failed if not f["blames"]), None) or (self._lost(lost[0], plan) if lost else None)
            if failed and not cause:
                patient = patient or time.monotonic() + _PATIENCE
                cause = failed[0] if time.monotonic() > patient else None
            if cause or all(done):
                outcome = {"failure": cause, "again": bool(cause and cause["again"]) and number < self.max_restarts}
                return self.store.set_here(f"{number}/outcome", json.dumps(outcome))
            self.store.wait_for_change(_POLL)

    def _lost(self, k, plan):
        first, host = plan["first"][k], plan["hosts"][k]
        ranks = list(map(str, range(first, first + host["nproc"])))
        return {"who": f"host {k} ({host['host']}) with rank{'s' * (len(ranks) > 1)} {', '.join(ranks)}", "what": "is gone: its launcher was killed, or cannot be reached", "code": 1, "tail": [], "again": True, "blames": False}
