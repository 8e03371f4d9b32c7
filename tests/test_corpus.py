"""Text encoded, stored, opened again; and every reason to refuse a folder."""

import builtins
import bz2
import collections
import gzip
import json
import lzma
import os
import re
import unicodedata

import numpy as np
import pytest

import fastnplm
from fastnplm.corpus import Corpus, require_same_vocabulary
from fastnplm.errors import CorpusError, SettingsError, TextError, VocabularyError
from fastnplm.header import Header
from fastnplm.preparation import Preparation
from fastnplm.text import TextSettings
from fastnplm.vocabulary import Vocabulary

TEXT = "the fox\nthe hen\n\nthe\tfox ran\n"


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.fixture
def folder(text, tmp_path):
    Corpus.prepare(text, out=tmp_path / "corpus", min_count=1).close()
    return tmp_path / "corpus"


def naive(data, segment="space", lowercase=False, normalize=None):
    """Sentences of a text by the plainest means."""
    text = data.decode().removeprefix("\ufeff")
    text = unicodedata.normalize(normalize, text) if normalize else text
    text = text.lower() if lowercase else text
    words = r"[^\0\t\n\v\f\r ]+" if segment == "space" else r"[^\0\s]"
    sentences = [re.findall(words, line) for line in text.split("\n")]
    return [sentence for sentence in sentences if sentence]


def spelled(corpus):
    """The sentences of a corpus, from its ids."""
    ends = np.flatnonzero(corpus.tokens == corpus.vocabulary.end_id) + 1
    words = corpus.vocabulary.words
    return [[words[id] for id in part[:-1]] for part in np.split(corpus.tokens, ends)[:-1]]


def test_ids_and_counts(folder):
    with Corpus.open(folder) as corpus:
        assert corpus.vocabulary.words == ["<unk>", "<s>", "</s>", "the", "fox", "hen", "ran"]
        assert corpus.vocabulary.counts.tolist() == [0, 0, 3, 3, 2, 1, 1]
        assert corpus.tokens.tolist() == [3, 4, 2, 3, 5, 2, 3, 4, 6, 2]
        assert corpus.tokens.dtype == np.uint16
        assert (len(corpus), corpus.sentences, corpus.oov) == (10, 3, 0)
        report = corpus.report
        assert (report.lines, report.blank_lines, report.words, report.types) == (4, 1, 7, 4)
        corpus.verify()


def test_files_of_a_folder(folder):
    assert sorted(entry.name for entry in folder.iterdir()) == [
        "corpus.json",
        "tokens.bin",
        "vocabulary.tsv",
    ]
    assert (folder / "tokens.bin").read_bytes()[:6] == b"\x03\0\x04\0\x02\0"
    page = json.loads((folder / "corpus.json").read_text(encoding="utf-8"))
    assert page["tokens"] == 10
    assert page["made_with"]["min_count"] == 1


def test_rare_words_are_unknown(text):
    with Corpus.prepare(text, min_count=2) as corpus:
        assert corpus.vocabulary.words[3:] == ["the", "fox"]
        assert corpus.vocabulary.counts.tolist() == [2, 0, 3, 3, 2]
        assert corpus.oov == 2


def test_a_given_vocabulary(text):
    vocabulary = Vocabulary.from_words(["<s>", "fox", "the", "<unk>", "</s>"])
    with Corpus.prepare(text, vocabulary=vocabulary) as corpus:
        assert corpus.tokens.tolist() == [2, 1, 4, 2, 3, 4, 2, 1, 3, 4]
        assert corpus.oov == 2
        require_same_vocabulary(corpus, vocabulary)
    without = Vocabulary.from_words(["<s>", "fox", "the", "</s>"])
    with pytest.raises(VocabularyError, match=r"text\.txt:2: the word 'hen' is not in the voc"):
        Corpus.prepare(text, vocabulary=without)


def test_a_vocabulary_brings_its_text_settings(tmp_path):
    with Corpus.prepare(["The THE fox"], min_count=1, lowercase=True) as corpus:
        vocabulary = corpus.vocabulary
    with Corpus.prepare(["tHe FOX"], vocabulary=vocabulary) as corpus:
        assert corpus.tokens.tolist() == [3, 4, 2]
    with pytest.raises(SettingsError, match="cannot be split"):
        Corpus.prepare(["the"], vocabulary=vocabulary, normalize="NFC")
    with Corpus.prepare(["the </s>"], vocabulary=vocabulary, reserved="whitespace") as corpus:
        assert corpus.tokens.tolist() == [3, 2]


