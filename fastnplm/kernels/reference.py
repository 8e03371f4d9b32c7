"""The specification: every kernel of fastnplm in plain NumPy.

``native`` (compiled from csrc/) and ``jitted`` (Numba) have the same functions with the same
arguments and must give the same results up to rounding; tests/ compares their signatures and
their answers. These stand in ``reference_*.py``. Inputs come first, arrays that are written come
last. Floating arrays are float32; these kernels alone also take float64 throughout (all floating
arrays of a call alike).

Sizes: B examples, N context words, M embedding width, H width of the layer below the output,
V vocabulary, K noise words an example, S state slots of the optimiser's rule (contract.SLOTS).

An optimiser's rule is a name and six numbers, ``hyper`` = (learning_rate, decay, epsilon, beta1,
beta2, correction), float64. With g the summed gradient of an element, w the element:

    every rule   w *= 1 - decay                       (biases are never decayed)
    sgd          w -= learning_rate * g
    momentum     v = beta1 * v + g;  w -= learning_rate * v
    adagrad      v += g * g;         w -= learning_rate * g / (sqrt(v) + epsilon)
    rmsprop      v = beta2 * v + (1 - beta2) * g * g;  w -= learning_rate * g / (sqrt(v) + epsilon)
    adam         m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g * g
                 w -= learning_rate * m / (sqrt(v) * correction + epsilon)

(for adam the caller folds 1 / (1 - beta1^t) into learning_rate and passes
correction = 1 / sqrt(1 - beta2^t)). ``slots`` holds v, or m and v, as its leading axis.
``scratch`` is a uint8 workspace owned by the caller, of at least the bytes that the kernel's
``*_scratch`` function names; its contents mean nothing between calls. ``threads`` never changes
a bit of the result.
"""

from .reference_embedding import (
    dense_update,
    form_contexts,
    gather_contexts,
    gather_rows,
    scatter_update,
)
from .reference_hidden import (
    bias_tanh,
    dropout,
    layer_backward,
    layer_forward,
    tanh_backward,
    words_backward,
    words_forward,
    words_scratch,
)
from .reference_sampled import (
    draw_noise,
    negative_step,
    negative_step_scratch,
)
from .reference_softmax import (
    softmax_cross_entropy,
    softmax_forward,
    softmax_step,
    softmax_step_scratch,
    softmax_top_k,
)

__all__ = [
    "NAME",
    "bias_tanh",
    "dense_update",
    "describe",
    "draw_noise",
    "dropout",
    "form_contexts",
    "gather_contexts",
    "gather_rows",
    "layer_backward",
    "layer_forward",
    "negative_step",
    "negative_step_scratch",
    "scatter_update",
    "softmax_cross_entropy",
    "softmax_forward",
    "softmax_step",
    "softmax_step_scratch",
    "softmax_top_k",
    "tanh_backward",
    "words_backward",
    "words_forward",
    "words_scratch",
]
NAME = "reference"


def describe():
    """What these kernels run on, for ``fastnplm info``: a dict of strings."""
    return {"kernels": NAME, "instruction_set": "NumPy's own", "threading": "NumPy's BLAS"}
