"""What a word is, where a line ends, and what damaged bytes do."""

import bz2
import gzip
import io
import lzma
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastnplm
from fastnplm.encoding import guess_encoding
from fastnplm.errors import SettingsError, TextError
from fastnplm.preparation import Preparation
from fastnplm.source import open_source
from fastnplm.text import TextSettings, read_sentences, split_words


def sentences(path, **choices):
    return list(read_sentences(path, settings=TextSettings(**choices)))


def write(path, data):
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("separator", " \t\r\v\f\0")
def test_ascii_white_space_and_nul_separate(separator):
    assert split_words(f"a{separator}{separator}b") == ["a", "b"]


@pytest.mark.parametrize("character", "\x1c\x1d\x1e\x1f\x85\xa0\u2028\u3000\u200b")
def test_other_spaces_are_part_of_a_word(character):
    assert split_words(f"a{character}b c") == [f"a{character}b", "c"]


@given(st.text(st.sampled_from("ab\0\t\r\v\f\x1c\x85\u3000é 東")))
def test_splitting_is_that_of_bytes(line):
    expected = [word.decode() for word in line.encode().replace(b"\0", b" ").split()]
    assert split_words(line) == expected


@pytest.mark.parametrize(
    "data",
    [b"a b\n\nc\n", b"a b\r\n\r\nc\r\n", b"\xef\xbb\xbfa b\n\nc", b"a b \n \t\nc"],
    ids=["lf", "crlf", "mark", "spaces"],
)
def test_line_ends_and_a_leading_mark_make_no_difference(tmp_path, data):
    assert sentences(write(tmp_path / "c.txt", data)) == [["a", "b"], [], ["c"]]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 64])
@pytest.mark.parametrize("whole_lines", [True, False])
def test_blocks_hold_every_byte_with_its_place(tmp_path, size, whole_lines):
    text = b"ab c\n\n long-long-word x y\nz\xc3\xa9\n last"
    path = write(tmp_path / "c.txt", b"\xef\xbb\xbf" + text)
    with open_source(path) as source:
        blocks = list(source.blocks(size, whole_lines))
    assert b"".join(block.data for block in blocks) == text + b"\n"
    for block in blocks:
        assert (block.data + text)[len(block.data) - 1 : len(block.data)] in (b"\n", b" ")
        place = block.offset - 3
        assert text[place : place + len(block.data)] == block.data[: len(text) - place]
        assert block.line == text.count(b"\n", 0, place) + 1
        assert block.inside == (place > 0 and text[place - 1 : place] != b"\n")


@pytest.mark.parametrize("data", [b"", b"\xef", b"\xef\xbb", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("size", [1, 100])
def test_files_of_part_of_a_mark(tmp_path, data, size):
    with open_source(write(tmp_path / "c.txt", data)) as source:
        found = b"".join(block.data for block in source.blocks(size))
    assert found == (b"" if data in (b"", b"\xef\xbb\xbf") else data + b"\n")


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("name", ["c.txt", "c.gz"])
def test_compression_is_known_by_content(tmp_path, pack, name):
    assert sentences(write(tmp_path / name, pack(b"a b\nc\n"))) == [["a", "b"], ["c"]]


def test_zstd_and_several_frames(tmp_path):
    zstandard = pytest.importorskip("zstandard", reason="the zstd extra is not installed")
    compressor = zstandard.ZstdCompressor()
    data = compressor.compress(b"a b\n") + compressor.compress(b"c\n")
    assert sentences(write(tmp_path / "c.zst", data)) == [["a", "b"], ["c"]]


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_compressed_file_cut_short_is_refused(tmp_path, pack):
    data = pack(b"".join(b"word%d " % number for number in range(5000)))
    with pytest.raises(TextError, match="damaged or cut short"):
        sentences(write(tmp_path / "c", data[: len(data) // 2]))


def test_several_files_keep_their_order_and_line_ends(tmp_path):
    first, second = write(tmp_path / "1.txt", b"a b"), write(tmp_path / "2.txt", b"\xef\xbb\xbfc\n")
    assert sentences([first, second]) == [["a", "b"], ["c"]]
    assert sentences(str(tmp_path / "*.txt")) == [["a", "b"], ["c"]]
    assert list(read_sentences(str(second), first)) == [["c"], ["a", "b"]]


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(b"a\nb c\n"))))
    assert sentences("-") == [["a"], ["b", "c"]]


def test_sentences_in_memory():
    assert list(read_sentences(["a b", "c\n", ""])) == [["a", "b"], ["c"], []]
    assert list(read_sentences(iter([["a", "b"], ("c",)]))) == [["a", "b"], ["c"]]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["a b", "c\nd"], "sentence 2: a sentence is one line"),
        ([["a b"]], "sentence 1: 'a b' is not one word"),
        ([["a", 3]], "sentence 1: words must be strings"),
        ([b"a b"], "sentence 1: must be a string or a list of words"),
        (["a \ud800"], "sentence 1: character 2 is half of a surrogate pair"),
        (["a.txt", "b.txt"], r"a\.txt: no such file"),
        ("missing.txt", r"missing\.txt: no such file"),
        (5, "text must be a path or sentences, not int"),
    ],
)
def test_what_cannot_be_read_is_named(given, message):
    with pytest.raises(TextError, match=message):
        list(read_sentences(given))


def test_the_place_of_a_bad_byte(tmp_path):
    path = write(tmp_path / "c.txt", b"one\n" * 30_000 + b"caf\xe9 au lait\n")
    with pytest.raises(TextError, match=r"c\.txt:30001: byte 0xe9 at offset 120,003 is not UTF-8"):
        sentences(path)
    with pytest.raises(TextError, match=r"pass --encoding \(latin-1\?\) or --errors replace"):
        sentences(path)


