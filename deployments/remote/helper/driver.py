"""Whether this machine has an NVIDIA driver, found out by a few looks at files that never enter the driver."""

import os

from . import programs

# The last is how Windows shows its driver to Linux.
_SIGNS = ("/dev/nvidiactl", "/proc/driver/nvidia", "/dev/dxg")


def present():
    """Also where only the driver's tool is there: then the driver is meant to be, and why it is not can be told."""
    return any(os.path.exists(sign) for sign in _SIGNS) or programs.has("nvidia-smi")
