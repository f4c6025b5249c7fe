"""Inputs are made from the graph, without help: whole models that are hard to feed are verified as they come.

The models of the other files here (transformers, rapidocr, magika, those of models/) are fed the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import normfuse

BOXES, CLASSES, CHANNELS = 6, 3, 16
RNG = np.random.default_rng(0)
LAYER_NORM = (
    "{y}_m = ReduceMean<axes = [-1]>({x}) {y}_d = Sub({x}, {y}_m) {y}_s = Mul({y}_d, {y}_d) "
    "{y}_v = ReduceMean<axes = [-1]>({y}_s) {y}_e = Add({y}_v, eps) {y}_r = Sqrt({y}_e) "
    "{y}_u = Div({y}_d, {y}_r) {y}_k = Mul({y}_u, g) {y} = Add({y}_k, b) "
)


def norm(x: str, y: str) -> str:
    """A LayerNorm in small operators."""
    return LAYER_NORM.format(x=x, y=y)


def model(inputs: str, outputs: str, body: str, **constants: np.ndarray) -> onnx.ModelProto:
    """A model from ONNX text; a LayerNorm's constants are there."""
    own = {"g": RNG.uniform(0.5, 2, CHANNELS), "b": RNG.normal(size=CHANNELS), "eps": np.array(1e-5)}
    head = '<ir_version: 8, opset_import: ["": 17]> g'
    proto = parser.parse_model(f"{head} ({inputs}) => ({outputs}) {{ {body} }}")
    for name, value in {**own, **constants}.items():
        wide = np.asarray(value)
        stored = wide.astype(np.float32) if wide.dtype == np.float64 else wide
        proto.graph.initializer.append(numpy_helper.from_array(stored, name))
    onnx.checker.check_model(proto)
    return proto


def detector() -> onnx.ModelProto:
    """Bytes of an image -> Conv and BatchNorm -> a LayerNorm for each cell -> boxes, which NMS thins out."""
    body = (
        "i = Cast<to = 1>(image) j = Mul(i, scale) t = Transpose<perm = [0, 3, 1, 2]>(j) "
        "c = Conv<strides = [8, 8], kernel_shape = [8, 8]>(t, w) n = BatchNormalization(c, g, b, mean, var) "
        "a = Relu(n) cells = Reshape(a, flat) rows = Transpose<perm = [0, 2, 1]>(cells) "
        + norm("rows", "y") +
        "corners = MatMul(y, to_boxes) near = Sigmoid(corners) logits = MatMul(y, to_scores) "
        "likely = Softmax(logits) scores = Transpose<perm = [0, 2, 1]>(likely) "
        "found = NonMaxSuppression(near, scores, most, overlap, least) "
        "at = Slice(found, zero, one, one) which = Slice(found, two, three, one) "
        "place = Concat<axis = 1>(at, which) boxes = GatherND(near, place)"
    )  # fmt: skip
    return model(
        "uint8[batch, height, width, 3] image", "float[found, 4] boxes, int64[found, 3] found", body,
        scale=np.array(1 / 255), w=RNG.normal(size=(CHANNELS, 3, 8, 8)) / 14, flat=np.array([0, 0, -1]),
        mean=RNG.normal(size=CHANNELS), var=RNG.uniform(0.5, 2, CHANNELS),
        to_boxes=RNG.normal(size=(CHANNELS, 4)), to_scores=RNG.normal(size=(CHANNELS, CLASSES)),
        most=np.array([BOXES]), overlap=np.array([0.5]), least=np.array([0.2]), zero=np.array([0]),
        one=np.array([1]), two=np.array([2]), three=np.array([3]),
    )  # fmt: skip


