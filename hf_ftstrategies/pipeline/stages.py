"""The stages of a run in their order: further pre-training, several tasks together, fine-tuning with each seed."""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hf_ftstrategies.arguments import StrategyTrainingArguments
from hf_ftstrategies.evaluation import plots
from hf_ftstrategies.evaluation.report import draw, write_report
from hf_ftstrategies.evaluation.seeds import compare_seeds, numbers_of
from hf_ftstrategies.hub.card import write_card
from hf_ftstrategies.modeling.packaged import PretrainedSource, find_pretrained
from hf_ftstrategies.pipeline.arguments import RunArguments
from hf_ftstrategies.pipeline.energy import EnergyMeter
from hf_ftstrategies.pipeline.errors import as_value_errors
from hf_ftstrategies.pipeline.fine_tuning import prepare_fine_tuning
from hf_ftstrategies.pipeline.further_pretraining import further_pretrain
from hf_ftstrategies.pipeline.multitask import ENCODER, prepare_multitask
from hf_ftstrategies.pipeline.multitask_arguments import MultiTaskArguments
from hf_ftstrategies.pipeline.output import MANIFEST, OutputFolder
from hf_ftstrategies.pipeline.pretraining_arguments import PretrainingArguments


@dataclass(frozen=True)
class Request:
    """What a run was asked to do.

    Args:
        identity (`dict`): Names and command of the run, as they stand in its results.
        run (`RunArguments`), args (`StrategyTrainingArguments`), pretraining (`PretrainingArguments`), multitask
            (`MultiTaskArguments`): As parsed.
    """

    identity: dict[str, Any]
    run: RunArguments
    args: StrategyTrainingArguments
    pretraining: PretrainingArguments
    multitask: MultiTaskArguments


def run_stages(request: Request, output: OutputFolder) -> dict[str, Any]:
    """Pre-train further and fine-tune on several tasks where that is asked for, fine-tune, evaluate, write everything.

    What is finished is not repeated.

    Args:
        request (`Request`): What to do.
        output (`OutputFolder`): Of the run, claimed.

    Returns:
        `dict`: the contents of `results.json`.
    """
    before = [name for name in ("pretraining", "multitask") if getattr(request, name).is_on]
    if before and not output.part(before[0]).is_finished:
        _try(request, output)  # what is wrong with a later stage must not wait for the end of the first
    return _pretrain_and_fine_tune(request, output) if request.pretraining.is_on else _fine_tune(request, output)


def _try(request: Request, output: OutputFolder) -> None:
    """Prepare the later stages, from the original weights, and forget them."""
    source, args = find_pretrained(request.run.model), request.args
    with as_value_errors():
        prepare_fine_tuning(request.run, dataclasses.replace(args, output_dir=str(output.checkpoints)))
        if request.pretraining.is_on and request.multitask.is_on:
            prepare_multitask(request.run, args, request.multitask, output.checkpoints, source)


def _pretrain_and_fine_tune(request: Request, output: OutputFolder) -> dict[str, Any]:
    """Both stages; fine-tuning from every starting point that was asked for, the best on validation kept."""
    folder = output.part("pretraining")
    pretrained = further_pretrain(request.run, request.args, request.pretraining, folder)
    original, steps = find_pretrained(request.run.model), request.pretraining.starting_points
    results, parts = {}, {}
    for step in steps:
        source = dataclasses.replace(original, path=str(folder.path / pretrained["models"][str(step)]))
        parts[step] = output.part(f"fine_tuning/step-{step}") if len(steps) > 1 else output
        results[step] = _fine_tune(request, parts[step], source, {"further_pretraining": pretrained})
    if len(steps) == 1:
        return results[steps[0]]
    best = _best_on_validation(results)
    curve = [{"step": step, "metrics": numbers_of(results[step])} for step in steps]
    chosen = results[best] | {"further_pretraining": pretrained | {"curve": curve, "fine_tuned_from": best}}
    return _adopt(output, parts[best], chosen | _costs_of_all(results), original)


