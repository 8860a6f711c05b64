"""Bad input of every kind: one error line with cause and remedy, exit status 2, nothing written, nothing lost."""

import pytest
from typer.testing import CliRunner

from hf_ftstrategies.cli import app
from tests.bad_input.makers import (
    cut,
    edited,
    fewer_embeddings,
    file,
    five_labels,
    folder_of,
    overwritten,
    pickled,
    plainly_pickled,
    rows,
    schedule,
    table,
    taken,
    with_code,
    without,
)
from tests.bad_input.runs import contents, error_of, run, tiny

BOMB = "a: &a [x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi")
)
GOOD = rows("w1 w2,a", "w3,b")

# name, options (as words) or a maker of them, what the error line must hold
ARGUMENTS = [
    ("unknown option", "--layer_decy 0.9", "Did you mean '--layer_decay'?"),
    ("not a number", "--layer_decay high", "invalid float value: 'high'. --help lists all options."),
    ("not a whole number", "--reinit_layers 1.5", "invalid int value: '1.5'"),
    ("not a truth value", "--bias_correction maybe", "maybe"),
    ("no value", "--model", "Argument --model: expected one argument"),
    ("left over", "more", "Unknown option 'more'"),
    ("not a choice", "--lr_scheduler_type cosin", "invalid choice: 'cosin'"),
    ("out of range", "--layer_decay 1.5", "give a factor in (0, 1]"),
    ("rate that is no number", "--learning_rate nan", "learning_rate is nan: give a number from 0"),
    ("infinite rate", "--head_learning_rate inf", "head_learning_rate is inf: give a positive rate"),
    ("endless training", "--num_train_epochs inf", "num_train_epochs is inf"),
    ("no steps", "--max_steps 0", "The training has 0 steps"),
    ("empty batch", "--per_device_train_batch_size 0", "per_device_train_batch_size is 0: give a number from 1"),
    ("no accumulation", "--gradient_accumulation_steps 0", "gradient_accumulation_steps is 0"),
    ("negative seed", "--seed -1", "seed is -1: give a number from 0"),
    ("negative rows", "--train_rows -1", "train_rows is -1: give a number of rows above 0"),
    ("too many rows", "--train_rows 1000", "more than the 90"),
    ("too many blocks", "--reinit_layers 9", "the model has 3 blocks: give a number from 1 to 3"),
    ("too many phases", "--unfreezing gradual --unfreeze_every 20", "train longer, or set unfreeze_every"),
    ("two schedules", "--lr_schedule bert_linear --lr_scheduler_type cosine", "give only one of them"),
    ("unknown mode", "--unfreezing gradul", "Did you mean 'gradual'?"),
    ("unknown metric", "--metric_for_best_model acuracy", "Did you mean 'accuracy'?"),
    ("unknown pooling", "--token_pooling clss", "Did you mean 'cls'?"),
    ("unknown layers", "--layers 99", "the indices 0 to 2"),
    ("unknown task", "--task regresion", "Did you mean 'regression'?"),
    ("batch that cannot be shared", "--global_batch_size 0", "global_batch_size is 0"),
    ("longer than the tokenizer", "--max_length 100", "give a smaller max_length"),
    ("longer than the positions", "--max_length 40", "the model has 32 positions: set it to at most that"),
    ("shorter than its special tokens", "--max_length 2", "leaves no room for text"),
    ("head without tail", "--truncation_head 99", "Give a smaller head"),
    ("broken JSON", "--lr_scheduler_kwargs {", "A value of --lr_scheduler_kwargs cannot be used"),
    ("settings file that is not there", "--accelerator_config none.json", "No such file or directory: 'none.json'"),
    ("package that is not there", "--deepspeed ds.json", "deepspeed"),
    ("optimizer that is not there", "--optim lomo", "pip install lomo-optim"),
    ("tracker that is not there", "--report_to swanlab", "Run `pip install swanlab`"),
    ("bytes that are no text", ["--truncation", "\udcff"], "Unknown truncation strategy"),
    ("text with NUL", ["--model", "a\0b"], "The model 'a\\x00b' cannot be loaded"),
]
SCHEDULES = [
    ("no file", "--unfreezing none.yaml", "none.yaml' cannot be read: No such file"),
    ("a folder", "--unfreezing {base}/folder.yaml", "cannot be read: Is a directory"),
    ("bomb", schedule(BOMB + "phases: [{train: *i}]"), "aliases (& and *) are not allowed"),
    ("tag", schedule("phases: !!python/object/apply:os.mkdir [mark]"), "tags (tag:yaml.org,2002:python/object/apply:"),
    ("nested", schedule("phases: " + "[" * 9000), "it is nested too deeply"),
    ("not YAML", schedule("phases: ["), "line 1, column 10"),
    ("not UTF-8", schedule(b"phases: [\xff]"), "cannot be read"),
    ("a slip", schedule("phases: [{trian: head}]"), "needs `train:`"),
    ("part that is not there", schedule("phases: [{train: [blok 3]}]"), "Did you mean 'block 3'?"),
    ("too long", schedule("phases: [{train: head, until: {epoch: 99}}, {train: all}]"), "train longer"),
]
DATA = [
    ("no file", "--dataset none.csv", "Unknown data set 'none.csv'"),
    ("a slip", "--dataset imdbb", "Did you mean 'imdb'?"),
    ("no such type", file("a.xlsx", "x"), "Known: .csv, .tsv, .jsonl, .parquet"),
    ("hub out of reach", "--dataset nobody/nothing", "Without the Hub, give a data root"),
    (
        "root nowhere",
        "--data_root nowhere",
        "The data root 'nowhere' (data_root or $HF_FTSTRATEGIES_DATA) is no folder",
    ),
    ("out of the root", "--data_root {base} --dataset ../secret", "Unknown data set '../secret'"),
    ("system file", "--dataset /etc/passwd", "Cannot read /etc/passwd: unknown file type ''"),
    ("empty", file("a.csv", ""), "a.csv is empty"),
    ("header alone", file("a.csv", "text,label\n"), "has no rows below its header line"),
    ("other columns", file("a.csv", "txt,label\na,b\n"), "Did you mean 'txt'?"),
    ("empty texts", file("a.csv", rows("w1,a", ",b", "w3,a")), "1 row(s) with an empty text"),
    ("no labels", file("a.csv", rows("w1,a", "w2,", "w3,b")), "1 row(s) without a label"),
    ("ragged", file("a.csv", rows("w1,a", "w2", "w3,b")), "1 row(s) with 1 cells where there are 2 columns"),
    ("open quotes", file("a.csv", rows("w1,a", '"w2,b')), "give quotes=False"),
    ("one class", file("a.csv", rows("w1,a", "w2,a")), "there is nothing to learn"),
    ("UTF-16", file("a.csv", GOOD.encode("utf-16")), "UTF-16; give encoding='utf-16'"),
    ("Latin-1", file("a.csv", rows("w1,a", "é,b").encode("latin-1")), "is not utf-8 in line 3"),
    ("binary", file("a.csv", bytes(range(256))), "is not utf-8"),
    (
        "half a character",
        file("a.jsonl", '{"text": "w1\\ud83d", "label": "a"}\n{"text": "w", "label": "b"}'),
        "\\ud800",
    ),
    ("no JSON", file("a.jsonl", "text,label"), "has no line with a JSON object"),
    ("JSON without end", file("a.jsonl", "[" * 20_000), "has no line with a JSON object"),
    ("torn Parquet", file("a.parquet", table(text=["a", "b"], label=[0, 1])[:-9]), "Cannot read"),
    ("numbers as texts", file("a.parquet", table(text=[1, 2], label=[0, 1])), "holds int64, not strings"),
    ("labels of test alone", folder_of(train_csv=GOOD, test_csv=rows("w1,c", "w2,a")), "whose label is 'c'"),
    ("two files a split", folder_of(dev_csv=GOOD, validation_csv=GOOD), "both the split 'validation'"),
    ("other files", folder_of(notes_txt="x"), "it holds: notes.txt"),
    ("too few to cut", file("a.csv", GOOD), "are more than the 2 that train has"),
]
MODELS = [
    ("no folder", "--model ./nowhere", "The model folder './nowhere' does not exist"),
    ("a file", "--model {base}/topics.csv", "does not exist; give a folder"),
    ("hub out of reach", "--model nobody/nothing", "The model 'nobody/nothing' cannot be loaded"),
    ("no config", without("config.json"), "Should have a `model_type` key in its config.json"),
    ("torn config", overwritten("config.json", b"{"), "is not a valid JSON file"),
    ("config of another kind", overwritten("config.json", b"[1]"), "cannot be loaded: TypeError"),
    ("unknown type", edited("config.json", model_type="nope"), "model type `nope`"),
    ("text for a number", edited("config.json", hidden_size="x"), "'hidden_size' expected int"),
    ("config of another model", edited("config.json", hidden_size=32), "its weights have other shapes"),
    ("other labels", five_labels, "If its head was trained for other labels"),
    ("no weights", without("model.safetensors"), "no file named model.safetensors"),
    ("cut weights", cut("model.safetensors", -500), "its weights are damaged"),
    ("cut header", cut("model.safetensors", 500), "its weights are damaged"),
    ("pickle", pickled, "Save it as model.safetensors"),
    ("bare pickle", plainly_pickled, "Save it as model.safetensors"),
    ("code", with_code, "give --trust_remote_code True"),
    ("no tokenizer", without("tokenizer.json", "tokenizer_config.json"), "put tokenizer.json or vocab.txt beside"),
    ("torn tokenizer", overwritten("tokenizer.json", b"{"), "its JSON files are damaged"),
    ("no padding token", edited("tokenizer_config.json", pad_token=None), "set tokenizer.pad_token"),
    ("tokenizer of another model", fewer_embeddings, "104 tokens, the model embeds 50"),
]
OUTPUTS = [
    ("a file in the way", "--output_dir {base}/topics.csv", "cannot be made"),
    ("no such place", "--output_dir /dev/null/x", "cannot be made: Not a directory"),
    ("name with NUL", ["--output_dir", "a\0b"], "cannot be made: embedded null byte"),
    ("something else", taken({"thesis.tex": "years"}), "is not empty (thesis.tex) and holds no run of ours"),
    ("torn manifest", taken({"manifest.json": "{"}), "cannot be read"),
    ("hostile manifest", taken({"manifest.json": "[" * 15_000}), "cannot be read"),
]


