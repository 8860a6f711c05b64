"""What a run is about: model, data, splits and features; the fields of a recipe beyond training arguments."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from transformers import TrainingArguments


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
        seeds (`list[int]`, *optional*): Fine-tune once with each of them, on the same rows, instead of once with
            `seed`: the results have mean and spread, and the model is that of the seed that did best on validation.
        max_length (`int`, *optional*, defaults to 512): Tokens, special ones included.
        truncation (`str`, *optional*, defaults to `"head_tail"`): `"head"`, `"tail"`, `"head_tail"`, `"half"`.
        truncation_head (`int`, *optional*, defaults to 128): Tokens that `"head_tail"` keeps of the front.
        layers, layer_pooling, token_pooling, chunk_pooling, head (`str`): As in `EncoderClassifierConfig`; where one
            is not at its default, the model is an `EncoderClassifier` on the encoder of `model`. `layers` is
            `"last"`, `"first4"`, `"last4"`, `"all"`, an index or several (`"0,5"`). `head` is `"linear"` if None,
            with `feature_based` `"bilstm"`.
        feature_based (`bool`, *optional*, defaults to `False`): The encoder stays frozen and runs over each text once;
            only the head trains, on features that are kept on disk (`compute_features` says how large they are).
            Sun et al. 2019, table 6, BERT-Feat; Devlin et al. 2018, section 5.3.
        max_chunks, chunk_stride (`int`): Of `encode_chunks`, used where `chunk_pooling` is not `"none"`; then
            `max_length` is that of a chunk.
        split_scheme (`str`, *optional*, defaults to `"standard"`): `"zhang"` halves the development set into
            validation and test and draws 1,000 training rows (`train_rows=1000`) as Zhang et al. 2021 do.
        trust_remote_code (`bool`, *optional*, defaults to `False`): Run code that the model brings with it.
        global_batch_size (`int`, *optional*): Examples per optimizer step over all processes;
            `per_device_train_batch_size` is then what fits at most, and accumulation makes up the rest.
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
    streaming: bool = _option(
        False, "Read training rows while training on them, for sets larger than memory or disk; needs max_steps."
    )
    split_seed: int = _option(0, "Seed of splits and subsets, apart from the seed of training.")
    seeds: list[int] | None = field(
        default=None,
        metadata={
            "help": "Fine-tune once with each (--seeds 1 2 3); the best on validation is kept, all are reported."
        },
    )
    max_length: int = _option(512, "Tokens per example, special ones included.")
    truncation: str = _option("head_tail", "head, tail, head_tail or half (Sun et al. 2019).")
    truncation_head: int = _option(128, "Tokens that head_tail keeps of the front.")
    layers: str = _option("last", "Blocks that are read: last, first4, last4, all, an index or several (0,5).")
    layer_pooling: str = _option("concat", "concat, mean, max or attention over these blocks (Sun et al. 2019).")
    token_pooling: str = _option("cls", "cls, mean, max or concat (ULMFiT's last, max and mean).")
    chunk_pooling: str = _option("none", "none, or mean, max, attention over the chunks of a long text.")
    head: str | None = _option(
        None,
        "linear, mlp or bilstm (with self-attention, Lin et al. 2017); empty = linear, bilstm where feature_based.",
    )
    feature_based: bool = _option(
        False, "Freeze the encoder, compute its features once, train the head on them (BERT-Feat, Sun et al. 2019)."
    )
    max_chunks: int | None = _option(None, "Chunks of a text at most; bounds memory.")
    chunk_stride: int = _option(0, "Tokens that a chunk repeats of the one before.")
    split_scheme: str = _option("standard", "standard, or zhang: development set halved, 1k subset as published.")
    global_batch_size: int | None = _option(
        None, "Examples per optimizer step over all processes; accumulation makes up for small devices."
    )

    trust_remote_code: bool = _option(False, "Run code that the model brings with it; read it before.")

    def __post_init__(self):
        if not self.dataset:
            raise ValueError("No data set is given: --dataset takes a registered name, a file, a folder or a Hub id.")
        for name in ("train_rows", "validation_rows", "test_rows"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}: give a number of rows above 0, or leave it out for all.")
        if not 0 <= self.split_seed < 2**32:
            raise ValueError(f"split_seed is {self.split_seed}: give a number from 0 to 2**32 - 1.")
        if self.seeds is not None:
            fit = all(0 <= seed < 2**32 for seed in self.seeds) and len(set(self.seeds)) == len(self.seeds)
            if not fit or len(self.seeds) < 2:
                raise ValueError(f"seeds is {self.seeds}: give two or more different numbers from 0 to 2**32 - 1.")
        if self.split_scheme not in ("standard", "zhang"):
            raise ValueError(f"split_scheme is {self.split_scheme!r}, known are standard and zhang.")
        if self.streaming and self.split_scheme == "zhang":
            raise ValueError("split_scheme='zhang' draws training rows from all of them: leave out streaming.")
        if self.streaming and self.feature_based:
            raise ValueError("feature_based keeps the features of all training rows: leave out streaming.")
        if self.head is None:
            self.head = "bilstm" if self.feature_based else "linear"

    def check(self, args: TrainingArguments) -> None:
        """Refuse arguments of the training that contradict the options of the run, before anything is loaded.

        Args:
            args (`TrainingArguments`): With the fields of `StrategyTrainingArguments`.

        Raises:
            ValueError: `streaming` without `max_steps` or with worker processes; `feature_based` with a strategy that
                acts on the encoder.
        """
        if self.streaming and args.max_steps < 1:
            raise ValueError("streaming does not know how many rows there are: give max_steps, the steps to train.")
        if self.streaming and args.dataloader_num_workers:
            raise ValueError(
                f"dataloader_num_workers is {args.dataloader_num_workers}, but a stream is read by the process that "
                "trains, which counts what it sees: leave it out."
            )
        off = {"layer_decay": 1, "unfreezing": "none", "reinit_layers": 0, "reinit_pooler": None}
        acting = {name: getattr(args, name) for name, value in off.items() if getattr(args, name) not in (value, False)}
        if self.feature_based and acting:
            raise ValueError(
                f"feature_based freezes the encoder, on which {' and '.join(f'{k}={v}' for k, v in acting.items())} "
                f"would act: set {' and '.join(f'{name}={off[name]}' for name in acting)}, or leave out feature_based."
            )

    def classifier_settings(self) -> dict[str, Any]:
        """Settings of an `EncoderClassifier`, empty where the stock model of Transformers will do."""
        names = ("layers", "layer_pooling", "token_pooling", "chunk_pooling", "head")
        defaults = {f.name: f.default for f in fields(self)} | {"head": "linear"}
        if not self.feature_based and all(getattr(self, name) == defaults[name] for name in names):
            return {}
        settings = {name: getattr(self, name) for name in names}
        indices = self.layers.split(",")
        if all(index.strip().lstrip("-").isdigit() for index in indices):
            numbers = [int(index) for index in indices]
            settings["layers"] = numbers[0] if len(numbers) == 1 else numbers
        return settings


def divide_batch(
    global_batch_size: int, per_device: int, processes: int, name: str = "global_batch_size"
) -> tuple[int, int]:
    """Batch size per device and accumulation that make up a global batch.

    Args:
        global_batch_size (`int`): Examples per optimizer step over all processes.
        per_device (`int`): What fits on a device at most.
        processes (`int`): How many train together.
        name (`str`, *optional*): Of the option that asks for the global batch.

    Returns:
        `tuple[int, int]`: The largest batch per device that divides its share, and how many of them.

    Raises:
        ValueError: the global batch cannot be divided among the processes.
    """
    share, rest = divmod(global_batch_size, processes)
    if rest or share < 1:
        raise ValueError(
            f"{name} is {global_batch_size}, which {processes} processes cannot share evenly: "
            f"give a multiple of {processes}."
        )
    size = max(n for n in range(1, min(per_device, share) + 1) if share % n == 0)
    return size, share // size
