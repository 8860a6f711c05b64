"""Texts cut into sentences, the units of which next-sentence examples are made.

Paper: Sun et al. 2019, "How to Fine-Tune BERT for Text Classification?", section 5.4; in their code English sentences
come from spaCy, and Chinese texts are split at 。？！.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from hf_ftstrategies.data.truncation import _content_ids
from hf_ftstrategies.suggest import did_you_mean

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc
    from transformers import PreTrainedTokenizerBase

LANGUAGES = ("en", "zh", "ko")
PIECE = 100_000  # characters that spaCy gets at once; its memory grows with them
VOCABULARY = 500_000  # words after which the pipeline is made anew

_HTML_OR_BLANK_LINE = re.compile(r"<br\s*/?>|\n\s*\n", re.IGNORECASE)
_HTML_OR_NEWLINE = re.compile(r"<br\s*/?>|\n", re.IGNORECASE)
_OPENED_AT_THE_END = re.compile(r"""\s["'“‘(\[]+$""")
_CLOSING = "”’」』）】》〉〕)]}"
_STRAIGHT = "\"'"
# Ends of sentences; those of the group `spaced` only where a space or the end of the paragraph follows.
_CHINESE = re.compile(
    r"""(?:[。｡？！…⋯]
        |(?<![0-9A-Za-z])[?!] | [?!](?![0-9A-Za-z])   # not inside a web address
        |\.{2,} | (?<=[^\x00-\x7f])\.(?!\d) | ．(?!\d)  # not inside a number
        )+
        |(?P<spaced>\.)""",
    re.VERBOSE,
)
# Only endings that end nothing but a sentence: 다 alone is also "all", 요 ends 필요 and 중요.
_KOREAN = re.compile(
    r"""[.?!]*[…⋯。？！][.?!…⋯。？！]*
        |(?P<spaced>[.?!]+ | (?:니다|습니까|세요|어요|아요|해요|예요|에요|네요|군요|까요|든요|죠))""",
    re.VERBOSE,
)


def split_sentences(
    texts: Sequence[str], language: str = "en", spacy_model: str | None = None, batch_size: int = 256
) -> list[list[str]]:
    """Cut texts into sentences.

    An HTML break (`<br />`, as in IMDb) and a blank line always end a sentence, in Chinese and Korean every
    newline does. Space around a sentence is dropped, and so are empty sentences. Beyond that:

    - `"en"`: spaCy's tokenizer and rule-based `sentencizer` (. ! ? and what closes a quotation). It downloads
      nothing and knows no abbreviations: "Dr. No" is cut after "Dr.".
    - `"zh"`: after 。？！, their ASCII and half-width forms and an ellipsis, with the closing quotes that follow;
      a dot inside a number or a Latin word ends nothing.
    - `"ko"`: after . ? ! and the most certain sentence endings (습니다, 어요, 네요, ...) where a space follows, and
      after an ellipsis; 3.5 and a leading "1." end nothing.

    Args:
        texts (`Sequence[str]`): The texts, of any length.
        language (`str`, *optional*, defaults to `"en"`): `"en"`, `"zh"` or `"ko"`.
        spacy_model (`str`, *optional*): Name of an installed spaCy pipeline (`"en_core_web_sm"`) or its folder,
            to be used instead of the rules. Only its component that sets sentence boundaries runs: its own
            `sentencizer` or `senter` if it has one, else its parser.
        batch_size (`int`, *optional*, defaults to 256): Number of paragraphs that spaCy works on at once.

    Returns:
        `list[list[str]]`: The sentences of each text; none for an empty one.

    Raises:
        ValueError: Unknown language, a single string instead of several, a pipeline that is not installed or sets
            no sentence boundaries.

    Paper: Sun et al. 2019, section 5.4.
    Differs: the paper's code uses spaCy's `en_core_web_md`; that is `spacy_model="en_core_web_md"` here. spaCy gets
    a paragraph of more than 100,000 characters in pieces, cut after a . ! or ? or else at a space.
    """
    if isinstance(texts, str):
        raise ValueError(f"texts is a single string, {texts[:40]!r}: give a list of texts.")
    if language not in LANGUAGES:
        raise ValueError(
            f"Unknown language {language!r}.{did_you_mean(str(language), LANGUAGES)} Known: {', '.join(LANGUAGES)}."
        )
    breaks = _HTML_OR_BLANK_LINE if language == "en" else _HTML_OR_NEWLINE
    paragraphs = [[part for part in breaks.split(text) if part.strip()] for text in texts]
    if language == "en" or spacy_model is not None:
        return _spacy_sentences(paragraphs, spacy_model, batch_size)
    ends = _CHINESE if language == "zh" else _KOREAN
    return [[sentence for part in parts for sentence in _rule_sentences(part, ends)] for parts in paragraphs]


