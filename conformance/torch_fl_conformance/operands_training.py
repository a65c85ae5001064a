"""Operands that a backward operator gets from its forward one: made from the others, so that calls are consistent.

Each function takes the drawn elements by name and changes what the call's own operator would not have given.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from torch_fl_conformance.dtypes import Array
from torch_fl_conformance.oracle_batch_norm import statistics
from torch_fl_conformance.oracle_loss import Named
from torch_fl_conformance.oracle_maths import widen
from torch_fl_conformance.problem import Problem
from torch_fl_conformance.rounding import round_to

Made = dict[str, Array]


def make_consistent(problem: Problem, made: Made, rng: np.random.Generator) -> None:
    """Change elements in place to what forward operators give; operators that nothing precedes keep theirs."""
    function = _CONSISTENT.get(problem.operator.oracle)
    if function is not None:
        with np.errstate(all="ignore"):
            function(problem, made, rng)


def _softmax(problem: Problem, made: Made, rng: np.random.Generator) -> None:
    """`output` is softmax, or its logarithm, of what was drawn; repeated elements stay equal to each other."""
    x = next(tensor for tensor in problem.structure.inputs if tensor.name == "output")
    dim, log = problem.structure.params["dim"], problem.operator.oracle == "log_softmax_backward"
    w = widen(made["output"], x.dtype)
    if w.size:
        shifted = w - np.max(w, axis=dim, keepdims=True)
        total = np.sum(np.exp(shifted), axis=dim, keepdims=True)
        made["output"] = round_to(shifted - np.log(total) if log else np.exp(shifted) / total, x.dtype)


def _ignored(problem: Problem, made: Made, rng: np.random.Generator) -> None:
    """A third of the targets, or all, are ignore_index."""
    params, flat = problem.structure.params, made["target"].reshape(-1).copy()
    if params["ignored"] == "nothing" or not flat.size:
        return
    count = flat.size if params["ignored"] == "all" else max(flat.size // 3, 1)
    flat[rng.permutation(flat.size)[:count]] = params["ignore_index"]
    made["target"] = flat.reshape(made["target"].shape)


def _loss_backward(problem: Problem, made: Made, rng: np.random.Generator) -> None:
    """Targets as in the forward operator, and the total weight that it gives for them."""
    _ignored(problem, made, rng)
    x = next(tensor for tensor in problem.structure.inputs if tensor.name == "self")
    ignore_index = problem.structure.params["ignore_index"]
    named = Named.of(made["target"], made.get("weight"), x.shape[-1], ignore_index, x.dtype)
    is_reduced = made["grad_output"].ndim == 0
    made["total_weight"] = round_to(np.asarray(np.sum(named.gain) if is_reduced else 0.0), x.dtype)


def _saved(problem: Problem, made: Made, rng: np.random.Generator) -> None:
    """Mean and 1 / sqrt(variance + eps) of the input, as batch norm has saved them."""
    if "save_mean" not in made or not made["input"].size:
        return
    dtypes = {tensor.name: tensor.dtype for tensor in problem.structure.inputs}
    w = widen(made["input"], dtypes["input"])
    mean, _, invstd = statistics(w, problem.structure.params["eps"])
    made["save_mean"] = round_to(mean, dtypes["save_mean"])
    made["save_invstd"] = round_to(invstd, dtypes["save_invstd"])


_CONSISTENT: dict[str, Callable[[Problem, Made, np.random.Generator], None]] = {
    "softmax_backward": _softmax,
    "log_softmax_backward": _softmax,
    "nll_loss": _ignored,
    "nll_loss_backward": _loss_backward,
    "batch_norm_backward": _saved,
}
