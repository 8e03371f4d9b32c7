"""Cases from the field about text, vocabulary and corpus, each with its right answer."""

import os
import pickle
import subprocess
import sys
import threading
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from sparse import sparse_corpus

from fastnplm.batches import Epoch, epoch_of
from fastnplm.corpus import Corpus, require_same_vocabulary
from fastnplm.errors import CorpusError, Error, TextError, VocabularyError
from fastnplm.header import Header
from fastnplm.text import TextSettings, read_sentences
from fastnplm.vocabulary import Vocabulary


@pytest.fixture
def c(tmp_path):
    path = tmp_path / "c.txt"

    def write(*parts):
        path.write_bytes(b"".join(p.encode() if isinstance(p, str) else p for p in parts))
        return path

    return write


def counts(corpus):
    vocabulary = corpus.vocabulary
    return dict(zip(vocabulary.words[3:], vocabulary.counts[3:].tolist(), strict=True))


def test_fc_01_a_mark_is_not_part_of_the_first_word(c):
    path = c(b"\xef\xbb\xbf", "red fox\nred hen\n")
    with Corpus.prepare(path, min_count=1) as corpus:
        assert counts(corpus) == {"red": 2, "fox": 1, "hen": 1}
        assert corpus.tokens[0] == corpus.tokens[3]
    with Corpus.prepare(c("red \ufefffox\n"), min_count=1) as corpus:
        assert "\ufefffox" in corpus.vocabulary


def test_fc_02_invalid_utf8_is_located(c):
    path = c("one two\nthree ", b"\xc3\x28", " four\nfive\n")
    with pytest.raises(TextError, match=r"c\.txt:2: byte 0xc3 at offset 14 is not UTF-8"):
        Corpus.prepare(path, min_count=1)
    with Corpus.prepare(path, min_count=1, errors="replace") as corpus:
        assert "\ufffd(" in corpus.vocabulary
        assert (corpus.report.replaced_bytes, corpus.report.replaced_lines) == (1, 1)
        vocabulary = corpus.vocabulary
    # The policy is part of the vocabulary, so every later stage applies it.
    with Corpus.prepare(path, vocabulary=vocabulary) as corpus:
        assert corpus.oov == 0
    assert list(read_sentences(path, settings=vocabulary.settings))[1] == [
        "three",
        "\ufffd(",
        "four",
    ]


