"""One step of further pre-training with logits at every token, and at the masked ones only (`predict_masked_only`).

python -m benchmarks.masked_logits [--batches 4 8] [--repeats 11]

MiniLM with both heads, texts of 128 random tokens of which 15 % are masked, forward and backward in float32. The two
ways take turns in one process, on one thread; seconds are its processor time, to which waiting for other processes does
not count. Peak memory is that of one step in a process of its own (Linux).

Writes benchmarks/results/masked_logits.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import torch

from hf_ftstrategies.modeling.masked_positions import predict_masked_only
from hf_ftstrategies.modeling.packaged import find_pretrained
from hf_ftstrategies.modeling.pretraining import load_pretraining_model, pretraining_losses
from hf_ftstrategies.pipeline.machine import hardware, versions

RESULTS = Path(__file__).parent / "results" / "masked_logits.json"
TOKENS, MASKED = 128, round(0.15 * 128)
WAYS = ("every token", "masked only")


def load_model() -> torch.nn.Module:
    torch.manual_seed(0)
    model = load_pretraining_model(find_pretrained("minilm").path).model.train()
    predict_masked_only(model)
    return model


def make_batch(way: str, texts: int) -> dict[str, torch.Tensor]:
    """Inputs and labels, the same words for both ways."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(1000, 30000, (texts, TOKENS), generator=generator)
    words = torch.randint(1000, 30000, (texts, MASKED), generator=generator)
    places = torch.rand(texts, TOKENS, generator=generator).argsort(1)[:, :MASKED]
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if way == "masked only":
        return {**batch, "masked_positions": places, "labels": words}
    return {**batch, "labels": torch.full_like(ids, -100).scatter(1, places, words)}


def step(model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> float:
    """Processor seconds of one forward and backward pass, with the losses of both heads."""
    model.zero_grad()
    inputs = {name: tensor for name, tensor in batch.items() if name != "labels"}
    begin = time.process_time()
    losses = pretraining_losses(model(**inputs), batch["labels"], torch.zeros(len(batch["labels"]), dtype=torch.long))
    (losses.mlm_sum / losses.mlm_count + losses.nsp_sum / losses.nsp_count).backward()
    return time.process_time() - begin


def peak_memory_mib(way: str, texts: int) -> dict[str, float]:
    """Resident memory with the model loaded, and the most in one step, gradients included."""
    model, batch = load_model(), make_batch(way, texts)
    for parameter in model.parameters():
        parameter.detach().sum()  # weights are mapped from their file until they are read
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of loading
    at_rest = _status_mib("VmRSS")
    step(model, batch)
    return {"at_rest": at_rest, "peak": _status_mib("VmHWM")}


def _status_mib(name: str) -> float:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:"))


def measure(texts: int, repeats: int) -> dict:
    """Both ways on batches of one size."""
    model, batches = load_model(), {way: make_batch(way, texts) for way in WAYS}
    for way in WAYS:
        step(model, batches[way])  # warm-up
    seconds = {way: [] for way in WAYS}
    for _ in range(repeats):
        for way in WAYS:
            seconds[way].append(step(model, batches[way]))
    memory = {}
    for way in WAYS:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as own_process:
            memory[way] = own_process.submit(peak_memory_mib, way, texts).result()
    rise = {way: memory[way]["peak"] - memory[way]["at_rest"] for way in WAYS}
    return {
        "texts": texts,
        "tokens": TOKENS,
        "masked": MASKED,
        "repeats": repeats,
        "median_processor_seconds": {way: statistics.median(seconds[way]) for way in WAYS},
        "time_ratio": statistics.median(a / b for a, b in zip(*(seconds[way] for way in WAYS), strict=True)),
        "memory_mib": memory,
        "memory_of_step_ratio": rise[WAYS[0]] / rise[WAYS[1]],
    }


def table(runs: list[dict]) -> str:
    lines = [
        "| texts x tokens | CPU seconds, every token | masked only | ratio | MiB of a step, every token | masked only |"
    ]
    lines.append("|---|---|---|---|---|---|")
    for one in runs:
        seconds = [f"{one['median_processor_seconds'][way]:.2f}" for way in WAYS]
        rise = [f"{one['memory_mib'][way]['peak'] - one['memory_mib'][way]['at_rest']:.0f}" for way in WAYS]
        cells = [f"{one['texts']} x {one['tokens']}", *seconds, f"{one['time_ratio']:.2f}", *rise]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--repeats", type=int, default=11)
    options = parser.parse_args()
    torch.set_num_threads(1)
    runs = [measure(texts, options.repeats) for texts in options.batches]
    facts = {"threads": torch.get_num_threads(), **hardware(torch.device("cpu"), 1)}
    content = {"command": "python -m benchmarks.masked_logits", "runs": runs, "versions": versions(), "hardware": facts}
    RESULTS.write_text(json.dumps(content, indent=2) + "\n")
    print(table(runs))


if __name__ == "__main__":
    main()
