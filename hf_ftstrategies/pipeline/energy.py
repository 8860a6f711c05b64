"""Energy that a run took, from the counters of the machine, where there are any."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

POWERCAP = Path("/sys/class/powercap")


class EnergyMeter:
    """Reads the counters when it is made, and again in `watt_hours`.

    They count all that the machine does, not this process alone: CPU packages (Linux powercap, RAPL; mostly readable by
    root only) and NVIDIA GPUs (NVML, with `pip install nvidia-ml-py`). Each wraps around at most once in between.
    """

    def __init__(self):
        self._before = _read()

    def watt_hours(self) -> dict[str, float]:
        """Since the meter was made: `cpu`, `gpu`, whichever can be read."""
        used: dict[str, float] = {}
        now = _read()
        for counter, (start, _) in self._before.items():
            if counter in now:
                end, wraps_at = now[counter]
                kind = counter.partition(" ")[0]
                used[kind] = used.get(kind, 0.0) + (end - start if end >= start else end - start + wraps_at) / 3600
        return used


def _read() -> dict[str, tuple[float, float]]:
    """Joules of each counter, and where it begins again at 0."""
    return _cpu_packages() | _gpus()


def _cpu_packages() -> dict[str, tuple[float, float]]:
    found = {}
    for zone in sorted(POWERCAP.glob("*-rapl:[0-9]*")):
        if zone.name.count(":") == 1:  # the others are parts of it
            try:
                names = ("energy_uj", "max_energy_range_uj")
                now, wraps_at = (int((zone / name).read_text()) / 1e6 for name in names)
            except (OSError, ValueError):
                continue
            found[f"cpu {zone.name}"] = now, wraps_at
    return found


def _gpus() -> dict[str, tuple[float, float]]:
    if find_spec("pynvml") is None:
        return {}
    import pynvml

    found = {}
    try:
        pynvml.nvmlInit()
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            found[f"gpu {index}"] = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3, 0.0
    except pynvml.NVMLError:  # no driver, or a GPU too old to count
        pass
    return found
