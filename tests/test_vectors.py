"""word2vec files: what is written is read back bit for bit; what lies is refused."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from tracing import peak_of

import fastnplm
from fastnplm import word2vec
from fastnplm.errors import Error, SettingsError, VectorsError

BITS = ["00000001", "7F7FFFFF", "80000000", "3DCCCCCD", "3EAAAAAB", "00800000"]


def some(words, rows):
    return SimpleNamespace(
        vocabulary=SimpleNamespace(words=words), rows=np.asarray(rows, dtype=np.float32)
    )


def put(tmp_path, data, name="v.vec"):
    path = tmp_path / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


@pytest.mark.parametrize("binary", [False, True])
def test_what_is_written_is_read_back(tmp_path, binary):
    words = ["red", "<unk>", "naïve", "\u3000", "x\x1cy", "0.5", "-1", "3"]
    rows = np.random.default_rng(0).normal(size=(8, 5)).astype(np.float32)
    path = tmp_path / "v"
    word2vec.write(some(words, rows), path, binary=binary)
    for kind in (binary, None):
        found, values = word2vec.read(path, binary=kind)
        assert found == words
        assert values.dtype == np.float32
        assert values.tobytes() == rows.tobytes()
    assert word2vec.width(path) == 5
    assert [entry.name for entry in tmp_path.iterdir()] == ["v"]


def test_fc_13_words_the_format_cannot_hold_are_named_before_anything_is_written(tmp_path):
    words = ["New York", "tab\tx", "line\nfeed", "", "\u3000", " x", "ok", "nul\0"]
    for binary in (False, True):
        with pytest.raises(VectorsError, match=r"6 words .*'New York', 'tab\\tx', 'line\\nfeed'"):
            word2vec.write(some(words, np.ones((8, 2))), tmp_path / "v", binary=binary)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_an_error(tmp_path):
    with pytest.raises(VectorsError, match=r"cannot be written: No such file"):
        word2vec.write(some(["a"], [[1]]), tmp_path / "missing" / "v")
    with pytest.raises(VectorsError, match=r"cannot be read: No such file"):
        word2vec.read(tmp_path / "missing")
    with pytest.raises(VectorsError, match=r"cannot be read: Is a directory"):
        word2vec.read(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("5 3\na 1 2 3\nb 1 2 3\n", "v.vec:3: the header says 5 words, found 2"),
        ("1 3\na 1 2 3\nb 1 2 3\n", "v.vec:3: the header says 1 words, found 2"),
        ("1 3\na 1 2 3\nb 1 2 3\n\nc 1 2 3\n", "v.vec:3: the header says 1 words, found 3"),
        ("the 1 2 3\nb 1 2 3\n", "v.vec:1: the first line, .* is not a header"),
        ("", "empty file"),
        ("\n", "is not a header"),
        ("2 2", "the header has no end"),
        ("0 3\n", "0 words of 3 values"),
        ("2 0\na\nb\n", "2 words of 0 values"),
        ("1 99999999\na 1\n", "1 words of 99,999,999 values"),
        ("-1 3\na 1 2 3\n", "is not a header"),
        ("1_0 3\na 1 2 3\n", "is not a header"),
        ("2 3\na 1 2 3\nb 1 2\n", "v.vec:3: expected a word and 3 values, got 2"),
        ("2 3\na 1 2 3\nb 1 2 3 4\n", "v.vec:3: expected a word and 3 values, got more"),
        ("2 3\na 1 2 3\nb 1 x 3\n", "v.vec:3: expected a number, got b'x'"),
        ("2 3\na 1 2 3\nb 1 1_0 3\n", "v.vec:3: expected numbers, got one with _"),
        ("2 3\na 1 2 3\nb 1 nan 3\n", "v.vec:3: value 2 is nan"),
        ("2 3\na 1 2 3\nb 1 2 1e39\n", "v.vec:3: value 3 is inf"),
        ("2 3\na 1 2 3\na 1 2 3\n", "v.vec:3: the word 'a' comes twice"),
        ("2 3\na 1 2 3\nb 1 2 3", "v.vec:3: the line has no end"),
        ("2 3\na 1 2 3\n\nb 1 2 3\n", "v.vec:3: an empty line between vectors"),
        (b"2 1\na 1\n\xff 2\n", "v.vec:3: the word .* is not UTF-8"),
        ("2 1\na 1\nb\0c 2\n", "v.vec:3: expected a word"),
    ],
)
def test_fc_14_a_text_file_that_lies_is_refused_with_its_line(tmp_path, text, message):
    with pytest.raises(VectorsError, match=message):
        word2vec.read(put(tmp_path, text))


def test_a_file_without_header_can_be_read_when_asked(tmp_path):
    path = put(tmp_path, "the 1 2 3\nb 1 2 3\n")
    words, rows = word2vec.read(path, header=False)
    assert words == ["the", "b"]
    assert rows.shape == (2, 3)
    for text in ("", "\n", "the\n", "the 1\nb 1 2\n"):
        with pytest.raises(VectorsError):
            word2vec.read(put(tmp_path, text), header=False)
    with pytest.raises(VectorsError, match="always has a header"):
        word2vec.read(path, header=False, binary=True)


def test_fc_15_text_loses_no_bits_and_ignores_the_locale(tmp_path):
    rows = np.array([int(b, 16) for b in BITS], dtype=np.uint32).view(np.float32)[:, None]
    written = []
    for locale in ("C", "de_DE.UTF-8"):
        path = tmp_path / locale
        code = (
            "import locale, sys, numpy as np\n"
            "from types import SimpleNamespace as S\n"
            "from fastnplm import word2vec\n"
            "try: locale.setlocale(locale.LC_ALL, '')\n"
            "except locale.Error: pass\n"
            f"rows = np.array({[int(b, 16) for b in BITS]}, np.uint32).view(np.float32)[:, None]\n"
            "v = S(vocabulary=S(words=list('abcdef')), rows=rows)\n"
            f"word2vec.write(v, {str(path)!r})\n"
        )
        environment = {**os.environ, "LC_ALL": locale, "PYTHONPATH": os.pathsep.join(sys.path)}
        subprocess.run([sys.executable, "-c", code], check=True, env=environment)
        written.append(path.read_bytes())
        assert word2vec.read(path)[1].tobytes() == rows.tobytes()
    assert written[0] == written[1]
    assert b"," not in written[0]


def test_every_float32_survives_text(tmp_path):
    bits = np.random.default_rng(5).integers(0, 2**32, size=20_000, dtype=np.uint32)
    values = bits.view(np.float32)
    values = values[np.isfinite(values)][:16_000].reshape(160, 100)
    word2vec.write(some([f"w{i}" for i in range(160)], values), tmp_path / "v")
    assert word2vec.read(tmp_path / "v")[1].tobytes() == values.tobytes()


@pytest.mark.parametrize("feed", [b"", b"\n"])
def test_fc_16_both_layouts_of_binary_records(tmp_path, feed):
    data = b"2 1\nab \x00\x00\x80\x3f" + feed + b"cd \x00\x00\x00\x40" + feed
    words, rows = word2vec.read(put(tmp_path, data))
    assert words == ["ab", "cd"]
    assert rows.tolist() == [[1.0], [2.0]]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"3 1\nab \0\0\x80\x3fcd \0\0\0\x40", "room for 2"),
        (b"2 1\nab \0\0\x80\x3f\ncd \0\0\0\x40\nef", "more follows"),
        (b"2 1\nab \0\0\x80\x3f\ncd \0\0\xc0\x7f\n", "value 1 is nan"),
        (b"2 1\nab \0\0\x80\x3f\nccccccd \0\0", "ends in a vector"),
        (b"2 1\nab \0\0\x80\x3f\nccccccd", "ends in a word"),
        (b"2 1\nab \0\0\x80\x3f\nab \0\0\0\x40\n", "comes twice"),
        (b"2 1\nab \0\0\x80\x3f\n\n  \0\0\0\x40\n", "expected a word and a space"),
        (b"1 1\na\tb \0\0\x80\x3f", "expected a word and a space"),
    ],
)
def test_a_binary_file_that_lies_is_refused_with_its_byte(tmp_path, data, message):
    with pytest.raises(VectorsError, match=message):
        word2vec.read(put(tmp_path, data), binary=True)


@pytest.mark.parametrize(
    "data",
    [
        b"2000000000 2000000000\na 1\n",
        b"2000000000 2000000000\na \0\0\x80\x3f",
        b"2000000000 60000\na 1\n",
        b"2000000000 60000\na \0\0\x80\x3f",
        b"999999999999999 1\na \0\0\x80\x3f",
    ],
)
def test_fc_54_a_tiny_file_that_claims_to_be_huge_allocates_nothing(tmp_path, data):
    path = put(tmp_path, data)

    def refuse():
        with pytest.raises(VectorsError):
            word2vec.read(path)

    assert peak_of(refuse) < 64 << 20


@pytest.mark.parametrize("data", [b"1 3\n" + b"0 " * (8 << 20), b"1 3\n" + b"x" * (8 << 20)])
@pytest.mark.parametrize("binary", [True, False])
def test_a_line_without_end_costs_no_memory(tmp_path, data, binary):
    path = put(tmp_path, data)

    def refuse():
        with pytest.raises(VectorsError):
            word2vec.read(path, binary=binary)

    assert peak_of(refuse) < 16 << 20


@pytest.mark.parametrize("binary", [False, True])
def test_words_around_buffer_sizes_survive(tmp_path, binary):
    lengths = [
        n for m in (50, 100, 256, 1000, 1024, 4096, 65536, 200_000) for n in range(m - 2, m + 3)
    ]
    words = ["x" * (n - 2) + chr(97 + i // 26) + chr(97 + i % 26) for i, n in enumerate(lengths)]
    rows = np.arange(3 * len(words), dtype=np.float32).reshape(-1, 3)
    word2vec.write(some(words, rows), tmp_path / "v", binary=binary)
    found, values = word2vec.read(tmp_path / "v")
    assert found == words
    assert (values == rows).all()
    big = "x" * (word2vec.MAX_WORD + 100)
    with pytest.raises(VectorsError):
        word2vec.write(some([big], [[1.0]]), tmp_path / "big", binary=binary)


@pytest.mark.parametrize("binary", [False, True])
def test_gensim_reads_ours_and_we_read_gensims(tmp_path, binary):
    models = pytest.importorskip("gensim.models", reason="gensim is an extra")
    words = ["red", "fox", "naïve", "春天"]
    rows = np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32)
    word2vec.write(some(words, rows), tmp_path / "ours", binary=binary)
    theirs = models.KeyedVectors.load_word2vec_format(str(tmp_path / "ours"), binary=binary)
    assert theirs.index_to_key == words
    assert (theirs.vectors == rows).all()
    theirs.save_word2vec_format(str(tmp_path / "theirs"), binary=binary)
    found, values = word2vec.read(tmp_path / "theirs")
    assert found == words
    np.testing.assert_allclose(values, rows, rtol=1e-6)


# --- vectors to begin with ----------------------------------------------------------------------


@pytest.fixture
def corpus(tmp_path):
    (tmp_path / "c.txt").write_text("red fox red hen\nred fox\n" * 10)
    with fastnplm.Corpus.prepare(tmp_path / "c.txt", min_count=1) as made:
        yield made


def network(corpus, dim=3):
    return fastnplm.NPLM(corpus.vocabulary, context=2, dim=dim, hidden=4)


def test_rows_of_known_words_are_filled_and_counted(tmp_path, corpus):
    path = put(tmp_path, b"4 3\nfox 1 2 3\n\xff 0 0 0\nwolf 9 9 9\nred -1 -2 -3\n")
    model = network(corpus)
    before = model.embedding.copy()
    assert word2vec.fill(corpus.vocabulary, model.embedding, path) == 2
    known = corpus.vocabulary
    assert model.embedding[known["fox"]].tolist() == [1, 2, 3]
    assert model.embedding[known["red"]].tolist() == [-1, -2, -3]
    assert (model.embedding[known["hen"]] == before[known["hen"]]).all()


def test_nothing_is_filled_from_a_bad_file(tmp_path, corpus):
    for text in ("2 3\nfox 1 2 3\nred 1 2\n", "2 4\nfox 1 2 3 4\nred 1 2 3 4\n"):
        model = network(corpus)
        before = model.embedding.copy()
        with pytest.raises(VectorsError):
            word2vec.fill(corpus.vocabulary, model.embedding, put(tmp_path, text))
        assert (model.embedding == before).all()
    other = put(tmp_path, "2 3\nwolf 1 2 3\nowl 1 2 3\n")
    assert word2vec.fill(corpus.vocabulary, model.embedding, other) == 0


def test_training_begins_with_given_vectors(tmp_path, corpus, capsys):
    path = put(tmp_path, "2 3\nfox 1 2 3\nwolf 9 9 9\n")
    options = {"epochs": 1, "lr": 1e-9, "kernels": "reference", "schedule": "constant"}
    model = network(corpus)
    fastnplm.train(model, corpus, init_vectors=path, **options)
    assert "1 of 6 words" in capsys.readouterr().err
    np.testing.assert_allclose(model.embedding[corpus.vocabulary["fox"]], [1, 2, 3], atol=1e-6)
    straight = network(corpus)
    straight.embedding[corpus.vocabulary["fox"]] = [1, 2, 3]
    fastnplm.train(straight, corpus, quiet=True, **options)
    assert (straight.embedding == model.embedding).all()


def test_vectors_of_another_width_are_refused_before_the_corpus_is_read(tmp_path, corpus):
    missing, options = tmp_path / "missing.txt", {"kernels": "reference"}
    path = put(tmp_path, "1 4\nfox 1 2 3 4\n")
    with pytest.raises(SettingsError, match="dim"):
        fastnplm.train(network(corpus), missing, init_vectors=path, **options)
    path = put(tmp_path, "fox 1 2 3\n")
    with pytest.raises(Error, match="not a header"):
        fastnplm.train(network(corpus), missing, init_vectors=path, **options)


def test_a_resumed_run_takes_its_vectors_from_the_checkpoint(tmp_path, corpus):
    path = put(tmp_path, "1 3\nfox 1 2 3\n")
    options = {
        "init_vectors": path, "kernels": "reference", "quiet": True, "batch_size": 8,
        "checkpoint_every": 3, "epochs": 2,
    }  # fmt: skip
    whole = network(corpus)
    fastnplm.train(whole, corpus, out=tmp_path / "whole", **options)
    again = network(corpus)
    fastnplm.train(again, corpus, out=tmp_path / "whole", resume=True, **options)
    assert (whole.embedding == again.embedding).all()


def test_struct_of_the_binary_form_is_little_endian(tmp_path):
    word2vec.write(some(["a"], [[1.5]]), tmp_path / "v", binary=True)
    assert (tmp_path / "v").read_bytes() == b"1 1\na " + struct.pack("<f", 1.5) + b"\n"
