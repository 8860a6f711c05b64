"""Resumed runs of `StrategyTrainer` without strategies are those of `Trainer`, to the bit."""

import pytest
from transformers import EarlyStoppingCallback, Trainer

from hf_ftstrategies import StrategyTrainer
from tests.promises import BEST, EVALUATED, LENGTHS, Stream, both, difference, frozen_bert, losses, run, summed_loss
from tests.tiny import tiny_bert

SAVED = {"num_train_epochs": 2, "save_strategy": "steps", "save_steps": 1, "resume": True}
RESUMED = {
    "within an epoch": {**SAVED, "cut": 3},
    "at its end": {**SAVED, "cut": 6},
    "in the second": {**SAVED, "cut": 8},
    "without skipping": {**SAVED, "cut": 3, "ignore_data_skip": True},
    "stream": {"train_dataset": Stream(), "max_steps": 10, **SAVED, "cut": 3},
    "by length": {**LENGTHS, **SAVED, "cut": 4},
    "accumulated": {"gradient_accumulation_steps": 2, "compute_loss_func": summed_loss, **SAVED, "cut": 2},
    "best model": {**BEST, "cut": 12, "metric_for_best_model": "loss", "resume": True},
    "callbacks restored": {
        **EVALUATED,
        "cut": 12,
        "resume": True,
        "callbacks": lambda: [EarlyStoppingCallback(2)],
        "metric_for_best_model": "loss",
        "load_best_model_at_end": True,
        "restore_callback_states_from_checkpoint": True,
    },
    "model_init": {"model_init": lambda: tiny_bert(), **SAVED, "cut": 5},
    "frozen": {"model": frozen_bert, **SAVED, "cut": 3},
    "finished": {**SAVED, "cut": 12},
}


@pytest.mark.parametrize("case", RESUMED.values(), ids=RESUMED)
def test_resume(tmp_path, case):
    resumed = both(tmp_path, **case)
    if "ignore_data_skip" in case:
        return
    straight = {name: value for name, value in case.items() if name not in ("cut", "resume")}
    uncut = run(StrategyTrainer, tmp_path / "straight", **straight)
    assert difference(resumed["weights"], uncut["weights"]) is None
    assert difference(losses(resumed), losses(uncut)) is None


def test_resume_from_a_folder(tmp_path):
    """The path of a checkpoint, not the newest one."""
    results = []
    for trainer in (Trainer, StrategyTrainer):
        settings = {"save_strategy": "steps", "save_steps": 2}
        run(trainer, tmp_path / trainer.__name__, **settings)
        path = str(tmp_path / trainer.__name__ / "checkpoint-2")
        results.append(run(trainer, tmp_path / trainer.__name__, resume=path, **settings))
    assert difference(*results) is None
    assert len(results[0]["order"]) == 4


def test_nothing_to_resume_is_said_alike(tmp_path):
    said = []
    for trainer in (Trainer, StrategyTrainer):
        with pytest.raises(ValueError, match="No valid checkpoint") as error:
            run(trainer, tmp_path / trainer.__name__, resume=True)
        said.append(str(error.value).replace(trainer.__name__, ""))
    assert said[0] == said[1]
