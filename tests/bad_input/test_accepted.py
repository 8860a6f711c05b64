"""Input that looks strange and is fine: it trains, and what it holds is shown as it is."""

import json

import pytest
from transformers import AutoModelForSequenceClassification

from tests.bad_input.makers import edited, file, model, rows
from tests.bad_input.runs import run, tiny
from tests.data.tiny import no_special_tokens

HTML = "<script>alert(1)</script>"


def many(*lines):
    """24 rows of 3 labels, with different texts; the lines are `text,label` of the first labels."""
    lines = [*lines, "w1,x", "w2,y", "w3,z"][:3]
    cells = [line.rsplit(",", 1) for line in lines]
    return rows(*(f"{text} w{number},{label}" for number in range(8) for text, label in cells))


def jsonl(text):
    lines = [f'{{"text": "{text} w{row}", "label": "{"xyz"[row % 3]}"}}\n' for row in range(24)]
    return "".join(lines)


@model
def without_special_tokens(folder):
    no_special_tokens().save_pretrained(folder)
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "pad_token_id": 1}))


FINE = {
    "emoji": (file("a.csv", many("w1 👩‍👩‍👧 🇩🇪,🍎", "w2 🙈,🍐")), ["x", "🍎", "🍐"]),
    "right to left": (file("a.csv", many("שלום w1,טוב", "مرحبا w2 \u202e,رديء")), ["x", "טוב", "رديء"]),
    "combining marks": (file("a.csv", many("w1 e\u0301\u0301\u0301,e\u0301", "w2 \u200b\ufeff x,b")), None),
    "formulas": (file("a.csv", many("=HYPERLINK('http://x'),=1+1", "@SUM(A1),@SUM(A2)")), ["=1+1", "@SUM(A2)", "x"]),
    "HTML": (file("a.csv", many(f"w1 {HTML},{HTML}")), [HTML, "x", "y"]),
    "Markdown": (file("a.csv", many("w1 | w2,a|b", "w3,*c*")), ["*c*", "a|b", "x"]),
    "markup of terminals": (file("a.csv", many("w1 [/red],[/b]", "w2 \x1b[31m,\x1b[31m")), ["\x1b[31m", "[/b]", "x"]),
    "formulas of TeX": (file("a.csv", many("w1 $x^$,$x^$", "w2,_{")), ["$x^$", "_{", "x"]),
    "NUL": (file("a.jsonl", jsonl("\\u0000")), ["x", "y", "z"]),
    "byte order mark": (file("a.csv", b"\xef\xbb\xbf" + many().encode()), ["x", "y", "z"]),
    "Windows lines": (file("a.csv", many().replace("\n", "\r\n")), ["x", "y", "z"]),
    "lines in quotes": (file("a.csv", many() + '"w1\nw2, ""w3""",x\n'), ["x", "y", "z"]),
    "10 MB line": (file("a.csv", many() + "x" * 10_000_000 + " w1,x\n"), ["x", "y", "z"]),
    "surrogate pairs": (file("a.jsonl", jsonl("\\ud83d\\ude00")), ["x", "y", "z"]),
    "odd name": (file("a b [é]'/topics 🙈.csv", many()), ["x", "y", "z"]),
    "unknown keys of a config": (edited("config.json", from_the_future={"a": [1]}, torch_dtype="float32"), None),
    "no [CLS] and no [SEP]": (without_special_tokens, None),
}


@pytest.mark.filterwarnings("ignore:Glyph .* missing from:UserWarning")  # of the picture's font
@pytest.mark.parametrize(("options", "labels"), FINE.values(), ids=FINE)
def test_it_trains(base, tmp_path, options, labels):
    words = options(base, tmp_path)
    status, printed = run(tiny(base, tmp_path / "out [/b]", max_steps=2, unfreezing="none"), words)
    assert status == 0, printed
    out = tmp_path / "out [/b]"
    results = json.loads((out / "results.json").read_text())
    assert results["metrics"]["test"].keys() >= {"accuracy", "loss"}
    assert HTML not in (out / "report.html").read_text()
    if labels is not None:
        assert results["dataset"]["labels"] == labels
        loaded = AutoModelForSequenceClassification.from_pretrained(out)
        assert list(loaded.config.id2label.values()) == labels
