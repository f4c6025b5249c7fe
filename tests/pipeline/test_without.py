"""The model without its norms: what they read goes straight to who reads them."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import parser

from normfuse.parity.model import Model
from normfuse.pipeline.without import without_norms
from normfuse.report.record import Site

HEAD = '<ir_version: 8, opset_import: ["": 17]>'


def operators(text: str, *sites: Site) -> list[str]:
    proto = parser.parse_model(text)
    given = proto.SerializeToString()
    bare = without_norms(Model(Path("m.onnx"), proto), sites)
    onnx.checker.check_model(bare, full_check=True)
    assert proto.SerializeToString() == given
    return [node.op_type for node in bare.graph.node]


def test_an_operator_that_is_a_norm_passes_its_input_on() -> None:
    text = f"""{HEAD} g (float[4,2] x) => (float[4,2] z) <float[2] s = {{1,1}}>
    {{ a = Relu(x) y = LayerNormalization(a, s) z = Relu(y) }}"""
    assert operators(text) == ["Relu", "Identity", "Relu"]


def test_a_site_of_several_nodes_goes_as_a_whole() -> None:
    text = f"""{HEAD} g (float[1,2,3] x) => (float[1,2,3] z) <float[2] s = {{1,1}}>
    {{ t = Transpose<perm=[0,2,1]>(x) n = LayerNormalization(t, s)
       y = Transpose<perm=[0,2,1]>(n) z = Relu(y) }}"""
    assert operators(text, Site("LayerNorm", "fused", "y", "y", "x")) == ["Identity", "Relu"]


def test_an_output_of_the_model_keeps_its_name() -> None:
    text = f"""{HEAD} g (float[4,2] x) => (float[4,2] y) <float[2] s = {{1,1}}>
    {{ y = LayerNormalization(x, s) }}"""
    assert operators(text) == ["Identity"]


def test_a_norm_whose_statistics_are_read_stays() -> None:
    text = f"""{HEAD} g (float[4,2] x) => (float[4,2] y, float[4,1] m) <float[2] s = {{1,1}}>
    {{ y, m = LayerNormalization(x, s) }}"""
    assert operators(text) == ["LayerNormalization"]


def test_a_fold_and_a_site_that_was_left_stay() -> None:
    text = f"{HEAD} g (float[4] x) => (float[4] y) {{ a = Exp(x) y = Relu(a) }}"
    sites = [Site("BatchNorm", "folded", "y", "y", "x"), Site("RMSNorm", "left", "y", "y", "x")]
    assert operators(text, *sites) == ["Exp", "Relu"]
