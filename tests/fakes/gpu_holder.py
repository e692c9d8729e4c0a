#!/usr/bin/env python3
"""Holds GPU memory the way an engine does: a main process without any, and a worker that has it.

Usage: gpu_holder.py MIB. Prints "holding" when the memory is there. SIGTERM ends both; SIGKILL of main leaves the
worker.
"""

import os
import signal
import subprocess
import sys
import time


def work(mib: int) -> None:
    import torch

    held = torch.empty(mib, 1024, 1024, dtype=torch.uint8, device="cuda")
    held.fill_(1)
    torch.cuda.synchronize()
    print("holding", mib, os.getpid(), flush=True)
    while True:
        time.sleep(60)


def main() -> None:
    if sys.argv[1] == "--worker":
        work(int(sys.argv[2]))
    worker = subprocess.Popen([sys.executable, __file__, "--worker", sys.argv[1]])
    signal.signal(signal.SIGTERM, lambda *_: (worker.terminate(), sys.exit(0)))
    worker.wait()


if __name__ == "__main__":
    main()
