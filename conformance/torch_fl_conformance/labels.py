"""Which labels (`torch_fl_spec.vocabulary.LABELS`) a drawn case meets: looked up in the case, not in the plan."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from torch_fl_spec.registry import Operator

from torch_fl_conformance.draw_pointwise import SPECIAL_NUMBERS
from torch_fl_conformance.dtypes import DTYPES, Array
from torch_fl_conformance.problem import Claim, Problem, Tensor
from torch_fl_conformance.shapes import is_contiguous, is_past_power, is_tail

_FEW = 4096
_SPECIAL = {str(number) for number in SPECIAL_NUMBERS.values()}


def required(operator: Operator, claim: Claim) -> list[str]:
    """The operator's labels that this kernel's claims and the slots' domains make possible."""
    names = set(operator.labels_for(claim.dtypes))
    tensors = [slot for slot in operator.slots if slot.kind in ("tensor", "tensor_list")]
    if not tensors:
        names -= {"strided", "stride_zero"}
    if not claim.strided:
        names -= {"strided", "stride_zero", "strided_out", "transposed_operand"}
    if not claim.takes_scalar:
        names -= {"scalar_operand"}
    if claim.max_ndim < 4:
        names -= {"spatial_2d"}
    if claim.max_ndim < 2:
        names -= {"square", "outer_dim", "many_dims", "ignored"}
    output = DTYPES[operator.dtype_of(operator.outs[0].type, claim.dtypes)]
    if any(slot.domain == "castable" for slot in tensors) and not output.is_float and output.kind != "bool":
        names -= {"special_values"}  # no integer stands for NaN: such elements are never drawn
    names -= {"seed_pair", "offset_pair"}  # shown by random_row's statistics
    choices = [f"{slot.name}={choice}" for slot in operator.slots for choice in slot.choices]
    if "every_choice" in names:
        names = (names - {"every_choice"}) | set(choices)
    return sorted(names)


def of_case(problem: Problem, values: Mapping[str, Array]) -> set[str]:
    """Labels of one case with its elements."""
    structure, layouts = problem.structure, problem.layouts
    inputs, outs = structure.inputs, structure.outs
    wanted = [out for out in outs if out.name not in structure.unwanted]
    found = set(structure.labels) | _of_shapes((*inputs, *wanted)) | _of_arguments(problem)
    for tensor in (*inputs, *outs):
        layout = layouts[tensor.name]
        if (layout.lead * tensor.dtype.size) % 16:
            found.add("offset")
        if 0 in tensor.shape:
            continue
        if not is_contiguous(tensor.shape, layout.strides):
            found.add("strided_out" if tensor in outs else "strided")
        if any(stride == 0 and size > 1 for stride, size in zip(layout.strides, tensor.shape, strict=True)):
            found.add("stride_zero")
        if tensor in inputs and len(tensor.shape) >= 2 and _is_transposed(tensor.shape, layout.strides):
            found.add("transposed_operand")
    for tensor in inputs:
        if tensor.draw is not None and tensor.draw.domain != "index":
            found |= _of_values(values[tensor.name], tensor, problem.recipe.regime)
        elif 0 < np.unique(values[tensor.name]).size < values[tensor.name].size:
            found.add("duplicates")
    return found | _of_meeting(problem, values)


def _of_shapes(tensors: tuple[Tensor, ...]) -> set[str]:
    found = set()
    for tensor in tensors:
        shape = tensor.shape
        if 0 in shape:
            found.add("zero_size")
            continue
        if shape == ():
            found.add("scalar_shape")
        if shape and is_tail(shape[-1]):
            found.add("tail")
        if any(map(is_past_power, shape)):
            found.add("past_power")
        if len(shape) >= 2 and len(set(shape[-2:])) == 1 and shape[-1] > 1:
            found.add("square")
    if all(math.prod(tensor.shape) == 1 for tensor in tensors):
        found.add("one_element")
    return found


def _of_arguments(problem: Problem) -> set[str]:
    found = set()
    params = problem.structure.params
    for slot in problem.operator.slots:
        if slot.scalar and slot.name in params:
            found.add("scalar_operand")
        if slot.choices:
            found.add(f"{slot.name}={params[slot.name]}")
        if slot.optional and slot.kind == "scalar":
            found.add("optional_absent" if params[slot.name] is None else "optional_present")
    if params.get("alpha", 1) not in (1, 0):
        found.add("alpha_not_one")
    if problem.operator.short_name == "fill.Scalar" and str(params["value"]) in _SPECIAL:
        found.add("special_values")
    return found


def _of_values(values: Array, tensor: Tensor, regime: str) -> set[str]:
    found: set[str] = set()
    dtype = tensor.dtype
    if values.size == 0:
        return found
    if dtype.is_float:
        size = np.abs(values)
        zero = size == 0
        negative = np.count_nonzero(np.signbit(values[zero]))
        infinite = np.isinf(size).any() or not (tensor.draw and tensor.draw.infinities)
        if 0 < negative < np.count_nonzero(zero) and np.isnan(size).any() and infinite:
            found.add("special_values")
        if np.count_nonzero(size < dtype.min_normal) > np.count_nonzero(zero):
            found.add("subnormal")
    if dtype.kind != "bool":
        least, largest = np.fmin.reduce(values, axis=None), np.fmax.reduce(values, axis=None)  # NaN aside
        if least < 0 < largest:
            found.add("mixed_signs")
        limit = 2**53 if dtype.size == 8 else 2**24
        if dtype.kind == "int" and dtype.size >= 4 and (largest > limit or least < -limit):
            found.add("large_int")
    if regime in ("few", "special", "constant", "exhaustive") or _has_ties(values):
        found.add("ties")
    return found


def _has_ties(values: Array) -> bool:
    """Whether a value occurs twice; nearly always the first few thousand elements tell."""
    flat = values.reshape(-1)
    return _repeats(flat[:_FEW]) or (flat.size > _FEW and _repeats(flat))


def _repeats(flat: Array) -> bool:
    ordered = np.sort(flat)  # NaN last
    left, right = ordered[:-1], ordered[1:]
    return bool((left == right).any() or (left[-1:] != left[-1:]).any())


def _is_transposed(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    return shape[-1] > 1 and shape[-2] > 1 and 0 < strides[-2] < strides[-1]


def _of_meeting(problem: Problem, values: Mapping[str, Array]) -> set[str]:
    """Labels that need an argument and a value at once."""
    if problem.structure.params.get("beta") == 0 and "self" in values:
        bias = values["self"]
        if bias.dtype.kind == "f" and np.isnan(bias).any():
            return {"beta_zero"}
    if "ignore_index" in problem.structure.params and values["target"].size:
        ignored = values["target"] == problem.structure.params["ignore_index"]
        return {"all_ignored"} if ignored.all() else {"ignored"} if ignored.any() else set()
    return set()
