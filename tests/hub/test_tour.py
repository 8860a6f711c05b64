"""The commands of docs/hub.md are ones that the recipe and the command line take."""

import re
import shlex
from pathlib import Path

from typer.main import get_command

from hf_ftstrategies.cli import app, load_recipe
from hf_ftstrategies.pipeline.publish import take_destination

ROOT = Path(__file__).parents[2]
TOUR = (ROOT / "docs" / "hub.md").read_text().replace("\\\n", " ")


def test_the_tour():
    (words,) = [shlex.split(line) for line in re.findall(r"^python (recipes/.*)$", TOUR, re.MULTILINE)]
    run, args, *_ = load_recipe(str(ROOT / words[0])).parse([*words[1:], "--use_cpu", "True"])
    _, destination = take_destination(args)
    assert (run.max_length, args.max_steps, destination.repo_id) == (64, 8, "user/bbc-news")
    (push,) = [shlex.split(line) for line in re.findall(r"^hf-ftstrategies (push .*)$", TOUR, re.MULTILINE)]
    context = get_command(app).commands["push"].make_context("push", [*push[1:], "--private", "--force"])
    assert (str(context.params["folder"]), context.params["repo"]) == ("outputs/tour", "user/copy")
    for code in re.findall(r"```python\n(.*?)```", TOUR, re.DOTALL):
        compile(code, "docs/hub.md", "exec")
