"""A key-value store on rank 0, through which processes find each other."""
from __future__ import annotations

import errno
import operator
import os
import secrets
import socket
import struct
import sys
import threading
import time

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from .._annotations import Timeout


_SILENCE = 30.0  # seconds after which a process that holds keys, and asks nothing, counts as gone
_NOTICE = 10.0  # seconds after which a process says for whom it waits


def only_loopback(name):
    """Whether the name of a host stands for addresses that no other host can reach. In /etc/hosts of Debian that is so for the host's own name."""
    if name == "localhost":
        return False
    try:
        found = {a[4][0] for a in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)}
    except OSError:
        return False
    return bool(found) and name not in found and all(a.startswith("127.") or a == "::1" for a in found)


class _Closed(ConnectionError):
    pass


def _read(connection, n):
    parts = b""
    while len(parts) < n:
        part = connection.recv(n - len(parts))
        if not part:
            raise _Closed("the store is gone")
        parts += part
    return parts


def _receive(connection):
    (count,) = struct.unpack("<I", _read(connection, 4))
    if count > 16:
        raise _Closed("not a request of the store")
    sizes = struct.unpack(f"<{count}Q", _read(connection, 8 * count))
    if sum(sizes) > 1 << 30:
        raise _Closed("not a request of the store")
    return [_read(connection, n) for n in sizes]


def _send(connection, *parts):
    connection.sendall(struct.pack("<I", len(parts)) + struct.pack(f"<{len(parts)}Q", *map(len, parts)) + b"".join(parts))


def _job():
    """The launcher's name of this job. Where it gives none, whoever has the address is of the job."""
    name = os.environ.get("TORCHELASTIC_RUN_ID", "")
    return b"" if name == "none" else name.encode()