def test_fc_03_the_locale_does_not_matter(c, tmp_path):
    path = c("naïve Straße 東京 naïve\n")
    program = (
        "import sys; from fastnplm.corpus import Corpus\n"
        "c = Corpus.prepare(sys.argv[1], out=sys.argv[2], min_count=1); print(ascii(c))"
    )
    written = []
    for number, changes in enumerate(
        (
            {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
            {"LC_ALL": "C.UTF-8"},
            {"LC_ALL": "en_US.ISO-8859-1", "PYTHONUTF8": "0", "PYTHONIOENCODING": "latin-1"},
        ),
    ):
        out = tmp_path / f"corpus{number}"
        root = str(Path(__file__).parents[1])
        done = subprocess.run(
            [sys.executable, "-c", program, str(path), str(out)],
            env={**os.environ, "PYTHONPATH": root, **changes},
            capture_output=True,
        )
        assert done.returncode == 0, done.stderr.decode("utf-8", "replace")
        written.append({entry.name: entry.read_bytes() for entry in out.iterdir()})
    assert written[0] == written[1] == written[2]


def test_fc_04_crlf_and_lf_are_the_same_corpus(tmp_path):
    (tmp_path / "lf.txt").write_bytes(b"a b\n\nc\n")
    (tmp_path / "crlf.txt").write_bytes(bytes.fromhex("6120620D0A0D0A630D0A"))
    with (
        Corpus.prepare(tmp_path / "lf.txt", min_count=1) as lf,
        Corpus.prepare(tmp_path / "crlf.txt", min_count=1) as crlf,
    ):
        assert lf.vocabulary == crlf.vocabulary
        assert lf.tokens.tolist() == crlf.tokens.tolist() == [3, 4, 2, 5, 2]
        assert lf.report.blank_lines == crlf.report.blank_lines == 1


def test_fc_05_nul_separates(c):
    with Corpus.prepare(c("p q", b"\0", "r s\nt s\n"), min_count=1) as corpus:
        assert counts(corpus) == {"p": 1, "q": 1, "r": 1, "s": 2, "t": 1}
        assert corpus.report.words == 6
        vocabulary = corpus.vocabulary
    assert vocabulary.encode("p\0s").tolist() == [vocabulary["p"], vocabulary["s"]]


def test_fc_06_a_very_long_line_is_used_in_full(c):
    path = c("a b " * 500_000, "z\n")
    tracemalloc.start()
    with Corpus.prepare(path, min_count=1) as corpus:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert (corpus.report.words, corpus.sentences) == (1_000_001, 1)
        assert "z" in corpus.vocabulary
    assert peak < 256 << 20


@pytest.mark.parametrize("text", ["", "\n\n   \n\t\n"])
def test_fc_07_no_tokens(c, tmp_path, text):
    path, out = c(text), tmp_path / "corpus"
    for vocabulary in (None, Vocabulary.from_words(["<unk>", "<s>", "</s>", "a"])):
        start = time.monotonic()
        with pytest.raises(CorpusError, match=r"no tokens: .*c\.txt has no word in \d+ lines"):
            Corpus.prepare(path, out=out, vocabulary=vocabulary, min_count=1)
        assert time.monotonic() - start < 2
    assert [entry.name for entry in tmp_path.iterdir()] == ["c.txt"]


def test_fc_08_the_threshold_removes_every_word(c, tmp_path):
    with pytest.raises(VocabularyError, match=r"min_count 5 .* 3 different words occurs 2 times"):
        Corpus.prepare(c("a b c\nc b a\n"), out=tmp_path / "corpus", min_count=5)
    assert not (tmp_path / "corpus").exists()


def test_fc_09_reserved_symbols_in_the_text(c, tmp_path):
    path = c("<s> a <unk> b </s>\na </s> b\n")
    with pytest.raises(TextError, match=r"c\.txt:1: the text holds <s>"):
        Corpus.prepare(path, out=tmp_path / "corpus", min_count=1)
    assert not (tmp_path / "corpus").exists()
    with Corpus.prepare(path, min_count=1, reserved="whitespace") as corpus:
        assert corpus.vocabulary.words == ["<unk>", "<s>", "</s>", "a", "b"]
        assert corpus.tokens.tolist() == [3, 0, 4, 2, 3, 4, 2]
        assert corpus.vocabulary.counts.tolist() == [1, 0, 2, 2, 2]
        assert (corpus.oov, corpus.report.reserved_words) == (1, 3)
    with Corpus.prepare(path, min_count=1, reserved="map") as corpus:
        assert corpus.vocabulary.words == ["<unk>", "<s>", "</s>", "a", "b"]
        assert corpus.tokens.tolist() == [3, 0, 4, 2, 3, 2, 4, 2]
        assert (corpus.sentences, corpus.report.blank_lines) == (3, 0)
    with pytest.raises(TextError, match=r"c\.txt:2: the text holds <s>"):
        Corpus.prepare(c("a\nb <s> c\n"), min_count=1, reserved="map")


def test_fc_10_composed_and_decomposed(c, tmp_path):
    path = c(bytes.fromhex("636166C3A920780A63616665CC8120780A"))
    composed, decomposed = "caf\xe9", "cafe\u0301"
    with Corpus.prepare(path, min_count=1) as corpus:
        assert counts(corpus) == {"x": 2, composed: 1, decomposed: 1}
        assert corpus.vocabulary[composed] != corpus.vocabulary[decomposed]
    with Corpus.prepare(path, min_count=1, normalize="NFC") as corpus:
        corpus.vocabulary.save(tmp_path / "vocabulary.tsv")
    vocabulary = Vocabulary.load(tmp_path / "vocabulary.tsv")
    assert vocabulary.counts[vocabulary[composed]] == 2
    assert vocabulary[composed] == vocabulary[decomposed] != vocabulary.unk_id
    assert vocabulary.encode(decomposed).tolist() == [vocabulary[composed]]
    assert decomposed in vocabulary


def test_fc_12_another_vocabulary_is_refused(c, tmp_path):
    lines = "".join(f"word{number}\n" for number in range(1000))
    big = Corpus.prepare(c(lines), out=tmp_path / "big", min_count=1)
    small = Corpus.prepare(c("a b c\n"), out=tmp_path / "small", min_count=1)
    with pytest.raises(CorpusError, match=r"big was encoded with another .* of small\.model"):
        require_same_vocabulary(big, small.vocabulary, ("big", "small.model"))
    require_same_vocabulary(big, big.vocabulary)


def test_fc_18_more_than_2_to_the_32_tokens(tmp_path):
    length = 4_294_967_310
    folder = tmp_path / "corpus"
    sparse_corpus(folder, length)
    with Corpus.open(folder) as corpus:
        assert len(corpus) == len(corpus.tokens) == length
        assert corpus.tokens[-10:].tolist() == list(range(1, 11))
        assert corpus.tokens[2**32 :].tolist() == [0, 0, 0, 0, *range(1, 11)]
        batch = next(iter(Epoch(len(corpus), 5, start_batch=length // 5 - 1)))
        assert batch.dtype == np.int64
        assert (batch >= 0).all()
        assert (batch < length).all()
        assert corpus.tokens[batch].shape == (5,)


@pytest.mark.parametrize("text", ["a b c"])
def test_fc_20_corpus_shorter_than_a_context(c, text):
    with Corpus.prepare(c(text), min_count=1) as corpus:
        assert len(corpus) == 4
        assert sorted(next(epoch_of(corpus, 100)).tolist()) == [0, 1, 2, 3]


def test_fc_36_a_one_shot_iterator_is_kept():
    with Corpus.prepare(iter([["a", "b", "c"], ["c", "b", "a"]]), min_count=1) as corpus:
        for epoch in range(5):
            batches = list(epoch_of(corpus, 100_000, epoch=epoch))
            assert [len(batch) for batch in batches] == [8]


def test_fc_45_words_around_buffer_sizes(c, tmp_path):
    lengths = [
        *range(49, 53),
        *range(99, 103),
        *range(254, 259),
        *range(998, 1003),
        *range(1022, 1027),
        *range(4094, 4099),
        *range(65534, 65539),
    ]
    words = ["x" * (length - 3) + f"{place:03d}" for place, length in enumerate(lengths)]
    with Corpus.prepare(c("\n".join(words)), out=tmp_path / "corpus", min_count=1) as corpus:
        assert sorted(corpus.vocabulary.words[3:]) == sorted(words)
        assert [corpus.vocabulary.words[id] for id in corpus.tokens[::2]] == words


def test_fc_46_the_corpus_shrinks_while_mapped(c, tmp_path):
    Corpus.prepare(c("a b c d e f g\n" * 20_000), out=tmp_path / "corpus", min_count=1).close()
    stream = tmp_path / "corpus" / "tokens.bin"
    corpus = Corpus.open(tmp_path / "corpus")
    batches = epoch_of(corpus, 1000)
    next(batches)
    os.truncate(stream, stream.stat().st_size // 2)
    with pytest.raises(CorpusError, match=r"tokens\.bin has 160,000 bytes, but 160,000 tokens"):
        next(batches)
    with pytest.raises(CorpusError, match="cut short"):
        Corpus.open(tmp_path / "corpus")


def test_fc_49_random_damage_to_the_stream_is_found_by_verify(c, tmp_path):
    Corpus.prepare(c("a b c d\n" * 1000), out=tmp_path / "corpus", min_count=1).close()
    stream = tmp_path / "corpus" / "tokens.bin"
    whole = stream.read_bytes()
    random = np.random.default_rng(49)
    for bit in random.integers(0, 8 * len(whole), 200).tolist():
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        stream.write_bytes(flipped)
        with Corpus.open(tmp_path / "corpus") as corpus, pytest.raises(CorpusError):
            corpus.verify()


def test_fc_52_two_runs_side_by_side(tmp_path):
    (tmp_path / "c1.txt").write_text("a b c\n" * 500, encoding="utf-8")
    (tmp_path / "c2.txt").write_text("d e f\n" * 500, encoding="utf-8")

    def run(name, out):
        Corpus.prepare(tmp_path / name, out=tmp_path / out).close()

    threads = [threading.Thread(target=run, args=(f"c{n}.txt", f"side{n}")) for n in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in (1, 2):
        run(f"c{number}.txt", f"alone{number}")
        for entry in (tmp_path / f"alone{number}").iterdir():
            assert entry.read_bytes() == (tmp_path / f"side{number}" / entry.name).read_bytes()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [
        "alone1",
        "alone2",
        "c1.txt",
        "c2.txt",
        "side1",
        "side2",
    ]


class Evil:
    def __init__(self, canary):
        self.canary = canary

    def __reduce__(self):
        return open, (self.canary, "w")


def test_fc_53_nothing_is_unpickled(tmp_path, c):
    canary = tmp_path / "CANARY"
    stream = pickle.dumps(Evil(str(canary)))
    Corpus.prepare(c("a b\n"), out=tmp_path / "corpus", min_count=1).close()
    for name in ("corpus.json", "vocabulary.tsv", "tokens.bin"):
        path = tmp_path / "corpus" / name
        whole = path.read_bytes()
        path.write_bytes(stream)
        with pytest.raises(Error):
            Corpus.open(tmp_path / "corpus")
        path.write_bytes(whole)
    evil = tmp_path / "evil"
    evil.write_bytes(stream)
    with pytest.raises(VocabularyError):
        Vocabulary.load(evil)
    assert not canary.exists()


def test_fc_54_a_header_that_claims_to_be_huge(c, tmp_path):
    folder = tmp_path / "corpus"
    Corpus.prepare(c("a b\n"), out=folder, min_count=1).close()
    header = Header.read(folder)
    header.tokens = 2**62
    (folder / "corpus.json").write_bytes(header.render())
    tracemalloc.start()
    with pytest.raises(CorpusError, match=r"has 6 bytes, but 4,611,686,018,427,387,904 tokens"):
        Corpus.open(folder)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 << 20


def test_fc_60_file_names_of_any_kind(tmp_path):
    folder = tmp_path / "données du 文"
    folder.mkdir()
    path = folder / "корпус текст.txt"
    path.write_text("a b c\n", encoding="utf-8")
    with Corpus.prepare(path, out=folder / "выход данных", min_count=1) as corpus:
        assert len(corpus) == 4
    path.write_bytes(b"\xff")
    with pytest.raises(TextError, match=r"корпус текст\.txt:1"):
        Corpus.prepare(path, min_count=1)


def test_fc_61_each_position_is_an_example_and_sentences_end(c):
    with Corpus.prepare(c("a b\nc d\n"), min_count=1) as corpus:
        words = [corpus.vocabulary.words[id] for id in corpus.tokens]
        assert words == ["a", "b", "</s>", "c", "d", "</s>"]
        assert len(corpus) == 6


def test_settings_reach_a_read_only_copy_of_the_corpus(c, tmp_path):
    settings = TextSettings(lowercase=True, encoding="latin-1")
    path = c("Ca", b"\xe7", "a\n")
    Corpus.prepare(
        path, out=tmp_path / "corpus", min_count=1, lowercase=True, encoding="latin-1"
    ).close()
    assert Corpus.open(tmp_path / "corpus").vocabulary.settings == settings


_FC_11 = """
import resource, sys
from fastnplm.corpus import Corpus

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10

before = peak()
memory = int(sys.argv[3]) or None
with Corpus.prepare(sys.argv[1], min_count=100, memory=memory) as corpus:
    words = dict(zip(corpus.vocabulary.words[3:], corpus.vocabulary.counts[3:].tolist()))
    print(words == {f"k{n:03d}": 1000 for n in range(10)}, corpus.oov, corpus.report.types)
print(peak() - before, file=open(sys.argv[2], "w"))
"""


@pytest.mark.slow
def test_fc_11_bounded_counting_is_exact(c, tmp_path):
    frequent = [f"k{number % 10:03d}" for number in range(10_000)]
    words = []
    for number in range(1_000_000):
        words.append(f"u{number:07d}")
        if number % 100 == 0:
            words.append(frequent[number // 100])
    path = c("".join(" ".join(words[i : i + 10]) + "\n" for i in range(0, len(words), 10)))
    root = str(Path(__file__).parents[1])
    for memory in (32 << 20, 0):
        command = [sys.executable, "-c", _FC_11, str(path), str(tmp_path / "peak"), str(memory)]
        done = subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": root}
        )
        assert done.stdout == "True 1000000 1000010\n", done.stderr
        if memory:
            assert int((tmp_path / "peak").read_text()) < memory + (64 << 20)