def sentence_ids(
    batch: Mapping[str, Sequence],
    tokenizer: PreTrainedTokenizerBase,
    language: str = "en",
    spacy_model: str | None = None,
    text_column: str | Sequence[str] = "text",
) -> dict[str, list]:
    """Cut a batch of texts into tokenised sentences, for `datasets.map(batched=True)`.

    Args:
        batch (`Mapping[str, Sequence]`): Rows with their texts.
        tokenizer (`PreTrainedTokenizerBase`): The model's tokenizer.
        language (`str`, *optional*, defaults to `"en"`), spacy_model (`str`, *optional*): As in `split_sentences`.
        text_column (`str` or `Sequence[str]`, *optional*, defaults to `"text"`): The text to split. Several columns
            (`sentence1` and `sentence2` of a pair) are not split: each is one sentence of the row's document.

    Returns:
        `dict[str, list]`: `sentences`: for each row a list of lists of token ids, without special tokens.

    Raises:
        ValueError: As `split_sentences`.
    """
    if isinstance(text_column, str):
        documents = split_sentences(batch[text_column], language, spacy_model)
    else:
        documents = list(zip(*(batch[column] for column in text_column), strict=True))
    flat = [sentence for sentences in documents for sentence in sentences]
    ids = iter(_content_ids(tokenizer, flat) if flat else [])
    return {"sentences": [[next(ids) for _ in sentences] for sentences in documents]}


def _rule_sentences(paragraph: str, ends: re.Pattern) -> Iterator[str]:
    start, size = 0, len(paragraph)
    for match in ends.finditer(paragraph):
        stop = match.end()
        while stop < size and _closes(paragraph, start, stop):
            stop += 1
        if match["spaced"]:
            inside = stop < size and not paragraph[stop].isspace()
            numbering = paragraph[start : match.start()].strip().isdigit()
            if inside or numbering:
                continue
        yield paragraph[start:stop].strip()
        start = stop
    if rest := paragraph[start:].strip():
        yield rest


def _closes(paragraph: str, start: int, place: int) -> bool:
    """Whether the character closes a quotation; a straight quote does if the sentence has opened one."""
    quote = paragraph[place]
    return quote in _CLOSING or (quote in _STRAIGHT and paragraph.count(quote, start, place) % 2 == 1)


def _spacy_sentences(paragraphs: list[list[str]], spacy_model: str | None, batch_size: int) -> list[list[str]]:
    nlp = _pipeline(spacy_model)
    sentences = [[] for _ in paragraphs]
    pieces = ((piece, row) for row, parts in enumerate(paragraphs) for part in parts for piece in _pieces(part))
    for document, row in nlp.pipe(pieces, as_tuples=True, batch_size=batch_size):
        sentences[row] += _texts_of(document)
    # A vocabulary keeps every word it has seen; spaCy's memory_zone, made against this, is 3 times slower (3.8.18).
    if len(nlp.vocab) > VOCABULARY:
        _pipeline.cache_clear()
    return sentences


def _texts_of(document: Doc) -> Iterator[str]:
    text, start = document.text, 0
    for sentence in document.sents:
        # To the sentencizer an opening quote or bracket is punctuation that ends the sentence before.
        opened = _OPENED_AT_THE_END.search(text, start, sentence.end_char)
        stop = opened.start() if opened and sentence.end < len(document) else sentence.end_char
        if kept := text[start:stop].strip():
            yield kept
        start = stop


def _pieces(paragraph: str) -> Iterator[str]:
    start = 0
    while len(paragraph) - start > PIECE:
        window = start + 1, start + PIECE
        end = max(paragraph.rfind(mark, *window) for mark in (". ", "! ", "? "))
        space = end + 1 if end > 0 else paragraph.rfind(" ", *window)
        stop = space if space > 0 else start + PIECE
        yield paragraph[start:stop]
        start = stop
    yield paragraph[start:]


@lru_cache(maxsize=4)
def _pipeline(spacy_model: str | None) -> Language:
    import spacy

    if spacy_model is None:
        nlp = spacy.blank("en")
        nlp.add_pipe("sentencizer")
        return nlp
    try:
        nlp = spacy.load(spacy_model)
    except OSError as error:
        raise ValueError(
            f"The spaCy pipeline {spacy_model!r} is neither installed nor a folder. Install it (python -m spacy "
            f"download {spacy_model}), or leave spacy_model out to split by rules."
        ) from error
    setters = [name for name in nlp.component_names if "token.is_sent_start" in nlp.get_pipe_meta(name).assigns]
    if not setters:
        raise ValueError(
            f"The spaCy pipeline {spacy_model!r} sets no sentence boundaries; it has {', '.join(nlp.component_names)}. "
            "Give one with a sentencizer, a senter or a parser."
        )
    # A parser does much more than is asked here, so it comes last.
    chosen = min(setters, key=lambda name: nlp.get_pipe_meta(name).factory == "parser")
    listened_to = [name for name, pipe in nlp.components if chosen in getattr(pipe, "listening_components", ())]
    enabled = {*listened_to, chosen}
    for name in nlp.component_names:
        (nlp.enable_pipe if name in enabled else nlp.disable_pipe)(name)
    return nlp
