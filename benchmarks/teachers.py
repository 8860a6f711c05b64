"""Self-distillation and self-ensemble: time of a step relative to one without them, and memory.

python -m benchmarks.teachers [--rounds 15]

Steps of all variants take turns, on one thread. The ratios are medians over the rounds: of the processor's time, which
other work on the machine hardly changes, and of the clock's. Peak memory comes from a process for each variant. Writes
benchmarks/results/teachers.json.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch
from transformers import AutoModelForSequenceClassification
from transformers.utils import logging

from hf_ftstrategies import StrategyTrainer, StrategyTrainingArguments
from hf_ftstrategies.modeling.packaged import find_pretrained
from hf_ftstrategies.pipeline.machine import hardware, peak_memory_mib, versions

RESULTS = Path(__file__).parent / "results" / "teachers.json"
SHAPES = {"32 x 12 tokens": (32, 12), "16 x 64 tokens": (16, 64)}
# Options, and how many copies of the parameters they hold.
VARIANTS = {
    "plain": ({}, 0),
    "sda, 1 student": ({"self_distillation": "sda", "teacher_size": 1}, 0),
    "sda, 3 students": ({"self_distillation": "sda", "teacher_size": 3}, 4),
    "sdv, 3 students": ({"self_distillation": "sdv", "teacher_size": 3}, 3),
    "ema": ({"self_distillation": "ema"}, 1),
    "se": ({"self_ensemble": "se"}, 1),
}
WARM_UP = 5


class Stepper:
    """A trainer of the demo model that takes one optimizer step at a time, with the calls of Trainer's own loop."""

    def __init__(self, options: dict, shape: tuple[int, int], folder: str):
        args = StrategyTrainingArguments(folder, use_cpu=True, report_to="none", disable_tqdm=True, **options)
        model = AutoModelForSequenceClassification.from_pretrained(find_pretrained("minilm").path, num_labels=6)
        draw = torch.Generator().manual_seed(0)
        ids = torch.randint(1000, 20000, shape, generator=draw)
        self.batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids[:, 0] % 6}
        self.trainer = trainer = StrategyTrainer(model, args, train_dataset=[{"labels": 0}])
        trainer.optimizer = trainer.accelerator.prepare(trainer.create_optimizer())
        trainer.state.max_steps, trainer.current_gradient_accumulation_steps = 1000, 1
        self.handler = trainer.callback_handler
        self.handler.model, self.handler.optimizer = trainer.model, trainer.optimizer
        self.call("on_train_begin")

    def call(self, event: str) -> None:
        """Tell the callbacks."""
        getattr(self.handler, event)(self.trainer.args, self.trainer.state, self.trainer.control)

    def step(self) -> tuple[float, float]:
        """Seconds of one step, by the processor and by the clock."""
        begin, model = (time.process_time(), time.perf_counter()), self.trainer.model
        self.call("on_step_begin")
        self.trainer.training_step(model, dict(self.batch))
        self.trainer.accelerator.clip_grad_norm_(model.parameters(), 1.0)
        self.call("on_pre_optimizer_step")
        self.trainer.optimizer.step()
        model.zero_grad()
        self.trainer.state.global_step += 1
        self.call("on_step_end")
        return time.process_time() - begin[0], time.perf_counter() - begin[1]


def step_times(shape: tuple[int, int], rounds: int) -> dict[str, dict]:
    """Milliseconds of a step of each variant, and its ratio to the plain step of the same round."""
    with tempfile.TemporaryDirectory() as folder:
        steppers = {name: Stepper(options, shape, folder) for name, (options, _) in VARIANTS.items()}
        taken = [{name: one.step() for name, one in steppers.items()} for _ in range(WARM_UP + rounds)][WARM_UP:]
    found = {}
    for name in VARIANTS:
        ratios = [[one[name][clock] / one["plain"][clock] for one in taken] for clock in (0, 1)]
        found[name] = {
            "processor_milliseconds": round(1000 * statistics.median(one[name][0] for one in taken), 1),
            "relative": round(statistics.median(ratios[0]), 3),
            "quartiles": [round(q, 3) for q in statistics.quantiles(ratios[0])[::2]],
            "relative_by_the_clock": round(statistics.median(ratios[1]), 3),
        }
    return found


def peak_memory(name: str, shape: tuple[int, int]) -> float:
    """Peak MiB of a process that takes six steps of one variant."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        stepper = Stepper(VARIANTS[name][0], shape, folder)
        for _ in range(6):
            stepper.step()
    return peak_memory_mib(torch.device("cpu"))


def memory(shape: tuple[int, int], parameters_mib: float) -> dict[str, dict]:
    """Peak memory of each variant, and what it has more than plain in copies of the parameters."""
    found = {}
    for name in VARIANTS:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
            found[name] = process.submit(peak_memory, name, shape).result()
    return {
        name: {
            "peak_mib": round(peak),
            "copies": VARIANTS[name][1],
            "copies_measured": round((peak - found["plain"]) / parameters_mib, 2),
        }
        for name, peak in found.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.set_verbosity_error()  # a new head is no news
    model = AutoModelForSequenceClassification.from_pretrained(find_pretrained("minilm").path, num_labels=6)
    parameters = sum(p.numel() for p in model.parameters())
    # first: a new process counts from the memory of its parent
    used = memory(SHAPES["16 x 64 tokens"], 4 * parameters / 2**20)
    content = {
        "command": "python -m benchmarks.teachers",
        "model": "minilm",
        "parameters": parameters,
        "rounds": options.rounds,
        "threads": 1,
        "time": {name: step_times(shape, options.rounds) for name, shape in SHAPES.items()},
        "memory, 16 x 64 tokens": used,
        "versions": versions(),
        "hardware": hardware(torch.device("cpu"), 1),
    }
    RESULTS.write_text(json.dumps(content, indent=2) + "\n")
    print(json.dumps(content, indent=2))


if __name__ == "__main__":
    main()
