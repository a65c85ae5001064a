"""torch on the CPU as a device: an honest implementation, not ours, in float32 and half types, over many seeds."""

from __future__ import annotations

import pytest
from torch_fl_spec.registry import load_registry

from .fake_device import judge_operator
from .torch_device import TorchDevice

# torch's CPU kernels that do not keep the registry's bounds, and why; the budgets are meant so
_DEPARTURES = {
    "_softmax": ("f16", "bf16"),  # exponentials and sums rounded to half along outer dims
    "_log_softmax": ("f16", "bf16"),
    "nll_loss_forward": ("f16", "bf16"),  # sums of losses and of weights in half
    "nll_loss_backward": ("f16", "bf16"),  # grad_output / total_weight is rounded to half
    "native_layer_norm": ("f16", "bf16"),  # mean and rstd are computed, then kept, in half
    "add.Tensor": ("f16", "bf16"),  # alpha * other is rounded to half
    "sub.Tensor": ("f16", "bf16"),
    "sigmoid_backward": ("f16",),  # 1 - output and the first product are rounded to half
    "rsqrt": ("f16", "bf16"),  # 1 / half(sqrt)
    "prod.dim_int": ("f16", "bf16"),  # every product is rounded to half
    "erf": ("f16", "bf16"),  # subnormal arguments give zero
    "gelu": ("bf16",),
    "mm": ("bf16",),  # NaN where an infinity is split into two parts
    "bmm": ("bf16",),
    "addmm": ("bf16",),
    "convolution": ("f16", "bf16"),  # sums in half; subnormals flushed
    "convolution_backward": ("f16", "bf16"),
    "max_pool2d_with_indices_backward": ("f16", "bf16"),  # sums in half
    "avg_pool2d_backward": ("f16", "bf16"),
    "_adaptive_avg_pool2d_backward": ("f16", "bf16"),
    "div.Tensor_mode": ("bf16", "f16"),  # quotient and remainder are rounded to half on the way
    "sqrt": ("f32", "f64"),  # within one unit, not correctly rounded
    "remainder.Tensor": ("f32", "f64", "bf16"),  # NaN for quotients beyond 2^63
}
_BOUNDED = [operator for operator in load_registry() if any(not budget.exact for budget in operator.budgets)]
_COPIES = ("mul.Tensor", "amax", "max_pool2d_with_indices")
_ROWS = [
    pytest.param(operator.short_name, dtypes, id=f"{operator.short_name}-{','.join(dtypes)}")
    for operator in [*_BOUNDED, *(load_registry().operators[f"aten::{name}", 1] for name in _COPIES)]
    for dtypes in operator.rows
    if operator.op_class != "random" and operator.short_name != "arange.start_step"
    and dtypes[0] in ("f32", "f16", "bf16", "f64")
    and dtypes[0] not in _DEPARTURES.get(operator.short_name, ())
]  # fmt: skip


@pytest.mark.parametrize(("name", "dtypes"), _ROWS)
def test_torch_passes(name: str, dtypes: tuple[str, ...]) -> None:
    """No budget rejects what torch computes."""
    judge_operator(TorchDevice(), name, dtypes, seed=0)
