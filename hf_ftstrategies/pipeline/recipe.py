"""Recipes: a data set, a model and presets with a name, runnable from a command line."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from transformers import HfArgumentParser
from transformers.integrations.deepspeed import unset_hf_deepspeed_config

from hf_ftstrategies.arguments import StrategyTrainingArguments
from hf_ftstrategies.evaluation.report import format_summary
from hf_ftstrategies.pipeline.arguments import RunArguments
from hf_ftstrategies.pipeline.errors import hide_secrets, print_error
from hf_ftstrategies.pipeline.interruptions import RunStopped, explained
from hf_ftstrategies.pipeline.multitask_arguments import MultiTaskArguments
from hf_ftstrategies.pipeline.output import OutputFolder
from hf_ftstrategies.pipeline.pretraining_arguments import PretrainingArguments
from hf_ftstrategies.pipeline.publish import take_destination, without_token
from hf_ftstrategies.pipeline.stages import Request, run_stages
from hf_ftstrategies.suggest import did_you_mean

_OPTIONS = (RunArguments, StrategyTrainingArguments, PretrainingArguments, MultiTaskArguments)
# Fields that may differ between a run and its resumption: where and how loudly, not what.
_FREE = ("output_dir", "data_root", "disable_tqdm", "run_name", "report_to", "dataloader_num_workers", "push_to_hub")


@dataclass(frozen=True)
class Recipe:
    """A published or own experiment as presets over the options of a run.

    Args:
        name (`str`): Also the folder below `outputs/`.
        title (`str`): For people.
        presets (`dict`): Values of fields of `RunArguments`, `StrategyTrainingArguments`, `PretrainingArguments` and
            `MultiTaskArguments`.
        published (`str`, *optional*): The paper's result on this data set, which the card puts beside the own.
        script (`str`, *optional*, defaults to `"NAME.py"`): What is launched in `recipes/`, with its own options.

    Raises:
        ValueError: a preset names no field, or the name could not be a folder.
    """

    name: str
    title: str
    presets: dict[str, Any] = field(default_factory=dict)
    published: str = ""
    script: str = ""

    def __post_init__(self):
        if not re.fullmatch(r"\w[\w.-]*", self.name):
            raise ValueError(f"The recipe's name {self.name!r} is also a folder: give letters, digits, ., _ and -.")
        known = [f.name for cls in _OPTIONS for f in dataclasses.fields(cls)]
        for preset in self.presets:
            if preset not in known:
                raise ValueError(f"Recipe {self.name!r}: {preset!r} is no option.{did_you_mean(preset, known)}")

    def parse(
        self, argv: Sequence[str]
    ) -> tuple[RunArguments, StrategyTrainingArguments, PretrainingArguments, MultiTaskArguments]:
        """Read a command line over the presets.

        Raises:
            ValueError: an unknown option, or a value that an option does not take.
        """
        parser = self._parser()
        parser.set_defaults(**{"output_dir": f"outputs/{self.name}", **self.presets})
        try:
            *options, rest = parser.parse_args_into_dataclasses(
                list(argv), look_for_args_file=False, return_remaining_strings=True
            )
        except (ImportError, OSError, OverflowError, TypeError, UnicodeError, json.JSONDecodeError) as error:
            unset_hf_deepspeed_config()  # half-made without DeepSpeed, it breaks the next `from_pretrained`
            given = ", ".join(word.split("=")[0] for word in argv if word.startswith("--")) or "the presets"
            raise ValueError(f"A value of {given} cannot be used: {error}. --help tells what each takes.") from error
        if rest:
            known = [option for action in parser._actions for option in action.option_strings]
            raise ValueError(f"Unknown option {rest[0]!r}.{did_you_mean(rest[0], known)} --help lists all.")
        return tuple(options)

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
        return _Parser(_OPTIONS, description=self.title, allow_abbrev=False)


class _Parser(HfArgumentParser):
    """Says what is wrong in one line, without two pages of usage."""

    def error(self, message: str):
        raise ValueError(f"{message[0].upper()}{message[1:]}. --help lists all options.")


def main(recipe: Recipe, argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Run a recipe: parse, claim the output folder, pre-train further (if asked), fine-tune, evaluate, write all.

    Args:
        recipe (`Recipe`): What to run.
        argv (`Sequence[str]`, *optional*): Options; `sys.argv` if None.

    Returns:
        `dict`: the contents of `results.json`.

    Exits with status 2 and one line on bad input; with one line and another status where a training cannot go on
    (`explained`). `--debug` as the last option shows the traceback.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    debug = argv[-1:] == ["--debug"]  # last and without a value: Transformers has an option of that name
    try:
        return run_recipe(recipe, argv[:-1] if debug else argv)
    except (ValueError, ImportError) as error:  # ImportError: an option asks for a package that is not installed
        if debug:
            raise
        print_error(error)
        raise SystemExit(2) from error
    except (RunStopped, KeyboardInterrupt) as error:
        if debug:
            raise
        print(file=sys.stderr)  # below the line of the progress
        print_error(str(error) or "Interrupted.")
        raise SystemExit(getattr(error, "status", 130)) from error


def run_recipe(recipe: Recipe, argv: Sequence[str]) -> dict[str, Any]:
    """`main` with errors as exceptions."""
    run, args, pretraining, multitask = recipe.parse(argv)
    args, destination = take_destination(args)
    _ = args.device  # joins the other processes; before that every process takes itself for the first
    settings = recipe.settings(argv)
    output = OutputFolder(args.output_dir, settings, owner=args.process_index == 0)
    console = Console(quiet=not output.is_owner)
    if output.is_finished:
        console.print(f"{output.path} holds this run, finished; nothing to do.", markup=False)
        results = output.read_json("results.json")
    else:
        if destination is not None and output.is_owner:
            destination.claim(settings, output.path)
        script = shlex.split(f"recipes/{recipe.script or f'{recipe.name}.py'}")
        command = ["accelerate", "launch", *script, *hide_secrets(without_token(argv))]
        identity = {"recipe": recipe.name, "title": recipe.title, "command": shlex.join(command)}
        if recipe.published and run.dataset == recipe.presets.get("dataset"):
            identity["published"] = recipe.published
        with explained(args, output.path):
            results = run_stages(Request(identity, run, args, pretraining, multitask), output)
    console.print(format_summary(results))
    console.print(f"Report: {output.path / 'report.html'}", soft_wrap=True, markup=False)
    if destination is not None and output.is_owner:
        destination.push(output.path, console)
    return results


def take_option(argv: Sequence[str], option: str, choices: Sequence[str] | None, default: str) -> tuple[str, list[str]]:
    """Take an option of the script itself out of a command line, before `main` sees the rest.

    Args:
        argv (`Sequence[str]`): The command line.
        option (`str`): Such as `"--preset"`.
        choices (`Sequence[str]`, *optional*): What it may be; None = anything.
        default (`str`): Where it is not given.

    Exits with status 2 and one line on another value.
    """
    argv, value = list(argv), default
    if option in argv:
        at = argv.index(option)
        value = argv[at + 1] if at + 1 < len(argv) else ""
        argv[at : at + 2] = []
    if choices is not None and value not in choices:
        known = f"known are {', '.join(choices)}.{did_you_mean(value, choices)}"
        print_error(f"{option} is {value!r}, {known}")
        raise SystemExit(2)
    return value, argv
