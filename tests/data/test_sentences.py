"""Sentences: where they end in each language, with rules and with a spaCy pipeline of one's own."""

import re

import pytest

from hf_ftstrategies.data import sentences as module
from hf_ftstrategies.data.sentences import sentence_ids, split_sentences
from tests.data.tiny import bert

CASES = {
    "en": [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ("It cost 3.50 dollars.  It was e.g. bad.", ["It cost 3.50 dollars.", "It was e.g. bad."]),
        ("Good.<br /><br />No end<br>here<BR/>.", ["Good.", "No end", "here", "."]),
        ("A title\n\nhard\nwrapped lines. \r\n \r\nEnd", ["A title", "hard\nwrapped lines.", "End"]),
        ('He left. "Really?" (Yes.) "No!"', ["He left.", '"Really?"', "(Yes.)", '"No!"']),
        ('He left. "', ['He left. "']),
        ("", []),
        (" \n\n <br /> ", []),
    ],
    "zh": [
        ("你好。真的吗？太好了！走吧", ["你好。", "真的吗？", "太好了！", "走吧"]),
        ("他说：“你好！”然后走了。", ["他说：“你好！”", "然后走了。"]),
        ('他说"走吧!"就走了.好的?"走"', ['他说"走吧!"', "就走了.", "好的?", '"走"']),
        ("什么？！嗯……（完。）后来｡", ["什么？！", "嗯……", "（完。）", "后来｡"]),
        ("价格是3.5元，见www.a.com?b=1。A.B公司", ["价格是3.5元，见www.a.com?b=1。", "A.B公司"]),
        ("OK. 好...走\n标题<br />正文", ["OK.", "好...", "走", "标题", "正文"]),
        (" \n", []),
    ],
    "ko": [
        ("재미있다. 정말? 네! 끝", ["재미있다.", "정말?", "네!", "끝"]),
        ("평점 3.5점. 정말?!대박", ["평점 3.5점.", "정말?!대박"]),
        ("재밌어요 또 볼게요. 좋습니다 최고네요", ["재밌어요", "또 볼게요.", "좋습니다", "최고네요"]),
        ("필요 없다 다 봤다", ["필요 없다 다 봤다"]),
        ("글쎄…모르겠다.. 음악", ["글쎄…", "모르겠다..", "음악"]),
        ('"가자." 그가 말했다.\n끝', ['"가자."', "그가 말했다.", "끝"]),
        ("1. 배우가 좋다. 2. 음악", ["1. 배우가 좋다.", "2. 음악"]),
    ],
}


@pytest.mark.parametrize("language", CASES)
def test_where_sentences_end(language):
    texts, expected = zip(*CASES[language])
    assert split_sentences(texts, language) == list(expected)
    assert split_sentences(texts, language, batch_size=1) == list(expected)


@pytest.mark.parametrize("language", CASES)
def test_nothing_but_space_and_breaks_is_lost(language):
    for text, sentences in CASES[language]:
        whole = re.sub(r"<br\s*/?>|\s", "", text, flags=re.IGNORECASE)
        assert re.sub(r"\s", "", "".join(sentences)) == whole
        assert all(sentence and sentence == sentence.strip() for sentence in sentences)


def test_a_text_beyond_the_limit_of_spacy():
    import spacy

    text = "What a long review. " * 60_000
    assert len(text) > spacy.blank("en").max_length
    assert split_sentences([text, "Short."]) == [["What a long review."] * 60_000, ["Short."]]
    words = "word " * 30_000
    assert "".join(split_sentences([words])[0]).replace(" ", "") == words.replace(" ", "")


def test_the_vocabulary_is_forgotten_when_it_is_full(monkeypatch):
    monkeypatch.setattr(module, "VOCABULARY", 0)
    split_sentences(["One word."])
    assert module._pipeline.cache_info().currsize == 0
    assert split_sentences(["Another word. Two."]) == [["Another word.", "Two."]]


