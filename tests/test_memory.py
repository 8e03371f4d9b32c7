"""Training holds the parameters once: no second table, no B x V scores beyond the buffer."""

import pytest
from tracing import peak_of

import fastnplm

SIZE, DIM, HIDDEN, BATCH, MIB = 40_000, 100, 120, 256, 2**20
TABLE = SIZE * DIM * 4  # bytes of the smallest array of size V x M, V x H or B x V here


@pytest.fixture(scope="module")
def corpus():
    with fastnplm.Corpus.prepare(
        (" ".join(f"w{10 * line + at}" for at in range(10)) for line in range(SIZE // 10)),
        min_count=1,
    ) as made:
        yield made


def _trained(corpus, tmp_path, **settings):
    model = fastnplm.NPLM(corpus.vocabulary, context=2, dim=DIM, hidden=HIDDEN)
    small = fastnplm.Corpus.prepare(["w1 w2 w3"], vocabulary=corpus.vocabulary)
    with small:
        return peak_of(
            lambda: fastnplm.train(
                model, small, valid=small, optimizer="sgd", epochs=2, batch_size=BATCH,
                threads=1, quiet=True, out=tmp_path / "m", **settings,
            )
        )  # fmt: skip


@pytest.mark.parametrize("loss", ["softmax", "ns", "nce"])
def test_a_run_allocates_no_second_table(corpus, tmp_path, loss):
    assert _trained(corpus, tmp_path, loss=loss, buffer_mib=1) < TABLE


@pytest.mark.parametrize("loss", ["softmax", "ns"])
@pytest.mark.parametrize("buffer_mib", [0, 8])
def test_a_step_keeps_to_its_buffer(corpus, loss, buffer_mib):
    model = fastnplm.NPLM(corpus.vocabulary, context=2, dim=DIM, hidden=HIDDEN)
    model.adopt({"softmax": fastnplm.Softmax(), "ns": fastnplm.NegativeSampling(10)}[loss])
    contexts = (corpus.tokens[: 2 * BATCH].astype("int32").reshape(BATCH, 2)).copy()
    targets = corpus.tokens[2 * BATCH : 3 * BATCH].astype("int32")

    def run():
        step = fastnplm.Step(model, "sgd", BATCH, threads=1, buffer_mib=buffer_mib)
        step(contexts, targets)

    assert peak_of(run) < TABLE + buffer_mib * MIB


def test_the_measure_sees_a_second_table(corpus):
    model = fastnplm.NPLM(corpus.vocabulary, context=2, dim=DIM, hidden=HIDDEN)
    assert peak_of(lambda: model.embedding.copy()) >= TABLE
