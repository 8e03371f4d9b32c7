"""The demonstration: its text, its honesty, its time."""

import json
import math
import time

import pytest
from click.testing import CliRunner

import fastnplm
from fastnplm import demo
from fastnplm.command import commands


def test_no_sentence_is_in_two_parts():
    training, validation, test = demo.sentences()
    parts = [{tuple(words) for words in part} for part in (training, validation, test)]
    assert sum(map(len, parts)) == len(set.union(*parts))
    assert len(training) == len(parts[0]) > 500
    assert len(training) == pytest.approx(8 * len(test), rel=0.1)
    assert len(validation) == pytest.approx(len(test), abs=1)


def test_sentences_are_cut_and_cleaned():
    topics = {
        "b": "The *third* thing. The first thing!\n\n   x = [1]\n",
        "a": 'The "first"\nthing is here.  See\nalso (the other place that comes later).\n\n'
        "The first thing is here.",
    }
    training, validation, test = demo.sentences(topics)
    assert [" ".join(words) for words in training] == [
        "the first thing is here .",
        "see also ( the other place that comes later ) .",
        "the third thing .",
    ]
    assert [" ".join(words) for words in validation] == ["the first thing !"]
    assert test == []


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(demo, "MODEL", {"context": 2, "dim": 8, "hidden": 8})
    monkeypatch.setattr(demo, "TRAINING", {"epochs": 2, "batch_size": 256})


def test_what_it_prints(small, tmp_path):
    result = CliRunner().invoke(commands, ["demo", "-o", str(tmp_path / "m")])
    assert result.exit_code == 0, result.output
    for part in ("validation perplexity", "unigram", "trigram", "next words", "similar vectors"):
        assert part in result.stdout
    assert result.stderr == ""
    with fastnplm.Corpus.prepare(demo.sentences()[1], min_count=1) as corpus:
        assert len(corpus) > 0
    model = fastnplm.load(tmp_path / "m")
    perplexity = fastnplm.evaluate(model, demo.sentences()[2]).perplexity
    assert f"{perplexity:7.2f}  this network" in result.stdout
    again = CliRunner().invoke(commands, ["demo", "-o", str(tmp_path / "m")])
    assert again.exit_code == 1
    assert "--overwrite" in again.stderr


def test_quiet_and_json(small):
    assert CliRunner().invoke(commands, ["demo", "--quiet"]).output == ""
    result = CliRunner().invoke(commands, ["demo", "--json"])
    found = json.loads(result.stdout)
    assert len(found["perplexities"]) == 2
    assert all(math.isfinite(value) for value in found["test"].values())


def test_its_texts_can_be_had(tmp_path):
    for _ in range(2):
        result = CliRunner().invoke(commands, ["demo", "--text", str(tmp_path / "texts")])
        assert result.exit_code == 0
    for name, part in zip(("train", "valid", "test"), demo.sentences(), strict=True):
        text = (tmp_path / "texts" / f"{name}.txt").read_text()
        assert text == "".join(" ".join(words) + "\n" for words in part)


@pytest.mark.slow
def test_a_minute_is_enough_and_the_network_earns_its_place():
    began = time.monotonic()
    found = demo.run(quiet=True)
    assert time.monotonic() - began < 60
    test = found["test"]
    assert test["this network"] < 1.1 * test["trigram, interpolated Kneser-Ney"]
    assert test["network and trigram mixed"] < min(
        test["this network"], test["trigram, interpolated Kneser-Ney"]
    )
    assert test["this network"] < test["unigram counts"] / 3