class _Server:
    """Answers requests, each connection on a thread of its own. The threads end with the process."""

    def __init__(self, address, port):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self.socket.bind(("" if only_loopback(address) else address, port))
        except OSError as e:
            if e.errno != errno.EADDRNOTAVAIL:
                raise
            self.socket.bind(("", port))  # the address is that of a gateway, which this host does not have itself
        self.socket.listen(256)
        self.port = self.socket.getsockname()[1]
        self.job = _job()
        self.name = secrets.token_hex(8).encode()  # tells this store from another one at the same address
        self.values, self.changed = {}, threading.Condition()
        threading.Thread(target=self._accept, name="pyflame store", daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except ConnectionAbortedError:
                continue  # the other end was gone before its turn
            except OSError as e:
                if e.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    time.sleep(0.1)  # other connections end meanwhile
                    continue
                return
            threading.Thread(target=self._serve, args=(connection,), name="pyflame store", daemon=True).start()

    def _serve(self, connection):
        held = []
        with connection:
            try:
                while True:
                    request = _receive(connection)
                    answer = self._answer(*request)
                    if request[0] == b"hold" and answer[0] == b"1":
                        held.append(request[1])
                        connection.settimeout(_SILENCE)
                    _send(connection, *answer)
            except (OSError, ValueError, TypeError, struct.error):
                pass  # the process at the other end is gone, or is none of ours
            with self.changed:
                for key in held:
                    self.values.pop(key, None)
                self.changed.notify_all()

    def _answer(self, what, key=b"", value=b"", *rest):
        with self.changed:
            if what == b"set":
                self.values[key] = value
            elif what == b"hold":
                if key in self.values:
                    return b"0", b""
                self.values[key] = value
            elif what == b"add":
                held = self.values.get(key, b"0")
                try:
                    value = str(int(held) + int(value)).encode()
                except ValueError:
                    return b"0", held[:40]
                self.values[key] = value
            elif what == b"delete":
                value = b"1" if self.values.pop(key, None) is not None else b"0"
            elif what == b"get":
                until = time.monotonic() + float(value)
                while key not in self.values:
                    left = until - time.monotonic()
                    if left <= 0:
                        return b"0", b""
                    self.changed.wait(left)
                return b"1", self.values[key]
            elif what == b"count":
                value = str(len(self.values)).encode()
            elif what == b"name":
                if key and self.job and key != self.job:
                    return b"0", b""
                value = self.name
            else:
                raise ValueError(what)
            self.changed.notify_all()
            return b"1", value

    def close(self, forked=False):
        """Frees the port. Connections stay until the processes at their other ends close them: one may still read what it needs."""
        if not forked:
            try:
                self.socket.shutdown(socket.SHUT_RDWR)  # wakes the thread in accept(), which would keep the port
            except OSError:
                pass
        self.socket.close()


def _bytes(value):
    return value if isinstance(value, bytes) else str(value).encode()


class Store:
    """The base class of stores, for isinstance(). It has no arguments (TypeError) and no methods of its own: TCPStore is the store that there is."""


class TCPStore(Store):
    """A key-value store: one process serves it (is_master), all use it. Values are bytes; timeout is a timedelta or seconds. RuntimeError when the store
    cannot be reached, or a key is not set, within the timeout.

    host_name, port: the address of the process that serves it; port 0: that process takes a free one, which the attribute port tells. world_size: how many processes use it.
    wait_for_workers: the constructor waits until world_size of them have made theirs, if world_size is given."""

    _SERVER, _HINT, _OP = "rank 0", "MASTER_ADDR, MASTER_PORT", "TCPStore"  # the words of its errors

    def __init__(self, host_name: str, port: int, world_size: int | None = None, is_master: bool = False, timeout: Timeout = 300, wait_for_workers: bool = True,
                 _ended: Any = ()) -> None:
        self.host, self.timeout = host_name, getattr(timeout, "total_seconds", lambda: timeout)()
        self._server = None
        if is_master:
            try:
                self._server = _Server(host_name, port)
            except socket.gaierror as e:
                raise RuntimeError(f"{self._OP}: the address is unknown; got {host_name} ({e.strerror}); expected the name or the address of this host, which has {self._SERVER}; hint: {self._HINT}") from None
            except OSError as e:
                raise RuntimeError(f"{self._OP}: the address cannot be used; got {host_name}:{port} ({e.strerror or e}); expected a free port of this host; hint: another port in {self._HINT}") from None
            port = self._server.port
        self.port = port
        self._connection, self._lock = self._connect(_ended), threading.Lock()
        if world_size and wait_for_workers:
            self.add("workers", 1)
            until = time.monotonic() + self.timeout
            while self.add("workers", 0) < world_size:
                if time.monotonic() > until:
                    raise RuntimeError(f"TCPStore: timed out after {self.timeout:g} s; got {self.add('workers', 0)} processes; expected {world_size}")
                time.sleep(0.02)

    def _connect(self, ended):
        """A connection to a store that is none of `ended`: where a job makes its groups anew, the store of the former ones may still be there."""
        until, pause, warn = time.monotonic() + self.timeout, 0.01, time.monotonic() + _NOTICE
        while True:
            connection = None
            try:
                connection = socket.create_connection((self.host, self.port), timeout=max(0.1, until - time.monotonic()))
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.settimeout(max(0.1, until - time.monotonic()))
                _send(connection, b"name", _job())
                right, self.name = _receive(connection)
                if right != b"1":
                    raise _Closed("the store of another job")
                if self.name in ended:
                    raise _Closed("the store of the groups that this process destroyed")
                connection.settimeout(None)
                return connection
            except (OSError, ValueError) as e:
                if connection:
                    connection.close()
                if time.monotonic() + pause > until:
                    raise RuntimeError(f"{self._OP}: {self._SERVER} cannot be reached within {self.timeout:g} s; got {self.host}:{self.port} ({getattr(e, 'strerror', None) or e}); expected the store of {self._SERVER}; hint: {self._HINT}") from None
                if warn and time.monotonic() > warn:
                    warn = None
                    print(f"{self._OP}: {self._SERVER} is not there yet; {self.host}:{self.port} ({getattr(e, 'strerror', None) or e}); waits for {self.timeout:g} s; hint: {self._HINT}", file=sys.stderr)
            time.sleep(pause)
            pause = min(2 * pause, 0.2)

    def _ask(self, *parts):
        try:
            with self._lock:
                _send(self._connection, *parts)
                return _receive(self._connection)
        except OSError as e:
            raise RuntimeError(f"{self._OP}: the connection to {self._SERVER} is closed ({e}); its process ended; expected the store at {self.host}:{self.port}") from None

    def set(self, key: str, value: str | bytes) -> None:
        """Sets the value of a key for all processes. value: a str or bytes; it replaces an earlier one."""
        self._ask(b"set", _bytes(key), _bytes(value))

    def _get(self, key, timeout):
        found, value = self._ask(b"get", _bytes(key), repr(float(timeout)).encode())
        return value if found == b"1" else None

    def get(self, key: str, timeout: float | None = None) -> bytes:
        """The value of a key, bytes. It waits until some process sets it: RuntimeError after timeout seconds; None: after the timeout of the store."""
        timeout = self.timeout if timeout is None else timeout
        value = self._get(key, timeout)
        if value is None:
            raise RuntimeError(f"TCPStore.get: timed out after {timeout:g} s; got no value of {key!r}; expected another process to set it")
        return value

    def wait(self, keys: Sequence[str], timeout: Timeout | None = None) -> None:
        """Returns when each of these keys has a value. keys: a list of str. timeout: for each key, a timedelta or seconds; None: that of the store. RuntimeError after it."""
        seconds = getattr(timeout, "total_seconds", lambda: timeout)()
        for key in keys:
            self.get(key, seconds)

    def add(self, key: str, amount: int) -> int:
        """Adds amount, an int, to the number of a key, which begins at 0, and returns the sum. All processes see one number. TypeError for another amount;
        RuntimeError if the key has a value that is no whole number, which remains as it is."""
        try:
            whole = operator.index(amount)
        except TypeError:
            raise TypeError(f"TCPStore.add: amount is no int; got {amount!r} for the key {key!r}; expected an int") from None
        done, value = self._ask(b"add", _bytes(key), str(whole).encode())
        if done != b"1":
            raise RuntimeError(f"TCPStore.add: the key holds no whole number; got {key!r} with {value!r}; expected a number, such as add() makes; hint: use another key, or delete_key() first")
        return int(value)

    def check(self, keys: Sequence[str]) -> bool:
        """A bool: whether each of these keys has a value. keys: a list of str. It does not wait."""
        return all(self._get(key, 0) is not None for key in keys)

    def delete_key(self, key: str) -> bool:
        """Removes a key and its value. Returns a bool: whether the key was there."""
        return self._ask(b"delete", _bytes(key))[1] == b"1"

    def num_keys(self) -> int:
        """The number of keys that have a value now, an int, of all processes together."""
        return int(self._ask(b"count")[1])

    def set_timeout(self, timeout: Timeout) -> None:
        """How long get() and wait() wait, as a timedelta or in seconds."""
        self.timeout = getattr(timeout, "total_seconds", lambda: timeout)()

    def close(self, _forked: bool = False) -> None:
        """Ends the connection to the store; later calls are a RuntimeError. In the process that serves it, no more processes can connect; those that did still can use it."""
        self._connection.close()
        if self._server:
            self._server.close(_forked)
