"""Cases from the field that go through a whole pipeline: text, corpus, training, export, import."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import runs

import fastnplm
from fastnplm import word2vec
from fastnplm.errors import CorpusError

ROOT = str(Path(__file__).parents[1])
# Of vocabulary.tsv for the text of test_fc_19.
VOCABULARY_SHA256 = "1b5a7e83cb6fd3b0ec2392e21873896f3508159aa9571ae206a9b5511c834032"
SMALL = ["--dim", "4", "--hidden", "6", "--context", "2", "--epochs", "1", "--seed", "1"]


def command(*arguments, folder, **environment):
    """Start the command in ``folder``."""
    return subprocess.Popen(
        [sys.executable, "-m", "fastnplm", *map(str, arguments)], cwd=folder,
        env={**os.environ, "PYTHONPATH": ROOT, **environment}, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip


def done(process):
    """Wait for a process that must succeed; what it wrote on both streams."""
    out, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors.decode("utf-8", "replace")
    return out, errors


def contents(folder):
    """Bytes of every file of a pipeline by name, without what the clock wrote."""
    found = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        if path.name not in ("history.jsonl", "manifest.json"):
            found[path.relative_to(folder).as_posix()] = path.read_bytes()
    return found


def test_fc_03_training_and_export_do_not_depend_on_the_locale(tmp_path):
    written = []
    for number, locale in enumerate(
        (
            {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
            {"LC_ALL": "C.UTF-8"},
            {"LC_ALL": "en_US.ISO-8859-1", "PYTHONUTF8": "0", "PYTHONIOENCODING": "latin-1"},
        )
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "c.txt").write_text("naïve Straße 東京 naïve\n", encoding="utf-8")
        shared = {"folder": folder, **locale}
        done(command("prepare", "c.txt", "-o", "corpus", "--min-count", 1, **shared))
        done(command("train", "corpus", "-o", "model", *SMALL, "--threads", 1, **shared))
        done(command("export", "model", "--format", "word2vec", "out.vec", **shared))
        shown, _ = done(command("predict", "model", "naïve", "-k", 9, **shared))
        words = shown.decode("latin-1" if number == 2 else "utf-8")
        assert ("東京" in words) != ("\\u6771\\u4eac" in words)
        written.append(contents(folder))
    assert len(written[0]) > 6
    assert written[0] == written[1] == written[2]


def test_fc_06_a_very_long_line_is_trained_on_in_full(tmp_path):
    (tmp_path / "c.txt").write_bytes(b"a b " * 50_000 + b"z\n")
    with fastnplm.Corpus.prepare(tmp_path / "c.txt", min_count=1) as corpus:
        history = fastnplm.train(
            runs.network(corpus), corpus, epochs=1, batch_size=1000, quiet=True
        )
        assert history.epochs[0]["tokens"] == 100_002  # and </s>
        assert corpus.vocabulary.counts[corpus.vocabulary["z"]] == 1


@pytest.mark.parametrize("policy", ["whitespace", "map"])
def test_fc_09_each_reserved_symbol_has_one_exported_row(tmp_path, policy):
    (tmp_path / "c.txt").write_text("<s> a <unk> b </s>\na </s> b\n")
    with fastnplm.Corpus.prepare(tmp_path / "c.txt", min_count=1, reserved=policy) as corpus:
        model = runs.network(corpus)
        model.save(tmp_path / "model")
    done(command("export", "model", "--format", "word2vec", "out.vec", folder=tmp_path))
    rows = [line.split(" ")[0] for line in (tmp_path / "out.vec").read_text().splitlines()[1:]]
    assert len(set(rows)) == len(rows)
    assert all(rows.count(symbol) <= 1 for symbol in ("<unk>", "<s>", "</s>"))
    assert {"a", "b"} <= set(rows)


def test_fc_10_either_spelling_asks_the_model(tmp_path):
    composed, decomposed = "caf\xe9", "cafe\u0301"
    (tmp_path / "c.txt").write_text(f"{composed} x\n{decomposed} x\n", encoding="utf-8")
    found = {}
    for normalize in (None, "NFC"):
        with fastnplm.Corpus.prepare(
            tmp_path / "c.txt", min_count=1, normalize=normalize
        ) as corpus:
            model = runs.network(corpus)
            fastnplm.train(model, corpus, epochs=2, quiet=True)
            model.save(tmp_path / f"{normalize}")
        model = fastnplm.load(tmp_path / f"{normalize}")
        found[normalize] = [model.predict(word, k=3) for word in (composed, decomposed)]
        known = [model.vocabulary[word] for word in (composed, decomposed)]
        assert (known[0] == known[1]) == (normalize == "NFC")
        assert model.vocabulary.unk_id not in known
    assert found["NFC"][0] == found["NFC"][1]
    assert found[None][0] != found[None][1]


def test_fc_19_files_have_fixed_widths_and_a_stated_order(tmp_path):
    """The hashes are those of these bytes wherever they are written."""
    (tmp_path / "c.txt").write_bytes(b"b a b\nc b\n")
    fastnplm.Corpus.prepare(tmp_path / "c.txt", out=tmp_path / "corpus", min_count=1).close()
    stream = (tmp_path / "corpus" / "tokens.bin").read_bytes()
    assert stream == bytes([3, 0, 4, 0, 3, 0, 2, 0, 5, 0, 3, 0, 2, 0])
    digest = hashlib.sha256((tmp_path / "corpus" / "vocabulary.tsv").read_bytes()).hexdigest()
    assert digest == VOCABULARY_SHA256
    words = [f"w{number:05d}" for number in range(65_534)]
    with fastnplm.Corpus.prepare([words], out=tmp_path / "wide", min_count=1) as corpus:
        assert corpus.tokens.dtype == np.dtype("<i4")
    stream = (tmp_path / "wide" / "tokens.bin").read_bytes()
    assert stream[:8] == bytes([3, 0, 0, 0, 4, 0, 0, 0])
    assert len(stream) == 4 * 65_535


def test_fc_45_long_words_through_training_export_and_import(tmp_path):
    lengths = [49, 102, 255, 256, 1002, 1024, 4096, 65_535, 65_538]
    words = ["x" * (length - 3) + f"{place:03d}" for place, length in enumerate(lengths)]
    with fastnplm.Corpus.prepare([[word] for word in words], min_count=1) as corpus:
        model = runs.network(corpus)
        fastnplm.train(model, corpus, epochs=1, quiet=True)
        model.save(tmp_path / "model")
        for kind in ([], ["--binary"]):
            out = f"{len(kind)}.vec"
            done(command("export", "model", "--format", "word2vec", *kind, out, folder=tmp_path))
            begun = runs.network(corpus, seed=9)
            known = word2vec.fill(begun.vocabulary, begun.embedding, tmp_path / out)
            assert known >= len(words)
            for word in words:
                row = corpus.vocabulary[word]
                np.testing.assert_allclose(begun.embedding[row], model.embedding[row], rtol=1e-6)


def test_fc_46_the_corpus_shrinks_while_it_is_trained_on(tmp_path, monkeypatch):
    (tmp_path / "c.txt").write_text("a b c d e f g\n" * 20_000)
    out = tmp_path / "corpus"
    corpus = fastnplm.Corpus.prepare(tmp_path / "c.txt", out=out, min_count=1)
    stream = out / "tokens.bin"
    options = {
        "batch_size": 1000, "epochs": 3, "quiet": True, "out": tmp_path / "model", "seed": 1,
        "checkpoint_every": 10, "kernels": runs.kernels(),
    }  # fmt: skip
    whole, seen = stream.read_bytes(), []
    check = type(corpus).check

    def shrink(self):
        seen.append(1)
        if len(seen) == 57:
            os.truncate(stream, stream.stat().st_size // 2)
        check(self)

    with corpus, monkeypatch.context() as patch:
        patch.setattr(type(corpus), "check", shrink)
        with pytest.raises(CorpusError, match=r"tokens\.bin has 160,000 bytes, but 160,000 tokens"):
            fastnplm.train(runs.network(corpus), corpus, **options)
    stream.write_bytes(whole)
    with fastnplm.Corpus.open(out) as corpus:
        history = fastnplm.train(runs.network(corpus), corpus, resume=True, **options)
    assert history.updates == 480


def test_fc_52_two_pipelines_at_the_same_moment(tmp_path):
    for number, line in ((1, "a b c\n"), (2, "d e f\n")):
        (tmp_path / f"c{number}.txt").write_text(line * 500)

    def pipeline(number, name):
        script = (
            f"{sys.executable} -m fastnplm prepare c{number}.txt -o {name}-corpus -q && "
            f"{sys.executable} -m fastnplm train {name}-corpus -o {name}-model -q "
            f"{' '.join(SMALL)} && "
            f"{sys.executable} -m fastnplm export {name}-model --format word2vec {name}.vec"
        )
        return subprocess.Popen(
            script, shell=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": ROOT}
        )

    together = [pipeline(number, f"t{number}") for number in (1, 2)]
    assert [process.wait(300) for process in together] == [0, 0]
    for number in (1, 2):
        assert pipeline(number, f"s{number}").wait(300) == 0
    found = contents(tmp_path)
    for number in (1, 2):
        ours = {n[2:]: data for n, data in found.items() if n.startswith(f"t{number}")}
        theirs = {n[2:]: data for n, data in found.items() if n.startswith(f"s{number}")}
        assert ours == theirs
        assert len(ours) == 7
    kinds = ("-corpus", "-model", ".vec")
    expected = [f"{way}{number}{kind}" for way in "st" for number in (1, 2) for kind in kinds]
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {*expected, "c1.txt", "c2.txt"}
