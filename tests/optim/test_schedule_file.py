import pytest

from hf_ftstrategies import LayerMap
from hf_ftstrategies.optim.phases import MODES, EarlyStop, built_in_phases
from hf_ftstrategies.optim.schedule_file import read_schedule, resolve_schedule, write_schedule
from tests.tiny import tiny_bert


@pytest.fixture(scope="module")
def layer_map():
    return LayerMap.from_model(tiny_bert())


def resolve(text, layer_map, tmp_path):
    path = tmp_path / "schedule.yaml"
    path.write_text(text)
    return resolve_schedule(read_schedule(path), layer_map, steps_per_epoch=10, source="schedule.yaml")


def test_depths_parts_and_patterns_name_the_same_parameters(layer_map, tmp_path):
    phases = resolve(
        """
phases:
  - {train: [4, 3], until: {epoch: 1}}
  - {train: [head, block 3], until: {step: 25}}
  - {train: ["bert.encoder.layer.2.*", "classifier.*", "bert.pooler.*"], until: {epoch: 3}}
  - {train: all}
""",
        layer_map,
        tmp_path,
    )
    assert phases[0].trains == phases[1].trains == phases[2].trains
    assert len(phases[3].trains) == sum(len(layer_map.parameters_at(d)) for d in range(5))
    assert [p.until_step for p in phases] == [10, 25, 30, None]


def test_early_stop(layer_map, tmp_path):
    text = (
        "phases:\n  - {train: head, until: {step: 50, early_stop: {metric: accuracy, patience: 2}}}\n  - {train: all}\n"
    )
    phases = resolve(text, layer_map, tmp_path)
    assert phases[0].early_stop == EarlyStop("accuracy", 2)
    assert phases[0].until_step == 50


@pytest.mark.parametrize("mode", MODES)
def test_a_written_schedule_reads_as_the_mode(mode, layer_map, tmp_path):
    path = tmp_path / "schedule.yaml"
    write_schedule(mode, layer_map, path)
    phases = resolve_schedule(read_schedule(path), layer_map, 10, "file")
    assert [p.trains for p in phases] == [p.trains for p in built_in_phases(mode, layer_map)]
    assert [p.until_step for p in phases[:-1]] == [10 * (i + 1) for i in range(len(phases) - 1)]
    with pytest.raises(ValueError, match="exists"):
        write_schedule(mode, layer_map, path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("phases: [{train: [blok 3]}]", r"'blok 3' matches no parameter.*Did you mean 'block 3'"),
        ("phases: [{train: [9]}]", "9 matches no parameter"),
        ("phases: [{train: ['*.pooler.bias']}]", "matches no parameter"),
        ("phases: [{train: [3, 'bert.encoder.layer.2.*']}]", "overlap"),
        ("phases: [{train: head}, {train: all}]", r"phase 1: needs `until:`"),
        ("phases: [{trian: head}]", "needs `train:`"),
        ("phases: [{train: head, untill: 3}]", "Did you mean 'until'"),
        ("phases: [{train: head, until: {epochs: 3}}]", "Did you mean 'epoch'"),
        ("phases: [{train: head, until: {epoch: 3, step: 3}}]", "both"),
        ("phases: [{train: head, until: {step: -3}}]", "above 0"),
        ("phases: [{train: head, until: {early_stop: {patience: 2}}}]", "needs `metric:`"),
        ("phases: [{train: head, until: {early_stop: {metric: f1, patience: 0}}}]", "patience is 0"),
        ("phases: [{train: [true]}]", "give depths, part names"),
        ("phases: [{train: {a: 1}}]", "give depths, part names"),
        ("phases: [{train: [[1, 2]]}]", "give depths, part names"),
        ("phases: [{train: []}]", "give depths, part names"),
        ("phases: [{train: head, until: {epoch: .inf}}]", "above 0"),
        ("phases: [{train: head, until: {epoch: .nan}}]", "above 0"),
        ("phases: [{train: head, until: {step: 2.5}}]", "until step is 2.5"),
        ("phases: [{train: head, until: {early_stop: {metric: f1, patience: true}}}]", "patience is True"),
        ("phases: [{train: head, until: {early_stop: {metric: f1, greater_is_better: 'no'}}}]", "greater_is_better"),
        ("phases: [{train: head, name: [3]}]", "name is"),
        ("phases: [{train: head}]\nphases: [{train: all}]", "'phases' is there twice"),
        ("phases: [{train: head, train: all}]", "'train' is there twice"),
        ("phases: [{train: head}]\nphase: 3", "Did you mean 'phases'"),
        ("phases: []", "at least one phase"),
        ("just text", "needs a list"),
        ("phases: [", "cannot be read"),
        ("phases: !!python/object/apply:os.system [true]", "cannot be read"),
    ],
)
def test_bad_schedules(text, message, layer_map, tmp_path):
    with pytest.raises(ValueError, match=message):
        resolve(text, layer_map, tmp_path)


def test_missing_file(tmp_path):
    with pytest.raises(ValueError, match="cannot be read"):
        read_schedule(tmp_path / "none.yaml")
