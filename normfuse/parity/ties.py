"""Integer outputs that differ because two candidates are as good: a near-tie of ArgMax, ArgMin or TopK.

scores [.., 0.50000001, 0.5, ..]     ArgMax 3 before, 4 after: either is right to the last digit
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from normfuse.parity.compare import distance, magnitude
from normfuse.parity.dtypes import roundoff
from normfuse.parity.floor import Floor
from normfuse.parity.inputs import Trial
from normfuse.parity.noise import nudge_all
from normfuse.parity.sessions import RuntimeRefusalError, open_with_outputs

CHOOSERS = {"ArgMax": 0, "ArgMin": 0, "TopK": 1}
PASSED = {"Identity", "Cast", "Squeeze", "Unsqueeze", "Reshape"}
TIMES_NOISE = 8.0
ROUNDOFFS = 32.0


def is_near_tie(name: str, before: Any, after: Any, trial: Trial, floor: Floor) -> bool:
    """Whether both models chose, wherever they differ, among scores that noise cannot tell apart."""
    node = _chooser(floor, name)
    if node is None or before.shape != after.shape:
        return False
    source = node.input[0]
    try:
        session = open_with_outputs(floor.model, floor.settings, [source])
        scores = np.asarray(session.run(trial.feed, [source])[source])
        moved = nudge_all(trial.feed, np.random.default_rng(floor.settings.seed + 1))
        noise = distance(scores, np.asarray(session.run(moved, [source])[source])).relative
    except RuntimeRefusalError:
        return False
    bound = TIMES_NOISE * noise + ROUNDOFFS * roundoff(scores.dtype)
    axis = next((a.i for a in node.attribute if a.name == "axis"), -1 if node.op_type == "TopK" else 0)
    size = magnitude(scores)
    gap = np.abs(_at(scores, before, axis) - _at(scores, after, axis)) / _at(size, before, axis)
    return bool((gap <= bound).all())


def _chooser(floor: Floor, name: str) -> onnx.NodeProto | None:
    """The operator whose choice an output is, seen through casts and reshapes."""
    main = floor.model.main
    while name in main.position:
        node = main.graph.node[main.position[name]]
        if node.op_type in CHOOSERS:
            return node if list(node.output).index(name) == CHOOSERS[node.op_type] else None
        if node.op_type not in PASSED:
            return None
        name = node.input[0]
    return None


def _at(scores: Any, chosen: Any, axis: int) -> Any:
    """The scores at the chosen places, in float64; a choice may have lost the axis it was made along."""
    axis %= scores.ndim
    rest = scores.shape[:axis] + scores.shape[axis + 1 :]
    count = chosen.size // max(1, int(np.prod(rest)))
    places = chosen.astype(np.int64).reshape(*scores.shape[:axis], count, *scores.shape[axis + 1 :])
    return np.take_along_axis(scores.astype(np.float64), places, axis)
