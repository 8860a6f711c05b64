"""What a loaded data set is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class DatasetInfo:
    """What a loaded data set is.

    Args:
        name (`str`): The name it was asked for by.
        task (`str`): Name of its task type.
        text_columns (`tuple[str, ...]`): `("text",)` or `("sentence1", "sentence2")`.
        label_column (`str`): `"label"`.
        label_names (`tuple[str, ...]`): Name of label 0, 1, ...; empty for numbers.
        metrics (`tuple[str, ...]`): Names of the metrics to report, the selecting one first.
        metric (`str`): The one that selects the best checkpoint; greater is better.
        source (`str`): Where the rows came from.
        licence (`str`): What is known of the licence.
        rows (`Mapping[str, int]`): Number of rows of each split.
        hub_id (`str`, *optional*): What the data set is called on the Hub, also where the rows are of a local copy.
        hub_config (`str`, *optional*): Configuration of the registered one there.
        language (`str`, *optional*): ISO 639 code of the texts of the registered one.
        unlabelled (`tuple[str, ...]`): Splits without labels.
        findings (`tuple[str, ...]`): What a reader of results should know: rows dropped, duplicates, texts of
            an evaluation split that also stand in train, sizes other than the published ones. Row numbers are
            those of the returned splits.
    """

    name: str
    task: str
    text_columns: tuple[str, ...]
    label_column: str
    label_names: tuple[str, ...]
    metrics: tuple[str, ...]
    metric: str
    source: str
    licence: str
    rows: Mapping[str, int]
    hub_id: str | None = None
    hub_config: str | None = None
    language: str | None = None
    unlabelled: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()

    def published_as(self) -> dict[str, str]:
        """What cards say of it: `licence`, and `language`, `hub_id` and `hub_config` if they are known."""
        names = ("hub_id", "hub_config", "language", "licence")
        return {name: value for name in names if (value := getattr(self, name)) is not None}