def test_large_vocabularies_take_int32():
    words = [f"w{number}" for number in range(65_536 - 3)]
    with Corpus.prepare([words], min_count=1) as corpus:
        assert corpus.tokens.dtype == np.uint16
    with Corpus.prepare([[*words, "one-more"]], min_count=1) as corpus:
        assert corpus.tokens.dtype == np.int32
        assert sorted(corpus.tokens[:-1]) == list(range(3, 65_537))


@pytest.mark.parametrize("block_bytes", [1, 2, 3, 5, 17, 1 << 20])
def test_ids_do_not_depend_on_blocks_compression_or_files(tmp_path, block_bytes):
    data = b"a b\n \n\n c aaaaaaaaaaaaaaa \t b\n" + b" x y" * 9 + b"   \n\n\nlast a"
    (tmp_path / "whole.txt").write_bytes(data)
    for pack in (gzip, bz2, lzma):
        (tmp_path / pack.__name__).write_bytes(pack.compress(data))
    cut = data.index(b" c")
    (tmp_path / "1").write_bytes(data[:cut])
    (tmp_path / "2").write_bytes(data[cut:])
    expected = naive(data)
    streams = []
    ways = (["whole.txt"], ["gzip"], ["bz2"], ["lzma"], ["1", "2"])
    for number, files in enumerate(ways):
        out, _ = Preparation(TextSettings(), min_count=1, block_bytes=block_bytes).run(
            *[tmp_path / name for name in files], out=tmp_path / f"corpus{number}"
        )
        with Corpus.open(out) as corpus:
            assert spelled(corpus) == expected
            assert corpus.sentences == len(expected)
            assert corpus.report.words == sum(map(len, expected))
            assert (corpus.report.lines, corpus.report.blank_lines) == (8, 4)
            assert corpus.vocabulary.counts[2] == len(expected)
            streams.append(corpus.tokens.tolist())
    assert all(stream == streams[0] for stream in streams)


@pytest.mark.parametrize(
    "choice", [{}, {"lowercase": True}, {"normalize": "NFKC"}, {"segment": "char"}]
)
@pytest.mark.corpus
@pytest.mark.parametrize(
    "name",
    [
        "hebrew-bom.txt",
        "oneline-4096-noeol.txt",
        "emoji-crlf.tsv",
        "mixed-simplified-traditional.tsv",
    ],
)
def test_counts_on_awkward_files(data, name, choice):
    path = data / "awkward" / name
    sentences = naive(path.read_bytes(), **choice)
    counter = collections.Counter(word for sentence in sentences for word in sentence)
    with Corpus.prepare(path, min_count=1, **choice) as corpus:
        counted = zip(corpus.vocabulary.words[3:], corpus.vocabulary.counts[3:], strict=True)
        assert dict(counted) == counter
        assert spelled(corpus) == sentences


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("name", "line", "offset", "encoding"),
    [
        ("firefox-latin1-crlf.txt", 1279, 64_936, "latin-1"),
        ("wine-mixed-encoding.txt", 890, 103_154, "cp1252"),
        ("lee-latin1-noeol.txt", 41, 20_357, "latin-1"),
        ("japanese-sjis.txt", 1, 0, "shift_jis"),
        ("chinese-gb2312.txt", 1, 0, "gb18030"),
        ("subtitle-utf16le-bom.srt", 1, 0, "utf-16"),
    ],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_awkward_files_that_do_not_decode(data, name, line, offset, encoding, threads):
    path = data / "awkward" / name
    where = rf"{re.escape(name)}:{line}: byte 0x\w\w at offset {offset:,} is not UTF-8"
    with pytest.raises(TextError, match=where):
        Corpus.prepare(path, min_count=1, threads=threads)
    sentences = naive(path.read_bytes().decode(encoding, "replace").encode())
    counter = collections.Counter(word for sentence in sentences for word in sentence)
    with Corpus.prepare(
        path, min_count=1, encoding=encoding, errors="replace", threads=threads
    ) as corpus:
        counted = zip(corpus.vocabulary.words[3:], corpus.vocabulary.counts[3:], strict=True)
        assert dict(counted) == counter
        assert spelled(corpus) == sentences


@pytest.mark.corpus
def test_counts_on_brown(data):
    path = data / "brown" / "brown.train.txt.gz"
    with Corpus.prepare(path, min_count=4) as corpus:
        vocabulary = corpus.vocabulary
        expected = (data / "brown" / "brown.vocab.txt").read_text(encoding="utf-8").split()
        assert vocabulary.words == ["<unk>", "<s>", "</s>", *expected[1:]]
        assert (corpus.report.words, corpus.sentences, corpus.oov) == (800_001, 35_523, 46_098)
        assert corpus.report.types == 46_187
    with Corpus.prepare(data / "brown" / "brown.test.txt.gz", vocabulary=vocabulary) as corpus:
        assert (len(corpus), corpus.oov) == (171_322, 14_799)


