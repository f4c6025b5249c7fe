"""How to repeat a run: the call says what is not the default, and no more."""

from __future__ import annotations

from normfuse.options import Options
from normfuse.report.repeat import repeat_of


def test_the_defaults_need_no_words() -> None:
    assert repeat_of("optimize", "m.onnx", Options()).call == "normfuse.optimize('m.onnx')"


def test_what_was_asked_for_can_be_run_again() -> None:
    options = Options(target="onnx", dims={"S": 7}, skip=("LayerNorm",), seed=3)
    repeat = repeat_of("inspect", "m.onnx", options)
    asked: list[Options] = []

    class Stub:
        Options = Options

        @staticmethod
        def inspect(model: str, options: Options) -> None:
            asked.append(options)

    eval(repeat.call, {"normfuse": Stub})
    assert asked == [options]
    assert (repeat.seed, repeat.dims) == (3, {"S": 7})


def test_the_versions_that_have_a_say_are_named() -> None:
    versions = repeat_of("optimize", "m.onnx", Options()).versions
    assert {"python", "onnx", "onnx-ir", "numpy"} <= versions.keys()