def cases(table):
    return pytest.mark.parametrize(("options", "expected"), [c[1:] for c in table], ids=[c[0] for c in table])


def words_of(options, base, folder):
    made = options(base, folder) if callable(options) else options
    words = made.split() if isinstance(made, str) else made
    return [word.replace("{base}", str(base)).replace("{folder}", str(folder)) for word in words]


def check_run(base, tmp_path, options, expected):
    words, recipe = words_of(options, base, tmp_path), tiny(base, tmp_path / "out")
    before = contents(tmp_path, base)
    assert expected in error_of(*run(recipe, words))
    after = contents(tmp_path, base)
    assert set(after) - set(before) <= {tmp_path / "out" / "manifest.json"}
    assert {path: after.get(path) for path in before} == before
    assert not (tmp_path / "mark").exists()
    return recipe, words


def check_run_and_plan(base, tmp_path, options, expected):
    recipe, words = check_run(base, tmp_path, options, expected)
    script = tmp_path / "tiny.py"
    script.write_text(
        f"from hf_ftstrategies.pipeline.recipe import Recipe\nRECIPE = Recipe('tiny', 'Tiny', {recipe.presets!r})\n"
    )
    before = contents(tmp_path, base)
    planned = CliRunner().invoke(app, ["plan", str(script), *words])
    assert expected in error_of(planned.exit_code, planned.stderr)
    assert contents(tmp_path, base) == before
    assert not (tmp_path / "mark").exists()


