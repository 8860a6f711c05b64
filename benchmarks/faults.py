"""Kills: trainings with random strategies, SIGKILLed at random moments and started again by the same command.

python -m benchmarks.faults [--kills 50] [--per_run 5] [--seed 0]

A run has two to six strategies drawn at random. It is killed `--per_run` times, at steps that go up: while it writes a
certain file of a checkpoint, or some milliseconds after a step; then it may end. Survived means: it leaves to the
bit what the same training leaves that was never killed (weights, optimizer, schedule, random streams, states of the
strategies, losses and metrics). Writes benchmarks/results/faults.json.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from pathlib import Path

import torch

from hf_ftstrategies.pipeline.machine import hardware, versions
from tests.faults import run
from tests.faults.harness import differences, finish, kill_once
from tests.strategies_at_work import STRATEGIES, joined

RESULTS = Path(__file__).parent / "results" / "faults.json"


def draw_strategies(draw: random.Random) -> list[str]:
    """Two to six that go together."""
    names: list[str] = []
    for name in draw.sample(list(STRATEGIES), len(STRATEGIES)):
        if len(names) < 6 and joined(*names, name) is not None:
            names.append(name)
    return names[: draw.randint(2, 6)]


def kill_and_compare(seed: int, kills: int, folder: Path) -> dict:
    """One training killed some times, against one that never was."""
    draw = random.Random(seed)
    names = draw_strategies(draw)
    settings = joined(*names)
    straight, killed = folder / f"straight-{seed}", folder / f"killed-{seed}"
    finish(straight, settings)
    steps = sorted(draw.sample(range(1, run.STEPS), kills))
    moments = [kill_once(killed, settings, step, draw) for step in steps]
    finish(killed, settings)
    return {"seed": seed, "strategies": names, "kills": moments, "differences": differences(straight, killed)}


def as_table(runs: list[dict]) -> str:
    """Markdown, one line a run."""
    lines = ["| strategies | kills | torn checkpoints | equal to the bit |", "|---|---|---|---|"]
    for one in runs:
        done = [kill for kill in one["kills"] if kill["killed"]]
        verdict = f"NO: {', '.join(one['differences'])}" if one["differences"] else "yes"
        torn = sum(kill["torn"] for kill in done)
        lines.append(f"| {', '.join(one['strategies'])} | {len(done)} | {torn} | {verdict} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--per_run", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    runs: list[dict] = []
    with tempfile.TemporaryDirectory() as folder:
        while (left := given.kills - sum(kill["killed"] for one in runs for kill in one["kills"])) > 0:
            runs.append(kill_and_compare(given.seed + len(runs), min(given.per_run, left), Path(folder)))
            print(as_table(runs[-1:]).splitlines()[-1], flush=True)
    kills = [(kill, one) for one in runs for kill in one["kills"] if kill["killed"]]
    survived = sum(not one["differences"] for _, one in kills)
    content = {
        "command": f"python -m benchmarks.faults --kills {given.kills}",
        "kills": len(kills),
        "survived": survived,
        "torn_checkpoints": sum(kill["torn"] for kill, _ in kills),
        "runs": runs,
        "versions": versions(),
        "hardware": hardware(torch.device("cpu"), 1),
    }
    RESULTS.write_text(json.dumps(content, indent=2) + "\n")
    print(as_table(runs))
    print(f"survived {survived} of {len(kills)} kills, {content['torn_checkpoints']} of them left a torn checkpoint")


if __name__ == "__main__":
    main()
