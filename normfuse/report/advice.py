"""What a user can do about a candidate that was left: one sentence for each reason that has a cure."""

from __future__ import annotations

ADVICE: dict[str, str] = {
    "keepdims=0": "keep the reduced axes (keepdim=True) where the statistics are computed",
    "exponent!=2": "check the source of the model: a power other than 2 is often a slip",
    "exponent-not-constant": "export with the exponent as a constant",
    "epsilon-not-constant": "export with epsilon as a constant",
    "epsilon-not-representable": "use an epsilon that is a float32, such as numpy.float32(1e-5)",
    "statistics-of-another-tensor": "check the source of the model: a norm usually uses its own input",
    "numerator-not-centred": "check the source of the model: subtract the mean, or take an RMSNorm",
    "divisor!=N": "divide by the number of elements as a constant, or take a mean",
    "affine-expands-shape": "store scale and bias with the shape of the normalized axes alone",
    "affine-not-normalized-axes": "nothing where the core is fused; else check which axis was meant",
    "affine-not-constant": "nothing where the core is fused: the modulation stays what it is",
    "unknown-normalized-size": "export with the normalized axes fixed",
    "unknown-shape": "export with fixed sizes where possible, or with names for those that are not",
    "extra-consumer": "do not use the mean, the variance or the centred tensor elsewhere",
    "too-complex": "report it, with the model if it can be shared",
    "no-gain": "use --target ort to emit it all the same",
    "no-kernel": "try another --target, or another data type",
    "opset-too-low": "export at a newer opset, or use an onnxruntime target",
    "training-mode": "call model.eval() and export again",
    "quantized-weight": "fuse before you quantize",
    "fold-overflow": "fold the float32 model, and convert it afterwards",
    "fold-underflow": "fold the float32 model, and convert it afterwards",
    "not-finite-statistics": "check the running mean and variance of the layer",
    "overridable-initializer": "remove the weights from the graph inputs (keep_initializers_as_inputs=False)",
    "skipped": "leave out --skip to fuse it",
    "rolled-back": "report it, with the model if it can be shared; the other rewrites are kept",
}
