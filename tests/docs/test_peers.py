"""The judge of benchmarks/peers.py tells right from wrong, and docs/peers.md holds its table."""

from __future__ import annotations

import sys

import pytest
from blocks import DOCS, ROOT
from onnx import parser

sys.path.insert(0, str(ROOT / "benchmarks"))

import peers

RMS = """<ir_version: 8, opset_import: ["": 17]> rms (float[4,6] x) => (float[4,6] y)
<float e = {1e-5}, float two = {2.0}>
{ s = Pow(x, two) m = ReduceMean<axes=[-1]>(s) v = Add(m, e) r = Sqrt(v) y = Div(x, r) }"""
CASE = peers.Case("rms", "RMSNorm", parser.parse_model(RMS), peers.STATISTICS)


def counted(text: str) -> peers.Tally:
    return peers.tally([peers.Judge(CASE)], [parser.parse_model(text).SerializeToString()])["RMSNorm"]


def test_the_same_model_is_right_and_not_fused() -> None:
    found = counted(RMS)
    assert (found.total, found.fused, found.wrong, found.failed) == (1, 0, [], [])


def test_a_fused_one_counts() -> None:
    nodes = "{ g = Constant<value_floats=[1.0,1.0,1.0,1.0,1.0,1.0]>() " \
        "y = SimplifiedLayerNormalization<axis=-1, epsilon=1e-5>(x, g) }"  # fmt: skip
    assert counted(RMS.partition("\n{")[0] + nodes).fused == 1


@pytest.mark.parametrize(("old", "new"), [("two = {2.0}", "two = {2.5}"), ("axes=[-1]", "axes=[0]")])
def test_another_one_is_wrong(old: str, new: str) -> None:
    assert counted(RMS.replace(old, new)).wrong == ["rms"]


def test_what_does_not_load_has_failed() -> None:
    assert peers.tally([peers.Judge(CASE)], [b"no model"])["RMSNorm"].failed == ["rms"]


def test_the_page_has_a_row_for_each_tool() -> None:
    table = (DOCS / "peers.md").read_text("utf-8").partition(peers.BEGIN)[2].partition(peers.END)[0]
    assert [tool.name for tool in peers.TOOLS if f"| {tool.name} |" not in table] == []
