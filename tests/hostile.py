"""Broken and hostile models: bytes that were damaged, and graphs that no exporter writes but anyone can send.

Each is a builder of `onnx.ModelProto`; none is checked by onnx first.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, parser

LAYER_NORM = """
    m = ReduceMean<axes = [-1]>(x)
    d = Sub(x, m)
    q = Pow(d, two)
    v = ReduceMean<axes = [-1]>(q)
    ve = Add(v, eps)
    s = Sqrt(ve)
    n = Div(d, s)
    g = Mul(n, gamma)
    y = Add(g, beta)
"""
CONV_BN = """
    c = Conv<pads = [1, 1, 1, 1]>(x, w)
    y = BatchNormalization(c, scale, bias, mean, var)
"""
ROWS = "(float[B, 8] x) => (float[B, 8] y)"
IMAGES = "(float[N, 4, 6, 6] x) => (float[N, 4, 6, 6] y)"
BIG = 2**60


def parsed(signature: str, body: str, opset: int = 13) -> onnx.ModelProto:
    """A model from ONNX text, without any check."""
    return parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> g {signature} {{ {body} }}')


def layer_norm(opset: int = 13, **constants: object) -> onnx.ModelProto:
    """A LayerNorm in small operators; `constants` replaces its constants."""
    return _with(parsed(ROWS, LAYER_NORM, opset), {
        "two": 2.0, "eps": 1e-5, "gamma": [1.5] * 8, "beta": [0.5] * 8, **constants,
    })  # fmt: skip


def conv_bn(opset: int = 13, **constants: object) -> onnx.ModelProto:
    """A convolution and the BatchNormalization behind it."""
    return _with(parsed(IMAGES, CONV_BN, opset), {
        "w": np.linspace(-1, 1, 144).reshape(4, 4, 3, 3), "scale": [1.5] * 4, "bias": [0.5] * 4,
        "mean": [0.1] * 4, "var": [1.1] * 4, **constants,
    })  # fmt: skip


def _with(model: onnx.ModelProto, constants: dict[str, object]) -> onnx.ModelProto:
    for name, value in constants.items():
        if not isinstance(value, onnx.TensorProto):
            array = value if isinstance(value, np.ndarray) and value.dtype != np.float64 else None
            array = np.asarray(value, np.float32) if array is None else array
            value = numpy_helper.from_array(array, name)
        value.name = name
        model.graph.initializer.append(value)
    return model


def one_node(op_type: str, inputs: int, outputs: int = 1, **attributes: object) -> onnx.ModelProto:
    """A single node that reads x as often as wished, before a LayerNorm."""
    node = helper.make_node(op_type, ["x"] * inputs, [f"z{k}" for k in range(outputs)], "odd", **attributes)
    model = layer_norm()
    model.graph.node.insert(0, node)
    return model


def attribute(model: onnx.ModelProto, node: int, **attributes: object) -> onnx.ModelProto:
    """The model with other attributes at one node."""
    del model.graph.node[node].attribute[:]
    model.graph.node[node].attribute.extend(helper.make_attribute(k, v) for k, v in attributes.items())
    return model


def nested_if(levels: int) -> bytes:
    """An If in an If in an If …, with a LayerNorm in the innermost; protobuf itself cannot build it."""
    body = layer_norm().graph
    body.name = "innermost"
    del body.input[:]
    inner = body.SerializeToString()
    for level in range(levels):
        inner = _if(inner, level)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["B", 8])
    c = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    inner += onnx.GraphProto(input=[x, c]).SerializeToString()  # messages that follow each other are merged
    head = onnx.ModelProto(ir_version=8, opset_import=[helper.make_opsetid("", 13)]).SerializeToString()
    return head + _field(onnx.ModelProto.GRAPH_FIELD_NUMBER, inner)


def _if(body: bytes, level: int) -> bytes:
    """A graph whose only node is an If with `body` as its first branch."""
    graph_attribute = onnx.AttributeProto.GRAPH
    out = helper.make_tensor_value_info(f"o{level}", TensorProto.FLOAT, None)
    other = helper.make_graph([helper.make_node("Neg", ["x"], [out.name])], f"else{level}", [], [out])
    then = onnx.AttributeProto(name="then_branch", type=graph_attribute).SerializeToString()
    then += _field(onnx.AttributeProto.G_FIELD_NUMBER, body)
    node = helper.make_node(
        "If", ["c"], [f"y{level}"], name=f"if{level}", else_branch=other
    ).SerializeToString()
    node += _field(onnx.NodeProto.ATTRIBUTE_FIELD_NUMBER, then)
    graph = onnx.GraphProto(name=f"level{level}")
    graph.output.append(helper.make_tensor_value_info(f"y{level}", TensorProto.FLOAT, None))
    return graph.SerializeToString() + _field(onnx.GraphProto.NODE_FIELD_NUMBER, node)


def _field(number: int, data: bytes) -> bytes:
    """One field of bytes, as protobuf writes it."""
    head, length = bytes([number << 3 | 2]), len(data)
    while length > 127:
        head += bytes([length & 127 | 128])
        length >>= 7
    return head + bytes([length]) + data


def renamed(model: onnx.ModelProto, name: str) -> onnx.ModelProto:
    """Node and value names that play tricks on a terminal or a log."""
    for node in model.graph.node:
        node.name = f"{name}{node.output[0]}"
        for names in (node.input, node.output):
            for k, old in enumerate(names):
                if old not in ("x", "y"):
                    names[k] = f"{name}{old}"
    for tensor in model.graph.initializer:
        tensor.name = f"{name}{tensor.name}"
    return model


def sized(*dims: int) -> onnx.ModelProto:
    """A LayerNorm of an input of this shape."""
    shape = ", ".join(map(str, dims))
    model = parsed(f"(float[{shape}] x) => (float[{shape}] y)", LAYER_NORM)
    return _with(model, {"two": 2.0, "eps": 1e-5, "gamma": 1.5, "beta": 0.5})


def many_axes(count: int) -> onnx.ModelProto:
    """A reduction over as many axes as no tensor has."""
    return attribute(layer_norm(), 0, axes=list(range(count)))


def declared(dims: list[int], data: bytes = b"") -> onnx.ModelProto:
    """A gamma that claims to have a shape which its bytes do not have."""
    return layer_norm(gamma=TensorProto(data_type=TensorProto.FLOAT, dims=dims, raw_data=data))


def strings(*dims: int) -> onnx.TensorProto:
    """A tensor of strings where numbers should be."""
    return helper.make_tensor("s", TensorProto.STRING, dims, [b"a"] * int(np.prod(dims)))


def external(**entries: str) -> onnx.ModelProto:
    """A gamma that lies in another file."""
    tensor = TensorProto(data_type=TensorProto.FLOAT, dims=[8], data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    return layer_norm(gamma=tensor)


def edited(edit: Callable[[onnx.GraphProto], object]) -> onnx.ModelProto:
    """A LayerNorm with one thing wrong."""
    model = layer_norm()
    edit(model.graph)
    return model


def with_opset(version: int, domain: str = "") -> onnx.ModelProto:
    """A model of an operator set that does not exist."""
    model = layer_norm()
    model.opset_import[0].version = version
    model.opset_import[0].domain = domain
    return model


def _unsorted(graph: onnx.GraphProto) -> None:
    nodes = list(graph.node)[::-1]
    del graph.node[:]
    graph.node.extend(nodes)


def _cycle(graph: onnx.GraphProto) -> None:
    graph.node[0].input[0] = "y"


def _without_output(graph: onnx.GraphProto) -> None:
    graph.node.add(op_type="Neg", input=["x"], output=[""])


NAN, INF = float("nan"), float("inf")

# What must be refused: exit 3, one message.
REFUSED: dict[str, Callable[[], onnx.ModelProto | bytes]] = {
    "unsorted": lambda: edited(_unsorted),
    "cycle": lambda: edited(_cycle),
    "redefined": lambda: edited(lambda g: g.node[2].output.__setitem__(0, "d")),
    "two initializers of one name": lambda: edited(lambda g: g.initializer.append(g.initializer[0])),
    "undefined input": lambda: edited(lambda g: g.node[1].input.__setitem__(1, "nowhere")),
    "output that nothing computes": lambda: edited(lambda g: g.output[0].__setattr__("name", "nowhere")),
    "no graph": onnx.ModelProto,
    "no opset": lambda: helper.make_model(layer_norm().graph, opset_imports=[]),
    "shape of 2^60 without its data": lambda: declared([BIG]),
    "shape whose product overflows": lambda: declared([2**32, 2**32, 8], b"\0" * 32),
    "negative dimension": lambda: declared([-8], b"\0" * 32),
    "truncated tensor": lambda: declared([8], b"\0" * 31),
    "unknown data type": lambda: layer_norm(gamma=TensorProto(data_type=99, dims=[8], raw_data=b"\0" * 32)),
    "no data type": lambda: layer_norm(gamma=TensorProto(dims=[8], raw_data=b"\0" * 32)),
    "absolute location": lambda: external(location="/etc/passwd"),
    "location outside": lambda: external(location="../../etc/passwd"),
    "location that is a folder": lambda: external(location="."),
    "no such data": lambda: external(location="missing.bin"),
    "negative length": lambda: external(location="m.onnx", length="-1"),
    "offset beyond the end": lambda: external(location="m.onnx", offset=str(BIG)),
    "offset of 5,000 digits": lambda: external(location="m.onnx", offset="9" * 5000),
    "location of 10,000 letters": lambda: external(location="a" * 10_000),
    "length that is no number": lambda: external(location="m.onnx", length="many"),
    "a LayerNormalization of one input": lambda: one_node("LayerNormalization", 1),
    "axes of no type": lambda: edited(lambda g: g.node[0].attribute[0].ClearField("type")),
    "axes as a float": lambda: attribute(layer_norm(), 0, axes=1.0),
    "axes as a string": lambda: attribute(layer_norm(), 0, axes="all"),
    "axes as strings": lambda: attribute(layer_norm(), 0, axes=["a"]),
    "axes as a tensor": lambda: attribute(layer_norm(), 0, axes=numpy_helper.from_array(np.ones(1))),
    "keepdims as a string": lambda: attribute(layer_norm(), 0, axes=[-1], keepdims="yes"),
    "epsilon as a string": lambda: attribute(conv_bn(), 1, epsilon="small"),
    "pads as a float": lambda: attribute(conv_bn(), 0, pads=1.0),
    "training mode as a string": lambda: attribute(conv_bn(15), 1, training_mode="no"),
    "an Add of one operand": lambda: edited(lambda g: g.node[4].input.__delitem__(1)),
    "a Sub of none": lambda: edited(lambda g: g.node[1].input.__delitem__(slice(None))),
    "a Sqrt of two": lambda: edited(lambda g: g.node[5].input.append("x")),
    "a Pow with an absent exponent": lambda: edited(lambda g: g.node[2].input.__setitem__(1, "")),
    "a Sub with an absent operand": lambda: edited(lambda g: g.node[1].input.__setitem__(0, "")),
    "a Div with three outputs": lambda: edited(lambda g: g.node[6].output.extend(["n1", "n2"])),
    "a node without outputs": lambda: edited(lambda g: g.node.add(op_type="Neg", input=["x"])),
    "a reduction without outputs": lambda: edited(lambda g: g.node.add(op_type="ReduceMean", input=["x"])),
    "a reduction without inputs": lambda: edited(lambda g: g.node.add(op_type="ReduceMean", output=["zz"])),
    "a node without operator": lambda: edited(lambda g: g.node.add(input=["x"], output=["zz"])),
    "a BatchNormalization of one input": lambda: one_node("BatchNormalization", 1),
    "a Conv of one input": lambda: one_node("Conv", 1),
    "a Conv without inputs": lambda: one_node("Conv", 0),
    "a Reshape of one input": lambda: one_node("Reshape", 1),
    "a Cast without type": lambda: one_node("Cast", 1),
    "a Cast to a string": lambda: one_node("Cast", 1, to="float"),
    "an If without branches": lambda: one_node("If", 1),
    "a Loop without body": lambda: one_node("Loop", 2),
    "an If 200 levels deep": lambda: nested_if(200),
    "opset 0": lambda: with_opset(0),
    "opset -1": lambda: with_opset(-1),
    "opset 2^62": lambda: with_opset(2**62),
    "a Concat without axis": lambda: one_node("Concat", 2),
}

# Where a correct result or a clear refusal are both right: never anything else.
TOLERATED: dict[str, Callable[[], onnx.ModelProto | bytes]] = {
    **{f"{name} is {value}": lambda n=name, v=value: layer_norm(**{n: v})
       for name in ("two", "eps") for value in (NAN, INF, -INF, 0.0, -1.0, 1e-45)},
    **{f"{name} holds {value}": lambda n=name, v=value: layer_norm(**{n: [1.0] * 7 + [v]})
       for name in ("gamma", "beta") for value in (NAN, INF, -INF, 3e38)},
    **{f"{name} of a BatchNorm holds {value}": lambda n=name, v=value: conv_bn(**{n: [1.0] * 3 + [v]})
       for name in ("scale", "bias", "mean", "var") for value in (NAN, INF, -1.0, 0.0)},
    "a kernel of NaN": lambda: conv_bn(w=np.full((4, 4, 3, 3), NAN)),
    "an empty gamma": lambda: layer_norm(gamma=np.zeros(0, np.float32)),
    "a gamma of strings": lambda: layer_norm(gamma=strings(8)),
    "an epsilon of strings": lambda: layer_norm(eps=strings()),
    "an exponent of strings": lambda: layer_norm(two=strings()),
    "a gamma of integers": lambda: layer_norm(gamma=np.ones(8, np.int64)),
    "a gamma of booleans": lambda: layer_norm(gamma=np.ones(8, bool)),
    "a gamma of complex numbers": lambda: layer_norm(gamma=np.ones(8, np.complex64)),
    "a gamma in half precision": lambda: layer_norm(gamma=np.ones(8, np.float16)),
    "an epsilon of rank 9": lambda: layer_norm(eps=np.full((1,) * 9, 1e-5, np.float32)),
    "a variance of strings": lambda: conv_bn(var=strings(4)),
    "statistics of another length": lambda: conv_bn(var=[1.0] * 5),
    "statistics of rank 2": lambda: conv_bn(var=np.ones((4, 1), np.float32)),
    "a kernel of rank 1": lambda: conv_bn(w=np.ones(4, np.float32)),
    "axes out of range": lambda: attribute(layer_norm(), 0, axes=[7]),
    "axes far out of range": lambda: attribute(layer_norm(), 0, axes=[-(2**63)]),
    "axes twice the same": lambda: attribute(layer_norm(), 0, axes=[1, 1, -1]),
    "a million axes": lambda: many_axes(1_000_000),
    "a NaN as epsilon": lambda: attribute(conv_bn(), 1, epsilon=NAN),
    "group of zero": lambda: attribute(conv_bn(), 0, group=0),
    "group of minus one": lambda: attribute(conv_bn(), 0, pads=[1, 1, 1, 1], group=-1),
    "a node with an absent output": lambda: edited(_without_output),
    "an operator that does not exist": lambda: one_node("Frobnicate", 1),
    "a domain that does not exist": lambda: one_node("Frobnicate", 1, domain="no.where"),
    "a Gemm of x by x by x": lambda: one_node("Gemm", 3, alpha=NAN),
    "a Constant without value": lambda: one_node("Constant", 0),
    "a Constant of two values": lambda: one_node("Constant", 0, value_float=1.0, value_int=1),
    "a Cast to an unknown type": lambda: one_node("Cast", 1, to=77),
    "a Transpose by nonsense": lambda: one_node("Transpose", 1, perm=[5, 5, 5]),
    "an InstanceNormalization of x by x": lambda: one_node("InstanceNormalization", 3),
    "a Split into thousands": lambda: one_node("Split", 1, 3000),
    "an If 30 levels deep": lambda: nested_if(30),
    "names with escapes": lambda: renamed(layer_norm(), "\x1b[2J\x1b]0;gotcha\x07\n\r"),
    "names of markup": lambda: renamed(layer_norm(), "[bold red]{0}%s"),
    "names of 100,000 letters": lambda: renamed(layer_norm(), "a" * 100_000),
    "opset 99": lambda: with_opset(99),
    "the domain by its long name": lambda: with_opset(13, "ai.onnx"),
    "format version 99": lambda: onnx.ModelProto(ir_version=99, graph=layer_norm().graph,
                                                 opset_import=layer_norm().opset_import),
    "no format version": lambda: onnx.ModelProto(graph=layer_norm().graph,
                                                 opset_import=layer_norm().opset_import),
    "no nodes at all": lambda: parsed("(float[2] x) => (float[2] x)", ""),
    "no inputs and no outputs": lambda: parsed("() => ()", ""),
    "a norm over an empty axis": lambda: sized(2, 0),
    "a norm over no rows": lambda: sized(0, 8),
    "a norm over an axis of size 1": lambda: sized(4, 1),
    "a norm of a scalar": lambda: sized(),
    "a norm over 2^60": lambda: sized(1, BIG),
    "a norm of 2^60 rows": lambda: sized(BIG, 8),
    "a norm whose size overflows": lambda: sized(BIG, BIG, BIG),
    "a norm of rank 64": lambda: sized(*([1] * 63), 8),
    "a ConstantOfShape of 2^60": lambda: _made(BIG),
    "an Expand to 2^60": lambda: _expanded(BIG),
    "a Range to 2^60": lambda: _ranged(BIG),
}  # fmt: skip


def _made(size: int) -> onnx.ModelProto:
    model = layer_norm()
    model.graph.node.insert(0, helper.make_node("ConstantOfShape", ["size"], ["made"]))
    model.graph.node.insert(1, helper.make_node("ReduceMean", ["made"], ["mm"]))
    model.graph.node[2].input[0] = "x"
    model.graph.node[6].input[1] = "mm"
    return _with(model, {"size": np.array([size], np.int64)})


def _expanded(size: int) -> onnx.ModelProto:
    model = layer_norm()
    model.graph.node.insert(0, helper.make_node("Expand", ["eps", "size"], ["wide"]))
    model.graph.node[5].input[1] = "wide"
    return _with(model, {"size": np.array([size, 1], np.int64)})


def _ranged(size: int) -> onnx.ModelProto:
    model = layer_norm()
    model.graph.node.insert(0, helper.make_node("Range", ["from", "size", "step"], ["axes"]))
    model.graph.node.insert(1, helper.make_node("Cast", ["axes"], ["many"], to=TensorProto.FLOAT))
    model.graph.node[8].input[1] = "many"
    scalars = {"from": np.array(0, np.int64), "size": np.array(size, np.int64), "step": np.array(1, np.int64)}
    return _with(model, scalars)


def mutants(seeds: list[bytes], count: int, seed: int) -> Iterator[bytes]:
    """Damaged copies: cut off, bits flipped, bytes changed, a part doubled, removed or zeroed."""
    random_ = random.Random(seed)
    for _ in range(count):
        data = bytearray(random_.choice(seeds))
        for _ in range(random_.choice((1, 1, 2, 5, 20))):
            if data:
                _damage(data, random_)
        yield bytes(data)


def _damage(data: bytearray, random_: random.Random) -> None:
    at, length = random_.randrange(len(data)), random_.randrange(1, 16)
    kind = random_.randrange(6)
    if kind == 0:
        del data[at:]
    elif kind == 1:
        data[at] ^= 1 << random_.randrange(8)
    elif kind == 2:
        data[at] = random_.randrange(256)
    elif kind == 3:
        data[at:at] = data[at : at + length]
    elif kind == 4:
        del data[at : at + length]
    else:
        data[at : at + length] = bytes(length)
