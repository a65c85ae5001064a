"""Runs a model's forward and backward pass over tensors that claim to be on the device and have no memory."""

from __future__ import annotations

import contextlib
import copy
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.utils import _pytree as pytree

from torch_fl.compiled import bridge as _bridge
from torch_fl.foresight import schemas
from torch_fl.foresight.record import Coverage, CoverageError
from torch_fl.foresight.trace import Trace
from torch_fl.routing import device_index

Device = str | int | torch.device


def coverage(
    model: Callable[..., Any],
    example_inputs: Any,
    device: Device = "fl:0",
    *,
    backward: bool = True,
    loss: Callable[..., Any] | None = None,
    targets: Any = (),
) -> Coverage:
    """Which tier will serve each operator of one training step on the device; nothing runs there, and nothing changes.

    model: a module, wherever it is (also on "meta"), or another callable. example_inputs: a tuple of its arguments, a
    mapping of them by name, or the one that there is; of tensors only size, strides and dtype count. loss: from the
    model's output, and `targets` after it, to what is differentiated; without it each output is, with a gradient that
    costs no operator. targets: one, or a tuple.

    Parameters and buffers of the model, and of a loss that is a module, inputs and targets are taken to be on the
    device; tensors that code finds elsewhere stay where they are. The optimizer's step is not part of it. Wishes
    (torch_fl.routing), settings and torch's own switches hold as they are now.

    Not foreseen: that a kernel declines certain sizes after all, which only it can tell; and where code of torch takes
    another way for tensors without memory than for others (one_hot, and the gradients of max over all elements and of
    cumprod, are known to), the rows are those of the other way.

    Raises CoverageError where the model cannot be followed: it raises itself, or depends on values of tensors; the
    text says which. RuntimeError where there is no such device. To be called by one thread at a time.
    """
    index = _usable(device)
    fakes = _Fakes(index)
    rehearsed = fakes.model(model)
    args, kwargs = _arguments(fakes.tree(example_inputs))
    wanted = fakes.tree(targets if isinstance(targets, tuple) else (targets,))
    loss = fakes.model(loss) if isinstance(loss, nn.Module) else loss
    trace = Trace(_bridge(), index, fakes.where_it_is)
    with _apart(backward), fakes.mode, _telling():
        with trace:
            out = rehearsed(*args, **kwargs)
            if loss is not None:
                out = loss(out, *wanted)
        if backward:
            _backward(trace, out)
    return Coverage(f"fl:{index}", backward, trace.rows())


def _backward(trace: Trace, out: Any) -> None:
    ends = [leaf for leaf in pytree.tree_leaves(out) if isinstance(leaf, Tensor) and leaf.requires_grad]
    if not ends:
        raise CoverageError(
            "nothing that the model gives depends on a parameter that requires a gradient: use backward=False, or "
            "name a loss"
        )
    gradients = [torch.empty_like(end) for end in ends]
    trace.backward = True
    with trace, torch.autograd.set_multithreading_enabled(False):  # a trace belongs to one thread
        torch.autograd.backward(ends, gradients)


@contextlib.contextmanager
def _apart(backward: bool) -> Iterator[None]:
    """What a caller has switched on for its own tensors plays no part; gradients are recorded where they are needed."""
    with (
        torch.inference_mode(False),
        torch.set_grad_enabled(backward or torch.is_grad_enabled()),
        warnings.catch_warnings(),
        _quiet(logging.getLogger("torch._subclasses.fake_tensor")),
    ):
        warnings.filterwarnings("ignore", "Accessing the data pointer of FakeTensor")  # torch compares two of them
        yield


@contextlib.contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """Without what torch logs of an error that is raised as well."""
    before = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = before


@contextlib.contextmanager
def _telling() -> Iterator[None]:
    """What the model raises, as what it is: a model that cannot be followed."""
    try:
        yield
    except CoverageError:
        raise
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        raise CoverageError(
            f"the model depends on values of tensors, which are not known before it runs, at {error.func}: cover the "
            "parts before and after it one by one"
        ) from error
    except Exception as error:
        lines = str(error).splitlines() or [""]
        raise CoverageError(f"the model cannot be followed to its end: {type(error).__name__}: {lines[0]}") from error


def _usable(device: Device) -> int:
    from torch_fl import fl

    index = device_index(device)
    index = fl.current_device() if index == -1 else index
    _bridge().device_info(index)  # raises where it cannot be used
    return index


def _arguments(inputs: Any) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    if isinstance(inputs, Mapping):
        return (), inputs
    return (tuple(inputs), {}) if isinstance(inputs, (tuple, list)) else ((inputs,), {})


class _Fakes:
    """Stands in for tensors: same sizes, strides and dtype, no memory, and the device's name."""

    def __init__(self, index: int) -> None:
        # No fallback kernels: they would run on the device.
        self.mode = FakeTensorMode(allow_fallback_kernels=False, allow_non_fake_inputs=True)
        self._device = torch.device("fl", index)
        self._made: dict[int, Tensor] = {}
        self._kept: list[Tensor] = []  # alive as long as their ids are looked up

    def tensor(self, tensor: Tensor, device: torch.device | None = None) -> Tensor:
        """The same one for the same tensor: parameters that are tied stay tied."""
        if id(tensor) not in self._made:
            self._made[id(tensor)] = self._new(tensor, device or self._device)
            self._kept.append(tensor)
        return self._made[id(tensor)]

    def where_it_is(self, tensor: Tensor) -> Tensor:
        """For one that is on an fl device already."""
        return self.tensor(tensor, tensor.device if tensor.device.type == "fl" else None)

    def tree(self, values: Any) -> Any:
        """Nested tuples, lists and dicts with tensors replaced."""
        return pytree.tree_map_only(Tensor, self.tensor, values)

    def model(self, model: Any) -> Any:
        """A copy of the module that shares nothing with it that a pass could change; other callables as they are."""
        if not isinstance(model, nn.Module):
            return model
        memo: dict[int, Any] = {}
        for module in model.modules():
            for mine in vars(module).values():
                if isinstance(mine, Tensor):
                    memo[id(mine)] = mine  # no parameter, no buffer: stays where it is, as under module.to()
        for tensor in (*model.parameters(), *model.buffers()):
            memo[id(tensor)] = self.tensor(tensor)
        try:
            return copy.deepcopy(model, memo)
        except Exception as error:
            raise CoverageError(
                f"the model cannot be copied, and covering it must not change it: {type(error).__name__}: {error}"
            ) from error

    def _new(self, tensor: Tensor, device: torch.device) -> Tensor:
        if nn.parameter.is_lazy(tensor):
            raise CoverageError("the model has lazy parameters that have no size yet: run it once on the CPU")
        if tensor.layout is not torch.strided or tensor.is_quantized:
            raise CoverageError(f"fl devices hold strided tensors that are not quantized only, not {tensor.layout}")
        with torch.inference_mode(False), torch.no_grad():
            if schemas.meets_devices(tensor):
                meta = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
            else:
                meta = torch.empty_like(tensor, device="meta", requires_grad=False)  # laid out as by .to(device)
        made: Tensor = FakeTensor(self.mode, meta, device)
        if isinstance(tensor, nn.Parameter):
            return nn.Parameter(made, tensor.requires_grad)
        return made.requires_grad_(tensor.requires_grad)