X = f"float[batch, sequence, {CHANNELS}] x"
OUT = f"float[batch, sequence, {CHANNELS}] out"
SMALL = {
    "detector": detector(),
    "random-normal": model(X, OUT, norm("x", "y") + "r = RandomNormalLike(y) out = Add(y, r)"),
    "multinomial": model(
        f"float[batch, {CHANNELS}] x", "int32[batch, 5] out, float[batch, 16] y",
        norm("x", "y") + "out = Multinomial<sample_size = 5>(y)",
    ),
    "dropout-in-training": model(
        X, OUT, norm("x", "y") + "out = Dropout(y, rate, train)", rate=np.array(0.5), train=np.array(True)
    ),
    "mask-and-lengths": model(
        f"{X}, bool[batch, sequence] padding_mask, int32[batch] lengths",
        f"{OUT}, float[sequence, 1, batch, 4] h",
        norm("x", "y") + "u = Unsqueeze(padding_mask, last) out = Where(u, y, x) "
        "t = Transpose<perm = [1, 0, 2]>(y) h, state = GRU<hidden_size = 4>(t, w, r, , lengths)",
        last=np.array([-1]), w=RNG.normal(size=(1, 12, CHANNELS)), r=RNG.normal(size=(1, 12, 4)),
    ),
    "int8-image": model(
        "int8[batch, 3, height, 16] image", "float[batch, 3, height, 16] y",
        "x = DequantizeLinear(image, scale) " + norm("x", "y"), scale=np.array(0.1),
    ),
    "spectrogram": model(X, OUT, "power = Log(x) " + norm("power", "out")),
    "everything-dynamic": model(
        "float[batch, features, frames] x", "float[batch, 10, 16] y",
        "c = Conv<strides = [2], pads = [1, 1]>(x, w) t = Transpose<perm = [0, 2, 1]>(c) p = Add(t, places) "
        + norm("p", "y"),
        w=RNG.normal(size=(CHANNELS, 5, 3)), places=RNG.normal(size=(10, CHANNELS)),
    ),
}  # fmt: skip


def verified(source: Path | onnx.ModelProto) -> normfuse.Report:
    """The report of a run without any option, which must have shown that the result is the same."""
    report = normfuse.optimize(source, options=normfuse.Options(dry_run=True)).report
    assert report.parity is not None
    assert report.parity.result == "equal", report.parity.detail
    assert not [site for site in report.sites if site.status == "rolled-back"]
    assert [site for site in report.sites if site.status == "fused"]
    return report


@pytest.mark.parametrize("name", SMALL)
def test_small_models_that_are_hard_to_feed(name: str) -> None:
    verified(SMALL[name])


def test_a_detector_finds_something() -> None:
    parity = verified(SMALL["detector"]).parity
    assert parity is not None
    assert {figures.name: figures.conclusive for figures in parity.outputs} == {"boxes": True, "found": True}


def test_random_operators_get_the_same_seeds() -> None:
    for name in ("random-normal", "multinomial", "dropout-in-training"):
        parity = verified(SMALL[name]).parity
        assert parity is not None
        assert any("same seeds" in note for note in parity.notes), name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("llama-with-past", ("batch=2 sequence=7 past=3", "batch=1 sequence=1 past=0")),
        ("bert-with-types", ("batch=2 sequence=7", "batch=1 sequence=1")),
        ("whisper-encoder", ("batch=2", "batch=1")),
        ("whisper-encoder-all-dynamic", ("feature_size=80 encoder_sequence_length=64",)),
    ],
)
def test_exports_that_are_hard_to_feed(
    name: str, sizes: tuple[str, ...], decoder_file: Callable[[str], Path]
) -> None:
    report = verified(decoder_file(name))
    assert report.parity is not None
    for wanted in sizes:
        assert any(wanted in label for label in report.parity.inputs), report.parity.inputs


@pytest.mark.slow
@pytest.mark.parametrize("total", ["total_sequence_length", "s7", "?"])
def test_however_the_length_of_the_mask_is_called(total: str, decoder_file: Callable[[str], Path]) -> None:
    """The exporters of torch and onnxruntime name the sum by its terms, as a total, or not at all."""
    proto = onnx.load(decoder_file("llama-with-past"))
    renamed = {"past + sequence": total, "past": "s1", "sequence": "s3", "batch": "s0"}
    for value in (*proto.graph.input, *proto.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_param = renamed[dim.dim_param]
    inputs = verified(proto).parity.inputs  # type: ignore[union-attr]
    assert any("s1=3" in label for label in inputs)
    assert any("s1=0" in label for label in inputs)
