"""What the package never does, read off its source, and whether SECURITY.md is right about it."""

import ast
import configparser
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("hf_ftstrategies", "recipes", "benchmarks")
SOURCES = sorted(path for folder in FOLDERS for path in ROOT.joinpath(folder).rglob("*.py"))
MODULES = {"pickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "ctypes"}
CALLS = {
    "eval",
    "exec",
    "compile",
    "input",
    "__import__",
    "os.system",
    "os.popen",
    "torch.load",
    "np.load",
    "numpy.load",
}
CALLS |= {"yaml.load", "yaml.load_all", "yaml.full_load", "yaml.unsafe_load", "pd.read_pickle", "runpy.run_path"}
KEYWORDS = {"trust_remote_code": "True", "allow_pickle": "True", "shell": "True", "weights_only": "False"}
# Meant: recipes are scripts; a loader without tags and aliases.
MEANT = {("runpy.run_path", "hf_ftstrategies/cli.py"), ("yaml.load", "hf_ftstrategies/optim/yaml_file.py")}


def dangers(source: str) -> list[str]:
    """Imports and calls that could run what is in a file."""
    found = []
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
            found += [f"{node.module}.{a.name}" for a in node.names if f"{node.module}.{a.name}" in CALLS]
        elif isinstance(node, ast.Call):
            found += [name for name in [ast.unparse(node.func)] if name in CALLS]
            found += [k.arg for k in node.keywords if k.arg and KEYWORDS.get(k.arg) == ast.unparse(k.value)]
        found += [name for name in names if name.split(".")[0] in MODULES]
    return found


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import torch, pickle as p",
        "from pickle import loads",
        "from torch import load",
        "from os import system",
        "def f():\n    import dill",
        "torch.load(path)",
        "x = [eval(text) for text in y]",
        "yaml.load(text, Loader=yaml.SafeLoader)",
        "M.from_pretrained(name, trust_remote_code=True)",
        "subprocess.run(words, shell=True)",
    ],
)
def test_the_search_finds(source):
    assert len(dangers(source)) == 1


def test_the_search_does_not_find_what_is_harmless():
    assert (
        dangers("model.eval()\nimport re\nre.compile('x')\nload(x)\nf(trust_remote_code=run.trusted, shell=False)")
        == []
    )


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_nothing_that_is_read_is_run(path):
    where = path.relative_to(ROOT).as_posix()
    assert {(name, where) for name in dangers(path.read_text(encoding="utf-8"))} <= MEANT


def test_what_is_meant_is_there():
    assert {(name, where) for _, where in MEANT for name in dangers(ROOT.joinpath(where).read_text())} == MEANT


def test_the_security_page_names_files_that_exist_and_all_dependencies():
    text = ROOT.joinpath("SECURITY.md").read_text(encoding="utf-8")
    for name in re.findall(r"`(tests/[\w./]+)`", text):
        assert ROOT.joinpath(name).exists()
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    needed = re.findall(r"^[\w-]+", setup["options"]["install_requires"].strip(), re.MULTILINE)
    listed = re.search(r"Installed with the package: (.*?)\.", text, re.DOTALL)[1].lower().split(",")
    assert sorted(name.strip() for name in listed) == sorted(name.lower() for name in needed)
