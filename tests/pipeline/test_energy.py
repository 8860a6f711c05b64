import sys
from types import SimpleNamespace

import pytest

from hf_ftstrategies.pipeline import energy
from hf_ftstrategies.pipeline.energy import EnergyMeter


def write(folder, zone, joules, wraps_at=1000):
    (folder / zone).mkdir(exist_ok=True)
    (folder / zone / "energy_uj").write_text(f"{joules * 1_000_000}\n")
    (folder / zone / "max_energy_range_uj").write_text(f"{wraps_at * 1_000_000}\n")


@pytest.fixture
def powercap(tmp_path, monkeypatch):
    monkeypatch.setattr(energy, "POWERCAP", tmp_path)
    monkeypatch.setattr(energy, "find_spec", lambda name: None)
    return tmp_path


def test_packages_are_added_and_their_parts_are_not(powercap):
    for zone in ("intel-rapl:0", "intel-rapl:0:0", "intel-rapl:1"):
        write(powercap, zone, 100)
    meter = EnergyMeter()
    write(powercap, "intel-rapl:0", 460)
    write(powercap, "intel-rapl:0:0", 900)
    write(powercap, "intel-rapl:1", 280)
    assert meter.watt_hours() == {"cpu": pytest.approx(540 / 3600)}


def test_a_counter_that_began_again(powercap):
    write(powercap, "intel-rapl:0", 900)
    meter = EnergyMeter()
    write(powercap, "intel-rapl:0", 260)
    assert meter.watt_hours() == {"cpu": pytest.approx(360 / 3600)}


def test_nothing_to_read(powercap):
    (powercap / "intel-rapl:0").mkdir()
    assert EnergyMeter().watt_hours() == {}


def test_gpus(powercap, monkeypatch):
    millijoules = {0: 1000, 1: 5000}
    fake = SimpleNamespace(
        NVMLError=RuntimeError,
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetTotalEnergyConsumption=lambda handle: millijoules[handle],
    )
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.setattr(energy, "find_spec", lambda name: name)
    meter = EnergyMeter()
    millijoules |= {0: 3_601_000, 1: 3_605_000}
    assert meter.watt_hours() == {"gpu": pytest.approx(2.0)}
