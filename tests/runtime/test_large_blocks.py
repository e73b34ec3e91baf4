"""Large blocks that are free do not stay in the memory of a process, whatever lies between them."""

from __future__ import annotations

import subprocess
import sys

import pytest

MAX_KEPT_BYTES = 32 * 2**20

PROGRAM = """
from gateway.runtime.large_blocks import return_large_blocks

def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

return_large_blocks()
bytearray(30 * 2**20)  # from now on, the C library would keep blocks of this size
before = resident()
blocks = []
for _ in range(64):
    blocks.append(bytearray(4 * 2**20))
    blocks.append(bytearray(600))  # it is still used when the large ones are free
del blocks[::2]
print(resident() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it is an option of glibc")
def test_free_blocks_leave_no_holes_between_those_that_are_used() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60)
    assert int(ran.stdout) < MAX_KEPT_BYTES
