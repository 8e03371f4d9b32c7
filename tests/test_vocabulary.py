"""Words, ids, counts; and a file that trusts nothing."""

import numpy as np
import pytest

from fastnplm.errors import SettingsError, TextError, VocabularyError
from fastnplm.text import TextSettings
from fastnplm.vocabulary import Vocabulary


def test_words_by_falling_count_then_code_point():
    counts = {"b": 3, "a": 3, "z": 9, "\U0001f600": 3, "\uffe5": 3, "rare": 1, "<unk>": 2}
    vocabulary = Vocabulary.from_counts(counts, min_count=2, sentences=4)
    assert vocabulary.words == ["<unk>", "<s>", "</s>", "z", "a", "b", "\uffe5", "\U0001f600"]
    assert vocabulary.counts.tolist() == [3, 0, 4, 9, 3, 3, 3, 3]
    assert vocabulary.counts.dtype == np.int64
    assert (vocabulary.unk_id, vocabulary.start_id, vocabulary.end_id) == (0, 1, 2)


def test_max_vocab_counts_every_id():
    vocabulary = Vocabulary.from_counts({"a": 5, "b": 4, "c": 3}, min_count=1, max_vocab=5)
    assert vocabulary.words[3:] == ["a", "b"]
    assert vocabulary.counts[0] == 3


def test_lookup():
    vocabulary = Vocabulary.from_counts({"我": 3, "今天": 3})
    assert vocabulary["今天"] == 3
    assert vocabulary["明天"] == 0
    assert "我" in vocabulary
    assert "明天" not in vocabulary
    ids = vocabulary.encode("我 明天\r\n")
    assert ids.dtype == np.int32
    assert ids.tolist() == [4, 0]
    assert vocabulary.encode(["我", "今天"]).tolist() == [4, 3]
    assert vocabulary.encode("").tolist() == []


def test_a_vocabulary_by_hand_without_unk():
    vocabulary = Vocabulary.from_words(["<s>", "我", "想", "</s>"])
    assert (vocabulary.unk_id, vocabulary.start_id, vocabulary.end_id) == (None, 0, 3)
    assert vocabulary.counts.tolist() == [0, 0, 0, 0]
    with pytest.raises(VocabularyError, match="the word '你' is not among the 4"):
        vocabulary["你"]
    with pytest.raises(VocabularyError, match="no <unk>"):
        vocabulary.encode("我 你")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["<s>", "a"], "there is no </s>"),
        (["<s>", "</s>", "a", "a"], "'a' occurs twice"),
        (["<s>", "</s>", ""], "'' is not one word"),
        (["<s>", "</s>", "New York"], "'New York' is not one word"),
        (["<s>", "</s>", "a\0b"], "is not one word"),
        (["<s>", "</s>", "a\nb"], "is not one word"),
        (["<s>", "</s>", "\ud800"], "surrogate"),
        (["<s>", "</s>", 3], "must be strings"),
    ],
)
def test_words_that_cannot_be(words, message):
    with pytest.raises(VocabularyError, match=message):
        Vocabulary.from_words(words)


@pytest.mark.parametrize("counts", [[1, 2], [1, 2, -3], [1, 2, 3.5], [[1, 2, 3]], [1, 2, 2**63]])
def test_counts_that_cannot_be(counts):
    with pytest.raises(VocabularyError):
        Vocabulary.from_words(["<s>", "</s>", "a"], counts)


def test_reserved_words_in_a_sentence():
    vocabulary = Vocabulary.from_counts({"a": 3})
    with pytest.raises(TextError, match="sentence: the text holds </s>"):
        vocabulary.encode("a </s>")
    lenient = Vocabulary(vocabulary.words, None, TextSettings(reserved="map"))
    assert lenient.encode("<s> a </s> <unk>").tolist() == [1, 3, 2, 0]
    dropping = Vocabulary(vocabulary.words, None, TextSettings(reserved="whitespace"))
    assert dropping.encode("<s> a </s>").tolist() == [3]
    with pytest.raises(TextError, match="one line"):
        vocabulary.encode("a\na")


