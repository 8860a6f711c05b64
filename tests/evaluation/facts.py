"""Facts of a run as the pipeline writes them (`plan.json`, `results.json`), small and made up."""

from hf_ftstrategies.evaluation.seeds import compare_seeds

LABELS = ["business", "entertainment", "politics", "sport", "tech"]
STEPS_PER_EPOCH = 16
PEAK = 1e-4


def plan(unfreezing: bool = False, blocks: int = 6, epochs: int = 3) -> dict:
    """The plan of a BERT: layer-wise decay 0.95, slanted triangular, top block re-initialised."""
    total = epochs * STEPS_PER_EPOCH
    phases = gradual_phases(blocks, total) if unfreezing else [phase("all", 0, total, "end of training")]
    names = ["embeddings", *(f"block {k}" for k in range(1, blocks + 1)), "head"]
    depths = [
        {
            "depth": depth,
            "name": name,
            "parameters": 11_920_512 if depth == 0 else 149_765 if name == "head" else 1_774_464,
            "trainable": 11_920_512 if depth == 0 else 149_765 if name == "head" else 1_774_464,
            "learning_rate": PEAK * 0.95 ** max(0, blocks - depth),
            "weight_decay": 0.01,
            "trained_in": [not unfreezing or blocks + 1 - depth <= number for number in range(len(phases))],
            "reinitialised": depth == blocks,
        }
        for depth, name in enumerate(names)
    ]
    return {
        "format": 1,
        "model": {
            "class": "BertForSequenceClassification",
            "name": "all-MiniLM-L6-v2",
            "blocks": blocks,
            "shared_blocks": False,
            "parameters": sum(row["parameters"] for row in depths),
        },
        "training": {
            "total_steps": total,
            "steps_per_epoch": STEPS_PER_EPOCH,
            "epochs": float(epochs),
            "batch": {"per_device": 16, "accumulation": 1, "processes": 1, "global": 16},
            "optimizer": "AdamW (fused)",
            "schedule": "slanted_triangular",
            "seed": 42,
        },
        "strategies": strategies(unfreezing),
        "depths": depths[::-1],
        "phases": phases,
        "schedule": [[step, slanted_triangular(step, total)] for step in range(total + 1)],
        "fingerprint": {"layer_decay": 0.95},
    }


def results() -> dict:
    """The results of that run: 500 test articles, 480 right."""
    matrix = [[109, 1, 4, 0, 1], [1, 83, 1, 0, 2], [3, 1, 88, 0, 1], [0, 0, 0, 115, 0], [2, 2, 1, 0, 85]]
    return {
        "recipe": "bbc_news",
        "title": "BBC News: topics of articles",
        "dataset": {
            "name": "BBC News",
            "labels": LABELS,
            "metric": "accuracy",
            "splits": {"train": 250, "validation": 250, "test": 500},
            "truncated_share": {"train": 0.9, "validation": 0.884, "test": 0.902},
            "notes": [
                "Stratified splits, seed 42.",
                "Texts longer than 256 tokens: first 128 and last 126 kept.",
            ],
        },
        "model": "all-MiniLM-L6-v2",
        "seed": 42,
        "metrics": {
            "validation": scores(0.948, 0.9467, 0.9351, 0.2114, matrix),
            "test": scores(0.96, 0.9588, 0.9497, 0.1732, matrix),
        },
        "baseline": {"accuracy": 0.23},
        "confusion_matrix": matrix,
        "history": history(),
        "selected": {"step": 40, "metric": "accuracy", "value": 0.948},
        "time": {"train_seconds": 148.3, "evaluate_seconds": 41.9, "total_seconds": 203.5},
        "peak_memory_mib": 1843.2,
        "versions": {
            "hf_ftstrategies": "0.1.0",
            "torch": "2.13.0",
            "transformers": "5.23.0",
            "python": "3.11.9",
        },
        "hardware": {"device": "cpu", "cores": 2, "name": "x86_64", "processes": 1},
        "command": "accelerate launch recipes/bbc_news.py --layer_decay 0.95",
    }


