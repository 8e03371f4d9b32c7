"""What is said about a text, on texts whose answers are known."""

import collections
import gzip
import json
import re

import numpy as np
import pytest

from fastnplm import lexicon, lines
from fastnplm.errors import CorpusError, TextError
from fastnplm.inspection import MIN_COUNTS, inspect
from fastnplm.model import Network
from fastnplm.page import page
from fastnplm.plot import draw_ranks
from fastnplm.scripts import script_of
from fastnplm.text import TextSettings
from fastnplm.vocabulary import Vocabulary

WORD = re.compile(r"[^\0\t\n\v\f\r ]+")


def write(path, *parts):
    path.write_bytes(b"".join(p.encode() if isinstance(p, str) else p for p in parts))
    return path


@pytest.fixture(params=["compiled", "pure"])
def table(request, monkeypatch):
    if request.param == "pure":
        monkeypatch.setattr("fastnplm.inspection.compiled", lexicon)


def test_every_figure(tmp_path, table):
    path = write(
        tmp_path / "c.txt",
        "a b\r\na b\r\n\n这們 a\u200b cд\n<unk> <s> x\rlonger\n",
        b"caf\xe9 a\nno end",
    )
    found = inspect(path)
    assert (found.lines, found.blank_lines, found.duplicate_lines) == (7, 1, 1)
    assert (found.crlf_lines, found.lone_carriage_returns, found.unended_files) == (2, 1, 1)
    assert found.bytes == path.stat().st_size
    assert found.damaged_lines == 1
    assert found.damage == [
        f"{path}:6: byte 0xe9 at offset 49 is not UTF-8; pass --encoding (latin-1?) or --errors "
        "replace"
    ]
    assert found.reserved_words == {"<unk>": 1, "<s>": 1}
    assert (found.words, found.types, found.seen_once) == (14, 10, 8)
    assert found.longest_words[0] == {"characters": 6, "word": "longer"}
    assert found.longest_lines[0] == {"words": 3, "where": f"{path}:4"}
    assert found.control_characters == {"U+200B": 1}
    assert (found.simplified, found.traditional) == (1, 1)
    assert (found.mixed_words, found.mixed_examples) == (1, ["cд"])
    assert [row["vocabulary"] for row in found.coverage] == [13, 5, 4, 3, 3]
    assert list(found.scripts) == ["Latin", "Han", "Cyrillic"]
    # The table weighs the network that train makes of as many words, of the suggested sizes.
    first, sizes = found.coverage[0], {name: found.suggestion[name] for name in ("dim", "hidden")}
    words = Vocabulary.from_words(["<unk>", "<s>", "</s>", *"abcdefghij"], counts=[1] * 13)
    network = Network(words, tied=True, direct=True, **sizes)
    parameters = sum(value.nbytes for value in network.parameters.values())
    assert first["mib"] == parameters / 2**20
    assert first["training_mib"] == 3 * parameters / 2**20
    assert json.loads(json.dumps(found.as_dict()))["lines"] == 7


def test_the_page(tmp_path):
    path = write(tmp_path / "c.txt", "这們 a b\r\n" * 3, "ＡＢ x\ry <s> z\n", b"\xff")
    text = page(inspect(path))
    for line in (
        "files         1, 54 bytes of text",
        "encoding      not utf-8 throughout; damaged lines: 1",
        "line ends     LF 1, CRLF 3, lone CR 1; 1 without an end at the end of a file",
        "lines         5; 0 blank, 2 duplicates",
        "longest lines 4 words (c.txt:4), 3 words (c.txt:1), 3 words (c.txt:2)",
        "longest words 2 characters (这們), 2 characters (ＡＢ), 1 characters (a)",
        "controls      none",
        "reserved      <s> 1",
        "scripts       Latin 55.56%, Han 33.33%, Fullwidth 11.11%",
        "Chinese       of the characters that tell, 3 simplified and 3 traditional",
        "words         14, 8 different, 5 of them seen once (62.5%)",
    ):
        assert line in text.splitlines(), line
    for note in (
        "pass the right --encoding",
        "only LF ends a line",
        "40% of the lines stood before",
        "--reserved whitespace",
        "--normalize NFKC",
        "simplified and traditional Chinese are mixed",
    ):
        assert note in text.split("suggestion")[1], note
    assert re.search(r"^suggestion    --min-count \d+ --dim 30 --hidden 60: ", text, re.MULTILINE)


