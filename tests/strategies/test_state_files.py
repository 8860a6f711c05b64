import json

import pytest
import torch

from hf_ftstrategies import Strategy
from hf_ftstrategies.strategies.state_files import load_states, read_json, save_states


class Holder(Strategy):
    paper = "none"

    def __init__(self, name, state):
        self.name, self.state = name, state

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state


def two(first, second):
    return [Holder("a", first), Holder("ab", second)]


def test_round_trip(tmp_path):
    tensor = torch.arange(6.0).reshape(2, 3).t()  # not contiguous
    save_states(tmp_path, two({"x": tensor, "n": 3, "none": None}, {"x": tensor.half(), "list": [1, "s"]}), {"f": 1})
    a, b = two({}, {})
    load_states(tmp_path, [a, b])
    assert torch.equal(a.state.pop("x"), tensor)
    assert torch.equal(b.state.pop("x"), tensor.half())
    assert (a.state, b.state) == ({"n": 3, "none": None}, {"list": [1, "s"]})
    assert read_json(tmp_path)["fingerprint"] == {"f": 1}


def test_no_tensors_no_file(tmp_path):
    save_states(tmp_path, two({"n": 1}, {}), {})
    assert [p.name for p in tmp_path.iterdir()] == ["strategies.json"]


@pytest.mark.parametrize("size", [0, 10, 100])
def test_torn_files_are_recognised(tmp_path, size):
    save_states(tmp_path, two({"x": torch.zeros(99)}, {}), {})
    for name in ("strategies.safetensors", "strategies.json"):
        path = tmp_path / name
        whole = path.read_bytes()
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match="resume from another checkpoint"):
            load_states(tmp_path, two({}, {}))
        path.write_bytes(whole)
    load_states(tmp_path, two({}, {}))


def test_files_that_do_not_belong_together(tmp_path):
    save_states(tmp_path, two({"x": torch.zeros(2)}, {}), {})
    content = json.loads((tmp_path / "strategies.json").read_text())
    (tmp_path / "strategies.json").write_text(json.dumps({**content, "tensors": ["a/y"]}))
    with pytest.raises(ValueError, match="do not belong together"):
        load_states(tmp_path, two({}, {}))
    (tmp_path / "strategies.json").write_text(json.dumps({**content, "format": 2}))
    with pytest.raises(ValueError, match="has format 2"):
        load_states(tmp_path, two({}, {}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"states": {"a": {}}}, "no state that 'ab' can go on from"),
        ({"states": {"a": 3, "ab": {}}}, "no state that 'a' can go on from"),
        ({"states": []}, "has no 'states'"),
        ({"tensors": None}, "has no 'tensors'"),
        ({"fingerprint": "f"}, "has no 'fingerprint'"),
    ],
)
def test_files_that_hold_something_else(tmp_path, change, message):
    save_states(tmp_path, two({"n": 1}, {}), {})
    content = json.loads((tmp_path / "strategies.json").read_text())
    (tmp_path / "strategies.json").write_text(json.dumps({**content, **change}))
    with pytest.raises(ValueError, match=f"{message}.*resume from another checkpoint"):
        load_states(tmp_path, two({}, {}))
