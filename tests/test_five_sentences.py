"""Five sentences of a tutorial are learnt: what one drinks and what one eats come out apart."""

import pytest

import fastnplm
from fastnplm.kernels import NAMES, load

SENTENCES = [
    "我 今天 想 喝 咖啡",
    "我 今天 想 喝 茶",
    "我 昨天 想 喝 牛奶",
    "他 今天 想 吃 苹果",
    "她 明天 想 吃 蛋糕",
]


@pytest.fixture(params=[name for name in NAMES if name != "auto"])
def kernels(request):
    try:
        load(request.param)
    except fastnplm.Error as error:
        pytest.skip(str(error))
    return request.param


def test_drinks_after_drinking_and_food_after_eating(kernels):
    train_and_ask(kernels, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
def test_whatever_the_seed(seed):
    train_and_ask("auto", seed)


def train_and_ask(kernels, seed):
    with fastnplm.Corpus.prepare(SENTENCES, min_count=1) as corpus:
        model = fastnplm.NPLM(corpus.vocabulary, context=2, dim=32, hidden=64, seed=seed)
        before = fastnplm.evaluate(model, corpus, kernels=kernels).perplexity
        history = fastnplm.train(
            model, corpus, optimizer="sgd", lr=0.1, schedule="constant", batch_size=1,
            epochs=100, seed=seed, kernels=kernels, threads=1, quiet=True,
        )  # fmt: skip
        after = fastnplm.evaluate(model, corpus, kernels=kernels).perplexity
    assert history.updates == 100 * 30
    assert before > 10 > after
    assert after == pytest.approx(1.6, abs=0.3)
    drinks = [word for word, _ in model.predict("想 喝", k=3)]
    assert sorted(drinks) == sorted(["咖啡", "茶", "牛奶"])
    food = [word for word, _ in model.predict("想 吃", k=2)]
    assert sorted(food) == sorted(["苹果", "蛋糕"])


def test_the_empty_beginning_is_who_speaks():
    with fastnplm.Corpus.prepare(SENTENCES, min_count=1) as corpus:
        model = fastnplm.NPLM(corpus.vocabulary, context=2, dim=32, hidden=64)
        fastnplm.train(
            model, corpus, optimizer="adam", lr=0.01, batch_size=5, epochs=100, quiet=True
        )
    shares = dict(model.predict("", k=3))
    assert set(shares) == {"我", "他", "她"}
    assert shares["我"] == pytest.approx(3 / 5, abs=0.1)
