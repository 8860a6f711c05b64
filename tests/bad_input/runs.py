"""Runs of a recipe in this process, and what they leave."""

import contextlib
import hashlib
import io
from pathlib import Path

from hf_ftstrategies.pipeline.recipe import Recipe, main


def tiny(base, out, **presets):
    """A recipe on the model and the data in `base`."""
    defaults = {
        "model": str(base / "model"),
        "dataset": str(base / "topics.csv"),
        "output_dir": str(out),
        "max_length": 16,
        "truncation_head": 4,
        "num_train_epochs": 4,
        "evaluations": 1,
        "per_device_train_batch_size": 8,
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
    }
    return Recipe("tiny", "Tiny", {**defaults, **presets})


def run(recipe, options):
    """Exit status and stderr of `main`."""
    with contextlib.redirect_stderr(io.StringIO()) as errors, contextlib.redirect_stdout(io.StringIO()):
        try:
            main(recipe, options)
            status = 0
        except SystemExit as ended:
            status = ended.code
    return status, errors.getvalue()


def error_of(status, printed):
    """The one error line; only a list of what is wrong may follow, indented."""
    assert status == 2, printed
    assert "Traceback" not in printed
    assert "usage" not in printed.lower()
    assert printed.count("error:") == 1
    lines = printed[printed.index("error:") :].splitlines()
    assert len(lines) == 1 or lines[1].startswith("  "), lines
    return " ".join(" ".join(lines).split())


def contents(*folders):
    """All files, with a digest of each."""
    files = [path for folder in folders for path in Path(folder).rglob("*") if path.is_file()]
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
