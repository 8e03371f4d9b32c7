"""How many threads to use: the processors this process may use, not those of the machine."""

import math
import os
from pathlib import Path

from .errors import SettingsError
from .numeric import is_whole

_CGROUP = Path("/sys/fs/cgroup")


def default_threads():
    """The processors in this process's affinity mask, limited by the control group's quota."""
    try:
        usable = len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        usable = os.cpu_count() or 1
    quota = _quota()
    return max(1, usable if quota is None else min(usable, math.ceil(quota)))


def resolve(threads):
    """``threads`` as a number: None means the default; refuses fewer than one."""
    if threads is None:
        return default_threads()
    if not is_whole(threads):
        raise SettingsError(f"threads is {threads!r}; expected a whole number of at least 1")
    return int(threads)


def _quota():
    """Processors granted by the control group (version 2, then 1), or None without a limit."""
    try:
        quota, period = (_CGROUP / "cpu.max").read_text().split()[:2]
    except (OSError, ValueError):
        try:
            quota = (_CGROUP / "cpu" / "cpu.cfs_quota_us").read_text()
            period = (_CGROUP / "cpu" / "cpu.cfs_period_us").read_text()
        except OSError:
            return None
    try:
        share = int(quota) / int(period)
    except (ValueError, ZeroDivisionError):  # "max": no limit
        return None
    return share if share > 0 else None
