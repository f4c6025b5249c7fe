"""What a user gets: the folds that the room makes survive verification and the rest of the pipeline."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from folding_models import Array, built, norm, normal
from small_models import ALL, OFF, assert_agree, operators, run
from test_fold_numbers import EDGES, HALF

import normfuse
from normfuse.report.record import Site

CONV = {"w": normal(6, 4, 3, 3)}
X, Y = "float[2,4,9,9]", "float[2,6,7,7]"


def optimized(model: onnx.ModelProto) -> tuple[onnx.ModelProto, tuple[Site, ...]]:
    """The verified result and its sites."""
    result = normfuse.optimize(model)
    assert isinstance(result.model, onnx.ModelProto)
    return result.model, tuple(result.report.sites)


@pytest.mark.parametrize(("case", "reason"), EDGES)
def test_a_pair_at_the_edge_of_half_precision(case: tuple, reason: str | None) -> None:
    """Never a weight that is not finite, never a finite output that becomes NaN."""
    model, data = case
    done, (site,) = optimized(model)
    assert (site.status, site.reason) == (("left", reason) if reason else ("folded", None))
    given = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    for tensor in done.graph.initializer:
        array = onnx.numpy_helper.to_array(tensor)
        assert np.isfinite(array).all() or np.array_equal(array, given[tensor.name])
    for size in (1e-3, 1.0, 10.0):
        feed = {"x": (data * size).astype(HALF)}
        (before,) = run(model, feed)
        (after,) = run(done, feed)
        assert np.isfinite(after[np.isfinite(before)]).all()


def test_a_batch_norm_of_channels_last_code_leaves_a_conv_and_a_relu() -> None:
    body = """
      c = Conv(x, w) t = Transpose<perm=[0,2,3,1]>(c) a = Cast<to=1>(t) b = Add(a, bias) d = Cast<to=1>(b)
      e = Sub(d, mean) f = Mul(e, s) g = Add(f, beta) h = Cast<to=1>(g) i = Cast<to=1>(h) r = Relu(i)
      k = Cast<to=1>(r) y = Transpose<perm=[0,3,1,2]>(k)"""
    vectors = {name: normal(6, seed=k) for k, name in enumerate(("bias", "mean", "s", "beta"))}
    model = built(body, x="float[N,4,9,9]", out="float[N,6,7,7]", **vectors, **CONV)
    done, (site,) = optimized(model)
    assert [node.op_type for node in done.graph.node] == ["Conv", "Relu"]
    assert (site.kind, site.status, site.output) == ("BatchNorm", "folded", "y")
    assert_agree(model, done)


def test_a_quantized_model_comes_through_whole() -> None:
    """Weights, bias and activations are quantized; a norm or an affine stands on either side of each pair."""
    body = """
      xq = QuantizeLinear(x, s, z) xd = DequantizeLinear(xq, s, z) a = Mul(xd, k) b = Add(a, t)
      bq = QuantizeLinear(b, s, z) bd = DequantizeLinear(bq, s, z)
      wd = DequantizeLinear<axis=0>(wq, ws, wz) cd = DequantizeLinear<axis=0>(cq, cs)
      c = Conv(bd, wd, cd) n = BN(c, *n) nq = QuantizeLinear(n, s, z) nd = DequantizeLinear(nq, s, z)
      y = BN<epsilon=0.5>(nd, *n)"""
    rng = np.random.default_rng(0)
    scales = np.full(6, 0.02, np.float32)
    model = built(
        body,
        x=X,
        out=Y,
        s=np.float32(0.1),
        z=np.int8(3),
        k=normal(4, 1, 1),
        t=normal(4, 1, 1, seed=1),
        wq=rng.integers(-100, 100, (6, 4, 3, 3)).astype(np.int8),
        ws=scales,
        wz=np.zeros(6, np.int8),
        cq=rng.integers(-1000, 1000, 6).astype(np.int32),
        cs=scales,
        **norm("n", 6),
    )
    done, sites = optimized(model)
    assert {site.reason for site in sites if site.status == "left"} == {
        "quantized-weight",
        "no-linear-neighbour",
    }
    quantizers = ("QuantizeLinear", "DequantizeLinear", "Conv")
    assert [operators(done)[op] for op in quantizers] == [operators(model)[op] for op in quantizers]
    assert {n.output[0] for n in model.graph.node if n.op_type in quantizers} <= {
        n.output[0] for n in done.graph.node
    }
    assert_agree(model, done)


POOLED = {
    "concat": ("a = Conv(x, w) b = Conv(x, v) c = Concat<axis=1>(a, b) y = BN(c, *n)", "2,10,7,7"),
    "max-pool": ("a = Conv(x, w) b = Conv(x, v) c = Concat<axis=1>(a, b) d = BN(c, *n) "
                 "y = MaxPool<kernel_shape=[2,2]>(d)", "2,10,6,6"),
    "average": ("a = Conv(x, w) b = Conv(x, v) c = Concat<axis=1>(a, b) d = AveragePool<kernel_shape=[3,3],"
                "pads=[1,1,1,1], strides=[2,2], ceil_mode=1>(c) y = BN(d, *n)", "2,10,4,4"),
    "split": ("a = Conv(x, u) b, c = Split<axis=1>(a, cut) d = BN(b, *m) e = BN(c, *m) "
              "y = Concat<axis=1>(e, d)", "2,10,7,7"),
    "head": ("a = BN(x, *k) b = GlobalAveragePool(a) c = Flatten(b) y = Gemm(c, g)", "2,3"),
}  # fmt: skip


@pytest.mark.parametrize(("body", "out"), POOLED.values(), ids=POOLED)
def test_channels_are_followed(body: str, out: str) -> None:
    constants: dict[str, Array] = {
        "v": normal(4, 4, 3, 3), "u": normal(10, 4, 3, 3), "cut": np.array([5, 5]), "g": normal(4, 3),
        **norm("n", 10), **norm("m", 5), **norm("k", 4), **CONV,
    }  # fmt: skip
    model = built(body, x=X, out=f"float[{out}]", **constants)
    done, sites = optimized(model)
    assert {site.status for site in sites} == {"folded"}
    assert operators(done)["BatchNormalization"] == 0
    assert_agree(model, done)
    feed = {"x": normal(2, 4, 9, 9)}
    (before,) = run(model, feed, OFF)
    for level in (OFF, ALL):
        assert np.abs(run(done, feed, level)[0] - before).max() <= 1e-5 * np.abs(before).max()
