"""Pictures of sites: what lies between what a site reads and what it computes, before and after."""

from __future__ import annotations

from dataclasses import replace

import onnx_ir as ir
import pytest
from onnx import parser

from normfuse.options import leaver
from normfuse.pipeline.rewrite import rewrite
from normfuse.report.picture import Box, Sketch
from normfuse.report.record import Site
from normfuse.report.sketch import MAX_BOXES, with_pictures
from normfuse.targets import resolve

HEAD = '<ir_version: 8, opset_import: ["": 17]>'


def norm(x: str, y: str, scale: str, bias: str, number: str = "") -> str:
    return f"""
  m{number} = ReduceMean<axes=[-1]>({x})
  d{number} = Sub({x}, m{number})
  q{number} = Pow(d{number}, two)
  v{number} = ReduceMean<axes=[-1]>(q{number})
  e{number} = Add(v{number}, eps)
  r{number} = Sqrt(e{number})
  u{number} = Div(d{number}, r{number})
  us{number} = Mul(u{number}, {scale})
  {y} = Add(us{number}, {bias})"""


TWO_NORMS = f"""{HEAD}
g (float[4,6] x) => (float[4,6] z)
<float[6] s = {{1,1,1,1,1,1}}, float[6] b = {{0,0,0,0,0,0}}, float eps = {{1e-5}}, float two = {{2}}>
{{{norm("x", "y", "s", "b")}
  h = Relu(y){norm("h", "z", "b", "s", "2")}
}}"""
CONV = f"""{HEAD}
g (float[1,2,4,4] x) => (float[1,2,4,4] y)
<float[2,2,1,1] w = {{1,2,3,4}}, float[2] s = {{1,2}}, float[2] b = {{0,1}}, float[2] m = {{0,0}},
 float[2] v = {{1,1}}>
{{
  c = Conv(x, w)
  y = BatchNormalization(c, s, b, m, v)
}}"""


def pictured(text: str) -> tuple[tuple[Site, ...], list[tuple[Sketch, Sketch]]]:
    model = parser.parse_model(text)
    before, changed = ir.from_proto(model), ir.from_proto(model)
    done = rewrite(changed, resolve("ort-cpu"), leaver((), ()))
    sites, pictures = with_pictures(done.sites, before, done.model)
    return sites, [(picture.before, picture.after) for picture in pictures]


def words(sketch: Sketch) -> list[str]:
    return [f"{box.label} {box.detail}".strip() for box in sketch]


def test_two_equal_norms_have_one_picture() -> None:
    sites, pictures = pictured(TWO_NORMS)
    assert [site.picture for site in sites if site.kind == "LayerNorm"] == [0, 0]
    before, after = pictures[0]
    assert words(before) == ["input", "ReduceMean axes -1", "Sub", "Pow 2", "ReduceMean axes -1", "Add 1e-05",
                             "Sqrt", "Div", "Mul constant", "Add constant"]  # fmt: skip
    assert before[7].reads == (2, 6)
    assert words(after) == ["input", "LayerNormalization axis -1, epsilon 1e-05"]


def test_another_epsilon_is_another_picture() -> None:
    sites, _ = pictured(
        TWO_NORMS.replace("float eps =", "float eps2 = {1e-6}, float eps =").replace(
            "(v2, eps)", "(v2, eps2)"
        )
    )
    assert sorted(str(site.picture) for site in sites if site.kind == "LayerNorm") == ["0", "1"]


def test_a_fold_shows_the_linear_operator_on_both_sides() -> None:
    sites, pictures = pictured(CONV)
    assert sites[0].picture == 0
    assert [words(sketch) for sketch in pictures[0]] == [
        ["input", "Conv", "BatchNormalization"],
        ["input", "Conv"],
    ]


@pytest.mark.parametrize("opset", [17, 18])
def test_reduced_axes_are_shown_wherever_the_opset_has_them(opset: int) -> None:
    reduced = "ReduceMean<axes=[-1]>(x)" if opset == 17 else "ReduceMean(x, k)"
    text = f"""<ir_version: 8, opset_import: ["": {opset}]> g (float[2,4] x) => (float[2,1] y)
    <int64[1] k = {{-1}}> {{ y = {reduced} }}"""
    _, pictures = with_pictures(
        (Site("RMSNorm", "left", "y", "y", "x"),), ir.from_proto(parser.parse_model(text)), None
    )
    assert words(pictures[0].before) == ["input", "ReduceMean axes -1"]


def test_what_is_computed_beside_a_site_is_another_value() -> None:
    text = f"{HEAD} g (float[4] x, float[4] t) => (float[4] y) {{ k = Exp(t) y = Mul(x, k) }}"
    site = Site("Affine", "left", "y", "y", "x")
    _, pictures = with_pictures((site,), ir.from_proto(parser.parse_model(text)), None)
    assert pictures[0].before == (Box("input"), Box("other value"), Box("Mul", "Mul", "", (0, 1)))


@pytest.mark.parametrize("change", [{"input": ""}, {"output": "nowhere"}, {"input": "y", "output": "x"}])
def test_a_site_that_cannot_be_found_has_no_picture(change: dict[str, str]) -> None:
    model = ir.from_proto(parser.parse_model(f"{HEAD} g (float[4] x) => (float[4] y) {{ y = Relu(x) }}"))
    site = replace(Site("Affine", "left", "y", "y", "x"), **change)
    sites, pictures = with_pictures((site,), model, model)
    assert (sites[0].picture, pictures) == (None, ())


def test_a_site_that_is_too_large_to_be_read_is_not_drawn() -> None:
    chain = " ".join(f"v{k + 1} = Relu(v{k})" for k in range(MAX_BOXES + 1))
    model = ir.from_proto(
        parser.parse_model(f"{HEAD} g (float[4] v0) => (float[4] v{MAX_BOXES + 1}) {{ {chain} }}")
    )
    near, far = (Site("Affine", "left", "a", f"v{end}", "v0") for end in (MAX_BOXES, MAX_BOXES + 1))
    sites, _ = with_pictures((near, far), model, None)
    assert [site.picture for site in sites] == [0, None]


def test_a_site_in_a_function_is_drawn_as_it_is_called() -> None:
    text = """<ir_version: 8, opset_import: ["": 17, "my": 1]>
    g (float[4] x) => (float[4] y) { y = my.f(x) }
    <domain: "my", opset_import: ["": 17]> f (a) => (b) { c = Exp(a) b = Relu(c) }"""
    model = ir.from_proto(parser.parse_model(text))
    _, pictures = with_pictures((Site("Affine", "left", "y", "y", "x"),), model, None)
    assert words(pictures[0].before) == ["input", "Exp", "Relu"]
    assert len(model.functions) == 1  # the model itself stays as it is
