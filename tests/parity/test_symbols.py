"""Dynamic dimensions: names, sums, anonymous ones, and the sizes that are tried."""

from __future__ import annotations

import onnx
import pytest

from normfuse.errors import UsageError
from normfuse.parity.symbols import check_names, longer, parse, read_shapes, several, single

FLOAT = onnx.TensorProto.FLOAT


def shapes_of(**inputs: list[int | str | None]):
    types = {k: onnx.helper.make_tensor_type_proto(FLOAT, v) for k, v in inputs.items()}
    return read_shapes(types)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("S", 7),
        ("past + S", 10),
        ("P+S", 9),
        ("2*S", 14),
        ("S - 1", 6),
        ("(S + 1) // 2", 4),
        ("max(1, P)", 2),
        ("floor(S/2)", 3),
        ("p2o.Dim.0 + 1", 6),
        ("8", 8),
    ],
)
def test_expressions_are_evaluated(text: str, value: int) -> None:
    assert parse(text).value({"S": 7, "P": 2, "past": 3, "p2o.Dim.0": 5}) == value


@pytest.mark.parametrize("text", ["batch size", "S +", "a b", "S%2", "unk__21 ("])
def test_what_is_no_expression_is_one_symbol(text: str) -> None:
    assert parse(text).symbols == (text,)


def test_one_symbol_has_one_value_over_all_inputs() -> None:
    shapes = shapes_of(ids=["batch", "seq"], mask=["batch", "past + seq"], key=["batch", 4, "past", 16])
    sizes = next(several(shapes, {}))
    assert [shapes.of(name, sizes) for name in ("ids", "mask", "key")] == [(2, 7), (2, 10), (2, 4, 3, 16)]
    sizes = next(single(shapes, {}))
    assert [shapes.of(name, sizes) for name in ("ids", "mask", "key")] == [(1, 1), (1, 1), (1, 4, 0, 16)]


def test_a_total_length_is_past_and_sequence() -> None:
    shapes = shapes_of(ids=["batch", "sequence_length"], mask=["batch", "total_sequence_length"],
                       key=["batch", 2, "past_sequence_length", 8])  # fmt: skip
    sizes = next(several(shapes, {}))
    assert shapes.of("mask", sizes) == (2, 10)


@pytest.mark.parametrize("dim", ["?", "-1", "None", None, -1])
def test_anonymous_dimensions_are_distinct(dim: int | str | None) -> None:
    shapes = shapes_of(a=[2, dim], b=[2, dim])
    sizes = next(several(shapes, {}))
    assert shapes.of("a", sizes) != shapes.of("b", sizes)


@pytest.mark.parametrize("kept", ["past_key_values.0.key", "cache_k", "model.past.value.1"])
def test_the_past_is_known_by_the_name_of_its_input(kept: str) -> None:
    shapes = shapes_of(**{"input_ids": ["s0", "s1"], "mask": ["s0", "s9"], kept: ["s0", 4, "s5", 16]})
    sizes = next(several(shapes, {}))
    assert [shapes.of(name, sizes) for name in ("input_ids", "mask", kept)] == [
        (2, 7),
        (2, 10),
        (2, 4, 3, 16),
    ]


def test_an_encoder_s_keys_are_no_past_of_the_decoder() -> None:
    shapes = shapes_of(ids=["b", "s"], **{"past.0.encoder.key": ["b", 2, "e", 8],
                                          "past.0.decoder.key": ["b", 2, "p", 8]})  # fmt: skip
    roles = {symbol.name: symbol.role for symbol in shapes.symbols}
    assert (roles["e"], roles["p"]) == ("other", "past")


def test_what_a_sum_says_of_a_symbol_counts_less_than_where_it_stands_alone() -> None:
    shapes = shapes_of(mask=["b", "s0 + s1"], ids=["b", "s1"], past_key=["b", 2, "s0", 8])
    assert {symbol.name: symbol.role for symbol in shapes.symbols}["s0"] == "past"


def test_sizes_that_the_graph_asks_for_are_tried_first_and_given_ones_count_more() -> None:
    shapes = shapes_of(x=["batch", "C", "S"])
    tried = list(several(shapes, {"S": 9}, {"C": 80, "S": 40}))
    assert tried[0] == {"batch": 2, "C": 80, "S": 9}
    assert any(sizes["C"] != 80 for sizes in tried)
    ones = list(single(shapes, {}, {"C": 80}))
    assert [sizes["C"] for sizes in ones[:2]] == [1, 80]


def test_a_longer_assignment_keeps_sums_and_what_is_given() -> None:
    shapes = shapes_of(
        ids=["batch", "seq"], mask=["batch", "total"], key=["batch", 4, "past", 16], x=["batch", "w"]
    )
    first = next(several(shapes, {"w": 4}))
    grown = longer(shapes, {"w": 4}, first)
    assert grown["seq"] > first["seq"]
    assert grown["past"] > first["past"]
    assert grown["total"] == grown["seq"] + grown["past"]
    assert (grown["batch"], grown["w"]) == (first["batch"], 4)


def test_images_are_tried_at_several_sizes() -> None:
    shapes = shapes_of(x=[-1, 3, "?", "?"])
    tried = [shapes.of("x", sizes)[2:] for sizes in several(shapes, {})]
    assert {(64, 96), (48, 160), (32, 32), (224, 224)} <= set(tried)
    channels_last = shapes_of(x=["N", "H", "W", 3])
    assert channels_last.of("x", next(several(channels_last, {}))) == (2, 64, 96, 3)


def test_a_given_size_overrides_all_tries() -> None:
    shapes = shapes_of(x=["batch", "S"])
    assert {sizes["S"] for sizes in (*several(shapes, {"S": 9}), *single(shapes, {"S": 9}))} == {9}


def test_a_given_size_for_an_unknown_symbol_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--dim T=3.*it has: S, batch"):
        check_names(shapes_of(x=["batch", "S"]), {"T": 3})
