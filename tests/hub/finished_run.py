"""A folder as a finished run leaves it, without a run."""

import json
import random

from hf_ftstrategies.hub.card import write_card
from tests.evaluation.facts import plan, results

WEIGHTS = random.Random(0).randbytes(50_000)


def finished_run(folder, **settings):
    """Write it; `settings` make it another run."""
    facts, the_plan = results(), plan()
    facts["command"] = f"python {folder}/run.py --output_dir {folder}"
    facts["model"] = the_plan["model"]["name"] = str(folder / "model")
    manifest = {"format": 1, "status": "finished", "settings": {"recipe": "bbc", "model": str(folder), **settings}}
    files = {
        "manifest.json": json.dumps(manifest),
        "results.json": json.dumps(facts),
        "plan.json": json.dumps(the_plan),
        "report.html": f"<html>{folder}</html>",
        "config.json": '{"model_type": "bert"}',
        "tokenizer.json": '{"vocab": ["/tmp"]}',
        "model.safetensors": WEIGHTS,
        "classifier.py": "x = 1",
        "pictures/loss.png": b"\x89PNG",
        "notes.md": "my own",
        ".hidden.json": "{}",
        "checkpoints/checkpoint-4/training_args.bin": b"pickle",
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    write_card(folder / "README.md", facts, the_plan, "sentence-transformers/all-MiniLM-L6-v2", "apache-2.0")
    return folder


PUBLISHED = {
    *("README.md", "results.json", "plan.json", "report.html", "config.json", "tokenizer.json"),
    *("model.safetensors", "classifier.py", "pictures/loss.png", "hf_ftstrategies.json", ".gitattributes"),
}
