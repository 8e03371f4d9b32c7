"""The network: its equations, gradients by central differences, parameters in and out."""

import numpy as np
import pytest

from fastnplm import NPLM, Vocabulary
from fastnplm.errors import IdError, ModelError, SettingsError

WORDS = ["<unk>", "<s>", "</s>", "a", "b", "c", "d"]


SHAPES = [
    {},
    {"direct": True},
    {"direct": True, "hidden": 0},
    {"layers": 2},
    {"direct": True, "layers": 2},
    {"tied": True},
    {"tied": True, "layers": 2, "dim": 4},
    {"tied": True, "direct": True},
    {"tied": True, "direct": True, "layers": 2, "dim": 4},
    {"tied": True, "direct": True, "hidden": 0},
    {"hashed": 5},
    {"hashed": 5, "direct": True, "layers": 2},
    {"hashed": 5, "tied": True, "dim": 4},
    {"hashed": 5, "tied": True, "direct": True},
]


def _network(**settings):
    vocabulary = Vocabulary.from_words(WORDS, counts=[1, 0, 4, 9, 5, 3, 2])
    settings = {"context": 3, "dim": 2, "hidden": 4, "dtype": "float64", "seed": 3} | settings
    return NPLM(vocabulary, **settings)


@pytest.mark.parametrize("direct", [False, True])
def test_the_equations(direct):
    network = _network(direct=direct)
    contexts = [[3, 4, 5], [1, 1, 6]]
    found = network.forward(contexts)
    for row, context in enumerate(contexts):
        x = np.concatenate([network.embedding[word] for word in context])
        hidden = np.tanh(network.hidden_weight @ x + network.hidden_bias)
        score = network.output_weight @ hidden + network.output_bias
        if direct:
            score = score + network.direct_weight @ x
        assert found.hidden[row] == pytest.approx(hidden, rel=1e-12)
        assert found.scores[row] == pytest.approx(score, rel=1e-12)


def test_direct_connections_of_a_tied_model_go_through_the_projection():
    network = _network(direct=True, tied=True)
    assert network.projection_weight.shape == (2, 4 + 3 * 2)
    found = network.forward([[3, 4, 5]])
    x = np.concatenate([network.embedding[word] for word in (3, 4, 5)])
    hidden = np.tanh(network.hidden_weight @ x + network.hidden_bias)
    below = np.concatenate([hidden, x])
    projection = network.projection_weight @ below + network.projection_bias
    expected = network.embedding @ projection + network.output_bias
    assert found.scores[0] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_saved_model_gives_the_probabilities_of_its_equations(shape, tmp_path):
    network = _network(**shape)
    contexts = [[1, 1, 1], [1, 1, 3], [1, 3, 6]]
    scores = network.forward(contexts).scores
    expected = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    network.save(tmp_path / "model")
    for model in (network, NPLM.load(tmp_path / "model")):
        for row, context in zip(expected, contexts, strict=True):
            assert np.log(model.distribution(context)) == pytest.approx(row, rel=1e-9)
        found = model.log_probabilities(np.array([3, 6, 2], np.int32))
        assert found == pytest.approx(expected[[0, 1, 2], [3, 6, 2]], rel=1e-9)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gradients_by_central_differences(shape):
    contexts, targets = [[3, 4, 3], [1, 5, 5], [1, 1, 1]], [4, 2, 3]
    weights = np.array([0.5, 0.25, 1.0])

    def loss(network):
        return network.backward(network.forward(contexts), targets, weights).losses @ weights

    network = _network(**shape)
    gradients = network.backward(network.forward(contexts), targets, weights)
    dense = np.zeros_like(network.embedding)
    dense[gradients.embedding_ids] = gradients.embedding_rows
    width = 1e-5
    for name, value in network.parameters.items():
        found = dense if name == "embedding" else gradients[name]
        for index in np.ndindex(value.shape):
            value[index] += width
            above = loss(network)
            value[index] -= 2 * width
            below = loss(network)
            value[index] += width
            numeric = (above - below) / (2 * width)
            assert found[index] == pytest.approx(numeric, rel=1e-6, abs=1e-10), (name, index)


def test_apply_is_plain_gradient_descent():
    network = _network(direct=True)
    before = {name: value.copy() for name, value in network.parameters.items()}
    gradients = network.backward(network.forward([[3, 3, 4]]), [5])
    network.apply(gradients, 0.5)
    untouched = [i for i in range(len(WORDS)) if i not in (3, 4)]
    assert (network.embedding[untouched] == before["embedding"][untouched]).all()
    for name in ("hidden_weight", "output_weight", "output_bias", "direct_weight"):
        expected = before[name] - 0.5 * getattr(gradients, name)
        assert network.parameters[name] == pytest.approx(expected, rel=1e-12)


def test_the_initial_values():
    network = _network(dim=40, hidden=30)
    assert np.abs(network.embedding).max() <= 0.1
    assert np.abs(network.embedding).max() > 0.09
    shares = np.array([1, 4, 9, 5, 3, 2]) / 24
    assert np.exp(network.output_bias[[0, 2, 3, 4, 5, 6]]) == pytest.approx(shares)
    assert network.output_bias[1] == -60
    again = _network(dim=40, hidden=30)
    assert all((again.parameters[name] == network.parameters[name]).all() for name in
               network.parameters)  # fmt: skip
    assert (_network(dim=40, hidden=30, seed=4).embedding != network.embedding).any()
    single = _network(dim=40, hidden=30, dtype="float32")
    assert single.embedding == pytest.approx(network.embedding, abs=1e-8)


def test_assigning_copies_values_in():
    network = _network(direct=True)
    values = np.arange(len(WORDS) * 4.0).reshape(len(WORDS), 4)
    network.output_weight = values
    values += 1
    assert (network.output[:, :4] == values - 1).all()
    with pytest.raises(
        ModelError, match=r"embedding has shape \(7, 2\); the given values \(2, 7\)"
    ):
        network.embedding = np.zeros((2, 7))
    with pytest.raises(ModelError, match="no direct_weight"):
        _network().direct_weight = np.zeros((7, 6))


@pytest.mark.parametrize("bad", [-1, 7, 2**31, -(2**31), 2**63 - 1])
def test_ids_outside_the_vocabulary_are_refused(bad):
    network = _network()
    with pytest.raises(IdError, match=rf"contexts holds {bad} at position 4; ids are in \[0, 7\)"):
        network.forward(np.array([[3, 4, 5], [1, bad, 2]]))
    with pytest.raises(IdError, match=rf"targets holds {bad} at position 0"):
        network.backward(network.forward([[3, 4, 5]]), np.array([bad]))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"context": 0}, "context is 0; expected a whole number of at least 1"),
        ({"dim": 1.5}, "dim is 1.5"),
        ({"hidden": True}, "hidden is True"),
        ({"dtype": "float16"}, "dtype is 'float16'"),
        ({"output_bias": "random"}, "output_bias is 'random'"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings, message):
    with pytest.raises(SettingsError, match=message):
        _network(**settings)


def test_a_context_of_another_width_is_refused():
    with pytest.raises(ModelError, match="contexts has 2 words a row, but this model reads 3"):
        _network().forward([[3, 4]])


def test_a_number_that_is_not_finite_is_found():
    network = _network()
    network.hidden_weight[1, 2] = np.nan
    with pytest.raises(ModelError, match="hidden_weight holds a number that is not finite"):
        network.require_finite("now")
