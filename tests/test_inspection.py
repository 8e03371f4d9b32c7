"""What is said about a text, on texts whose answers are known."""

import json

import pytest

from fastnplm.errors import CorpusError
from fastnplm.inspection import inspect


def test_every_figure(tmp_path):
    path = tmp_path / "c.txt"
    path.write_bytes(
        "a b\r\na b\r\n\n这們 a\u200b c\n<unk> <s> x\rlonger\n".encode() + b"caf\xe9 a\n"
    )
    found = inspect(path)
    assert (found.lines, found.blank_lines, found.duplicate_lines) == (6, 1, 1)
    assert (found.crlf_lines, found.lone_carriage_returns, found.damaged_lines) == (2, 1, 1)
    assert "c.txt:6: byte 0xe9" in found.first_damage
    assert found.reserved_words == {"<unk>": 1, "<s>": 1}
    assert (found.words, found.types, found.seen_once) == (12, 8, 6)
    assert (found.longest_word, found.longest_line) == ("longer", 4)
    assert found.control_characters == {"U+200B": 1}
    assert (found.simplified, found.traditional) == (1, 1)
    assert [row["vocabulary"] for row in found.coverage] == [11, 5, 4, 3, 3]
    assert "Latin" in found.scripts
    assert "Han" in found.scripts
    assert json.loads(json.dumps(found.as_dict()))["lines"] == 6
    page = found.page()
    assert "simplified and traditional mixed" in page
    assert "suggestion   --min-count" in page


def test_a_text_without_words(tmp_path):
    (tmp_path / "c.txt").write_bytes(b"\n \n")
    with pytest.raises(CorpusError, match="no tokens"):
        inspect(tmp_path / "c.txt")


@pytest.mark.corpus
def test_brown(data):
    found = inspect(data / "brown" / "brown.train.txt.gz")
    assert (found.words, found.types, found.lines) == (800_001, 46_187, 35_523)
    known = {row["min_count"]: row for row in found.coverage}
    assert known[1]["known"] == 1
    assert known[3]["vocabulary"] < known[2]["vocabulary"] < known[1]["vocabulary"] == 46_190
    assert found.suggestion["dim"] == 60
