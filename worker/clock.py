"""The clock that leases are measured with on a host: it also runs while the machine is suspended."""

import time


def boottime() -> float:
    """Seconds since the machine was started."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
