"""Several tasks in one training: `StrategyTrainer`, `MultiTaskClassifier` and `MultiTaskRows` together."""

import pytest
import torch

from hf_ftstrategies import MultiTaskClassifier, MultiTaskClassifierConfig, MultiTaskRows, StrategyTrainer
from tests.promises import collate
from tests.tiny import StopAt, arguments, equal, snapshot, tiny_bert

TASKS = {"first": {"num_labels": 3}, "second": {"num_labels": 2}, "never": {"num_labels": 2}}
STRATEGIES = {
    "layer_decay": 0.9,
    "unfreezing": "gradual",
    "unfreeze_every": "4",
    "weight_decay": 0.1,
    "num_train_epochs": 2,
    "per_device_train_batch_size": 8,
    "train_sampling_strategy": "sequential",
}


def model():
    config = MultiTaskClassifierConfig(text_config=tiny_bert().config, tasks=TASKS)
    torch.manual_seed(0)
    return MultiTaskClassifier(config)


def examples(task, count, seed=0):
    """Two tasks on the same kind of text, whose first word of six decides both."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, 11, (count, 4), generator=generator)
    divisor = {"first": 2, "second": 3}[task]
    return [{"input_ids": row, "labels": (int(row[0]) - 5) // divisor} for row in ids]


def training_rows(counts=(200, 100)):
    rows = {"first": examples("first", counts[0]), "second": examples("second", counts[1], seed=1)}
    return MultiTaskRows(rows, tasks=TASKS, block_size=8)


def heldout(task):
    number = list(TASKS).index(task)
    return [{**row, "task_ids": number} for row in examples(task, 60, seed=7)]


def train(folder, stop=None, resume=None, counts=(200, 100), **settings):
    """The trainer, and the task and the words of each batch."""
    batches = []

    def noting(rows):
        batch = collate(rows)
        batches.append((batch["task_ids"].unique().tolist(), batch["input_ids"].clone()))
        return batch

    trainer = StrategyTrainer(
        model(),
        arguments(folder, **STRATEGIES | settings),
        train_dataset=training_rows(counts),
        eval_dataset={task: heldout(task) for task in ("first", "second")},
        data_collator=noting,
        compute_metrics=lambda p: {"accuracy": float((p.predictions.argmax(-1) == p.label_ids).mean())},
        callbacks=[StopAt(stop)] if stop else [],
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer, batches


def test_learns_both_tasks_and_reports_each(tmp_path):
    trainer, batches = train(tmp_path)
    assert trainer.state.global_step == len(batches) == 2 * (25 + 12)
    assert all(tasks in ([0], [1]) for tasks, _ in batches)
    metrics = trainer.evaluate()
    assert metrics["eval_first_accuracy"] > 0.9
    assert metrics["eval_second_accuracy"] > 0.9
    start, end = snapshot(model()), snapshot(trainer.model)
    moved = {key for key in end if not torch.equal(end[key], start[key])}
    assert {"heads.first.weight", "heads.second.weight"} <= moved
    assert not any(key.startswith("heads.never") for key in moved)


@pytest.mark.parametrize("stop", [2, 5, 8], ids=["in the first epoch", "at its end", "in the second"])
@pytest.mark.parametrize("accumulation", [1, 2])
def test_resumes_to_equal_bits(tmp_path, stop, accumulation):
    settings = {
        "counts": (24, 16),
        "save_strategy": "steps",
        "save_steps": 1,
        "per_device_train_batch_size": 8 // accumulation,
        "gradient_accumulation_steps": accumulation,
        "unfreeze_every": "2",
    }
    straight, order = train(tmp_path / "straight", **settings)
    train(tmp_path / "cut", stop=stop, **settings)
    resumed, rest = train(tmp_path / "cut", resume=True, **settings)
    assert straight.state.global_step == 10
    assert equal(snapshot(straight.model), snapshot(resumed.model))
    assert [tasks for tasks, _ in rest] == [tasks for tasks, _ in order[stop * accumulation :]]
    rows = training_rows((24, 16))
    for epoch in (0, 1):
        rows.set_epoch(epoch)
        words = torch.cat([words for _, words in order[epoch * 5 * accumulation :][: 5 * accumulation]])
        assert torch.equal(words, torch.stack([row["input_ids"] for row in rows]))


def test_rows_in_random_order_are_refused(tmp_path):
    with pytest.raises(ValueError, match="train_sampling_strategy='sequential'"):
        train(tmp_path, train_sampling_strategy="random")
