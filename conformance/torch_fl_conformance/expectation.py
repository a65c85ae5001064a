"""From a drawn problem to elements and to what they must become: the bridge to the oracles and budgets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch_fl_spec.vocabulary import expression_name

from torch_fl_conformance import (
    expectation_training,
    oracle_contraction,
    oracle_convolution_backward,
    oracle_movement,
    oracle_pointwise,
    oracle_pooling,
    oracle_random,
    oracle_reduction,
)
from torch_fl_conformance.budget import Bound, Precision, bound, names_used_by
from torch_fl_conformance.compare import Expected
from torch_fl_conformance.dtypes import DTYPES, Array
from torch_fl_conformance.operands_training import make_consistent
from torch_fl_conformance.oracle_maths import widen
from torch_fl_conformance.oracle_operands import Operands
from torch_fl_conformance.problem import Problem, Structure, Tensor
from torch_fl_conformance.values import generate, is_repeated

Values = Mapping[str, Array]


def elements(problem: Problem, variation: int = 0) -> dict[str, Array]:
    """Logical values of every input, in the call's shapes; another `variation` gives other data of the same kind."""
    made = {}
    for place, tensor in enumerate(problem.structure.inputs):
        assert tensor.draw is not None
        seed = np.array([problem.value_seed, place, variation], np.uint32)
        rng = np.random.Generator(np.random.PCG64(seed))
        core = generate(tensor.dtype, tensor.core, tensor.draw, rng)
        unserved = _unserved(problem, tensor)
        if unserved and core.size:
            flat = core.reshape(-1).copy()
            spots = rng.permutation(flat.size)[: max(flat.size // 3, min(flat.size // 2, 4), 1)]
            flat[spots] = np.resize(unserved, spots.size)  # in their order: few spots have the first ones
            core = flat.reshape(core.shape)
        made[tensor.name] = np.broadcast_to(core, tensor.shape) if tensor.repeat else core
    seed = np.array([problem.value_seed, len(made), variation], np.uint32)
    make_consistent(problem, made, np.random.Generator(np.random.PCG64(seed)))
    return made


def _unserved(problem: Problem, tensor: Tensor) -> list[int]:
    """Values that the recipe wants among the tensor's and that no kernel can serve (FL-KERNEL-013)."""
    domain = tensor.draw.domain if tensor.draw else ""
    if problem.recipe.argument == "out_of_range" and domain == "index" and tensor.draw:
        bound, dtype = tensor.draw.bound, tensor.dtype
        return [bound, -1, -(2**30), 2**30, bound + 7, dtype.low, dtype.high]
    if problem.recipe.argument == "zero_divisor" and domain == "nonzero" and not tensor.dtype.is_float:
        return [0]
    return []


def expected(problem: Problem, values: Values, precision: Precision) -> dict[str, Expected]:
    """The oracles' answers by output name."""
    operator, structure = problem.operator, problem.structure
    answers = _answers(problem, values, precision)
    answers |= {name: Expected(np.zeros(0)) for name in structure.unwanted}  # nothing is expected of them
    operands = _operands(problem, values)
    used = {tensor.draw.regime for tensor in structure.inputs if tensor.draw}
    # A dimension of stride 0 repeats its values as a regime of few values does.
    repeated = any(is_repeated(regime) for regime in used) or any(tensor.repeat for tensor in structure.inputs)
    for out in structure.outs:
        answer = answers[out.name]
        shape = out.shape
        answer.ref = np.asarray(answer.ref)
        if answer.ref.shape != shape:
            answer.ref = np.broadcast_to(answer.ref, shape)
        answer.signed_zero = operator.signed_zero
        answer.repeated = repeated
        answer.elements = {**operands, **answer.elements}
        answer.exact = problem.recipe.regime == "exact_integer" and _is_exact(operator.short_name, structure)
    return answers


_EXACT_ON_INTEGERS = (
    "add.Tensor", "sub.Tensor", "mul.Tensor", "sum.dim_IntList", "cumsum", "mm", "bmm", "addmm", "convolution",
    "convolution_backward", "scatter_add", "amax", "amin", "addcmul", "lerp.Scalar", "lerp.Tensor", "sigmoid_backward",
    "tanh_backward", "native_dropout_backward", "max_pool2d_with_indices_backward",
)  # fmt: skip


def _is_exact(name: str, structure: Structure) -> bool:
    """Whether small integers make every order of the operator's arithmetic exact, so that T = 0."""
    drawn = [tensor.draw.regime for tensor in structure.inputs if tensor.draw and tensor.draw.domain != "index"]
    numbers = [value for value in structure.params.values() if isinstance(value, float)]
    small = all(float(value).is_integer() and abs(value) <= 8 for value in numbers)
    return name in _EXACT_ON_INTEGERS and small and all(regime == "exact_integer" for regime in drawn)


def _operands(problem: Problem, values: Values) -> dict[str, Any]:
    """Tensors and numbers by the names that formulas use; tensors only where one of the operator's does."""
    used = names_used_by(problem.operator.n_ops, *(f for b in problem.operator.budgets for f in (b.when, b.T) if f))
    named: dict[str, Any] = {
        tensor.name: widen(values[tensor.name], tensor.dtype)
        for tensor in problem.structure.inputs
        if tensor.dtype.is_float and expression_name(tensor.name) in used
    }
    numbers = {name: value for name, value in problem.structure.params.items() if value is not None}
    return {expression_name(name): value for name, value in {**named, **numbers}.items()}


def _answers(problem: Problem, values: Values, precision: Precision) -> dict[str, Expected]:
    operator, structure = problem.operator, problem.structure
    params = structure.params
    with np.errstate(all="ignore"):
        if operator.oracle in expectation_training.ORACLES:
            return expectation_training.answers(problem, values, precision)
        if operator.op_class == "pointwise":
            output = structure.outs[0]
            dtype = DTYPES[problem.claim.dtypes[0]]
            operands = Operands({**params, **values}, dtype, output.dtype, output.shape)
            return {output.name: oracle_pointwise.expected(operator.oracle, operands)}
        if operator.op_class in ("reduction", "normalisation"):
            return _reduced(problem, values, precision)
        if operator.op_class == "random":
            return _random(problem, values)
        if operator.op_class == "contraction":
            if operator.oracle == "convolution_backward":
                return _gradients(problem, values, precision)
            return {"out": _contracted(problem, values, precision)}
        if operator.op_class == "pooling":
            return oracle_pooling.expected(operator.oracle, values, structure, precision)
        return {"out": _moved(problem, values, precision)}


def _reduced(problem: Problem, values: Values, precision: Precision) -> dict[str, Expected]:
    operator, params = problem.operator, problem.structure.params
    x = problem.structure.inputs[0]
    data = values[x.name]
    if operator.oracle in ("softmax", "log_softmax"):
        log = operator.oracle == "log_softmax"
        return {"out": oracle_reduction.softmax(data, params["dim"], x.dtype, precision, log)}
    if operator.oracle == "layer_norm":
        weight, bias = values.get("weight"), values.get("bias")
        answers = oracle_reduction.layer_norm(data, params["dims"], weight, bias, params["eps"], x.dtype, precision)
        return dict(answers)
    output = problem.structure.outs[0].dtype
    dims = params["dims"] if "dims" in params else (params["dim"],)
    if operator.oracle == "var":
        return {"out": oracle_reduction.var(data, dims, x.dtype, output, precision, params["correction"])}
    function = {
        "sum": oracle_reduction.sum_, "mean": oracle_reduction.mean, "amax": oracle_reduction.amax,
        "amin": oracle_reduction.amin, "argmax": oracle_reduction.argmax, "prod": oracle_reduction.prod,
        "any": oracle_reduction.any_, "cumsum": oracle_reduction.cumsum,
    }[operator.oracle]  # fmt: skip
    return {"out": function(data, dims, x.dtype, output, precision)}


def _contracted(problem: Problem, values: Values, precision: Precision) -> Expected:
    params, out = problem.structure.params, problem.structure.outs[0]
    dtype = out.dtype
    if problem.operator.oracle in ("mm", "bmm"):
        return oracle_contraction.matmul(values["self"], values["mat2"], dtype, precision)
    if problem.operator.oracle == "addmm":
        return oracle_contraction.addmm(
            values["self"], values["mat1"], values["mat2"], params["beta"], params["alpha"], dtype, precision
        )
    return oracle_contraction.convolution(
        values["input"], values["weight"], values.get("bias"), params["stride"], params["padding"],
        params["dilation"], params["transposed"], params["groups"], out.shape, dtype, precision,
    )  # fmt: skip


def _gradients(problem: Problem, values: Values, precision: Precision) -> dict[str, Expected]:
    params, dtype = problem.structure.params, problem.structure.outs[0].dtype
    return oracle_convolution_backward.gradients(
        values["grad_output"], values["input"], values["weight"], params["stride"], params["padding"],
        params["dilation"], params["transposed"], params["groups"], dtype, precision,
    )  # fmt: skip


def _moved(problem: Problem, values: Values, precision: Precision) -> Expected:
    name, params, out = problem.operator.oracle, problem.structure.params, problem.structure.outs[0]
    dtype = out.dtype
    if name == "cat":
        return oracle_movement.cat([values[t.name] for t in problem.structure.inputs], params["dim"], dtype)
    if name == "flip":
        return oracle_movement.flip(values["self"], params["dims"], dtype)
    if name == "constant_pad":
        return oracle_movement.pad(values["self"], params["pad"], params["value"], dtype)
    if name == "arange":
        return oracle_movement.arange(params["start"], params["step"], out.shape[0], dtype)
    if name == "embedding":
        return oracle_movement.embedding(values["weight"], values["indices"], dtype)
    if name == "index_select":
        return oracle_movement.index_select(values["self"], params["dim"], values["index"], dtype)
    if name == "gather":
        return oracle_movement.gather(values["self"], params["dim"], values["index"], dtype)
    if name == "scatter_add":
        index, source = values["index"], values["src"]
        return oracle_movement.scatter_add(values["self"], params["dim"], index, source, dtype, precision)
    raise LookupError(f"no oracle {name!r}")


def _random(problem: Problem, values: Values) -> dict[str, Expected]:
    params, out, exact = problem.structure.params, problem.structure.outs[0], problem.claim.philox_exact
    if problem.operator.oracle == "philox_dropout":
        return oracle_random.dropout(values["input"], params, out.dtype, exact)
    if problem.operator.oracle == "philox_normal":
        return {"out": oracle_random.normal(params, out.shape, exact)}
    return {"out": oracle_random.uniform(params, out.shape, out.dtype, exact)}


def budget_of(problem: Problem, out: str, answer: Expected, precision: Precision) -> Bound:
    """T for one output; also adds the second accepted rounding of wide-to-half casts to the answer."""
    if answer.ref.dtype.kind != "f" or not answer.ref.size:
        return Bound.zero(answer.ref.shape)
    found = bound(
        problem.operator, out, problem.claim.dtypes, problem.claim.tier, precision, answer.ref, answer.elements,
        repeated=answer.repeated,
    )  # fmt: skip
    if found.also_through_f32 and "through_f32" in answer.elements:
        answer.alternatives = [*answer.alternatives, answer.elements["through_f32"]]
    return found