@pytest.fixture
def pipeline():
    """A pipeline that tags, finds entities and, with its own marks, sentences."""
    import spacy

    nlp = spacy.blank("en")
    nlp.add_pipe("entity_ruler").add_patterns([{"label": "THING", "pattern": "a"}])
    nlp.add_pipe("sentencizer", config={"punct_chars": ["|"]})
    nlp.add_pipe("attribute_ruler")
    yield nlp
    module._pipeline.cache_clear()


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_pipeline_of_ones_own(pipeline, tmp_path, language):
    pipeline.to_disk(tmp_path)
    assert split_sentences(["a. b | c"], language, spacy_model=str(tmp_path)) == [["a. b |", "c"]]
    assert module._pipeline(str(tmp_path)).pipe_names == ["sentencizer"]


def test_a_trained_component_runs_with_what_it_listens_to(tmp_path):
    import spacy
    from spacy.training import Example

    nlp = spacy.blank("en")
    shared = {"@architectures": "spacy.Tok2VecListener.v1", "width": 96, "upstream": "tok2vec"}
    tagger = {"@architectures": "spacy.Tagger.v2", "tok2vec": shared}
    nlp.add_pipe("tok2vec")
    nlp.add_pipe("tagger").add_label("X")
    nlp.add_pipe("parser").add_label("dep")
    nlp.add_pipe("senter", config={"model": tagger})
    starts = {"sent_starts": [1, 0, 1, 0], "tags": ["X"] * 4, "heads": [0, 0, 2, 2], "deps": ["dep"] * 4}
    examples = [Example.from_dict(nlp.make_doc("one two three four"), starts)]
    optimizer = nlp.initialize(lambda: examples)
    for _ in range(20):
        nlp.update(examples, sgd=optimizer)
    nlp.to_disk(tmp_path)
    assert split_sentences(["one two three four"], spacy_model=str(tmp_path)) == [["one two", "three four"]]
    assert module._pipeline(str(tmp_path)).pipe_names == ["tok2vec", "senter"]
    module._pipeline.cache_clear()


def test_sentences_become_token_ids_inside_map():
    from datasets import Dataset

    rows = Dataset.from_dict({"text": ["w1 w2. w3", "", "w4"], "more": ["w5", "w6 w7. w8", ""]})
    words = bert().get_vocab()

    def ids(*sentences):
        return [[words.get(word, 0) for word in sentence.split()] for sentence in sentences]

    one = rows.map(sentence_ids, batched=True, fn_kwargs={"tokenizer": bert()}, remove_columns=rows.column_names)
    assert one["sentences"][:] == [ids("w1 w2.", "w3"), [], ids("w4")]
    pair = sentence_ids(rows[:], bert(), text_column=("text", "more"))
    assert pair == {"sentences": [ids("w1 w2. w3", "w5"), ids("", "w6 w7. w8"), ids("w4", "")]}
    assert sentence_ids({"text": [""]}, bert()) == {"sentences": [[]]}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda folder: split_sentences(["a"], "En"), r"Unknown language 'En'. Did you mean 'en'\? Known: en, zh, ko"),
        (lambda folder: split_sentences("One text."), "texts is a single string, 'One text.': give a list"),
        (
            lambda folder: split_sentences(["a"], spacy_model="en_none_sm"),
            "'en_none_sm' is neither installed nor a folder. .*python -m spacy download en_none_sm",
        ),
        (
            lambda folder: split_sentences(["a"], spacy_model=str(folder)),
            "sets no sentence boundaries; it has entity_ruler, attribute_ruler. Give one with a sentencizer",
        ),
    ],
)
def test_bad_arguments(pipeline, tmp_path, call, message):
    pipeline.remove_pipe("sentencizer")
    pipeline.to_disk(tmp_path)
    with pytest.raises(ValueError, match=message):
        call(tmp_path)
