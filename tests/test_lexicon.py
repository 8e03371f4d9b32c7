"""The table of words: compiled and pure Python give the same, whatever the text."""

import collections

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastnplm import lexicon as pure
from fastnplm.corpus import Corpus
from fastnplm.errors import TextError
from fastnplm.lexicon import Trouble
from fastnplm.preparation import Preparation, compiled
from fastnplm.text import TextSettings

MODULES = [pytest.param(pure, id="pure")]
if compiled is not None:
    MODULES.append(pytest.param(compiled, id="compiled"))

needs_compiled = pytest.mark.skipif(compiled is None, reason="fastnplm._text is not built")

PIECES = ["a", "bb", "<s>", "</s>", "<unk>", " ", "\n", "\t", "\r", "\0", "\v", "\f", "\x1c"]
PIECES += ["é", "東京", "\u3000", "\x85", "😀", "123456789", "x" * 16, "y" * 17, "z" * 70]
BYTES = [piece.encode() for piece in PIECES] + [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90"]

texts = st.lists(st.sampled_from(BYTES), max_size=40).map(lambda parts: b"".join(parts) + b"\n")


def outcome(table, data):
    try:
        encoded = table.encode(data)
    except Trouble as trouble:
        return trouble.kind, trouble.position
    return (
        encoded.ids.tolist(),
        encoded.lines,
        encoded.blank_lines,
        encoded.sentences,
        encoded.ends_first,
        encoded.open_words,
        encoded.reserved,
    )


@needs_compiled
@given(texts, texts, st.sampled_from(["reject", "whitespace", "map"]), st.booleans())
def test_compiled_and_pure_agree(first, second, reserved, characters):
    tables = [m.Lexicon(reserved=reserved, characters=characters) for m in (pure, compiled)]
    for data in (first, second):
        ours, theirs = (outcome(table, data) for table in tables)
        assert ours == theirs
        if isinstance(ours[0], str):
            return
    ours, theirs = tables
    assert ours.letters() == theirs.letters()
    assert ours.ends().tolist() == theirs.ends().tolist()
    assert ours.counts().tolist() == theirs.counts().tolist()
    for least in (1, 2):
        assert ours.order(3, least).tolist() == theirs.order(3, least).tolist()
    order = ours.order(0, 0)
    assert ours.spell(order) == theirs.spell(order)


@pytest.mark.parametrize("module", MODULES)
def test_only_whole_reserved_words_are_not_spelled_out(module):
    table = module.Lexicon(reserved="map", characters=True)
    table.encode(b"<s> </s <un <unk <s <abc> <unk> </s>\n")
    words = table.spell(np.arange(len(table), dtype=np.int32))
    assert sorted(words) == sorted({"<unk>", "<s>", "</s>", *"</sunkabc>"})


@needs_compiled
@given(texts, st.sampled_from([None, 0]))
def test_fixed_tables_agree(data, unknown):
    words = [b"<unk>", b"</s>", b"a", b"<s>", b"123456789", "東京".encode(), b"y" * 17]
    tables = [m.Lexicon(words, unknown, 3, 1, fixed=True) for m in (pure, compiled)]
    assert outcome(tables[0], data) == outcome(tables[1], data)


@pytest.mark.parametrize("module", MODULES)
@given(data=texts)
def test_counts_are_those_of_python(module, data):
    table = module.Lexicon(reserved="whitespace")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        with pytest.raises(Trouble) as caught:
            table.encode(data)
        assert str(caught.value) == str(("utf-8", error.start))  # noqa: PT017
        return
    encoded = table.encode(data)
    words = text.encode().replace(b"\0", b" ").split()
    counter = collections.Counter(word for word in words if word not in (b"<s>", b"</s>"))
    spelled = table.spell(np.arange(len(table), dtype=np.int32))
    counted = {word.encode(): count for word, count in zip(spelled, table.counts(), strict=True)}
    assert {word: count for word, count in counted.items() if count} == counter
    assert len(encoded.ids) == counter.total() + encoded.sentences


@pytest.mark.parametrize("module", MODULES)
def test_many_words(module):
    table = module.Lexicon()
    numbers = np.random.default_rng(0).integers(0, 60_000, 200_000).tolist()
    lines = [b"%d \xe6\x9d\xb1%d a-word-longer-than-sixteen-%d\n" % (n, n, n) for n in numbers]
    for start in range(0, len(lines), 10_000):
        table.encode(b"".join(lines[start : start + 10_000]))
    expected = collections.Counter(b"".join(lines).split())
    order = table.order(3, 1)
    words = [word.encode() for word in table.spell(order)]
    assert dict(zip(words, table.counts()[order].tolist(), strict=True)) == expected
    assert words == sorted(expected, key=lambda word: (-expected[word], word))


@pytest.mark.parametrize("module", MODULES)
def test_order_of_words_that_begin_alike(module):
    table = module.Lexicon()
    random = np.random.default_rng(1)
    stems = ["", "abcdef", "abcdefgh", "abcdefghabcdefgh", "東京東京東"]
    ends = ["", "a", "b", "z", "ab", "é", "\U0001f600", "ab" * 9, "ab" * 9 + "c"]
    words = sorted({stem + end for stem in stems for end in ends} - {""})
    counts = dict(zip(words, random.integers(1, 4, len(words)).tolist(), strict=True))
    counts |= {"once-in-a-while": 5000, "often": 2**13, "abcdefgz": 2**13}
    lines = [word for word, count in counts.items() for _ in range(count)]
    table.encode("\n".join([*random.permutation(lines), ""]).encode())
    expected = sorted(counts, key=lambda word: (-counts[word], word))
    order = table.order(3, 1)
    assert table.lines(order).decode().split("\n")[:-1] == expected
    met = table.counts()[order]
    tabbed = "".join(f"{word}\t{counts[word]}\n" for word in expected)
    assert table.lines(order, met).decode() == tabbed
    assert table.lines(order[:0]) == table.lines(order[:0], met[:0]) == b""


@needs_compiled
def test_counts_of_any_size_are_written():
    table = compiled.Lexicon()
    counts = np.array([0, 9, 10, 2**63 - 1], np.int64)
    letters, ends = b"".join([b"a", b"b", b"c", b"d" * 40]), np.array([1, 2, 3, 43])
    ids = table.add(letters, ends, counts)
    assert table.order(3, 1).tolist() == [6, 5, 4]
    assert table.lines(ids, counts) == b"a\t0\nb\t9\nc\t10\n" + b"d" * 40 + b"\t%d\n" % (2**63 - 1)
    with pytest.raises(IndexError, match="there are 7 words"):
        table.lines(np.array([7], np.int32))
    with pytest.raises(ValueError, match="each word needs a count"):
        table.lines(ids, counts[:1])
    with pytest.raises(ValueError, match="negative"):
        table.lines(ids[:1], np.array([-1]))
    for wrong in ([0, 1], [2, 1], [44]):
        with pytest.raises(ValueError, match="is empty or ends outside"):
            table.add(letters, np.array(wrong), np.zeros(len(wrong), np.int64))


@pytest.mark.parametrize("module", MODULES)
def test_rare_words_of_another_table_are_left_out(module):
    first, second = module.Lexicon(), module.Lexicon()
    first.encode(b"a b\n")
    second.encode(b"b c c c d d\n")
    given = second.letters(), second.ends(), second.counts()
    assert first.add(*given, least=3).tolist() == [0, 1, 2, 4, 5, -1]
    assert first.counts().tolist() == [0, 0, 0, 1, 2, 3]


@pytest.mark.parametrize("module", MODULES)
def test_tables_are_added_and_searched(module):
    first, second = module.Lexicon(), module.Lexicon()
    first.encode(b"a b b\n")
    second.encode(b"b c c c long-long-long-long-word\n")
    given = second.letters(), second.ends(), second.counts()
    assert first.find(*given[:2]).tolist() == [0, 1, 2, 4, -1, -1]
    assert first.add(*given).tolist() == [0, 1, 2, 4, 5, 6]
    assert first.counts().tolist() == [0, 0, 0, 1, 3, 3, 1]
    parts = [module.Lexicon(() if module is pure else (b"<unk>", b"<s>", b"</s>")) for _ in "123"]
    found = [part.add(*given, number, 3) >= 0 for number, part in enumerate(parts)]
    assert np.sum(found, axis=0).tolist() == [1] * 6


@pytest.mark.parametrize("module", MODULES)
def test_recoding(module):
    table = np.array([5, 70_000, 7], np.int32)
    out = np.empty(4, np.int32)
    assert module.recode(np.array([1, 0, 2, 0], np.int32), table, 5, out) == 2
    assert out.tolist() == [70_000, 5, 7, 5]
    short = np.empty(1, np.uint16)
    assert module.recode(np.array([2], np.int32), table, -1, short) == 0
    assert short.tolist() == [7]
    for bad in (3, -4, 2**31 - 1, -(2**31)):
        with pytest.raises(IndexError):
            module.recode(np.array([bad], np.int32), table, 5, short)


@needs_compiled
def test_the_compiled_table_checks_what_it_is_given():
    table = compiled.Lexicon()
    with pytest.raises(ValueError, match="must end with a separator"):
        table.encode(b"abc")
    for ends in ([0], [4], [2, 2], [3, 2], [-1]):
        with pytest.raises(ValueError, match="empty or ends outside"):
            table.find(b"abc", np.array(ends))
    with pytest.raises(IndexError, match="id 3 at 0"):
        table.spell(np.array([3], np.int32))
    with pytest.raises(ValueError, match="a word occurs twice"):
        compiled.Lexicon([b"a", b"a", b"b"])
    with pytest.raises(ValueError, match="places in words"):
        compiled.Lexicon([b"a", b"b"], 0, 1, 2)
    assert table.encode(b"").ids.tolist() == []


def text_of_many_words():
    random = np.random.default_rng(7)
    ids = np.minimum(random.zipf(1.2, 120_000), 10**9)
    lines = np.split(ids, np.cumsum(random.integers(1, 30, 7000)))
    return "\n".join(" ".join(f"w{id}" for id in line) for line in lines)


@pytest.mark.parametrize("min_count", [1, 3])
@pytest.mark.parametrize("module", MODULES)
def test_the_same_folder_for_any_way_of_making_it(tmp_path, module, min_count):
    path = tmp_path / "text.txt"
    path.write_text(text_of_many_words(), encoding="utf-8")
    written = []
    ways = [(1, None, 1 << 20), (1, 1 << 20, 5000), (2, None, 4000), (2, 1 << 20, 3000)]
    ways += [(4, None, 2000)]
    reports = []
    for threads, memory, block_bytes in ways:
        preparation = Preparation(
            TextSettings(),
            min_count=min_count,
            threads=threads,
            memory=memory,
            block_bytes=block_bytes,
            module=module,
        )
        out, vocabulary = preparation.run(path, out=tmp_path / f"{threads}-{memory}")
        assert sorted(entry.name for entry in out.iterdir()) == [
            "corpus.json",
            "tokens.bin",
            "vocabulary.tsv",
        ]
        with Corpus.open(out) as corpus:
            corpus.verify()
            assert vocabulary == corpus.vocabulary
            assert vocabulary.words == corpus.vocabulary.words
            reports.append({**vars(corpus.report), "spills": None})
            assert bool(corpus.report.spills) == (memory is not None)
            written.append([(out / n).read_bytes() for n in ("tokens.bin", "vocabulary.tsv")])
    assert all(files == written[0] for files in written)
    assert all(report == reports[0] for report in reports)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_first_error_of_the_text_is_reported(tmp_path, threads):
    path = tmp_path / "text.txt"
    path.write_bytes(b"word\n" * 5000 + b"a <s> b\n" + b"word\n" * 5000 + b"\xff\n")
    preparation = Preparation(TextSettings(), threads=threads, block_bytes=1000)
    with pytest.raises(TextError, match=r"text\.txt:5001: the text holds <s>"):
        preparation.run(path, out=tmp_path / "corpus")
    assert [entry.name for entry in tmp_path.iterdir()] == ["text.txt"]
