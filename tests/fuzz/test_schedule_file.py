"""Random schedule files: read as phases, or refused with one `ValueError`; nothing in them is ever run or expanded."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_ftstrategies import LayerMap
from hf_ftstrategies.optim.schedule_file import read_schedule, resolve_schedule
from tests.fuzz.attempt import attempt
from tests.tiny import tiny_bert

LAYERS = LayerMap.from_model(tiny_bert())
NAMES = {name for depth in range(5) for name in LAYERS.parameters_at(depth)}
WORDS = """phases train until epoch step early_stop metric all head &a *a << ! !!python/object/apply:os.system !!int
!!timestamp %YAML --- ... - ? : 0x_ 2001-99-99 .inf ~ = 1:99:99.9 0b 1e999 [ ] { } , | > @ ` ' " #"""
PIECES = st.sampled_from([*WORDS.split(), *"\n\t \0\ufeff", "block 3", ": ", "- ", "9" * 5000])
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-2, 9), st.floats(), st.sampled_from(["all", "head", "*", "f1"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["phases", "train", "until", "name", "epoch", "step", "early_stop", "metric", "patience"]),
            inner,
            max_size=3,
        ),
    ),
    max_leaves=8,
)
UNTIL = st.fixed_dictionaries(
    {},
    optional={
        "epoch": st.one_of(st.floats(), st.integers(-1, 5)),
        "step": st.integers(-1, 60),
        "early_stop": st.fixed_dictionaries({"metric": st.sampled_from(["f1", "loss"])}, optional={"patience": VALUES}),
    },
)
PHASE = st.fixed_dictionaries(
    {"train": st.one_of(st.just("all"), st.lists(st.one_of(st.integers(-1, 5), st.sampled_from(["head", "block 3"]))))},
    optional={"name": VALUES, "until": st.one_of(UNTIL, VALUES)},
)


def assert_phases_or_refusal(folder, content):
    path = Path(folder, "schedule.yaml")
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
    phases, message = attempt(lambda: resolve_schedule(read_schedule(path), LAYERS, 10, str(path)))
    if message is not None:
        return None
    for phase in phases:
        assert phase.trains
        assert phase.trains <= NAMES
        assert phase.until_step is None or phase.until_step > 0
    return phases


@settings(max_examples=300)
@given(content=st.one_of(st.binary(max_size=60), st.text(max_size=60), st.lists(PIECES, max_size=25).map("".join)))
def test_any_text(tmp_path_factory, content):
    assert_phases_or_refusal(tmp_path_factory.getbasetemp(), content)


@settings(max_examples=200)
@given(phases=st.lists(st.one_of(PHASE, VALUES), max_size=3), extra=st.dictionaries(st.just("phase"), VALUES))
def test_any_values(tmp_path_factory, phases, extra):
    assert_phases_or_refusal(tmp_path_factory.getbasetemp(), yaml.safe_dump({"phases": phases, **extra}))


DEEP = "phases: " + "[" * 20_000
BOMB = "a: &a [x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefghi", "bcdefghij")
)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (BOMB + "phases: [{train: *j}]", "aliases"),
        ("phases: &a [*a]", "aliases"),
        ("phases: &a [{train: all}]", "aliases"),
        ("phases: [{train: !!python/object/apply:os.system ['touch {mark}']}]", "tags"),
        ("phases: [{train: !!python/name:os.system }]", "tags"),
        ("phases: !!set {a}", "tags"),
        ("phases: [{train: !!timestamp x}]", "tags"),
        (DEEP, "nested"),
        ("phases: [{train: " + "9" * 5000 + "}]", "cannot be read"),
        ("phases: [{train: 2001-99-99}]", "cannot be read"),
        ("phases: [{train: all}]\n---\nphases: [{train: all}]", "cannot be read"),
        ("phases: [{train: all}] # " + "x" * 2_000_000, "is larger than"),
        ("phases: [{train: head, until: {epoch: 1.0e+308}}, {train: all}]", "above 0"),
        (b"phases: [{train: all\xff}]", "cannot be read"),
        ("phases: [{train: [" + ", ".join(["1"] * 2000) + "]}]", "overlap"),
    ],
    ids=str.split("bomb loop anchor call name set timestamp deep digits date two large epochs bytes many"),
)
def test_hostile_files(tmp_path, content, message):
    mark, path = tmp_path / "mark", tmp_path / "schedule.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.replace("{mark}", str(mark)).encode())
    phases, found = attempt(lambda: resolve_schedule(read_schedule(path), LAYERS, 10, str(path)))
    assert phases is None
    assert message in found
    assert not mark.exists()
