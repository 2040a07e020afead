"""The order in which requests that wait are begun. This is the only place that decides it.

Requests with a lower priority go first. Of those with the same one, requests that ran before and had to give up their blocks go first, in the order in which they were begun. Then clients take
turns: each client that waits gets one request begun, in the order in which the clients came to wait, and of one client the request that came first. So a client with one request waits for at most one
request of each other client, however many these have.

A client that has nothing left to wait for leaves its place, and comes back behind the others. A request is put in and taken out in constant time, but for a search in the sorted list of the
priorities, and in that of the requests that ran before, which are few."""
import bisect
from collections import OrderedDict, deque


class _Turns:
    """The requests of one priority. began: those that ran before, sorted; clients: for each client that waits its requests, the client whose turn it is first."""

    def __init__(self):
        self.began, self.clients = [], OrderedDict()

    def __bool__(self):
        return bool(self.began or self.clients)

    def __iter__(self):
        """The requests in the order in which they are begun, if no other one comes."""
        yield from self.began
        left = deque(iter(requests) for requests in self.clients.values())
        while left:
            requests = left.popleft()
            if (request := next(requests, None)) is not None:
                yield request
                left.append(requests)

    def __contains__(self, request):
        return request in (self.clients.get(request.client, ()) if request._turn is None else self.began)

    def first(self):
        return self.began[0] if self.began else next(iter(next(iter(self.clients.values()))))

    def add(self, request):
        if request._turn is None:
            self.clients.setdefault(request.client, OrderedDict())[request] = None
        else:
            bisect.insort(self.began, request)

    def remove(self, request):
        if request._turn is not None:
            self.began.remove(request)
            return
        requests = self.clients[request.client]
        del requests[request]
        if not requests:
            del self.clients[request.client]

    def end_turn(self, client):
        """The next turn is that of another client, if there is one."""
        if client in self.clients:
            self.clients.move_to_end(client)


class Queue:
    """Requests that wait, in the order in which they are begun. A request has priority, client, and _turn: its place in the order of all that were begun, or None where it was not."""

    def __init__(self):
        self._priorities, self._turns, self._count, self._begun = [], {}, 0, 0

    def __len__(self):
        return self._count

    def __iter__(self):
        for priority in self._priorities:
            yield from self._turns[priority]

    def __contains__(self, request):
        return request.priority in self._turns and request in self._turns[request.priority]

    def add(self, request):
        """Puts a request in: a new one, or one that ran before."""
        priority = request.priority
        if priority not in self._turns:
            bisect.insort(self._priorities, priority)
            self._turns[priority] = _Turns()
        self._turns[priority].add(request)
        self._count += 1

    def remove(self, request):
        """Takes a request out that is not begun. The turn of its client stays."""
        priority = request.priority
        self._turns[priority].remove(request)
        self._count -= 1
        if not self._turns[priority]:
            del self._turns[priority]
            del self._priorities[bisect.bisect_left(self._priorities, priority)]

    def first(self):
        """The request that is begun next. There must be one."""
        return self._turns[self._priorities[0]].first()

    def begin(self, request):
        """Takes a request out that is begun now. If it was not before, its client has had its turn."""
        self.remove(request)
        if request._turn is None:
            request._turn, self._begun = self._begun, self._begun + 1
            if request.priority in self._turns:
                self._turns[request.priority].end_turn(request.client)
