"""What a run ran on: versions, hardware, peak memory."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from hf_ftstrategies.version import __version__

_PACKAGES = ("torch", "transformers", "accelerate", "datasets", "evaluate", "peft")


def versions() -> dict[str, str]:
    """Versions of Python, of this package and of those that compute."""
    found = {"python": platform.python_version(), "hf_ftstrategies": __version__}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def hardware(device: torch.device, processes: int) -> dict[str, Any]:
    """The device that trained.

    Args:
        device (`torch.device`): Of the training.
        processes (`int`): How many took part.
    """
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else _cpu_name()
    return {"device": device.type, "cores": os.cpu_count(), "name": name, "processes": processes}


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def peak_memory_mib(device: torch.device) -> float | None:
    """Peak memory in MiB: of the GPU where one trained, else resident memory of the process (None on Windows)."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    if sys.platform == "win32":
        return None
    import resource

    unit = 1 if sys.platform == "darwin" else 1024  # ru_maxrss is in bytes there, in KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
