"""Limits on connections, around the protocol of the HTTP library: how many there are, and how long one may take to ask for something."""
import asyncio

_FULL = b'{"error":{"message":"serve: there are too many clients; got one more than the limit; expected fewer; hint: try again later","type":"server_error","param":null,"code":"too_many_clients"}}'
_REFUSAL = b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(_FULL), _FULL)


class Connections:
    """All open connections. connections(): a new protocol, for create_server. A client beyond `most` gets status 503; one whose first request does
    not come within `seconds` is cut off."""

    LINGER, MOST_LINGERING = 2.0, 64  # seconds, connections: a connection that is closed at once may lose the answer together with what the client still sends

    # A loop reads for one connection at a time, so one buffer serves all. A protocol without a buffer gets new bytes of 256 KiB for each read, of which the loop keeps
    # what has come: the holes that this leaves in the heap let the process grow.
    READ_BYTES = 1 << 16

    def __init__(self, make_protocol, most, seconds):
        self._make, self.most, self.seconds, self._timers = make_protocol, most, seconds, {}
        self.buffer = memoryview(bytearray(self.READ_BYTES))
        self.count, self._lingering = 0, 0

    def __call__(self):
        return _Connection(self, self._make())

    def asked(self, transport):
        """A whole head of a request has come through this transport."""
        if timer := self._timers.pop(transport, None):
            timer.cancel()

    def refuse(self, transport):
        """Says that there are too many clients. Returns whether the connection stays for a moment, in which it counts as lingering."""
        transport.write(_REFUSAL)
        if self._lingering >= self.MOST_LINGERING:
            transport.close()
            return False
        if transport.can_write_eof():  # not with TLS
            transport.write_eof()
        self._lingering += 1
        self._timers[transport] = asyncio.get_running_loop().call_later(self.LINGER, transport.abort)
        return True

    def gone(self, transport):
        self._lingering -= 1
        self.asked(transport)

    def opened(self, transport):
        self.count += 1
        self._timers[transport] = asyncio.get_running_loop().call_later(self.seconds, transport.abort)

    def closed(self, transport):
        self.count -= 1
        self.asked(transport)


class _Connection(asyncio.BufferedProtocol):
    def __init__(self, all, inner):
        self._all, self._inner, self._transport, self._refused = all, inner, None, None

    def connection_made(self, transport):
        if self._all.count >= self._all.most:
            if self._all.refuse(transport):
                self._refused = transport
            return
        self._transport = transport
        self._all.opened(transport)
        self._inner.connection_made(transport)

    def get_buffer(self, sizehint):
        return self._all.buffer

    def buffer_updated(self, count):
        if self._transport is not None:
            self._inner.data_received(bytes(self._all.buffer[:count]))

    def eof_received(self):
        return self._inner.eof_received() if self._transport is not None else None

    def pause_writing(self):
        if self._transport is not None:
            self._inner.pause_writing()

    def resume_writing(self):
        if self._transport is not None:
            self._inner.resume_writing()

    def connection_lost(self, exc):
        if self._transport is not None:
            self._all.closed(self._transport)
            self._inner.connection_lost(exc)
        elif self._refused is not None:
            self._all.gone(self._refused)
