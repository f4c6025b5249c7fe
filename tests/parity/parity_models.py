"""Small models in pairs: norms spelled out, and the same rewritten, rightly or with a sabotage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper, parser

from normfuse.parity.settings import Boundary

WIDTH = 16


def model(
    inputs: str,
    outputs: str,
    body: str,
    constants: Mapping[str, np.ndarray] | None = None,
    opset: int = 17,
    domains: str = "",
) -> onnx.ModelProto:
    """A model from ONNX text and named constants."""
    proto = parser.parse_model(
        f'<ir_version: 8, opset_import: ["": {opset}{domains}]> g ({inputs}) => ({outputs}) {{ {body} }}'
    )
    for name, value in (constants or {}).items():
        proto.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    return proto


def save(proto: onnx.ModelProto, path: Path) -> Path:
    """Write a model and hand back its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(proto, path)
    return path


def layer_norm(x: str, y: str, epsilon: float, gamma: str, beta: str, axis: int = -1) -> str:
    """LayerNorm spelled out; inner values are named after the output."""
    return (
        f"{y}_m = ReduceMean<axes=[{axis}]>({x}) {y}_d = Sub({x}, {y}_m) {y}_s = Mul({y}_d, {y}_d) "
        f"{y}_v = ReduceMean<axes=[{axis}]>({y}_s) {y}_e = Constant<value_float={epsilon}>() "
        f"{y}_ve = Add({y}_v, {y}_e) {y}_r = Sqrt({y}_ve) {y}_n = Div({y}_d, {y}_r) "
        f"{y}_k = Mul({y}_n, {gamma}) {y} = Add({y}_k, {beta})"
    )


def one_pass(x: str, y: str, epsilon: float, gamma: str, beta: str) -> str:
    """LayerNorm whose variance is E[x²] - E[x]², which cancels at a large mean."""
    return (
        f"{y}_m = ReduceMean<axes=[-1]>({x}) {y}_d = Sub({x}, {y}_m) {y}_q = Mul({x}, {x}) "
        f"{y}_qm = ReduceMean<axes=[-1]>({y}_q) {y}_mm = Mul({y}_m, {y}_m) {y}_v = Sub({y}_qm, {y}_mm) "
        f"{y}_e = Constant<value_float={epsilon}>() {y}_ve = Add({y}_v, {y}_e) {y}_r = Sqrt({y}_ve) "
        f"{y}_n = Div({y}_d, {y}_r) {y}_k = Mul({y}_n, {gamma}) {y} = Add({y}_k, {beta})"
    )


def rms_norm(x: str, y: str, epsilon: float, gamma: str) -> str:
    """RMSNorm spelled out."""
    return (
        f"{y}_s = Mul({x}, {x}) {y}_v = ReduceMean<axes=[-1]>({y}_s) "
        f"{y}_e = Constant<value_float={epsilon}>() {y}_ve = Add({y}_v, {y}_e) "
        f"{y}_r = Sqrt({y}_ve) {y}_n = Div({x}, {y}_r) {y} = Mul({y}_n, {gamma})"
    )


@dataclass
class Pair:
    """An original, its rewritten form, and the sites between them."""

    before: onnx.ModelProto
    after: onnx.ModelProto
    sites: list[Boundary] = field(default_factory=list)

    def save(self, folder: Path) -> tuple[Path, Path]:
        """Write both."""
        return save(self.before, folder / "before.onnx"), save(self.after, folder / "after.onnx")


Sabotage = Callable[[str], str]


def stack(depth: int, broken: int = -1, how: str = "", epsilon: float = 1e-5, seed: int = 0) -> Pair:
    """A chain of `depth` sites, LayerNorm and RMSNorm in turn, each behind a MatMul; one of them broken."""
    rng = np.random.default_rng(seed)
    before, after, sites = [], [], []
    old: dict[str, np.ndarray] = {}
    new: dict[str, np.ndarray] = {}
    value = "x"
    for i in range(depth):
        kind = ("LayerNorm", "RMSNorm")[i % 2]
        here = how if i == broken else ""
        weights = {
            f"w{i}": rng.normal(size=(WIDTH, WIDTH)) / WIDTH**0.5,
            f"g{i}": 1 + rng.normal(size=WIDTH) * 0.3,
            f"b{i}": rng.normal(size=WIDTH) * 0.5,
        }
        old |= {k: v.astype(np.float32) for k, v in weights.items()}
        new |= {k: v.astype(np.float32) for k, v in sabotaged(weights, i, here).items()}
        product = f"h{i} = MatMul({value}, w{i})"
        eps = epsilon * {"eps x10": 10, "eps x0.1": 0.1}.get(here, 1)
        if kind == "LayerNorm":
            before += [product, layer_norm(f"h{i}", f"y{i}", epsilon, f"g{i}", f"b{i}")]
            after += [product, fused_layer_norm(f"h{i}", f"y{i}", eps, f"g{i}", f"b{i}", here)]
        else:
            before += [product, rms_norm(f"h{i}", f"y{i}", epsilon, f"g{i}")]
            after += [product, fused_rms_norm(f"h{i}", f"y{i}", eps, f"g{i}", f"b{i}", here)]
        sites.append(Boundary(kind, f"h{i}", f"y{i}", f"norm {i}"))
        value = f"y{i}"
    ends = f"float[B, S, {WIDTH}] x", f"float[B, S, {WIDTH}] {value}"
    return Pair(model(*ends, " ".join(before), old), model(*ends, " ".join(after), new), sites)


