"""Tables 2 and 3 of Sun et al. 2019 with the demo model: long texts on IMDb, layers on TREC.

python -m benchmarks.sun_tables --data_root DATA --table long_texts     (2,000 + 2,000 reviews, 512 tokens of each)
python -m benchmarks.sun_tables --data_root DATA --table short_inputs   (the same reviews by a model that reads 128)
python -m benchmarks.sun_tables --data_root DATA --table layers         (each block alone, and combinations)

The hierarchical rows of short_inputs read up to four chunks of 128 tokens. They are there, in bfloat16, because on CPUs
chunks of 512 take hours.

Writes benchmarks/results/sun_tables.json after every run; runs that are in it with the same options are not repeated.
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.runs import complete
from hf_ftstrategies.pipeline.recipe import run_recipe
from recipes.imdb import RECIPE as IMDB
from recipes.trec import RECIPE as TREC

RESULTS = Path(__file__).parent / "results" / "sun_tables.json"
COMMON = ["--model", "minilm", "--learning_rate", "1e-4", "--disable_tqdm", "True"]
LONG = [
    *COMMON, "--train_rows", "2000", "--validation_rows", "500", "--test_rows", "2000",
    "--num_train_epochs", "1", "--evaluations", "1",
]  # fmt: skip
LAYERS = [*COMMON, "--num_train_epochs", "2", "--evaluations", "2"]
SHORT = [*LONG, "--max_length", "128", "--truncation_head", "32", "--bf16", "True", "--use_cpu", "True"]
# four chunks of 24 reviews at once are 96 texts
CHUNKS = ["--max_chunks", "4", "--per_device_train_batch_size", "12", "--per_device_eval_batch_size", "16"]
# row -> published error in % (IMDb; of the 12 blocks of BERT-base in table 3), options
LONG_TEXTS = {
    "head": (5.63, ["--truncation", "head"]),
    "tail": (5.44, ["--truncation", "tail"]),
    "head + tail": (5.42, []),
}
SHORT_INPUTS = {
    **{name: (None, options) for name, (_, options) in LONG_TEXTS.items()},
    "hierarchical mean": (None, ["--chunk_pooling", "mean", *CHUNKS]),
    "hierarchical max": (None, ["--chunk_pooling", "max", *CHUNKS]),
    "hierarchical attention": (None, ["--chunk_pooling", "attention", *CHUNKS]),
}
TABLES = {
    "long_texts": (IMDB, LONG, LONG_TEXTS),
    "short_inputs": (IMDB, SHORT, SHORT_INPUTS),
    "layers": (TREC, LAYERS, {f"block {k}": (None, ["--layers", str(k)]) for k in range(6)}),
}


def run(table: str, row: str, data_root: str, seed: int) -> dict:
    """One row of a table."""
    recipe, common, rows = TABLES[table]
    published, options = rows[row]
    with tempfile.TemporaryDirectory() as folder:
        where = ["--output_dir", f"{folder}/out", "--data_root", data_root, "--seed", str(seed)]
        results = run_recipe(recipe, [*common, *options, *where])
    error = {split: 100 * (1 - scores["accuracy"]) for split, scores in results["metrics"].items()}
    kept = ("time", "peak_memory_mib", "versions", "hardware")
    facts = {"table": table, "row": row, "seed": seed, "options": [*common, *options]}
    facts["splits"] = results["dataset"]["splits"]
    return facts | {"error": error, "published_error": published} | {name: results[name] for name in kept}


def as_table(runs: list[dict], table: str) -> str:
    """Markdown, one line a row."""
    lines = ["| row | test error % | published (BERT-base, all rows) | minutes |", "|---|---|---|---|"]
    for one in runs:
        if one["table"] == table:
            published = "" if one["published_error"] is None else one["published_error"]
            minutes = one["time"]["train_seconds"] / 60
            lines.append(f"| {one['row']} | {one['error']['test']:.2f} | {published} | {minutes:.1f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data_root", required=True)
    parser.add_argument("--table", choices=TABLES, required=True)
    parser.add_argument("--seed", type=int, default=42)
    given = parser.parse_args()
    wanted = [
        (
            {"table": given.table, "row": row, "seed": given.seed},
            partial(run, given.table, row, given.data_root, given.seed),
        )
        for row in TABLES[given.table][2]
    ]
    command = "python -m benchmarks.sun_tables --data_root DATA --table TABLE"
    print(as_table(complete(RESULTS, command, wanted), given.table))


if __name__ == "__main__":
    main()
