"""`pyflame train gpt --distributed`: the processes of the launcher meet here, and then each becomes the program, which gets the connected sockets."""
import json
import os
import sys

from .. import _program
from ..distributed._environment import place_of_process
from ..distributed._group import _Meeting
from ..distributed._store import TCPStore

_TIMEOUT = 600.0  # seconds for which a process waits for the others


def _meet(place):
    """What the program's option --connected takes. The descriptors stay open when this process becomes another program."""
    store = TCPStore(place.address, place.port, is_master=place.rank == 0, timeout=_TIMEOUT, wait_for_workers=False)
    sockets, memory, _ = _Meeting("train gpt", store, "gpt", place.rank, range(place.world_size), _TIMEOUT).meet()
    if place.rank == 0:  # the store ends with this program
        for rank in range(1, place.world_size):
            store.get(f"gpt/met/{rank}", _TIMEOUT)
    else:
        try:
            store.set(f"gpt/met/{place.rank}", "1")
        except RuntimeError:
            pass  # rank 0 has seen it, and went on before it answered
    for fd in {fd for fds in (*sockets, memory) for fd in fds} - {-1}:
        os.set_inheritable(fd, True)
    control, data, messages = sockets
    return json.dumps({"rank": place.rank, "local_rank": place.local_rank, "control": control, "data": data, "messages": messages, "memory": memory})


def start(words):
    """Becomes the program, with these words behind `train gpt`. `--program PATH` names it, if the program itself started this process."""
    program = None
    if words[:1] == ["--program"]:
        program, words = words[1], words[2:]
    program = program or _program.find(os.path.dirname(_program.__file__), True)
    if program is None:
        print("pyflame train: the program is not installed; expected `pyflame` beside this interpreter, or on the path", file=sys.stderr)
        return 1
    if "--distributed" in words:
        try:
            place = place_of_process("train gpt")
            words = [*words, "--connected", _meet(place)] if place.world_size > 1 else [word for word in words if word != "--distributed"]
        except (ValueError, RuntimeError, OSError) as error:
            print(f"pyflame train: {error}", file=sys.stderr)
            return 1
    os.execv(program, [program, "train", "gpt", *words])
