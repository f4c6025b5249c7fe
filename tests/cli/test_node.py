"""`inspect --node`: what one node computes, what became of it, and what it is short of."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from onnx import parser

from normfuse.cli import run

MODEL = """<ir_version: 8, opset_import: ["": 17]>
m (float[4,8] x) => (float[4,8] y, float[4,8] z) <float eps = {1e-5}>
{
  [square] s = Mul(x, x)
  [mean] m = ReduceMean<axes=[-1]>(s)
  [root] r = Sqrt(m)
  [plus] d = Add(r, eps)
  [divide] y = Div(x, d)
  [relu] a = Relu(x)
  [other_mean] n = ReduceMean<axes=[-1], keepdims=0>(x)
  [outer] z = Sub(a, a)
}"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    onnx.save(parser.parse_model(MODEL), tmp_path / "m.onnx")
    return str(tmp_path / "m.onnx")


def said(path: str, node: str, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert run(["inspect", path, "--node", node, *options]) == 0
    return capsys.readouterr().out


def test_the_polynomial_and_what_it_is_are_said(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(path, "divide", capsys, "--target", "ort")
    assert "would be fused" in text
    assert "x*(mean[-1](x^2)^(1/2) + 1e-05)^(-1)" in text
    assert "an RMSNorm over axis -1, epsilon 0, and" in text
    assert "beside the deviation" in text


def test_a_site_that_is_left_is_explained_with_what_to_do(
    path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = said(path, "divide", capsys, "--target", "ort-cpu")
    assert "left: no-gain" in text
    assert "use --target ort" in text


def test_a_node_inside_a_site_says_which_one(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "part of what computes 'y'" in said(path, "root", capsys, "--target", "ort")


def test_an_output_names_its_node_as_well(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "node 'divide' (Div)" in said(path, "y", capsys)


def test_a_node_of_no_interest_says_so(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no normalization ends here" in said(path, "relu", capsys)


def test_a_name_that_is_not_there_is_met_with_the_closest(
    path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["inspect", path, "--node", "divid"]) == 2
    error = capsys.readouterr().err
    assert "has no node 'divid'" in error
    assert "did you mean 'divide'" in error


def test_programs_get_the_same_as_json(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    data = json.loads(said(path, "divide", capsys, "--target", "ort", "--json"))
    assert data["operator"] == "Div"
    assert data["readings"][0]["polynomial"].startswith("x*(mean[-1](x^2)")
    assert data["sites"][0]["kind"] == "RMSNorm"
