"""The ONNX project's own function bodies of its normalizations, as its backend tests hold them.

Each is a model in which one operator is written out in primitive ones: axes made by Range, the tensor
flattened to two dimensions, shapes rebuilt by Slice and Concat, Mean and InvStdDev live as outputs. Its test
data come with it.
"""

from __future__ import annotations

import functools
import importlib
import warnings

import numpy as np
from onnx.backend.test.case import node
from onnx.backend.test.case.test_case import TestCase

FAMILIES = {
    "test_layer_normalization": 38,
    "test_rms_normalization": 19,
    "test_group_normalization": 2,
    "test_mvn": 2,
}
"""The names' beginnings, and how many bodies there are of each."""

_MODULES = ("layernormalization", "rmsnormalization", "groupnormalization", "meanvariancenormalization")


@functools.cache
def bodies() -> dict[str, TestCase]:
    """Every expanded body by name.

    A module of onnx.backend.test.case.node appends its cases to one list when it is imported. The public
    `collect_testcases` imports all of them, which takes twenty times as long as these four.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the cases of other operators overflow on purpose
        for name in _MODULES:
            importlib.import_module(f"{node.__name__}.{name}")
    return {
        case.name: case
        for case in node._NodeTestCases
        if "_expanded" in case.name and case.name.startswith(tuple(FAMILIES))
    }


def data_sets(case: TestCase) -> list[tuple[dict[str, np.ndarray], list[np.ndarray]]]:
    """The inputs by name and the expected outputs of each data set."""
    names = [value.name for value in case.model.graph.input]
    return [(dict(zip(names, inputs, strict=True)), list(outputs)) for inputs, outputs in case.data_sets]
