"""Build a small model of every family of normalization.

    python models/build.py -o DIR                      all of them
    python models/build.py encoder convnet -o models   the two that are committed, again

README and the tests use those two. The others are for looking at.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

import families
import networks
import onnx

MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "encoder": networks.encoder,
    "encoder_block": networks.encoder_block,
    "convnet": networks.convnet,
    **{name: partial(families.norm_of_tokens, name, spelling) for name, spelling in families.SPELLED.items()},
    "rmsnorm": families.rmsnorm,
    "per_head_norm": families.per_head_norm,
    "modulated_norm": families.modulated_norm,
    "channels_first": families.channels_first,
    "group_norm": families.group_norm,
    "instance_norm": families.instance_norm,
    "l2_normalize": families.l2_normalize,
    "eps_outside": families.eps_outside,
    "response_norm": families.response_norm,
    "conv_bn": families.conv_bn,
    "gemm_bn": families.gemm_bn,
}


def main() -> None:
    """Write the models that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=" ".join(MODELS))
    parser.add_argument("-o", "--out", type=Path, default=Path(), metavar="DIR")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(MODELS))
    if unknown:
        parser.error(f"no such model: {', '.join(unknown)}; there are {', '.join(MODELS)}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.names or MODELS:
        path = arguments.out / f"{name}.onnx"
        onnx.save(MODELS[name](), path)
        print(path)


if __name__ == "__main__":
    main()