def sabotaged(weights: Mapping[str, np.ndarray], i: int, how: str) -> dict[str, np.ndarray]:
    """The constants of a replacement; wrong ones where the sabotage is one of constants."""
    changed = dict(weights)
    gamma, beta = f"g{i}", f"b{i}"
    if how == "gamma shifted":
        changed[gamma] = np.roll(weights[gamma], 1)
    elif how == "gamma negated":
        changed[gamma] = -weights[gamma]
    elif how == "one gamma wrong":
        changed[gamma] = weights[gamma] * np.where(np.arange(WIDTH) == 3, 1.001, 1)
    elif how == "beta shifted":
        changed[beta] = np.roll(weights[beta], 1)
    elif how == "beta negated":
        changed[beta] = -weights[beta]
    return changed


def fused_layer_norm(x: str, y: str, epsilon: float, gamma: str, beta: str, how: str) -> str:
    """One LayerNormalization, or what a careless lowering would make of it."""
    if how == "rms instead":
        core = f"{y}_k = SimplifiedLayerNormalization<axis=-1, epsilon={epsilon}>({x}, {gamma})"
        return f"{core} {y} = Add({y}_k, {beta})"
    if how == "no bias":
        return f"{y} = LayerNormalization<axis=-1, epsilon={epsilon}>({x}, {gamma})"
    if how == "no gamma":
        one = f"{y}_one = Constant<value_floats=[{', '.join(['1.0'] * WIDTH)}]>()"
        return f"{one} {y} = LayerNormalization<axis=-1, epsilon={epsilon}>({x}, {y}_one, {beta})"
    if how == "other input":
        return (
            f"{y}_x = Neg({x}) {y} = LayerNormalization<axis=-1, epsilon={epsilon}>({y}_x, {gamma}, {beta})"
        )
    if how == "half inside":
        return (
            f"{y}_c = Cast<to=10>({x}) {y}_b = Cast<to=1>({y}_c) "
            f"{y} = LayerNormalization<axis=-1, epsilon={epsilon}>({y}_b, {gamma}, {beta})"
        )
    if how == "not centred after":
        return (
            f"{y}_k = LayerNormalization<axis=-1, epsilon={epsilon}>({x}, {gamma}, {beta}) "
            f"{y}_m = ReduceMean<axes=[-1]>({x}) {y}_t = Constant<value_float=1e-3>() "
            f"{y}_q = Mul({y}_m, {y}_t) {y} = Add({y}_k, {y}_q)"
        )
    if how == "wrong axis":
        return layer_norm(x, y, epsilon, gamma, beta, axis=1)
    return f"{y} = LayerNormalization<axis=-1, epsilon={epsilon}>({x}, {gamma}, {beta})"


def fused_rms_norm(x: str, y: str, epsilon: float, gamma: str, beta: str, how: str) -> str:
    """One SimplifiedLayerNormalization, or what a careless lowering would make of it."""
    if how == "layer norm instead":
        return f"{y} = LayerNormalization<axis=-1, epsilon={epsilon}>({x}, {gamma})"
    if how == "bias added":
        core = f"{y}_k = SimplifiedLayerNormalization<axis=-1, epsilon={epsilon}>({x}, {gamma})"
        return f"{core} {y} = Add({y}_k, {beta})"
    if how == "sum instead of mean":
        return (
            f"{y}_s = Mul({x}, {x}) {y}_v = ReduceSum<keepdims=1>({y}_s, {y}_ax) "
            f"{y}_r = Sqrt({y}_v) {y}_n = Div({x}, {y}_r) {y} = Mul({y}_n, {gamma})"
        ).replace(f"{y}_s = ", f"{y}_ax = Constant<value_ints=[-1]>() {y}_s = ", 1)
    return f"{y} = SimplifiedLayerNormalization<axis=-1, epsilon={epsilon}>({x}, {gamma})"


def batch_norm_pair(how: str = "", channels: int = 6, seed: int = 0, size: str = "H, W") -> Pair:
    """Conv and BatchNorm, and the Conv that it folds into; `how` names a wrong fold."""
    rng = np.random.default_rng(seed)
    w = rng.normal(size=(channels, 3, 3, 3)) / 5
    s, b, mean = 1 + rng.normal(size=channels) * 0.3, rng.normal(size=channels), rng.normal(size=channels)
    var = rng.uniform(0.5, 2, channels)
    epsilon = 1e-3
    scale = s / np.sqrt(var + epsilon * {"eps x10": 10, "eps dropped": 0}.get(how, 1))
    shift = b - mean * scale
    if how == "wrong channel":
        scale = np.roll(scale, 1)
    elif how == "bias dropped":
        shift = shift * 0
    elif how == "mean not scaled":
        shift = b - mean
    elif how == "scale squared":
        scale = scale * scale
    elif how == "bias on a wrong channel":
        shift = np.roll(shift, 1)
    ends = f"float[N, 3, {size}] x", f"float[N, {channels}, P, Q] y"
    old = {"w": w, "s": s, "b": b, "mean": mean, "var": var}
    new = {"w": w * scale[:, None, None, None], "b": shift}
    body = "c = Conv<pads=[1, 1, 1, 1]>(x, w) y = BatchNormalization<epsilon=1e-3>(c, s, b, mean, var)"
    pads = "[0, 0, 0, 0]" if how == "padding dropped" else "[1, 1, 1, 1]"
    after = model(*ends, f"y = Conv<pads={pads}>(x, w, b)", floats(new))
    return Pair(model(*ends, body, floats(old)), after, [Boundary("BatchNorm", "x", "y", "bn")])


def floats(values: Mapping[str, np.ndarray | float]) -> dict[str, np.ndarray]:
    """All as float32."""
    return {name: np.asarray(value, np.float32) for name, value in values.items()}


def names(sites: Sequence[Boundary]) -> set[str]:
    """The outputs of sites."""
    return {site.output for site in sites}