def test_an_existing_output_is_kept(folder, text):
    before = (folder / "corpus.json").read_bytes()
    with pytest.raises(CorpusError, match="exists already"):
        Corpus.prepare("missing.txt", out=folder)
    with pytest.raises(TextError, match="missing"):
        Corpus.prepare("missing.txt", out=folder, overwrite=True)
    assert (folder / "corpus.json").read_bytes() == before
    Corpus.prepare(text, out=folder, overwrite=True, min_count=2).close()
    assert len(Corpus.open(folder).vocabulary) == 5
    assert sorted(entry.name for entry in folder.parent.iterdir()) == ["corpus", "text.txt"]


def test_a_folder_that_is_no_corpus_is_never_overwritten(text, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work", encoding="utf-8")
    with pytest.raises(CorpusError, match="not a corpus folder"):
        Corpus.prepare(text, out=tmp_path / "mine", overwrite=True)
    with pytest.raises(CorpusError, match="No such file or directory"):
        Corpus.prepare(text, out=tmp_path / "missing" / "corpus")


def test_a_temporary_corpus_goes_with_its_object():
    corpus = Corpus.prepare(["a b"], min_count=1)
    folder = corpus.folder
    assert folder.is_dir()
    del corpus
    assert not folder.exists()


def test_a_read_only_folder_works(folder):
    for path in (*folder.iterdir(), folder):
        os.chmod(path, 0o555)
    try:
        with Corpus.open(folder) as corpus:
            corpus.verify()
            assert not corpus.tokens.flags.writeable
    finally:
        os.chmod(folder, 0o755)


def test_nothing_is_opened_for_writing(folder, monkeypatch):
    """The owner of all files may write whatever their permissions say, so this is asked for."""
    opened, ours = builtins.open, []

    def reading(name, mode="r", *rest, **options):
        if str(name).startswith(str(folder)):
            ours.append(mode)
        return opened(name, mode, *rest, **options)

    monkeypatch.setattr(builtins, "open", reading)
    monkeypatch.setattr("io.open", reading)
    with Corpus.open(folder) as corpus:
        corpus.verify()
        model = fastnplm.NPLM(corpus.vocabulary, context=2, dim=3, hidden=4)
        fastnplm.train(model, corpus, epochs=1, quiet=True)
        with pytest.raises(ValueError, match="read-only"):
            corpus.tokens[0] = 1
    assert "rb" in ours
    assert set(ours) <= {"r", "rb"}


@pytest.mark.parametrize("step", [13, pytest.param(1, marks=pytest.mark.slow)])
def test_every_damage_to_the_header_is_noticed(folder, step):
    path = folder / "corpus.json"
    whole = path.read_bytes()
    for length in range(0, len(whole), step):
        path.write_bytes(whole[:length])
        with pytest.raises(CorpusError):
            Header.read(folder)
    for bit in range(0, 8 * len(whole), step):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        with pytest.raises(CorpusError):
            Header.read(folder)
    with pytest.raises(CorpusError, match=r"corpus\.json is damaged"):
        Corpus.open(folder)


@pytest.mark.parametrize("change", [-1, 1, -20])
def test_a_stream_of_another_length(folder, change):
    os.truncate(folder / "tokens.bin", 20 + change)
    with pytest.raises(CorpusError, match=f"has {20 + change} bytes, but 10 tokens take 20"):
        Corpus.open(folder)


def test_verify_notices_a_flipped_bit(folder):
    path = folder / "tokens.bin"
    data = bytearray(path.read_bytes())
    data[7] ^= 1
    path.write_bytes(data)
    corpus = Corpus.open(folder)
    with pytest.raises(CorpusError, match="checksum"):
        corpus.verify()


def test_another_vocabulary_in_the_folder(folder, tmp_path):
    Vocabulary.from_counts({"the": 3, "fox": 3, "hen": 3, "run": 3}).save(folder / "vocabulary.tsv")
    with pytest.raises(CorpusError, match="not the vocabulary this corpus was encoded with"):
        Corpus.open(folder)
    (folder / "vocabulary.tsv").unlink()
    with pytest.raises(CorpusError, match="cannot be read"):
        Corpus.open(folder)
    with pytest.raises(CorpusError, match="is not a prepared corpus"):
        Corpus.open(tmp_path)


def test_progress_reaches_the_end(text):
    seen = []
    Corpus.prepare(text, min_count=1, progress=lambda *state: seen.append(state)).close()
    assert seen[-1] == (len(TEXT), len(TEXT), 7)