@cases(ARGUMENTS)
def test_arguments(base, tmp_path, options, expected):
    check_run_and_plan(base, tmp_path, options, expected)


@cases(SCHEDULES)
def test_schedules(base, tmp_path, options, expected):
    check_run_and_plan(base, tmp_path, options, expected)


@cases(DATA)
def test_data(base, tmp_path, options, expected):
    check_run_and_plan(base, tmp_path, options, expected)


@cases(MODELS)
def test_models(base, tmp_path, options, expected):
    check_run_and_plan(base, tmp_path, options, expected)


@cases(OUTPUTS)
def test_outputs(base, tmp_path, options, expected):
    check_run(base, tmp_path, options, expected)


@pytest.mark.parametrize("extra", [[], ["--head", "mlp"]])
def test_code_of_a_model_runs_only_where_it_is_trusted(base, tmp_path, extra):
    words = [*with_code(base, tmp_path), *extra]
    assert "give --trust_remote_code True" in error_of(*run(tiny(base, tmp_path / "out"), words))
    assert not (tmp_path / "mark").exists()
    trusted = run(tiny(base, tmp_path / "out"), [*words, "--trust_remote_code", "True"])
    assert "cannot be loaded: RuntimeError" in error_of(*trusted)  # which that code raises
    assert (tmp_path / "mark").exists()
