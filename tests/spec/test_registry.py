"""The operator registry: what the sources say, what the compiler refuses, what the reader needs."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from torch_fl_spec import registry, vocabulary
from torch_fl_spec.registry_compile import RegistryError, compile_sources

MINIMAL: dict[str, Any] = {
    "class": "pointwise",
    "profile": "core",
    "regimes": ["normal"],
    "labels": ["tail"],
    "operators": [
        {
            "op": "aten::twice.Tensor",
            "summary": "two times self",
            "types": {"T": "F"},
            "slots": [{"name": "self", "kind": "tensor", "type": "T"}],
            "outs": [{"name": "out", "type": "T"}],
            "oracle": "twice",
            "budgets": [{"T": "u_a * abs(ref)", "source": "one rounding"}],
        }
    ],
}


def compile_text(tmp_path: Path, source: Any) -> dict[str, Any]:
    path = tmp_path / "some.yaml"
    path.write_text(source if isinstance(source, str) else yaml.safe_dump(source), encoding="utf-8")
    return compile_sources([path])


def changed(**fields: Any) -> dict[str, Any]:
    """MINIMAL with fields of its operator replaced."""
    source = copy.deepcopy(MINIMAL)
    source["operators"][0].update(fields)
    return source


def test_a_small_file_compiles_to_expanded_rows(tmp_path: Path) -> None:
    compiled = compile_text(tmp_path, MINIMAL)
    operator = registry.from_compiled(compiled).get("aten::twice.Tensor")
    assert operator is not None
    assert operator.rows == (("f32",), ("f64",), ("f16",), ("bf16",))
    assert operator.revision == 1
    assert operator.labels == ("tail",)
    assert operator.chapter == "kernel.pointwise"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"colour": "red"}, "colour"),
        ({"budgets": [{"T": "u_a * abs(other)", "source": "none"}]}, "unknown name 'other'"),
        ({"budgets": [{"T": "open('x')", "source": "none"}]}, "unknown function 'open'"),
        ({"budgets": [{"T": "ref.real", "source": "none"}]}, "Attribute is not in the grammar"),
        ({"budgets": [{"T": "max(ref)", "source": "none"}]}, "max takes 2 arguments"),
        ({"budgets": [{"T": "[ref]", "source": "none"}]}, "List is not in the grammar"),
        ({"budgets": [{"T": "u_a", "exact": True, "source": "none"}]}, "exactly one of exact and T"),
        ({"budgets": []}, "no budget for output out of row f32"),
        ({"budgets": [{"when": "ref == 0", "exact": True, "source": "none"}]}, "no budget for output out"),
        ({"budgets": [{"dtypes": {"T": "single"}, "exact": True, "source": "none"}]}, "row f64"),
        ({"n_ops": "sum_abs"}, "unknown name 'sum_abs'"),
        ({"inplace": ["other"]}, "no slot 'other'"),
        ({"regimes": ["hopeful"]}, "unknown 'hopeful'"),
        ({"labels": ["lucky"]}, "unknown 'lucky'"),
        ({"types": {"T": "G"}}, "unknown dtype or set 'G'"),
        ({"types": ["T"]}, "rows must be given"),
        ({"types": ["T"], "rows": [["f32"], ["f32"]]}, "a row occurs twice"),
        ({"slots": [{"name": "self", "kind": "tensor", "type": "X"}]}, "unknown type 'X'"),
        ({"slots": [{"name": "self", "kind": "tensor"}]}, "no type"),
        ({"slots": [{"name": "self", "kind": "tensor", "type": "T", "domain": "moon"}]}, "unknown 'moon'"),
    ],
)
def test_the_compiler_names_file_operator_and_fault(tmp_path: Path, fields: dict[str, Any], says: str) -> None:
    with pytest.raises(RegistryError) as caught:
        compile_text(tmp_path, changed(**fields))
    message = str(caught.value)
    assert message.startswith("some.yaml: aten::twice.Tensor: ")
    assert says in message


def test_an_operator_given_twice_is_refused(tmp_path: Path) -> None:
    source = copy.deepcopy(MINIMAL)
    source["operators"] *= 2
    with pytest.raises(RegistryError, match=r"aten::twice.Tensor r1 stands in some.yaml already"):
        compile_text(tmp_path, source)


def test_a_key_given_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RegistryError, match=r"some.yaml: .*'class' twice"):
        compile_text(tmp_path, "class: pointwise\nclass: index\n")


def test_every_operator_is_there() -> None:
    names = {operator.short_name for operator in registry.load_registry()}
    assert names == {
        *("add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor", "div.Tensor_mode", "neg", "abs"),
        *("reciprocal", "exp", "log", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf", "sigmoid", "relu"),
        *("gelu", "silu", "pow.Tensor_Tensor", "maximum", "minimum", "clamp", "where.self"),
        *("remainder.Tensor", "floor", "ceil", "round", "trunc", "sign", "isnan", "eq.Tensor", "ne.Tensor"),
        *("lt.Tensor", "le.Tensor", "gt.Tensor", "ge.Tensor", "logical_and", "logical_or", "logical_not"),
        *("bitwise_and.Tensor", "bitwise_or.Tensor", "bitwise_xor.Tensor", "bitwise_not", "_to_copy"),
        *("fill.Scalar", "sum.dim_IntList", "mean.dim", "amax", "amin", "argmax", "prod.dim_int"),
        *("any.dim", "var.correction", "cumsum", "mm", "bmm", "addmm", "convolution", "_softmax"),
        "convolution_backward",
        *("_log_softmax", "native_layer_norm", "cat", "index_select", "gather", "scatter_add"),
        *("max_pool2d_with_indices", "max_pool2d_with_indices_backward", "avg_pool2d", "avg_pool2d_backward"),
        *("_adaptive_avg_pool2d", "_adaptive_avg_pool2d_backward"),
        *("embedding", "flip", "constant_pad_nd", "arange.start_step", "uniform", "normal_functional"),
        *("native_dropout", "threshold_backward", "sigmoid_backward", "tanh_backward", "native_dropout_backward"),
        *("addcmul", "addcdiv", "lerp.Scalar", "lerp.Tensor"),
        *("_softmax_backward_data", "_log_softmax_backward_data", "nll_loss_forward", "nll_loss_backward"),
        *("native_batch_norm", "native_batch_norm_backward"),
    }


def test_names_are_overloads_that_torch_has() -> None:
    torch = pytest.importorskip("torch")
    # The canonical form of a random operator has (seed, offset) where torch has a generator.
    for operator in registry.load_registry():
        packet, _, overload = operator.short_name.partition(".")
        assert (overload or "default") in getattr(torch.ops.aten, packet).overloads(), operator.op


def test_slots_come_in_the_order_of_torchs_schema() -> None:
    torch = pytest.importorskip("torch")
    for operator in registry.load_registry():
        if operator.op_class == "random" or operator.short_name == "fill.Scalar":
            continue
        packet, _, overload = operator.short_name.partition(".")
        schema = getattr(getattr(torch.ops.aten, packet), overload or "default")._schema
        theirs = [argument.name for argument in schema.arguments]
        ours = [{"dims": "dim"}.get(slot.name, slot.name) for slot in operator.slots]
        theirs = [{"dims": "dim"}.get(name, name) for name in theirs]
        assert [name for name in theirs if name in ours] == ours, operator.op


def test_every_exact_integer_row_is_without_tolerance() -> None:
    for operator in registry.load_registry():
        for row in operator.rows:
            for out in operator.outs:
                first = operator.candidates(out.name, row, "ACCURATE")[-1]
                if operator.dtype_of(out.type, row) not in vocabulary.FLOATS:
                    assert first.exact, (operator.op, row)


def test_fast_kernels_get_the_fast_bound_where_there_is_one() -> None:
    mm = registry.load_registry().get("aten::mm")
    assert mm is not None
    assert [budget.tier for budget in mm.candidates("out", ("f32",), "FAST")] == ["FAST", "ACCURATE"]
    assert [budget.tier for budget in mm.candidates("out", ("f32",), "ACCURATE")] == ["ACCURATE"]


def test_core_requires_its_dtypes_only() -> None:
    loaded = registry.load_registry()
    add, conv = loaded.get("aten::add.Tensor"), loaded.get("aten::convolution")
    assert add is not None
    assert conv is not None
    required = [row[0] for row in add.rows if add.required_in("core", row)]
    assert required == ["f32", "i64", "i32", "bool"]
    assert not conv.required_in("core", ("f32",))
    assert conv.required_in("infer", ("f32",))
    assert conv.required_in("train", ("f32",))


def test_half_types_compute_in_f32() -> None:
    loaded = registry.load_registry()
    add, normal = loaded.get("aten::add.Tensor"), loaded.get("aten::normal_functional")
    assert add is not None
    assert normal is not None
    computes = {row[0]: add.compute_dtype(row) for row in add.rows}
    assert computes == {dtype: dtype for dtype in computes} | {"f16": "f32", "bf16": "f32"}
    assert normal.compute_dtype(("f16",)) == "f64"


def test_the_digest_binds_the_operators() -> None:
    compiled = json.loads(registry.COMPILED.read_bytes())
    loaded = registry.load_registry()
    assert registry.from_compiled(compiled).digest == loaded.digest
    compiled["operators"][0]["budgets"][0]["source"] += "!"
    assert registry.from_compiled(compiled).digest != loaded.digest


def test_the_compiled_form_is_that_of_the_sources() -> None:
    fresh = compile_sources(sorted(registry.SOURCES.glob("*.yaml")))
    assert registry.from_compiled(fresh).digest == registry.load_registry().digest


def test_a_changed_source_compiles_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "operators"
    folder.mkdir()
    for path in registry.SOURCES.glob("random.yaml"):
        (folder / path.name).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    compiled = tmp_path / "operators.json"
    for module in ("torch_fl_spec.registry", "torch_fl_spec.registry_compile"):
        monkeypatch.setattr(f"{module}.SOURCES", folder)
        monkeypatch.setattr(f"{module}.COMPILED", compiled)
    before = registry.load_registry.__wrapped__()
    assert len(before.operators) == 3
    written = compiled.stat().st_mtime_ns
    assert registry.load_registry.__wrapped__().digest == before.digest
    assert compiled.stat().st_mtime_ns == written, "nothing changed, so nothing is compiled"

    source = folder / "random.yaml"
    source.write_text(source.read_text(encoding="utf-8").replace("B_cos ulp", "B_cos ULP"), encoding="utf-8")
    assert registry.load_registry.__wrapped__().digest != before.digest


def test_another_schema_is_refused() -> None:
    with pytest.raises(ValueError, match="torch-fl-operators/0"):
        registry.from_compiled({"schema": "torch-fl-operators/0", "operators": []})


def test_reading_needs_neither_yaml_nor_pydantic() -> None:
    registry.load_registry()
    code = (
        "import sys\n"
        "from torch_fl_spec.registry import load_registry\n"
        "assert load_registry().operators\n"
        "print([name for name in ('yaml', 'pydantic', 'numpy', 'torch') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_documented_names_cover_every_formula() -> None:
    for operator in registry.load_registry():
        known = {*vocabulary.NAMES, *vocabulary.CONSTANTS, *operator.auxiliaries}
        known |= {vocabulary.expression_name(slot.name) for slot in operator.slots}
        for budget in operator.budgets:
            for expression in (budget.T, budget.when):
                if expression is not None:
                    vocabulary.names_in(expression, known)