def test_other_encodings(tmp_path):
    for encoding in ("gb18030", "utf-16", "utf-16-le", "latin-1", "utf-8-sig", "shift_jis"):
        text = "naïve ça" if encoding == "latin-1" else "東京 日本\n本"
        path = write(tmp_path / "c.txt", (text + "\n").encode(encoding))
        expected = [line.split(" ") for line in text.split("\n")]
        assert sentences(path, encoding=encoding) == expected


def test_damage_in_other_encodings(tmp_path):
    path = write(tmp_path / "c.txt", "東京\n日本 ".encode("gb18030") + b"\xff\xff x\ny\n")
    with pytest.raises(TextError, match=r"c\.txt:2: byte 0xff at offset 10 is not gb18030"):
        sentences(path, encoding="gb18030")
    replaced = sentences(path, encoding="gb18030", errors="replace")
    assert replaced == [["東京"], ["日本", "\ufffd\ufffd", "x"], ["y"]]
    assert sentences(path, encoding="gb18030", errors="skip-line") == [["東京"], ["y"]]


@given(st.binary(max_size=40))
def test_replacing_is_that_of_python(tmp_path_factory, data):
    path = write(tmp_path_factory.getbasetemp() / "damaged.txt", b"x" + data)
    text = (b"x" + data).decode("utf-8", "replace")
    expected = [split_words(line) for line in text.removesuffix("\n").split("\n")]
    assert sentences(path, errors="replace", reserved="map") == expected


def test_lowercase_normalize_and_characters(tmp_path):
    path = write(tmp_path / "c.txt", "Cafe\u0301 ＡＢ\u3000c <unk>\n我今天\n".encode())
    assert sentences(path, normalize="NFC")[0][0] == "Café"
    assert sentences(path, lowercase=True)[0][0] == "cafe\u0301"
    assert sentences(path, normalize="NFKC", lowercase=True)[0] == ["café", "ab", "c", "<unk>"]
    assert sentences(path, segment="char") == [
        ["C", "a", "f", "e", "\u0301", "Ａ", "Ｂ", "c", "<unk>"],
        ["我", "今", "天"],
    ]


def test_jieba_finds_words():
    pytest.importorskip("jieba", reason="the jieba extra is not installed")
    settings = TextSettings(segment="jieba", normalize="NFKC")
    assert settings.words("我今天想喝茶 <unk> 因为天气很好！") == [
        "我", "今天", "想", "喝茶", "<unk>", "因为", "天气", "很", "好", "!",
    ]  # fmt: skip
    assert settings.words("  \u3000 ") == []
    assert settings.word("因为天气") == "因为天气"


def test_a_model_cuts_words_as_its_corpus_did(tmp_path):
    pytest.importorskip("jieba", reason="the jieba extra is not installed")
    path = write(tmp_path / "c.txt", "我今天想喝茶\n\n因为天气很好\n".encode() * 20)
    made = []
    for threads, block_bytes in ((1, 1 << 20), (2, 64)):
        settings = TextSettings(segment="jieba")
        preparation = Preparation(settings, threads=threads, block_bytes=block_bytes)
        out, _ = preparation.run(path, out=tmp_path / f"{threads}")
        made.append((out / "tokens.bin").read_bytes())
    assert made[0] == made[1]
    with fastnplm.Corpus.open(out) as corpus:
        assert (corpus.sentences, corpus.report.blank_lines) == (40, 20)
        assert {"今天", "喝茶", "天气"} < set(corpus.vocabulary.words)
        model = fastnplm.NPLM(corpus.vocabulary, context=2, dim=4, hidden=6)
        report = fastnplm.evaluate(model, path)
        assert (report.tokens, report.oov) == (len(corpus), 0)
    assert model.predict("因为天气", k=3) == model.predict(["因为", "天气"], k=3)
    assert model.score("因为天气很好") == pytest.approx(model.score(["因为", "天气", "很", "好"]))


def test_settings_are_checked():
    for choice in ({"segment": "word"}, {"normalize": "NFD"}, {"errors": "ignore"}):
        with pytest.raises(SettingsError, match="must be one of"):
            TextSettings(**choice)
    for encoding in ("utf-99", "rot13", "zip"):
        with pytest.raises(SettingsError, match="knows no such text encoding"):
            TextSettings(encoding=encoding)
    settings = TextSettings(encoding="UTF8", lowercase=True)
    assert settings.encoding == "utf-8"
    assert TextSettings.from_dict(settings.as_dict()) == settings


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("name", "line", "offset", "hint"),
    [
        ("firefox-latin1-crlf.txt", 1279, 64_936, "latin-1"),
        ("wine-mixed-encoding.txt", 890, 103_154, "latin-1"),
        ("japanese-sjis.txt", 1, 0, "shift_jis"),
        ("chinese-gb2312.txt", 1, 0, "gb18030"),
        ("lee-latin1-noeol.txt", 41, 20_357, "latin-1"),
        ("subtitle-utf16le-bom.srt", 1, 0, "utf-16"),
    ],
)
def test_awkward_files_that_are_not_utf8(data, name, line, offset, hint):
    path = data / "awkward" / name
    with pytest.raises(TextError) as caught:
        sentences(path)
    assert f"{name}:{line}: byte" in str(caught.value)
    assert f"at offset {offset:,} is not UTF-8; pass --encoding ({hint}?)" in str(caught.value)
    assert guess_encoding(path.read_bytes()[offset : offset + 400]) == hint
