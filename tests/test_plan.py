import io
import json

import pytest
from rich.console import Console

from hf_ftstrategies import StrategyTrainer, slanted_triangular
from hf_ftstrategies.plan import differences
from tests.tiny import arguments, rows, tiny_bert


@pytest.fixture
def plan(tmp_path):
    settings = {
        "num_train_epochs": 5,
        "layer_decay": 0.5,
        "weight_decay": 0.1,
        "lr_schedule": "slanted_triangular",
        "unfreezing": "gradual",
        "reinit_layers": 1,
    }
    return StrategyTrainer(tiny_bert(), arguments(tmp_path, **settings), train_dataset=rows()).plan()


def test_depths(plan):
    table = [(d["name"], d["learning_rate"], d["trained_in"], d["reinitialised"]) for d in plan.depths]
    assert table == [
        ("head", 0.01, [True] * 5, False),
        ("block 3", 0.01, [False, True, True, True, True], True),
        ("block 2", 0.005, [False, False, True, True, True], False),
        ("block 1", 0.0025, [False, False, False, True, True], False),
        ("embeddings", 0.00125, [False] * 4 + [True], False),
    ]


def test_every_parameter_is_counted_once(plan):
    total = sum(p.numel() for p in tiny_bert().parameters())
    assert sum(d["parameters"] for d in plan.depths) == total
    assert sum(g["parameters"] for g in plan.groups) == total == plan.model["parameters"]


def test_phases_and_schedule(plan):
    assert [(p["first_step"], p["last_step"]) for p in plan.phases] == [
        (0, 6),
        (6, 12),
        (12, 18),
        (18, 24),
        (24, 30),
    ]
    assert plan.schedule == [[s, slanted_triangular(s, 30)] for s in range(31)]
    assert plan.training["total_steps"] == 30
    assert plan.training["batch"] == {"per_device": 4, "accumulation": 1, "processes": 1, "global": 4}


def test_table_shows_who_trains_when(plan):
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(plan.table())
    text = console.export_text()
    lines = {
        line.split("│")[1].strip(): line.split("│")[5].strip()
        for line in text.splitlines()
        if "█" in line and "│" in line
    }
    assert lines["head"] == "█" * 24
    assert lines["block 3 (re-init)"] == "·" * 5 + "█" * 19
    assert lines["embeddings"] == "·" * 19 + "█" * 5


def test_plan_is_json(plan, tmp_path):
    plan.save(tmp_path / "plan.json")
    assert json.loads((tmp_path / "plan.json").read_text()) == json.loads(json.dumps(plan.to_dict()))


def test_an_early_stopped_phase_has_no_end(tmp_path):
    (tmp_path / "s.yaml").write_text(
        "phases:\n  - {train: head, until: {early_stop: {metric: loss}}}\n  - {train: all}\n"
    )
    args = arguments(tmp_path, unfreezing=str(tmp_path / "s.yaml"), eval_strategy="epoch")
    plan = StrategyTrainer(tiny_bert(), args, train_dataset=rows(), eval_dataset=rows(8)).plan()
    assert plan.phases[0]["last_step"] is None
    assert plan.phases[0]["until"] == "1 evaluations without better loss"
    assert plan.table().row_count == 5


def test_schedules_of_transformers_are_drawn_too(tmp_path):
    args = arguments(tmp_path, layer_decay=0.9, lr_scheduler_type="linear", warmup_steps=2)
    assert StrategyTrainer(tiny_bert(), args, train_dataset=rows()).plan().schedule == [
        [0, 0.0], [1, 0.5], [2, 1.0], [3, 0.75], [4, 0.5], [5, 0.25], [6, 0.0],
    ]  # fmt: skip


def test_a_plan_needs_steps(tmp_path):
    args = arguments(tmp_path, layer_decay=0.9, num_train_epochs=0)
    with pytest.raises(ValueError, match="The training has 0 steps"):
        StrategyTrainer(tiny_bert(), args, train_dataset=rows()).plan()


def test_a_plan_needs_data(tmp_path):
    with pytest.raises(ValueError, match="train_dataset"):
        StrategyTrainer(tiny_bert(), arguments(tmp_path)).plan()


def test_differences():
    saved = {"a": {"x": 1, "y": [1, {"z": 2}]}, "gone": 1}
    assert differences(saved, saved) == []
    assert differences(saved, {"a": {"x": 1, "y": [1, {"z": 3}]}, "new": "n"}) == [
        "a.y[1].z: 2 in the checkpoint, 3 now",
        "gone: 1 in the checkpoint, absent now",
        "new: absent in the checkpoint, n now",
    ]
