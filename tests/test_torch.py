"""The same network in PyTorch: loss and every gradient, by its autograd."""

import judges
import numpy as np
import pytest
from subjects import SUBJECTS

from fastnplm.kernels import reference

torch = pytest.importorskip("torch", reason="torch is not installed (extra torch)")

B, N, M, H, V, K = 33, 3, 7, 11, 23, 5
LOSSES = ("softmax", "ns", "nce")
TAKEN = np.array([1.0, 0, 0, 0, 0, 1])  # plain descent at rate 1: what moves is the gradient


def network(dtype):
    """Parameters and a batch with words several times over; values exact in float32."""
    rng = np.random.default_rng(8)

    def values(*shape, scale=1.0):
        return (rng.standard_normal(shape) * scale).astype(np.float32).astype(dtype)

    weights = np.full(B, 1 / 32)
    weights[::5] = 0
    parameters = {
        "embedding": values(V, M),
        "hidden_weight": values(H, N * M, scale=0.3),
        "hidden_bias": values(H),
        "output_weight": values(V, H, scale=0.5),
        "output_bias": values(V),
    }
    batch = {
        "contexts": rng.integers(0, V // 2, (B, N)).astype(np.int32),
        "targets": rng.integers(0, V, B).astype(np.int32),
        "weights": weights.astype(dtype),
        "noise": rng.integers(0, V, (B, K)).astype(np.int32),
        "offsets": np.log(K * rng.dirichlet(np.ones(V))).astype(np.float32).astype(dtype),
    }
    return parameters, batch


def by_torch(loss):
    """(losses, gradient of each parameter) by autograd in float64, as NumPy arrays."""
    parameters, batch = network(np.float64)
    p = {k: torch.tensor(v, requires_grad=True) for k, v in parameters.items()}
    contexts, targets, noise = (
        torch.tensor(batch[name].astype(np.int64)) for name in ("contexts", "targets", "noise")
    )
    inputs = p["embedding"][contexts].reshape(B, N * M)
    hidden = torch.tanh(torch.nn.functional.linear(inputs, p["hidden_weight"], p["hidden_bias"]))
    scores = torch.nn.functional.linear(hidden, p["output_weight"], p["output_bias"])
    if loss == "softmax":
        losses = torch.nn.functional.cross_entropy(scores, targets, reduction="none")
    else:
        if loss == "nce":
            scores = scores - torch.tensor(batch["offsets"])
        words = torch.cat([targets[:, None], noise], dim=1)
        labels = torch.zeros(B, K + 1, dtype=torch.float64)
        labels[:, 0] = 1
        losses = torch.nn.functional.binary_cross_entropy_with_logits(
            scores.gather(1, words), labels, reduction="none"
        ).sum(dim=1)
    weights = torch.tensor(batch["weights"])
    (losses * weights).sum().backward()
    kept = np.where(batch["weights"] == 0, 0, losses.detach().numpy())
    return {"losses": kept} | {name: value.grad.numpy() for name, value in p.items()}


def by_kernels(module, loss, dtype):
    """The same by the kernels: a step of plain descent at rate 1."""
    parameters, batch = network(dtype)
    p = {name: value.copy() for name, value in parameters.items()}
    out = {
        "losses": np.empty(B),
        "hidden_weight": np.empty_like(p["hidden_weight"]),
        "hidden_bias": np.empty_like(p["hidden_bias"]),
    }
    hidden, grad_hidden = np.empty((B, H), dtype), np.empty((B, H), dtype)
    layer = {"contexts": batch["contexts"], "weight": p["hidden_weight"]}
    judges.call(
        module,
        "words_forward",
        {**layer, "bias": p["hidden_bias"], "embedding": p["embedding"], "hidden": hidden},
    )
    output = {
        "hidden": hidden,
        "targets": batch["targets"],
        "weights": batch["weights"],
        "rule": "sgd",
        "hyper": TAKEN,
        "losses": out["losses"],
        "grad_hidden": grad_hidden,
        "output_weight": p["output_weight"],
        "output_bias": p["output_bias"],
        "weight_slots": np.empty((0, V, H), dtype),
        "bias_slots": np.empty((0, V), dtype),
    }
    if loss == "softmax":
        judges.call(module, "softmax_step", {**output, "precision": "float32"})
    else:
        offsets = batch["offsets"] if loss == "nce" else np.empty(0, dtype)
        sampled = {"noise": batch["noise"], "block": 1, "skip_target": False, "offsets": offsets}
        judges.call(module, "negative_step", {**output, **sampled})
    judges.call(
        module,
        "words_backward",
        {
            **layer,
            "hidden": hidden,
            "rule": "sgd",
            "hyper": TAKEN,
            "grad_hidden": grad_hidden,
            "grad_weight": out["hidden_weight"],
            "grad_bias": out["hidden_bias"],
            "embedding": p["embedding"],
            "slots": np.empty((0, V, M), dtype),
        },
    )
    for name in ("embedding", "output_weight", "output_bias"):
        out[name] = parameters[name].astype(np.float64) - p[name]
    return out


@pytest.mark.parametrize("loss", LOSSES)
def test_reference_matches_autograd_in_float64(loss):
    ours, theirs = by_kernels(reference, loss, np.float64), by_torch(loss)
    for name, wanted in theirs.items():
        # relative to the gradient: the parameter it is taken off is up to 1e3 times larger
        size = np.abs(wanted).max()
        assert size > 1e-3, name
        assert ours[name] == pytest.approx(wanted, rel=1e-10, abs=1e-10 * size), name


@pytest.mark.parametrize("subject", SUBJECTS)
@pytest.mark.parametrize("loss", LOSSES)
def test_subject_matches_autograd_as_well_as_numpy(subject, loss):
    theirs = by_torch(loss)
    yardstick = by_kernels(reference, loss, np.float32)
    with subject() as module:
        ours = by_kernels(module, loss, np.float32)
    parameters, _ = network(np.float32)
    for name, wanted in theirs.items():
        error = np.abs(ours[name] - wanted)
        row_of_yardstick = np.abs(yardstick[name] - wanted).max(axis=-1, keepdims=True)
        # a step is read off the parameter, which is rounded to its own last place
        size = np.abs(wanted) + np.abs(parameters.get(name, 0)) + np.abs(wanted).max()
        allowed = np.maximum(4 * row_of_yardstick, 8 * np.finfo(np.float32).eps * size)
        assert (error <= allowed).all(), f"{name} is off by {error.max():.3g}"
