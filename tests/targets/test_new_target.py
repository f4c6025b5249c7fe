"""The target that docs/targets.md adds works as the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import pytest
from small_models import assert_agree, f32, model, operators, vector

from normfuse.pipeline.rewrite import rewrite
from normfuse.targets import Target

PAGE = (Path(__file__).parents[2] / "docs" / "targets.md").read_text(encoding="utf-8")
NORM = (
    "m = ReduceMean<axes=AXES>(x) d = Sub(x, m) s = Mul(d, d) v = ReduceMean<axes=AXES>(s) ve = Add(v, e) "
    "r = Sqrt(ve) n = Div(d, r) y = Mul(n, g)"
)


@pytest.fixture(scope="module")
def target() -> Target:
    """The target of the page."""
    (code,) = (c for c in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "CHANNELS_LAST" in c)
    names: dict[str, Any] = {}
    exec(code, names)
    return names["CHANNELS_LAST"]


def ending(target: Target, proto: onnx.ModelProto) -> tuple[dict[str, int], list[str | None]]:
    done = rewrite(ir.from_proto(proto), target, lambda *_: None)
    result = ir.to_proto(done.model)
    assert_agree(proto, result)
    return dict(operators(result)), [site.reason for site in done.sites]


def spelled(axes: str, scale: tuple[int, ...], x: str) -> onnx.ModelProto:
    return model(NORM.replace("AXES", axes), {"e": f32(1e-3), "g": vector(*scale)}, x=x)


def test_a_long_layer_norm_is_fused_and_a_short_one_is_left(target):
    assert ending(target, spelled("[-1]", (64,), "float[4,64]")) == ({"LayerNormalization": 1}, [None])
    assert ending(target, spelled("[-1]", (8,), "float[4,8]"))[1] == ["no-gain"]


def test_an_instance_norm_is_said_by_the_operator_that_there_is(target):
    found, _ = ending(target, spelled("[2, 3]", (6, 1, 1), "float[2,6,4,4]"))
    assert found == {"LayerNormalization": 1, "BatchNormalization": 1}


def test_an_rms_norm_is_a_standard_operator_at_the_opset_that_has_it(target):
    text = "s = Mul(x, x) v = ReduceMean<axes=[-1]>(s) ve = Add(v, e) r = Sqrt(ve) y = Div(x, r)"
    proto = model(text, {"e": f32(1e-3)}, x="float[4,8]")
    assert ending(target, proto)[0] == {"RMSNormalization": 1}
