"""`hf-ftstrategies`: look at a recipe without running it, put trained models together, push what a run left."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.console import Console

from hf_ftstrategies.pipeline.errors import as_value_errors, print_error
from hf_ftstrategies.suggest import did_you_mean

app = typer.Typer(help="Fine-tuning strategies for pretrained encoders.", no_args_is_help=True, add_completion=False)


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
    """Show what a recipe will do to which part of the model: options of the recipe may follow, --debug the last."""
    options = context.args
    debug = options[-1:] == ["--debug"]
    with _one_line_errors(debug):
        _plan(recipe, options[:-1] if debug else options, picture, json, write_schedule)


@app.command()
def ensemble(
    folders: Annotated[list[str], typer.Argument(help="Models: outputs of recipes, or checkpoints in them.")],
    vote: Annotated[bool, typer.Option("--vote", help="Only the vote: the mean of the probabilities.")] = False,
    average: Annotated[bool, typer.Option("--average", help="Only the model with the mean of the parameters.")] = False,
    dataset: Annotated[str | None, typer.Option(help="Another data set than that of the recipes.")] = None,
    data_root: Annotated[
        str | None, typer.Option("--data_root", "--data-root", help="Folder with NAME/SPLIT.parquet.")
    ] = None,
    split: Annotated[str, typer.Option(help="test, validation or train.")] = "test",
    output_dir: Annotated[
        str | None, typer.Option("--output_dir", "--output-dir", help="New folder for the averaged model.")
    ] = None,
) -> None:
    """Evaluate several models, their vote and their average; without --vote and --average, both."""
    with _one_line_errors():
        # imported here: `--help` should not wait for torch
        from hf_ftstrategies.pipeline.ensembling import ensemble_table, evaluate_ensemble

        facts = evaluate_ensemble(
            folders,
            with_vote=vote or not average,
            with_average=average or not vote,
            dataset=dataset,
            data_root=data_root,
            split=split,
            output_dir=output_dir,
        )
        Console().print(ensemble_table(facts))


@app.command()
def push(
    folder: Annotated[Path, typer.Argument(help="Output folder of a recipe that has finished.")],
    repo: Annotated[str, typer.Option(help="Where to, as user/name; made if it is not there.")],
    private: Annotated[bool, typer.Option("--private", help="Make it a private repository.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace what the repository holds, if that is not ours.")
    ] = False,
) -> None:
    """Push a finished run to the Hugging Face Hub; again, it uploads only what is not there yet."""
    with _one_line_errors():
        from hf_ftstrategies.hub.push import push_folder

        pushed = push_folder(folder, repo, private=private, force=force)
        Console().print(f"{pushed.repo_url} holds {folder}, revision {pushed.oid}", soft_wrap=True, highlight=False)


@contextmanager
def _one_line_errors(debug: bool = False) -> Iterator[None]:
    """What a user can get wrong is one line and status 2, no traceback unless asked for."""
    try:
        with as_value_errors():
            yield
    except ValueError as error:
        if debug:
            raise
        print_error(error)
        raise typer.Exit(2) from error


def _plan(path: str, options: list[str], picture: Path | None, json: Path | None, write_schedule: Path | None) -> None:
    # imported here: `--help` should not wait for torch
    from hf_ftstrategies.evaluation import plots
    from hf_ftstrategies.optim.phases import MODES
    from hf_ftstrategies.optim.schedule_file import write_schedule as write
    from hf_ftstrategies.pipeline.fine_tuning import prepare_fine_tuning
    from hf_ftstrategies.pipeline.publish import take_destination

    run, args, *stages = load_recipe(path).parse(options)
    args, _ = take_destination(args)
    with TemporaryDirectory() as nowhere:  # a Trainer makes its output folder at once
        trainer = prepare_fine_tuning(run, replace(args, output_dir=nowhere)).trainer
    made = trainer.plan()
    for stage in stages:
        if stage.is_on:
            Console().print(stage.describe())
    Console().print(made.table())
    if picture is not None:
        plots.save(plots.plot_plan(made.to_dict()), picture)
    if json is not None:
        made.save(json)
    if write_schedule is not None:
        mode = args.unfreezing if args.unfreezing in MODES else "gradual"
        write(mode, trainer.layer_map, write_schedule)
        said = f"{mode!r} written to {write_schedule}; use it with --unfreezing {write_schedule}"
        Console().print(said, markup=False)


def load_recipe(path: str):
    """The `RECIPE` of a recipe script.

    Args:
        path (`str`): Of the script; it is executed, but not as `__main__`.

    Raises:
        ValueError: no such file, one that is no Python or fails, or no `RECIPE` in it.
    """
    from hf_ftstrategies.pipeline.recipe import Recipe

    file = Path(path)
    if not file.is_file():
        neighbours = [str(p) for p in file.parent.glob("*.py")] if file.parent.is_dir() else []
        raise ValueError(f"There is no recipe {path!r}.{did_you_mean(path, neighbours)}")
    try:
        recipe = runpy.run_path(path).get("RECIPE")
    except Exception as error:  # whatever the script raises
        raise ValueError(f"{path!r} cannot be run as a recipe: {type(error).__name__}: {error}.") from error
    if not isinstance(recipe, Recipe):
        raise ValueError(f"{path!r} defines no RECIPE: it is not a recipe.")
    return recipe
