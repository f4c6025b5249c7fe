"""Ways to spell a LayerNorm and an RMSNorm over the last axis, as exporters write them.

Each template reads `{x}`, writes `{y}`, and names everything between after `{y}`. `{g}` and `{b}` are scale
and bias, `{eps}`, `{two}`, `{zero}`, `{half}` (-0.5) and `{n}` scalar constants.
"""

from __future__ import annotations

import numpy as np
from sketch import Sketch

LAYER_NORM = {
    # torch.nn.LayerNorm, TorchScript exporter below opset 17
    "pow_div": """
        {y}_mean = ReduceMean<axes = [-1]>({x})
        {y}_d = Sub({x}, {y}_mean)
        {y}_square = Pow({y}_d, {two})
        {y}_var = ReduceMean<axes = [-1]>({y}_square)
        {y}_shifted = Add({y}_var, {eps})
        {y}_std = Sqrt({y}_shifted)
        {y}_unit = Div({y}_d, {y}_std)
        {y}_scaled = Mul({y}_unit, {g})
        {y} = Add({y}_scaled, {b})""",
    # rsqrt: 1/sqrt(v) and a product; the square is a product too, the operands of Mul and Add are swapped
    "mul_reciprocal": """
        {y}_mean = ReduceMean<axes = [-1], keepdims = 1>({x})
        {y}_d = Sub({x}, {y}_mean)
        {y}_square = Mul({y}_d, {y}_d)
        {y}_var = ReduceMean<axes = [-1], keepdims = 1>({y}_square)
        {y}_shifted = Add({eps}, {y}_var)
        {y}_std = Sqrt({y}_shifted)
        {y}_inverse = Reciprocal({y}_std)
        {y}_unit = Mul({y}_inverse, {y}_d)
        {y}_scaled = Mul({g}, {y}_unit)
        {y} = Add({b}, {y}_scaled)""",
    # a power of -1/2; the centred value is computed twice, as older versions of torch did
    "two_subs_pow": """
        {y}_mean = ReduceMean<axes = [-1]>({x})
        {y}_d = Sub({x}, {y}_mean)
        {y}_e = Sub({x}, {y}_mean)
        {y}_square = Pow({y}_e, {two})
        {y}_var = ReduceMean<axes = [-1]>({y}_square)
        {y}_shifted = Add({y}_var, {eps})
        {y}_inverse = Pow({y}_shifted, {half})
        {y}_unit = Mul({y}_d, {y}_inverse)
        {y}_scaled = Mul({y}_unit, {g})
        {y} = Add({y}_scaled, {b})""",
    # E[x^2] - E[x]^2, clamped at 0, as flax computes it
    "mean_of_squares": """
        {y}_mean = ReduceMean<axes = [-1]>({x})
        {y}_square = Mul({x}, {x})
        {y}_power = ReduceMean<axes = [-1]>({y}_square)
        {y}_mean2 = Mul({y}_mean, {y}_mean)
        {y}_raw = Sub({y}_power, {y}_mean2)
        {y}_var = Max({zero}, {y}_raw)
        {y}_shifted = Add({y}_var, {eps})
        {y}_std = Sqrt({y}_shifted)
        {y}_d = Sub({x}, {y}_mean)
        {y}_unit = Div({y}_d, {y}_std)
        {y}_scaled = Mul({y}_unit, {g})
        {y} = Add({y}_scaled, {b})""",
    # x*k + (b - mean*k), k = g/std: tf.nn.batch_normalization, which Keras uses for its LayerNormalization
    "scale_and_shift": """
        {y}_mean = ReduceMean<axes = [-1]>({x})
        {y}_d = Sub({x}, {y}_mean)
        {y}_square = Mul({y}_d, {y}_d)
        {y}_var = ReduceMean<axes = [-1]>({y}_square)
        {y}_shifted = Add({y}_var, {eps})
        {y}_std = Sqrt({y}_shifted)
        {y}_inverse = Reciprocal({y}_std)
        {y}_k = Mul({y}_inverse, {g})
        {y}_xk = Mul({x}, {y}_k)
        {y}_mk = Mul({y}_mean, {y}_k)
        {y}_shift = Sub({b}, {y}_mk)
        {y} = Add({y}_xk, {y}_shift)""",
    # sums divided by the number of elements; the mean loses its axis and gets it back
    "sum_unsqueeze": """
        {y}_sum = ReduceSum<keepdims = 0>({x}, {last})
        {y}_flat = Div({y}_sum, {n})
        {y}_mean = Unsqueeze({y}_flat, {last})
        {y}_d = Sub({x}, {y}_mean)
        {y}_squares = ReduceSumSquare<axes = [-1]>({y}_d)
        {y}_var = Div({y}_squares, {n})
        {y}_shifted = Add({y}_var, {eps})
        {y}_std = Sqrt({y}_shifted)
        {y}_unit = Div({y}_d, {y}_std)
        {y}_scaled = Mul({y}_unit, {g})
        {y} = Add({y}_scaled, {b})""",
}

RMS_NORM = {
    # transformers: x * rsqrt(mean(x^2) + eps), then weight * x
    "llama": """
        {y}_square = Pow({x}, {two})
        {y}_power = ReduceMean<axes = [-1]>({y}_square)
        {y}_shifted = Add({y}_power, {eps})
        {y}_rms = Sqrt({y}_shifted)
        {y}_inverse = Div({one}, {y}_rms)
        {y}_unit = Mul({x}, {y}_inverse)
        {y} = Mul({g}, {y}_unit)""",
    "div": """
        {y}_square = Mul({x}, {x})
        {y}_power = ReduceMean<axes = [-1]>({y}_square)
        {y}_shifted = Add({y}_power, {eps})
        {y}_rms = Sqrt({y}_shifted)
        {y}_unit = Div({x}, {y}_rms)
        {y} = Mul({y}_unit, {g})""",
}


def layer_norm(sketch: Sketch, spelling: str, x: str, y: str, width: int, eps: float = 1e-5) -> str:
    """Write one LayerNorm over the last axis of `x`, with a scale and a bias of its own; returns `y`."""
    names = _scalars(sketch, width, eps)
    names["g"] = sketch.normal(f"{y}_gamma", width, mean=1.0)
    names["b"] = sketch.normal(f"{y}_beta", width)
    sketch.add(LAYER_NORM[spelling].format(x=x, y=y, **names))
    return y


def rms_norm(sketch: Sketch, spelling: str, x: str, y: str, width: int, eps: float = 1e-6) -> str:
    """Write one RMSNorm over the last axis of `x`, with a scale of its own; returns `y`."""
    names = _scalars(sketch, width, eps)
    names["g"] = sketch.normal(f"{y}_gamma", width, mean=1.0)
    sketch.add(RMS_NORM[spelling].format(x=x, y=y, **names))
    return y


def _scalars(sketch: Sketch, width: int, eps: float) -> dict[str, str]:
    """The constants that all norms of a model share."""
    values = {"eps": eps, "two": 2.0, "half": -0.5, "zero": 0.0, "one": 1.0, "n": float(width)}
    names = {name: sketch.constant(name, value) for name, value in values.items()}
    return {**names, "last": sketch.constant("last", [-1], np.int64)}
