"""From a drawn call of a loss, of batch norm, or of what normalisations give back, to what its outputs must become."""

from __future__ import annotations

from collections.abc import Mapping

from torch_fl_conformance import oracle_batch_norm, oracle_loss, oracle_reduction
from torch_fl_conformance.budget import Precision
from torch_fl_conformance.compare import Expected
from torch_fl_conformance.dtypes import DTYPES, Array
from torch_fl_conformance.problem import Problem

Values = Mapping[str, Array]
ORACLES = (
    *("softmax_backward", "log_softmax_backward", "nll_loss", "nll_loss_backward"),
    *("batch_norm", "batch_norm_backward"),
)


def answers(problem: Problem, values: Values, precision: Precision) -> dict[str, Expected]:
    """The oracle's answers by output name, for an operator whose oracle is one of ORACLES."""
    if problem.operator.op_class == "loss":
        return _loss(problem, values, precision)
    if problem.operator.oracle.startswith("batch_norm"):
        return _batch_norm(problem, values, precision)
    return _softmax(problem, values, precision)


def _softmax(problem: Problem, values: Values, precision: Precision) -> dict[str, Expected]:
    dtype, dim = problem.structure.outs[0].dtype, problem.structure.params["dim"]
    log = problem.operator.oracle == "log_softmax_backward"
    given = oracle_reduction.softmax_backward(values["grad_output"], values["output"], dim, dtype, precision, log)
    return {"grad_input": given}


def _loss(problem: Problem, values: Values, precision: Precision) -> dict[str, Expected]:
    dtype, params = problem.structure.outs[0].dtype, problem.structure.params
    about = (values["target"], values.get("weight"), params["reduction"], params["ignore_index"])
    if problem.operator.oracle == "nll_loss":
        return dict(oracle_loss.nll_loss(values["self"], *about, dtype, precision))
    grad, shape, total = values["grad_output"], values["self"].shape, values["total_weight"]
    return {"grad_input": oracle_loss.nll_loss_backward(grad, shape, *about, total, dtype)}


def _batch_norm(problem: Problem, values: Values, precision: Precision) -> dict[str, Expected]:
    params, first, second = problem.structure.params, *problem.claim.dtypes
    dtypes = (DTYPES[first], DTYPES[second])
    if problem.operator.oracle == "batch_norm":
        about = (params["training"], params["momentum"], params["eps"])
        return oracle_batch_norm.batch_norm(values, *about, dtypes, precision)
    return oracle_batch_norm.batch_norm_backward(values, params["train"], params["eps"], dtypes, precision)
