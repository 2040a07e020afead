"""In the program's process: how long it waits for its loaders. The figures decide which changes are worth a trial (candidates.py)."""
import time

from ..data.loader import DataLoader

SKIPPED = 5  # batches before the first that counts: during the first steps programs are compiled


class Loaders:
    """How long a program waits for loaders that have no workers. The clock gives seconds."""

    def __init__(self, clock=time.perf_counter):
        self._clock, self.waits = clock, []  # (asked for, received) of each batch

    def watch(self):
        """Watches all loaders of the process."""
        original, watch = DataLoader._logged, self

        def logged(loader, batches):
            batches = original(loader, batches)
            return batches if loader.num_workers else watch.timed(batches)

        DataLoader._logged = logged

    def timed(self, batches):
        """The same batches. The time that each takes is noted."""
        try:
            while True:
                began = self._clock()
                try:
                    batch = next(batches)
                except StopIteration:
                    return
                self.waits.append((began, self._clock()))
                yield batch
        finally:
            batches.close()

    def share(self):
        """The part of the time, 0 to 1, from one request for a batch to the last one, in which the program waited for a batch."""
        counted = self.waits[SKIPPED if len(self.waits) >= 2 * SKIPPED else 0:]
        if len(counted) < 2:
            return 0.0
        elapsed = counted[-1][0] - counted[0][0]  # the work on the last batch is not known
        return min(1.0, sum(end - begin for begin, end in counted[:-1]) / elapsed) if elapsed > 0 else 0.0
