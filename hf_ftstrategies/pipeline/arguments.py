"""What a run is about: model, data, splits and features; the fields of a recipe beyond training arguments."""

from __future__ import annotations

from dataclasses import dataclass, field


def _option(default, help: str):
    return field(default=default, metadata={"help": help})


@dataclass
class RunArguments:
    """Model, data and features of a run. Every field is an option of the recipe's command line.

    Args:
        model (`str`): `"minilm"` (from the demo extra), a Hub id, or a folder.
        dataset (`str`): A registered name, a Hub id, or a local file or folder.
        data_root (`str`, *optional*): Folder with `NAME/SPLIT.parquet`; looked into before the Hub.
        task (`str`, *optional*): Task type; found from the data set if None.
        text_column, text_pair_column, label_column (`str`, *optional*): Columns of own data.
        on_bad_rows (`str`, *optional*, defaults to `"error"`): `"error"` or `"drop"`.
        train_rows, validation_rows, test_rows (`int`, *optional*): Rows to use, stratified; None = all there
            are (validation, where it must be cut from train: a tenth).
        split_seed (`int`, *optional*, defaults to 0): Of the splits and subsets; apart from the run's `seed`,
            so that runs with several seeds see the same rows.
        max_length (`int`, *optional*, defaults to 512): Tokens, special ones included.
        truncation (`str`, *optional*, defaults to `"head_tail"`): `"head"`, `"tail"`, `"head_tail"`, `"half"`.
        truncation_head (`int`, *optional*, defaults to 128): Tokens that `"head_tail"` keeps of the front.
    """

    model: str = _option("minilm", "minilm (demo extra), a Hub id, or a folder.")
    dataset: str = _option("bbc_news", "A registered name, a Hub id, or a local file or folder.")
    data_root: str | None = _option(None, "Folder with NAME/SPLIT.parquet; looked into before the Hub.")
    task: str | None = _option(None, "single_text, text_pair, regression or multi_label; empty = found from the data.")
    text_column: str | None = _option(None, "Column with the text, for own data.")
    text_pair_column: str | None = _option(None, "Column with the second text, for own data.")
    label_column: str | None = _option(None, "Column with the label, for own data.")
    on_bad_rows: str = _option("error", "error: refuse rows without text or label; drop: leave them out, counted.")
    train_rows: int | None = _option(None, "Training rows to use, stratified; empty = all.")
    validation_rows: int | None = _option(None, "Validation rows; empty = all, or a tenth of train where cut from it.")
    test_rows: int | None = _option(None, "Test rows; empty = all.")
    split_seed: int = _option(0, "Seed of splits and subsets, apart from the seed of training.")
    max_length: int = _option(512, "Tokens per example, special ones included.")
    truncation: str = _option("head_tail", "head, tail, head_tail or half (Sun et al. 2019).")
    truncation_head: int = _option(128, "Tokens that head_tail keeps of the front.")

    def __post_init__(self):
        for name in ("train_rows", "validation_rows", "test_rows"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}: give a number of rows above 0, or leave it out for all.")