def test_a_clean_text_has_no_notes(tmp_path):
    text = page(inspect(write(tmp_path / "c.txt", "a b\nc d a\nb a b b\n")))
    assert "note" not in text
    assert "encoding      utf-8, valid throughout" in text


def test_unsegmented_and_japanese_text(tmp_path):
    japanese = inspect(
        write(tmp_path / "j.txt", "私は学校で国語の時間に本を読んだ。それは難しい會社の話だ。\n")
    )
    assert japanese.mixed_words == 0
    notes = page(japanese).split("suggestion")[1]
    assert "simplified and traditional" not in notes
    assert "--segment char" in notes
    by_character = inspect(tmp_path / "j.txt", settings=TextSettings(segment="char"))
    assert by_character.words == 29
    assert "--segment char" not in page(by_character)


def test_a_text_without_words(tmp_path):
    with pytest.raises(CorpusError, match="no tokens"):
        inspect(write(tmp_path / "c.txt", b"\n \n"))


def test_each_damaged_file_is_named(tmp_path):
    files = [write(tmp_path / f"{n}.txt", b"a b\n" * n, b"\xc3\n") for n in range(1, 5)]
    found = inspect(*files)
    assert found.damaged_lines == 4
    assert [place.split(": byte")[0] for place in found.damage] == [
        f"{tmp_path}/{n}.txt:{n + 1}" for n in range(1, 4)
    ]


def test_another_encoding(tmp_path):
    path = write(tmp_path / "c.txt", "東京\n日本 ".encode("gb18030"), b"\xff\xff x\ny\n")
    found = inspect(path, settings=TextSettings(encoding="gb18030"))
    assert found.damage[0].startswith(f"{path}:2: byte 0xff at offset 10 is not gb18030")
    assert (found.encoding, found.damaged_lines, found.words) == ("gb18030", 1, 5)


def test_compressed_text_and_progress(tmp_path):
    seen = []
    path = write(tmp_path / "c.gz", gzip.compress(b"a b c\n" * 1000))
    found = inspect(path, progress=lambda *state: seen.append(state))
    assert (found.bytes, found.words) == (6000, 3000)
    assert seen[-1][1:] == (path.stat().st_size, 3000)
    assert 0 < seen[-1][0] <= path.stat().st_size


def test_repeated_lines_in_a_sample():
    exact, sampled = lines.RepeatedLines(), lines.RepeatedLines(remembered=20_000)
    for block in range(3):
        # Each block has lines of its own and 20,000 that stand in all of them.
        texts = [f"  line {n}\r\n" for n in range(20_000)]
        texts += [f"{block} {n}\n\n" for n in range(20_000)]
        for one in (exact, sampled):
            one.add("".join(texts).encode())
    assert exact.count() == (40_000, True)
    estimate, is_exact = sampled.count()
    assert not is_exact
    # An eighth of the lines is kept: 2,500 of those groups, whose number has 2 % standard error.
    assert 35_000 < estimate < 45_000


def test_longest_lines_across_blocks(tmp_path):
    lengths = np.random.default_rng(0).integers(0, 4000, 900)
    lengths[700] = lengths[100] = 4000
    path = write(tmp_path / "c.txt", *("a " * n + "\n" for n in lengths.tolist()))
    expected = sorted(enumerate(lengths.tolist(), 1), key=lambda item: (-item[1], item[0]))[:3]
    assert inspect(path).longest_lines == [
        {"words": words, "where": f"{path}:{line}"} for line, words in expected
    ]


@pytest.mark.parametrize(
    ("character", "script"),
    [
        ("a", "Latin"), ("é", "Latin"), ("д", "Cyrillic"), ("東", "Han"), ("々", "Han"),
        ("か", "Hiragana"), ("カ", "Katakana"), ("ー", "Katakana"), ("Ａ", "Fullwidth"),
        ("ｶ", "Fullwidth"), ("한", "Hangul"), ("ª", "Latin"), ("µ", "Greek"), ("א", "Hebrew"),
        ("1", None), ("。", None), ("\u0301", None), ("😀", None), ("\ufffd", None),
    ],
)  # fmt: skip
def test_script_of_a_character(character, script):
    assert script_of(character) == script


