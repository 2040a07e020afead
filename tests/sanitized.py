"""Whether a sanitizer is loaded, and what cannot be tested under it."""
import os

import pytest

SANITIZED = "libasan" in os.environ.get("LD_PRELOAD", "")
# A thread that allocates while another forks leaves AddressSanitizer's allocator locked in the child, for good.
forks = pytest.mark.skipif(SANITIZED, reason="AddressSanitizer's allocator does not survive a fork of a process with threads")
FORK = "forkserver" if SANITIZED else "fork"  # for workers: fork starts at once
