"""`hf-ftstrategies`: look at a recipe without running it."""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.console import Console

from hf_ftstrategies.suggest import did_you_mean

app = typer.Typer(help="Fine-tuning strategies for pretrained encoders.", no_args_is_help=True, add_completion=False)


@app.callback()
def _commands() -> None:
    """Keeps `plan` a command of its own while it is the only one."""


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def plan(
    context: typer.Context,
    recipe: Annotated[str, typer.Argument(help="Path of a recipe, such as recipes/bbc_news.py.")],
    picture: Annotated[Path | None, typer.Option(help="Also draw the plan into this PNG file.")] = None,
    json: Annotated[Path | None, typer.Option(help="Also write the plan into this JSON file.")] = None,
    write_schedule: Annotated[
        Path | None,
        typer.Option(help="Write the recipe's unfreezing (gradual, if it has none) as a YAML schedule to edit."),
    ] = None,
) -> None:
    """Show what a recipe will do to which part of the model: options of the recipe may follow."""
    try:
        _plan(recipe, context.args, picture, json, write_schedule)
    except ValueError as error:
        Console(stderr=True).print(f"[bold red]error:[/] {str(error).replace('[', chr(92) + '[')}", soft_wrap=True)
        raise typer.Exit(2) from error


def _plan(path: str, options: list[str], picture: Path | None, json: Path | None, write_schedule: Path | None) -> None:
    # imported here: `--help` should not wait for torch
    from hf_ftstrategies.evaluation import plots
    from hf_ftstrategies.optim.phases import MODES
    from hf_ftstrategies.optim.schedule_file import write_schedule as write
    from hf_ftstrategies.pipeline.fine_tuning import prepare_fine_tuning

    run, args, pretraining = load_recipe(path).parse(options)
    with TemporaryDirectory() as nowhere:  # a Trainer makes its output folder at once
        trainer = prepare_fine_tuning(run, replace(args, output_dir=nowhere)).trainer
    made = trainer.plan()
    if pretraining.is_on:
        Console().print(pretraining.describe())
    Console().print(made.table())
    if picture is not None:
        plots.save(plots.plot_plan(made.to_dict()), picture)
    if json is not None:
        made.save(json)
    if write_schedule is not None:
        mode = args.unfreezing if args.unfreezing in MODES else "gradual"
        write(mode, trainer.layer_map, write_schedule)
        Console().print(f"{mode!r} written to {write_schedule}; use it with --unfreezing {write_schedule}")


def load_recipe(path: str):
    """The `RECIPE` of a recipe script.

    Args:
        path (`str`): Of the script; it is executed, but not as `__main__`.

    Raises:
        ValueError: no such file, or no `RECIPE` in it.
    """
    file = Path(path)
    if not file.is_file():
        neighbours = [str(p) for p in file.parent.glob("*.py")] if file.parent.is_dir() else []
        raise ValueError(f"There is no recipe {path!r}.{did_you_mean(path, neighbours)}")
    content = runpy.run_path(path)
    if "RECIPE" not in content:
        raise ValueError(f"{path!r} defines no RECIPE: it is not a recipe.")
    return content["RECIPE"]