def test_rank_curve(tmp_path):
    counts = np.array([1000, 90, 90, 8, *[1] * 5000])
    for name in ("ranks.png", "ranks.svg"):
        draw_ranks(counts, tmp_path / name, MIN_COUNTS)
        assert (tmp_path / name).stat().st_size > 5000


AWKWARD = [
    # name, encoding, damaged lines, CRLF, no end, blank lines, control characters
    ("firefox-latin1-crlf.txt", "utf-8", 1, 1500, 0, 0, 0),
    ("firefox-latin1-crlf.txt", "latin-1", 0, 1500, 0, 0, 0),
    ("wine-mixed-encoding.txt", "utf-8", 1, 0, 0, 117, 3),
    ("hebrew-bom.txt", "utf-8", 0, 0, 1, 33, 0),
    ("japanese-sjis.txt", "shift_jis", 0, 0, 1, 106, 0),
    ("chinese-gb2312.txt", "gb2312", 0, 0, 1, 27, 0),
    ("lee-latin1-noeol.txt", "utf-8", 1, 0, 1, 0, 0),
    ("oneline-4096-noeol.txt", "utf-8", 0, 0, 1, 0, 0),
    ("subtitle-utf16le-bom.srt", "utf-16", 0, 0, 0, 7, 0),
    ("emoji-crlf.tsv", "utf-8", 0, 1200, 0, 0, 812),
    ("mixed-simplified-traditional.tsv", "utf-8", 0, 0, 0, 0, 0),
]


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("name", "encoding", "damaged", "crlf", "unended", "blank", "controls"), AWKWARD
)
def test_awkward_files(data, name, encoding, damaged, crlf, unended, blank, controls):
    path = data / "awkward" / name
    found = inspect(path, settings=TextSettings(encoding=encoding))
    text = path.read_bytes().decode(encoding, "replace").removeprefix("\ufeff")
    words = collections.Counter(WORD.findall(text))
    assert (found.damaged_lines, found.crlf_lines, found.unended_files) == (damaged, crlf, unended)
    assert len(found.damage) == bool(damaged)
    assert found.lines == text.count("\n") + unended
    assert found.blank_lines == blank
    assert sum(found.control_characters.values()) == controls
    assert (found.words, found.types) == (words.total(), len(words))
    assert found.seen_once == sum(count == 1 for count in words.values())
    assert found.frequencies.tolist() == sorted(words.values(), reverse=True)
    assert found.longest_words[0]["characters"] == max(map(len, words))
    line_words = [len(WORD.findall(line)) for line in text.split("\n")]
    assert found.longest_lines[0]["words"] == max(line_words)
    longest = f"{path}:{line_words.index(max(line_words)) + 1}"
    assert found.longest_lines[0]["where"] == longest
    stripped = [line.strip(" \t\r\v\f") for line in text.split("\n")]
    stripped = [line for line in stripped if line]
    assert found.duplicate_lines == len(stripped) - len(set(stripped))
    for row in found.coverage:
        kept = [count for count in words.values() if count >= row["min_count"]]
        assert row["vocabulary"] == len(kept) + 3
        assert row["known"] == sum(kept) / words.total()
    assert page(found)


@pytest.mark.corpus
def test_mixed_chinese_is_told(data):
    found = inspect(data / "awkward" / "mixed-simplified-traditional.tsv")
    assert "simplified and traditional Chinese are mixed" in page(found)
    for name in ("chinese-gb2312.txt", "japanese-sjis.txt"):
        settings = TextSettings(encoding="gb18030" if "gb" in name else "shift_jis")
        assert "Chinese are mixed" not in page(inspect(data / "awkward" / name, settings=settings))


@pytest.mark.corpus
def test_a_wrong_encoding_is_guessed(data):
    for name, guess in (("subtitle-utf16le-bom.srt", "utf-16"), ("japanese-sjis.txt", "shift_jis")):
        assert f"pass --encoding ({guess}?)" in page(inspect(data / "awkward" / name))


@pytest.mark.corpus
def test_brown(data):
    found = inspect(data / "brown" / "brown.train.txt.gz")
    assert (found.words, found.types, found.lines) == (800_001, 46_187, 35_523)
    assert found.coverage[0]["known"] == 1
    assert found.coverage[0]["vocabulary"] == 46_190
    assert (found.suggestion["min_count"], found.suggestion["dim"]) == (3, 60)


def test_missing_file(tmp_path):
    with pytest.raises(TextError, match="no such file"):
        inspect(tmp_path / "missing.txt")
