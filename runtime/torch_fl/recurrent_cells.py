"""The cells of LSTM and GRU: on a device torch asks for them whole, and has kernels for CUDA alone.

Matrices are [batch, hidden]; what holds several gates has them side by side. A workspace is what the forward form
keeps for the backward one, and nobody else reads it. Half precision is computed in float32, as torch's kernels do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def lstm_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    cx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden and cell state after one step, and the workspace: gates i, f, g, o."""
    i, f, g, o = (_biased(input_gates, input_bias) + _biased(hidden_gates, hidden_bias)).chunk(4, 1)
    i, f, g, o = torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)
    cy = f * _wide(cx) + i * g
    hy = o * torch.tanh(cy)
    dtype = input_gates.dtype
    return hy.to(dtype), cy.to(dtype), torch.cat([i, f, g, o], 1).to(dtype)


def lstm_cell_backward(
    grad_hy: Tensor | None,
    grad_cy: Tensor | None,
    cx: Tensor,
    cy: Tensor,
    workspace: Tensor,
    has_bias: bool,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Gradients of the gates before they are activated, of cx, and of either bias."""
    if grad_hy is None and grad_cy is None:
        return None, None, None
    i, f, g, o = _wide(workspace).chunk(4, 1)
    tanh_cy = torch.tanh(_wide(cy))
    grad_o = torch.zeros_like(o) if grad_hy is None else _wide(grad_hy) * tanh_cy
    grad_c = torch.zeros_like(tanh_cy) if grad_cy is None else _wide(grad_cy)
    if grad_hy is not None:
        grad_c = grad_c + _wide(grad_hy) * o * (1 - tanh_cy * tanh_cy)
    gates = torch.cat(
        [
            grad_c * g * i * (1 - i),
            grad_c * _wide(cx) * f * (1 - f),
            grad_c * i * (1 - g * g),
            grad_o * o * (1 - o),
        ],
        1,
    )
    dtype = workspace.dtype
    return gates.to(dtype), (grad_c * f).to(dtype), gates.sum(0).to(dtype) if has_bias else None


def gru_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    hx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Hidden state after one step, and the workspace: gates r, z, n, then hx and what r scales."""
    of_input, of_hidden = _biased(input_gates, input_bias), _biased(hidden_gates, hidden_bias)
    (r, z, n), (hidden_r, hidden_z, hidden_n) = of_input.chunk(3, 1), of_hidden.chunk(3, 1)
    r, z = torch.sigmoid(r + hidden_r), torch.sigmoid(z + hidden_z)
    n = torch.tanh(n + r * hidden_n)
    former, dtype = _wide(hx), input_gates.dtype
    return (n + z * (former - n)).to(dtype), torch.cat([r, z, n, former, hidden_n], 1).to(dtype)


def gru_cell_backward(
    grad_hy: Tensor, workspace: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """Gradients of the gates of input and hidden state before they are activated, of hx, and of the two biases."""
    grad = _wide(grad_hy)
    r, z, n, former, hidden_n = _wide(workspace).chunk(5, 1)
    grad_n = grad * (1 - z) * (1 - n * n)
    grad_r = grad_n * hidden_n * r * (1 - r)
    grad_z = grad * (former - n) * z * (1 - z)
    of_input, of_hidden = torch.cat([grad_r, grad_z, grad_n], 1), torch.cat([grad_r, grad_z, grad_n * r], 1)
    dtype = workspace.dtype
    biases = (of_input.sum(0).to(dtype), of_hidden.sum(0).to(dtype)) if has_bias else (None, None)
    return of_input.to(dtype), of_hidden.to(dtype), (grad * z).to(dtype), *biases


def _wide(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def _biased(gates: Tensor, bias: Tensor | None) -> Tensor:
    return _wide(gates) if bias is None else _wide(gates) + _wide(bias)


#: Operator -> what serves it.
CELLS: dict[Any, Callable[..., Any]] = {
    aten._thnn_fused_lstm_cell.default: lstm_cell,
    aten._thnn_fused_lstm_cell_backward_impl.default: lstm_cell_backward,
    aten._thnn_fused_gru_cell.default: gru_cell,
    aten._thnn_fused_gru_cell_backward.default: gru_cell_backward,
}
