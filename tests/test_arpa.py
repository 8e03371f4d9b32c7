"""ARPA files: written, read back, and refused when they are not what they say."""

from __future__ import annotations

import gzip
import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastnplm.arpa import read_arpa, write_arpa
from fastnplm.counts import count_ngrams
from fastnplm.errors import ModelError
from fastnplm.kneser_ney import kneser_ney
from fastnplm.smoothing import add_one, katz

WORDS = ["<unk>", "<s>", "</s>", "a", "b", "ü\xa0c", "茶", "\\data\\"]
START, END = 1, 2

sentences_of_words = st.lists(
    st.lists(st.sampled_from([0, 3, 4, 5, 6]), min_size=0, max_size=6), min_size=1, max_size=12
)


def stream(*sentences):
    return np.array([word for sentence in sentences for word in (*sentence, END)], dtype=np.int32)


def train(tokens, order, rule=kneser_ney):
    return rule(count_ngrams(tokens, len(WORDS), START, END, order))


@pytest.mark.parametrize("rule", [kneser_ney, katz, add_one])
@pytest.mark.parametrize("name", ["model.arpa", "model.arpa.gz"])
@settings(
    deadline=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(sentences=sentences_of_words, order=st.integers(1, 4))
def test_a_model_comes_back(tmp_path, rule, name, sentences, order):
    model = train(stream(*sentences), order, rule)
    write_arpa(model, WORDS, tmp_path / name)
    found, words = read_arpa(tmp_path / name)
    assert words == WORDS
    assert (found.start_id, found.end_id) == (START, END)
    for k in range(order):
        assert (found.keys[k] == model.keys[k]).all()
        np.testing.assert_allclose(
            found.log_probability[k], model.log_probability[k], rtol=1e-11, atol=1e-13
        )
    for left, right in zip(found.log_backoff, model.log_backoff, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-11, atol=1e-13)
    for context in ([], [START], [3, 4], [START, 3, 6], [7, 7]):
        assert abs(found.distribution(context).sum() - 1) < 1e-9
    assert {path.name for path in tmp_path.iterdir()} <= {"model.arpa", "model.arpa.gz"}


def test_the_file_is_the_format_other_toolkits_read(tmp_path):
    write_arpa(train(stream([3, 4], [3, 5]), 2), WORDS, tmp_path / "m")
    lines = (tmp_path / "m").read_bytes().decode().split("\n")
    assert lines[:5] == ["\\data\\", "ngram 1=8", "ngram 2=5", "", "\\1-grams:"]
    assert lines[6] == f"-99\t<s>\t{math.log10(0.5):.12g}"
    assert lines[7].split("\t")[1:] == ["</s>"]  # nothing follows: no back-off weight
    assert lines[13:15] == ["", "\\2-grams:"]
    assert [line.split("\t")[1] for line in lines[15:20]] == [
        "<s> a",
        "a b",
        "a ü\xa0c",
        "b </s>",
        "ü\xa0c </s>",
    ]
    assert lines[20:] == ["", "\\end\\", ""]


def test_the_same_model_gives_the_same_bytes(tmp_path):
    model = train(stream([3, 4], [3, 5]), 3)
    for name in ("one.gz", "two.gz"):
        write_arpa(model, WORDS, tmp_path / name)
    assert (tmp_path / "one.gz").read_bytes() == (tmp_path / "two.gz").read_bytes()


# As another toolkit would write it: words in its own order, spaces and tabs, a comment above,
# CRLF, a probability for <s>, n-grams in no order, back-off weights left out, no <unk>.
FOREIGN = (
    "made by hand\r\n\\data\\\r\nngram 1=4\r\nngram 2 = 3\r\n\r\n"
    "\\1-grams:\r\n-0.6 b\t0.1\r\n0 <s> -0.3\r\n-0.5\ta\t-0.2\r\n-0.4 </s>\r\n\r\n"
    "\\2-grams:\r\n-0.2 b </s>\r\n-0.1 <s>  a\r\n-0.7 <s> b\r\n\r\n\\end\\\r\nthe rest\r\n"
)


def test_a_file_of_another_toolkit_is_read(tmp_path):
    path = tmp_path / "foreign.arpa"
    path.write_bytes(FOREIGN.encode())
    model, words = read_arpa(path)
    assert words == ["<s>", "</s>", "b", "a"]
    want = np.array([-0.1, -0.2 - 0.6, -0.2]) * math.log(10)  # <s> a; a b is backed off; b </s>
    np.testing.assert_allclose(model.log_probabilities(np.array([3, 2, 1])), want, rtol=1e-14)
    assert model.distribution([0])[0] == 0
    assert model.counts is None


def test_ids_of_another_model_are_used_when_given(tmp_path):
    path = tmp_path / "foreign.arpa"
    path.write_bytes(FOREIGN.encode())
    model, words = read_arpa(path, ["a", "<s>", "b", "</s>"])
    assert words == ["a", "<s>", "b", "</s>"]
    assert (model.start_id, model.end_id) == (1, 3)
    want = np.array([-0.1, -0.2 - 0.6, -0.2]) * math.log(10)
    np.testing.assert_allclose(model.log_probabilities(np.array([0, 2, 3])), want, rtol=1e-14)
    with pytest.raises(ModelError, match=r"foreign.arpa:12: .* 'c' is missing"):
        read_arpa(path, ["a", "<s>", "b", "</s>", "c"])
    with pytest.raises(ModelError, match=r"foreign.arpa:12: .* 'a' is not in it"):
        read_arpa(path, ["<s>", "b", "</s>"])


GOOD = """\\data\\
ngram 1=4
ngram 2=2
ngram 3=1

\\1-grams:
-0.5\ta\t-0.2
-0.6\tb
-1\t<s>\t-0.3
-0.4\t</s>

\\2-grams:
-0.1\t<s> a\t-0.1
-0.2\ta b

\\3-grams:
-0.3\t<s> a b

\\end\\
"""


def test_the_good_file_of_the_next_test_is_good(tmp_path):
    (tmp_path / "m.arpa").write_text(GOOD)
    assert read_arpa(tmp_path / "m.arpa")[0].order == 3


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("\\data\\", "", 19, "not an ARPA file"),
        ("ngram 1=4", "", 3, "expected 'ngram 1"),
        ("ngram 1=4", "ngram 1=x", 2, "expected 'ngram 1"),
        ("ngram 1=4", "ngram 1=-4", 2, "expected 'ngram 1"),
        ("ngram 1=4", "ngram 1=99999999999999999999", 2, "expected 'ngram 1"),
        ("ngram 1=4", "ngram 1=3", 12, "after 4, but the header says 3"),
        ("ngram 1=4", "ngram 1=999999999999", 12, "after 4, but the header says 999999999999"),
        ("ngram 2=2", "ngram 3=2", 3, "expected 'ngram 2"),
        ("ngram 2=2\nngram 3=1\n", "", 5, "1 word; got 3 fields"),
        ("ngram 3=1", "", 13, "2 words; got 4 fields"),
        ("\\2-grams:", "\\3-grams:", 12, "expected .2-grams"),
        ("\\2-grams:", "", 13, "got 4 fields"),
        ("-0.6\tb", "-0.6", 8, "got 1 fields"),
        ("-0.6\tb", "-0.6\tb\t-1\t-1", 8, "got 4 fields"),
        ("-0.6\tb", "x\tb", 8, "expected a number, got b'x'"),
        ("-0.6\tb", "-1_0\tb", 8, "expected a number"),
        ("-0.6\tb", "nan\tb", 8, "expected a number"),
        ("-0.6\tb", "inf\tb", 8, "expected a number"),
        ("-0.6\tb", "0.6\tb", 8, "0.6 is positive"),
        ("-0.6\tb", "-0.6\tb\tinf", 8, "expected a number"),
        ("-0.6\tb", "-0.6\tb\t-inf", 8, "back-off weight of zero"),
        ("-0.6\tb", "-0.6\ta", 8, "'a' comes twice"),
        ("\t<s>\t-0.3", "\tc\t-0.3", 12, "without <s>"),
        ("\t</s>", "\tc", 12, "without </s>"),
        ("a b\n\n\\3", "a c\n\n\\3", 14, "'c' is not among the unigrams"),
        ("-0.2\ta b", "-0.2\t<s> a", 14, "2-gram that comes twice"),
        ("-0.2\ta b", "-0.2\ta <s>", 14, "2-gram that ends with <s>"),
        ("<s> a b", "b a b", 17, "3-gram without its context"),
        ("-0.3\t<s> a b", "-0.3\t<s> a b\t-0.1", 17, "got 5 fields"),
        ("\\end\\", "\\4-grams:", 19, "expected .end"),
        ("\\end\\\n", "", 18, "without .end"),
        ("\\3-grams:\n-0.3\t<s> a b\n\n\\end\\\n", "", 15, "without .end"),
        ("ngram 3=1\n" + GOOD.partition("ngram 3=1\n")[2], "", 3, "ends in its header"),
    ],
)
def test_a_malformed_file_is_refused_with_its_line(tmp_path, old, new, line, message):
    assert GOOD.count(old) == 1
    path = tmp_path / "m.arpa"
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(ModelError, match=rf"m\.arpa:{line}: .*({message})"):
        read_arpa(path)


def test_bytes_that_are_no_text_are_refused(tmp_path):
    path = tmp_path / "m.arpa"
    path.write_bytes(GOOD.encode().replace(b"-0.6\tb", b"-0.6\t\xff"))
    with pytest.raises(ModelError, match=r"m\.arpa:12: .*not UTF-8"):
        read_arpa(path)


def test_a_missing_or_damaged_file_is_refused(tmp_path):
    with pytest.raises(ModelError, match="No such file"):
        read_arpa(tmp_path / "m.arpa")
    path = tmp_path / "m.arpa.gz"
    path.write_bytes(gzip.compress(GOOD.encode())[:-20])
    with pytest.raises(ModelError, match="cannot be read"):
        read_arpa(path)
    path.write_bytes(GOOD.encode())
    with pytest.raises(ModelError, match="cannot be read: Not a gzipped file"):
        read_arpa(path)


def test_a_failed_write_leaves_nothing(tmp_path):
    model = train(stream([3, 4]), 2)
    with pytest.raises(ValueError, match="shorter"):
        write_arpa(model, WORDS[:3], tmp_path / "m.arpa")
    assert list(tmp_path.iterdir()) == []
