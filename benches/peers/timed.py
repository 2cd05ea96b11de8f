"""Runs a command, and prints its seconds and its peak memory in JSON: timed.py OUTPUT COMMAND…

A process of its own, because the peak that the system reports of a child begins at that of the process which
started it: this one is smaller than all that it runs.
"""

import os
import sys
import time

output = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
start = time.perf_counter()
child = os.fork()
if child == 0:
    os.dup2(output, 1)
    os.execvp(sys.argv[2], sys.argv[2:])
_, status, usage = os.wait4(child, 0)
seconds = time.perf_counter() - start
print(f'{{"seconds": {seconds}, "peak_mib": {usage.ru_maxrss / 1024}}}')
sys.exit(os.waitstatus_to_exitcode(status))
