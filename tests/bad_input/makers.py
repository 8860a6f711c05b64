"""Makers of bad models, data, schedules and runs: each writes into a folder and returns the options that use it."""

import json
import os
import pickle
import shutil

import pyarrow
import torch
from pyarrow import parquet
from safetensors.torch import load_file, save_file


def model(change):
    """The tiny model, changed by `change(folder)`."""

    def make(base, folder):
        copy = shutil.copytree(base / "model", folder / "changed")
        change(copy)
        return ["--model", str(copy)]

    return make


def edited(name, **values):
    """A change of a JSON file; None takes a key out."""

    def change(folder):
        path = folder / name
        content = {**json.loads(path.read_text()), **values}
        path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))

    return model(change)


def without(*names):
    return model(lambda folder: [(folder / name).unlink() for name in names])


def overwritten(name, content):
    return model(lambda folder: (folder / name).write_bytes(content))


def cut(name, size):
    return model(lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:size]))


def _set_weights(folder, **tensors):
    weights = load_file(folder / "model.safetensors")
    save_file({**weights, **tensors}, folder / "model.safetensors", {"format": "pt"})


@model
def fewer_embeddings(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": 50}))
    _set_weights(folder, **{"bert.embeddings.word_embeddings.weight": torch.zeros(50, 16)})


@model
def five_labels(folder):
    config = json.loads((folder / "config.json").read_text())
    names = {str(i): f"L{i}" for i in range(5)}
    (folder / "config.json").write_text(json.dumps({**config, "id2label": names, "label2id": {}}))
    _set_weights(folder, **{"classifier.weight": torch.zeros(5, 16), "classifier.bias": torch.zeros(5)})


class Mark:
    """A pickle of it makes a file when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@model
def pickled(folder):
    (folder / "model.safetensors").unlink()
    torch.save({"classifier.weight": Mark(folder.parent / "mark")}, folder / "pytorch_model.bin")


@model
def plainly_pickled(folder):
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Mark(folder.parent / "mark"), protocol=2))


@model
def with_code(folder):
    config = json.loads((folder / "config.json").read_text())
    classes = {"AutoConfig": "code.C", "AutoModelForSequenceClassification": "code.M", "AutoModel": "code.M"}
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "mine", "auto_map": classes}))
    (folder / "code.py").write_text(f"import os\nos.mkdir({str(folder.parent / 'mark')!r})\nraise RuntimeError\n")


def file(name, content, *options, option="--dataset"):
    """A file of this name and content, given as data set."""

    def make(base, folder):
        path = folder / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return [option, str(path), *options]

    return make


def schedule(content):
    return file("schedule.yaml", content, "--dataset", "{base}/topics.csv", option="--unfreezing")


def rows(*lines):
    return "text,label\n" + "".join(f"{line}\n" for line in lines)


def table(**columns):
    sink = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.table(columns), sink)
    return sink.getvalue().to_pybytes()


def folder_of(**files):
    """A folder with these files, given as data set; `__` in a name stands for a folder."""

    def make(base, folder):
        for name, content in files.items():
            path = folder / "data" / name.replace("__", "/").replace("_csv", ".csv").replace("_txt", ".txt")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        return ["--dataset", str(folder / "data")]

    return make


def taken(content):
    """An output folder in which something else lies."""

    def make(base, folder):
        (folder / "taken").mkdir()
        for name, text in content.items():
            (folder / "taken" / name).write_text(text)
        return ["--output_dir", str(folder / "taken")]

    return make
