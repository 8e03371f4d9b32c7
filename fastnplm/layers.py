"""The layers between the words and the scores, as training runs them: buffers reused.

first        tanh(hidden_weight @ x + hidden_bias), x the concatenated embeddings
second       h + tanh(second_weight @ h + second_bias), if the model has one (a residual
             connection: He et al. 2016)
projection   tanh(projection_weight @ h + projection_bias), if the output layer is the
             embedding itself and M differs from H; with direct connections
             projection_weight @ concat(h, x) + projection_bias: a low-rank form of theirs, in
             which x reaches the scores as in a log-bilinear model (Mnih and Hinton 2007)
"""

import numpy as np

from . import arrays
from .errors import SettingsError


class Mask:
    """Inverted dropout of one array: each element kept with probability 1 - share.

    The share is rounded to a multiple of 1/256, so that one random byte decides an element.
    """

    def __init__(self, share):
        self.limit = min(round(share * 256), 255)
        self._scale = 256 / (256 - self.limit)
        self._mask = None

    def draw(self, generator, shape):
        """Choose what is dropped until the next draw."""
        if self.limit:
            bits = np.frombuffer(generator.bytes(int(np.prod(shape))), dtype=np.uint8)
            self._mask = (bits >= self.limit).view(np.uint8).reshape(shape)

    def apply(self, kernels, values, threads):
        """Drop elements of ``values`` in place; the rest grow by 1 / (1 - share)."""
        if self.limit:
            kernels.dropout(self._mask, self._scale, values, threads=threads)


class Layer:
    """One layer with its buffers: inputs below, ``outputs`` above, gradients back.

    name : of its parameters (``NAME_weight``, ``NAME_bias``); residual : the inputs are added to
    tanh's result; linear : no tanh is taken; share : of the outputs dropped.
    """

    def __init__(
        self, network, name, batch_size, kernels, threads, residual=False, linear=False, share=0.0
    ):
        self.names = (f"{name}_weight", f"{name}_bias")
        self.weight, self.bias = (network.parameters[full] for full in self.names)
        self.grad_weight, self.grad_bias = (
            arrays.zeros(value.shape, value.dtype) for value in (self.weight, self.bias)
        )
        self.mask = Mask(share)
        self.residual, self.linear = residual, linear
        self._kernels, self._threads = kernels, threads
        units = len(self.weight)
        self.activation = arrays.zeros((batch_size, units), network.dtype)
        self.grad = arrays.zeros((batch_size, units), network.dtype)
        # Backward needs tanh's own result, so what changes it afterwards gets another array.
        self._changed = residual or self.mask.limit > 0
        self.outputs = self.activation
        if self._changed:
            self.outputs = arrays.zeros(self.activation.shape, network.dtype)

    def forward(self, inputs, generator):
        """Fill ``outputs`` from ``inputs`` (B, D)."""
        activation = self.activation[: len(inputs)]
        self._kernels.layer_forward(
            inputs, self.weight, self.bias, activation, self.linear, threads=self._threads
        )
        self.finish_forward(inputs, len(inputs), generator)

    def finish_forward(self, inputs, batch, generator):
        """What follows the activation: the residual connection and dropout."""
        if self._changed:
            outputs = self.outputs[:batch]
            outputs[:] = self.activation[:batch]
            if self.residual:
                outputs += inputs
            self.mask.draw(generator, outputs.shape)
            self.mask.apply(self._kernels, outputs, self._threads)

    def start_backward(self, batch):
        """Undo dropout in ``grad``, the gradient of the outputs; returns its used part."""
        grad = self.grad[:batch]
        self.mask.apply(self._kernels, grad, self._threads)
        return grad

    def backward(self, inputs, grad_inputs):
        """From ``grad`` to the gradients of weight, bias and inputs (written)."""
        batch = len(inputs)
        grad = self.start_backward(batch)
        passed_by = grad.copy() if self.residual else None
        self._kernels.layer_backward(
            inputs, self.activation[:batch], self.weight, grad, self.grad_weight, self.grad_bias,
            grad_inputs, self.linear, threads=self._threads,
        )  # fmt: skip
        if passed_by is not None:
            grad_inputs += passed_by

    def update(self, rule, hyper, undecayed, slots):
        """One optimiser step on weight and bias."""
        pairs = ((self.weight, self.grad_weight, hyper), (self.bias, self.grad_bias, undecayed))
        for name, (parameter, grad, numbers) in zip(self.names, pairs, strict=True):
            self._kernels.dense_update(
                grad, rule, numbers, parameter, slots[name], threads=self._threads
            )


def require_projection(network, output_share):
    """Refuse dropout below the output of a model that has no layer there but the hidden ones."""
    if output_share and "projection_weight" not in network.parameters:
        raise SettingsError(
            "output_dropout drops units of the projection, which only a tied model has whose dim"
            " and hidden differ or which is direct; pass dropout"
        )


def stack(network, batch_size, kernels, threads, share, output_share=0.0):
    """The layers of a network, lowest first; none if it has direct connections to scores alone.

    share : of the units of the hidden layers dropped; output_share : of the projection's.
    Raises SettingsError if the latter is not 0 and there is no projection.
    """
    require_projection(network, output_share)
    layers = []
    if network.hidden:
        layers.append(Layer(network, "hidden", batch_size, kernels, threads, share=share))
    if network.layers == 2:
        layers.append(
            Layer(network, "second", batch_size, kernels, threads, residual=True, share=share)
        )
    if "projection_weight" in network.parameters:
        layers.append(
            Layer(
                network, "projection", batch_size, kernels, threads,
                linear=network.reads_vectors("projection"), share=output_share,
            )
        )  # fmt: skip
    return layers