def _fine_tune(
    request: Request,
    output: OutputFolder,
    source: PretrainedSource | None = None,
    before: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Once, or once with each seed; then the best on validation is kept, and all are reported.

    `before` are the facts of the stages before; `source` what they left.
    """
    if output.is_finished:
        return output.read_json("results.json")
    run, args, before = request.run, request.args, before or {}
    source = source or find_pretrained(run.model)
    if request.multitask.is_on:
        together, source = _fine_tune_together(request, output.part("multitask"), source)
        before = before | {"multitask": together}
    if run.seeds is None:
        return _fine_tune_once(request, args, output, source, before)
    results, parts = {}, {}
    for number, seed in enumerate(run.seeds, start=1):
        parts[seed] = output.part(f"seeds/{seed}")
        if parts[seed].is_finished:
            results[seed] = parts[seed].read_json("results.json")
            continue
        title, own = f"fine-tuning, seed {seed} ({number} of {len(run.seeds)})", dataclasses.replace(args, seed=seed)
        results[seed] = _fine_tune_once(request, own, parts[seed], source, before, title)
    best = _best_on_validation(results)
    chosen = results[best] | {"seeds": compare_seeds(results, best)} | _costs_of_all(results)
    return _adopt(output, parts[best], chosen, source)


def _fine_tune_together(
    request: Request, folder: OutputFolder, source: PretrainedSource
) -> tuple[dict[str, Any], PretrainedSource]:
    """Fine-tune on several tasks; the facts, and the encoder that came of it."""
    encoder = dataclasses.replace(source, path=str(folder.path / ENCODER))
    if folder.is_finished:
        return folder.read_json("results.json")["multitask"], encoder
    begin, options = time.perf_counter(), request.multitask
    with as_value_errors():
        stage = prepare_multitask(request.run, request.args, options, folder.checkpoints, source)
        plan = stage.trainer.plan().to_dict()
    plan["model"]["name"] = source.hub_id
    train_seconds = stage.train()
    evaluated = time.perf_counter()
    scores = stage.evaluate()
    done = time.perf_counter()
    seconds = {"train_seconds": train_seconds, "evaluate_seconds": done - evaluated, "total_seconds": done - begin}
    facts = stage.facts() | scores
    facts["multitask"] = {
        "tasks": scores["tasks"],
        "steps": stage.trainer.state.global_step,
        "learning_rate": options.multitask_learning_rate,
        "sampling": options.multitask_sampling,
        "train_seconds": train_seconds,
        "plan": options.describe(),
    }
    if folder.is_owner:
        name, command = f"{request.identity['recipe']}_multitask", request.identity["command"]
        title = f"{', '.join(options.tasks)}: one encoder, a head for each"
        names = {"recipe": name, "title": title, "command": command}
        stage.save(folder.path)
        write_outputs(folder, names | {"time": seconds} | facts, plan, source)
        shutil.rmtree(folder.checkpoints, ignore_errors=True)  # the model is kept
    stage.trainer.accelerator.wait_for_everyone()  # the encoder is there for every process
    return facts["multitask"], encoder


def _fine_tune_once(
    request: Request,
    args: StrategyTrainingArguments,
    output: OutputFolder,
    source: PretrainedSource,
    before: dict[str, Any],
    title: str = "fine-tuning",
) -> dict[str, Any]:
    """Train, evaluate, and write all that belongs to one model."""
    begin = time.perf_counter()
    with as_value_errors():
        stage = prepare_fine_tuning(request.run, dataclasses.replace(args, output_dir=str(output.checkpoints)), source)
        plan = stage.trainer.plan().to_dict()
    plan["model"]["name"] = stage.source.hub_id
    meter = EnergyMeter()
    train_seconds = stage.train(title)
    evaluated = time.perf_counter()
    scores = stage.evaluate()
    done = time.perf_counter()
    seconds = {"train_seconds": train_seconds, "evaluate_seconds": done - evaluated, "total_seconds": done - begin}
    results = request.identity | {"time": seconds} | stage.facts() | scores | before
    if used := meter.watt_hours():
        results["energy_watt_hours"] = used
    plan |= {name: facts["plan"] for name, facts in before.items()}
    if output.is_owner:
        stage.save_model(output.path)
        write_outputs(output, results, plan, stage.source)
    return results


def _best_on_validation(results: Mapping[int, dict[str, Any]]) -> int:
    """The run whose selecting metric was best on validation; over seeds their mean counts; of losses the least."""

    def merit(key: int) -> float:
        selected, seeds = results[key]["selected"], results[key].get("seeds")
        value = selected["value"] if seeds is None else seeds["selected_mean"]
        return -value if selected["metric"].endswith("loss") else value

    return max(results, key=merit)


def _costs_of_all(results: Mapping[int, dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Time and energy of all these runs together."""
    kinds = [kind for kind in ("time", "energy_watt_hours") if any(kind in one for one in results.values())]
    return {kind: dict(sum((Counter(one.get(kind, {})) for one in results.values()), Counter())) for kind in kinds}


def _adopt(
    output: OutputFolder, part: OutputFolder, results: dict[str, Any], source: PretrainedSource
) -> dict[str, Any]:
    """Make what one part of the run has left the run's own, with these results."""
    if output.is_owner:
        for file in part.path.iterdir():
            if file.is_file() and file.name != MANIFEST:
                shutil.copy2(file, output.path / file.name)
        write_outputs(output, results, output.read_json("plan.json"), source)
    return results


def write_outputs(
    output: OutputFolder, results: dict[str, Any], plan: dict[str, Any], source: PretrainedSource
) -> None:
    """Write `plan.json`, `results.json`, `report.html`, the pictures and the model card, and finish the folder.

    Args:
        output (`OutputFolder`): Of the run.
        results (`dict`), plan (`dict`): The facts.
        source (`PretrainedSource`): What the model was made from.
    """
    output.write_json("plan.json", plan)
    output.write_json("results.json", results)
    write_report(output.path / "report.html", results, plan)
    pictures = output.path / "pictures"
    pictures.mkdir(exist_ok=True)
    for name, figure in draw(results, plan).items():
        plots.save(figure, pictures / f"{name}.png")
    write_card(output.path / "README.md", results, plan, source.hub_id, source.license)
    output.finish()
