"""Recipes: a data set, a model and presets with a name, runnable from a command line."""

from __future__ import annotations

import argparse
import dataclasses
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from transformers import HfArgumentParser

from hf_ftstrategies.arguments import StrategyTrainingArguments
from hf_ftstrategies.evaluation import plots
from hf_ftstrategies.evaluation.report import format_summary, write_report
from hf_ftstrategies.hub.card import write_card
from hf_ftstrategies.pipeline.arguments import RunArguments
from hf_ftstrategies.pipeline.fine_tuning import FineTuning, prepare_fine_tuning
from hf_ftstrategies.pipeline.output import OutputFolder
from hf_ftstrategies.suggest import did_you_mean

# Fields that may differ between a run and its resumption: where and how loudly, not what.
_FREE = ("output_dir", "data_root", "disable_tqdm", "run_name", "report_to", "dataloader_num_workers")


@dataclass(frozen=True)
class Recipe:
    """A published or own experiment as presets over the options of a run.

    Args:
        name (`str`): Also the folder below `outputs/`.
        title (`str`): For people.
        presets (`dict`): Values of fields of `RunArguments` and `StrategyTrainingArguments`.

    Raises:
        ValueError: a preset names no field.
    """

    name: str
    title: str
    presets: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self):
        known = [f.name for cls in (RunArguments, StrategyTrainingArguments) for f in dataclasses.fields(cls)]
        for preset in self.presets:
            if preset not in known:
                raise ValueError(f"Recipe {self.name!r}: {preset!r} is no option.{did_you_mean(preset, known)}")

    def parse(self, argv: Sequence[str]) -> tuple[RunArguments, StrategyTrainingArguments]:
        """Read a command line over the presets.

        Raises:
            ValueError: an unknown option, or a value that an option does not take.
        """
        parser = self._parser()
        parser.set_defaults(**{"output_dir": f"outputs/{self.name}", **self.presets})
        run, args, rest = parser.parse_args_into_dataclasses(
            list(argv), look_for_args_file=False, return_remaining_strings=True
        )
        if rest:
            known = [option for action in parser._actions for option in action.option_strings]
            raise ValueError(f"Unknown option {rest[0]!r}.{did_you_mean(rest[0], known)} --help lists all.")
        return run, args

    def settings(self, argv: Sequence[str]) -> dict[str, Any]:
        """What makes two runs the same run: presets and options that differ from the fields' defaults."""
        parser = self._parser()
        defaults = {action.dest: action.default for action in parser._actions}
        for action in parser._actions:
            action.default = argparse.SUPPRESS  # so that only what was given comes back
        given = {**self.presets, **vars(parser.parse_known_args(list(argv))[0])}
        chosen = {k: v for k, v in given.items() if v != defaults[k] and k not in _FREE and not k.startswith("hub_")}
        return {"recipe": self.name, **chosen}

    def _parser(self) -> HfArgumentParser:
        return HfArgumentParser((RunArguments, StrategyTrainingArguments), description=self.title, allow_abbrev=False)


def main(recipe: Recipe, argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Run a recipe: parse, claim the output folder, fine-tune, evaluate, write everything.

    Args:
        recipe (`Recipe`): What to run.
        argv (`Sequence[str]`, *optional*): Options; `sys.argv` if None.

    Returns:
        `dict`: the contents of `results.json`.

    Exits with status 2 and one line on bad input; `--debug` as the last option shows the traceback.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    debug = argv[-1:] == ["--debug"]  # last and without a value: Transformers has an option of that name
    try:
        return run_recipe(recipe, argv[:-1] if debug else argv)
    except ValueError as error:
        if debug:
            raise
        Console(stderr=True).print(f"[bold red]error:[/] {_escape(error)}", highlight=False, soft_wrap=True)
        raise SystemExit(2) from error


def run_recipe(recipe: Recipe, argv: Sequence[str]) -> dict[str, Any]:
    """`main` with errors as exceptions."""
    begin = time.perf_counter()
    run, args = recipe.parse(argv)
    _ = args.device  # joins the other processes; before that every process takes itself for the first
    output = OutputFolder(args.output_dir, recipe.settings(argv), owner=args.process_index == 0)
    console = Console(quiet=not output.is_owner)
    if output.is_finished:
        console.print(f"{output.path} holds this run, finished; nothing to do.")
        results = output.read_json("results.json")
    else:
        stage = prepare_fine_tuning(run, dataclasses.replace(args, output_dir=str(output.checkpoints)))
        results = _run_stage(recipe, argv, stage, output, begin)
    console.print(format_summary(results))
    console.print(f"Report: {output.path / 'report.html'}", soft_wrap=True)
    return results


def _run_stage(
    recipe: Recipe, argv: Sequence[str], stage: FineTuning, output: OutputFolder, begin: float
) -> dict[str, Any]:
    plan = stage.trainer.plan().to_dict()
    plan["model"]["name"] = stage.source.hub_id
    train_seconds = stage.train()
    evaluated = time.perf_counter()
    scores = stage.evaluate()
    done = time.perf_counter()
    seconds = {"train_seconds": train_seconds, "evaluate_seconds": done - evaluated, "total_seconds": done - begin}
    command = shlex.join(["accelerate", "launch", f"recipes/{recipe.name}.py", *argv])
    results = {"recipe": recipe.name, "title": recipe.title, "command": command, "time": seconds}
    results |= stage.facts() | scores
    if output.is_owner:
        stage.save_model(output.path)
        write_outputs(output, results, plan, stage)
    return results


def write_outputs(output: OutputFolder, results: dict[str, Any], plan: dict[str, Any], stage: FineTuning) -> None:
    """Write `plan.json`, `results.json`, `report.html`, the pictures and the model card, and finish the folder.

    Args:
        output (`OutputFolder`): Of the run.
        results (`dict`), plan (`dict`): The facts.
        stage (`FineTuning`): For what the model was made from.
    """
    output.write_json("plan.json", plan)
    output.write_json("results.json", results)
    write_report(output.path / "report.html", results, plan)
    pictures = output.path / "pictures"
    pictures.mkdir(exist_ok=True)
    plots.save(plots.plot_plan(plan), pictures / "plan.png")
    plots.save(plots.plot_learning_rates(plan), pictures / "learning_rates.png")
    plots.save(plots.plot_loss(results["history"], plan["phases"], results["selected"]["step"]), pictures / "loss.png")
    if "confusion_matrix" in results:
        labels = results["dataset"]["labels"]
        plots.save(plots.plot_confusion_matrix(results["confusion_matrix"], labels), pictures / "confusion_matrix.png")
    write_card(output.path / "README.md", results, plan, stage.source.hub_id, stage.source.license)
    output.finish()


def take_option(argv: Sequence[str], option: str, choices: Sequence[str], default: str) -> tuple[str, list[str]]:
    """Take an option of the script itself out of a command line, before `main` sees the rest.

    Args:
        argv (`Sequence[str]`): The command line.
        option (`str`): Such as `"--preset"`.
        choices (`Sequence[str]`): What it may be.
        default (`str`): Where it is not given.

    Exits with status 2 and one line on another value.
    """
    argv, value = list(argv), default
    if option in argv:
        at = argv.index(option)
        value = argv[at + 1] if at + 1 < len(argv) else ""
        argv[at : at + 2] = []
    if value not in choices:
        known = f"known are {', '.join(choices)}.{did_you_mean(value, choices)}"
        Console(stderr=True).print(f"[bold red]error:[/] {option} is {value!r}, {known}", soft_wrap=True)
        raise SystemExit(2)
    return value, argv


def _escape(error: Exception) -> str:
    return str(error).replace("[", "\\[")