def history(total: int = 48) -> list[dict]:
    """What `Trainer.state.log_history` holds: losses every 4 steps, evaluations every 8, a summary."""
    log = []
    for step in range(4, total + 1, 4):
        rates = {f"learning_rate/block_{k}": PEAK * 0.95 ** (6 - k) for k in range(1, 7)}
        loss = 0.12 + 1.5 * 0.93**step + 0.05 * (step % 8 == 0)
        log.append({"loss": loss, "grad_norm": 3.0, "learning_rate": PEAK, "epoch": step / 16, "step": step} | rates)
        if step % 8 == 0:
            right = 0.95 - 0.75 * 0.9**step
            log.append(
                {"eval_loss": 0.2 + 1.4 * 0.94**step, "eval_accuracy": right, "eval_macro_f1": right - 0.004}
                | {
                    "eval_matthews_correlation": right - 0.02,
                    "eval_runtime": 3.1,
                    "epoch": step / 16,
                    "step": step,
                }
            )
    return [*log, {"train_runtime": 148.3, "train_loss": 0.41, "epoch": total / 16, "step": total}]


def slanted_triangular(step: int, total: int, cut_fraction: float = 0.1, ratio: int = 32) -> float:
    """Factor of the peak rate: up for a tenth of the steps, then slowly down (ULMFiT, equation 3)."""
    cut = total * cut_fraction
    p = step / cut if step < cut else 1 - (step - cut) / (total - cut)
    return (1 + p * (ratio - 1)) / ratio


def phase(name, first, last, until) -> dict:
    return {"name": name, "first_step": first, "last_step": last, "until": until}


def gradual_phases(blocks: int, total: int) -> list[dict]:
    """Head alone, then one more block at each step of the stair, the embeddings last."""
    names = ["head", *(f"+ block {k}" for k in range(blocks, 0, -1)), "+ embeddings"]
    edges = [round(number * total / len(names)) for number in range(len(names) + 1)]
    return [phase(name, edges[i], edges[i + 1], f"step {edges[i + 1]}") for i, name in enumerate(names)]


def strategies(unfreezing: bool) -> list[dict]:
    used = [
        {
            "name": "layerwise_lr",
            "class": "LayerwiseLearningRate",
            "paper": "Sun et al. 2019, section 5.3.4",
            "settings": {"decay": 0.95, "style": "sun"},
            "summary": "Each block learns at 0.95 times the rate of the block above it.",
        },
        {
            "name": "reinit",
            "class": "ReinitTopLayers",
            "paper": "Zhang et al. 2021, section 5",
            "settings": {"layers": 1, "pooler": True},
            "summary": "The pooler and the top block start from new random weights.",
        },
    ]
    gradual = {
        "name": "unfreezing",
        "class": "GradualUnfreezing",
        "paper": "Howard & Ruder 2018, section 3.3",
        "settings": {"schedule": "gradual", "every": 6},
        "summary": "The head trains first; one more block joins every 6 steps.",
    }
    return [*used, gradual] if unfreezing else used


def scores(accuracy, macro_f1, matthews, loss, matrix) -> dict:
    """The metrics of one split, with the per-class scores of the matrix (rows are true labels)."""
    per_class = {}
    for k, label in enumerate(LABELS):
        hits, predicted, true = matrix[k][k], sum(row[k] for row in matrix), sum(matrix[k])
        per_class[label] = {
            "precision": hits / predicted,
            "recall": hits / true,
            "f1": 2 * hits / (predicted + true),
            "support": true,
        }
    return {
        "accuracy": accuracy,
        "macro_f1": macro_f1,
        "matthews_correlation": matthews,
        "loss": loss,
        "per_class": per_class,
    }


def results_of_seeds() -> dict:
    """The run with seeds 1, 2 and 3, of which 2 was best on validation: 0.94, 0.96 and 0.95 there, 0.96 on test."""
    runs = {}
    for seed, accuracy in ((1, 0.94), (2, 0.96), (3, 0.95)):
        runs[seed] = results() | {"seed": seed, "selected": {"step": 40, "metric": "accuracy", "value": accuracy}}
        runs[seed]["metrics"]["validation"]["accuracy"] = accuracy
    return runs[2] | {"seeds": compare_seeds(runs, 2)}
