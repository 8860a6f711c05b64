import datasets
import pytest

from hf_ftstrategies.data.checks import text_key
from hf_ftstrategies.data.corpora import DOMAINS, corpus_names, load_corpus
from hf_ftstrategies.data.registry import REGISTRY


@pytest.fixture
def root(tmp_path):
    """A data root with a set of single texts (train, unsupervised, test) and one of pairs."""
    splits = {
        "imdb": {
            "train": {"text": ["good film", "bad  film<br />", "so\nso", ""], "label": [1, 0, 0, 1]},
            "test": {"text": ["bad film<br/>", "so so"], "label": [0, 1]},
            "unsupervised": {"text": ["no label"]},
        },
        "mrpc": {"train": {"sentence1": ["A.", "C."], "sentence2": ["B.", "D."], "label": [0, 1]}},
    }
    for name, parts in splits.items():
        (tmp_path / name).mkdir()
        for split, columns in parts.items():
            datasets.Dataset.from_dict(columns).to_parquet(tmp_path / name / f"{split}.parquet")
    return tmp_path


@pytest.mark.parametrize(
    ("choice", "dataset", "names"),
    [
        ("within_task", "bbc_news", ("bbc_news",)),
        ("in_domain", "trec", ("trec", "yahoo_answers")),
        ("in_domain", "yelp_full", ("yelp_full", "imdb", "yelp_polarity")),
        ("imdb, own/texts.csv,imdb", "trec", ("imdb", "own/texts.csv")),
        ("ag_news,trec", "trec", ("trec", "ag_news")),
    ],
)
def test_names(choice, dataset, names):
    assert corpus_names(choice, dataset) == names


def test_cross_domain_is_the_seven_english_sets():
    names = corpus_names("cross_domain", "ag_news")
    assert names[0] == "ag_news"
    assert len(names) == 7
    assert set(names) == {name for domain in DOMAINS.values() for name in domain} <= set(REGISTRY)


@pytest.mark.parametrize(
    ("choice", "dataset", "message"),
    [
        ("in_domain", "cola", "No domain is known for 'cola'; the domains are sentiment"),
        ("within_tsak", "imdb", "Did you mean 'within_task'"),
        ("cross-domain", "imdb", "Did you mean 'cross_domain'"),
    ],
)
def test_unknown_choices(choice, dataset, message):
    with pytest.raises(ValueError, match=message):
        corpus_names(choice, dataset)


def test_documents_of_single_texts_and_pairs(root):
    splits = {"imdb": ["train", "unsupervised"], "mrpc": ["train"]}
    documents, parts = load_corpus(["imdb", "mrpc"], data_root=root, splits=splits)
    texts = ["good film", "bad  film<br />", "so\nso", "no label", "A.\n\nB.", "C.\n\nD."]
    assert documents.column_names == ["text"]
    assert documents["text"][:] == texts
    assert [part.to_dict() for part in parts] == [
        {"name": "imdb", "splits": ["train", "unsupervised"], "documents": 4, "left_out": 0},
        {"name": "mrpc", "splits": ["train"], "documents": 2, "left_out": 0},
    ]


def test_texts_of_the_evaluation_stay_out_however_their_lines_break(root):
    documents, (part,) = load_corpus(
        ["imdb"], data_root=root, splits={"imdb": ["train"]}, without=["bad film<br/>", "so so"]
    )
    assert documents["text"][:] == ["good film"]
    assert (part.documents, part.left_out) == (1, 2)
    assert text_key("bad  film<br />") == text_key("bad film<br/>")


def test_rows_are_a_seeded_draw_from_each_set(root):
    def draw(rows, seed):
        splits = {"imdb": ["train"], "mrpc": ["train"]}
        return load_corpus(["imdb", "mrpc"], data_root=root, splits=splits, rows=rows, seed=seed)[0]["text"][:]

    whole = draw(None, 0)
    assert len(draw(1, 0)) == 2
    assert draw(2, 3) == draw(2, 3)
    assert set(draw(2, 3)) < set(whole)
    assert len({tuple(draw(1, seed)) for seed in range(8)}) > 1


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        (["imdb"], {"splits": {"imdb": ["validation"]}}, "has no split 'validation'; it has train, test, unsupervised"),
        (["imdb"], {"splits": {"imdb": ["test"]}, "without": ["badfilm<br/>", "soso"]}, "has no text for further"),
        (["imbd"], {"splits": {"imbd": ["train"]}}, "Did you mean 'imdb'"),
    ],
)
def test_what_cannot_be_read(root, names, options, message):
    with pytest.raises(ValueError, match=message):
        load_corpus(names, data_root=root, **options)


def test_own_column(tmp_path):
    (tmp_path / "own.csv").write_text("review,stars\nOne.,1\nTwo.,2\n")
    name = str(tmp_path / "own.csv")
    documents, _ = load_corpus([name], splits={name: ["train"]}, text_columns={name: ("review", None)})
    assert documents["text"][:] == ["One.", "Two."]
    with pytest.raises(ValueError, match=r"no column 'reviews'\. Did you mean 'review'"):
        load_corpus([name], splits={name: ["train"]}, text_columns={name: ("reviews", None)})