def test_fingerprint_is_words_and_splitting():
    words = ["<unk>", "<s>", "</s>", "a", "b"]
    fingerprint = Vocabulary.from_words(words).fingerprint
    assert Vocabulary.from_words(words, [1, 2, 3, 4, 5]).fingerprint == fingerprint
    same = TextSettings(encoding="latin-1", errors="replace", reserved="map")
    assert Vocabulary.from_words(words, None, same).fingerprint == fingerprint
    assert Vocabulary.from_words(words, None, TextSettings(lowercase=True)).fingerprint != (
        fingerprint
    )
    assert Vocabulary.from_words([*words[:3], "b", "a"]).fingerprint != fingerprint
    assert Vocabulary.from_words([*words[:3], "ab"]).fingerprint != fingerprint


def test_limits():
    with pytest.raises(SettingsError, match="min_count=0"):
        Vocabulary.from_counts({"a": 3}, min_count=0)
    with pytest.raises(SettingsError, match="max_vocab=3"):
        Vocabulary.from_counts({"a": 3}, max_vocab=3)
    with pytest.raises(VocabularyError, match=r"min_count 3 removes every word.* 2 .* 2 times"):
        Vocabulary.from_counts({"a": 2, "b": 1, "<unk>": 9})


@pytest.fixture
def saved(tmp_path):
    settings = TextSettings(lowercase=True, normalize="NFC")
    vocabulary = Vocabulary.from_counts({"naïve": 5, "東京": 4, "\x1c": 3}, settings=settings)
    vocabulary.save(tmp_path / "vocabulary.tsv")
    return vocabulary, tmp_path / "vocabulary.tsv"


def test_save_and_load(saved, tmp_path):
    vocabulary, path = saved
    loaded = Vocabulary.load(path)
    assert loaded == vocabulary
    assert loaded.words == vocabulary.words
    assert loaded.settings == vocabulary.settings
    assert [entry.name for entry in tmp_path.iterdir()] == ["vocabulary.tsv"]
    lines = path.read_text(encoding="utf-8").split("\n")
    assert lines[0].startswith("<unk>\t0\t{")
    assert lines[3] == "naïve\t5"


def test_every_damage_is_noticed(saved):
    _, path = saved
    whole = path.read_bytes()
    damaged = [whole[:length] for length in range(len(whole))]
    for bit in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        damaged.append(bytes(flipped))
    for data in damaged:
        path.write_bytes(data)
        with pytest.raises(VocabularyError):
            Vocabulary.load(path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"<s>\t0\n</s>\t0\nword\n", ":3: expected a word, a tab and its count"),
        (b"<s>\t0\n</s>\t0\nword\t-1\n", ":3: expected"),
        (b"<s>\t0\n</s>\t0\nword\t\xd9\xa3\n", ":3: expected"),
        (b"<s>\t0\n</s>\t0\nw\xff\t1\n", ":3: not UTF-8"),
        (b"<s>\t0\n</s>\t0\nw\t9999999999999999999\n", "below 2"),
        (b"<s>\t0\n</s>\t0\nw\t1", "no end"),
        (b"<s>\t0\t{}\n</s>\t0\n", "third field"),
        (b"", "no end"),
    ],
)
def test_files_that_are_not_vocabularies(tmp_path, data, message):
    path = tmp_path / "vocabulary.tsv"
    path.write_bytes(data)
    with pytest.raises(VocabularyError, match=message):
        Vocabulary.load(path)


def test_a_vocabulary_file_by_hand(tmp_path):
    path = tmp_path / "vocabulary.tsv"
    path.write_bytes(b"<s>\t0\nword\t7\n</s>\t2\n")
    assert Vocabulary.load(path).words == ["<s>", "word", "</s>"]
    with pytest.raises(VocabularyError, match="cannot be read"):
        Vocabulary.load(tmp_path / "missing.tsv")
