"""Follows each operator that arrives at the device to the tier that would serve it; nothing is computed.

The steps are those of the bridge: dispatcher, kernel, generic tier, CPU tier, error (bridge/fallback.cpp and
bridge/generic_tier.cpp). What kernels a device has, what the user's wishes admit and which tiers are switched on, the
bridge says; composite kernels of torch and the decompositions that the generic tier uses run as they are, over tensors
without memory, so that what they consist of is followed in turn.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensor, UnsupportedOperatorException
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch_fl_spec.registry import Operator

from torch_fl import config, decompositions
from torch_fl.compiled import Bridge
from torch_fl.dtypes import SHORT_NAMES, TORCH_DTYPES
from torch_fl.foresight import copies, rows, schemas
from torch_fl.foresight.attempts import Attempt, Calls, Refused, can_begin_again, generic_kernel
from torch_fl.foresight.record import TIERS, CoverageError, CoverageRow, Tier
from torch_fl.routing import newest_operators, serves

_NO_KERNEL = "the device has no kernel for it"
_NO_OPERATOR = "it is not an operator of the vendor interface"


class _Shapeless(CoverageError):
    """Torch cannot tell what an operator gives; what consists of it may know better."""


class Trace(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts operators for fl:`index` while it is entered, above a FakeTensorMode. One thread at a time."""

    def __init__(self, bridge: Bridge, index: int, fake: Callable[[Tensor], Tensor]) -> None:
        """fake: gives a tensor without memory in place of one that has some."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._fake = fake
        self.backward = False
        self._bridge = bridge
        self._device = torch.device("fl", index)
        self._index = index
        self._attempts: list[Attempt] = []
        self._depth = 0  # of operators that others consist of
        self._counted: Calls = Calls()
        self._hopeless: set[tuple[Any, ...]] = set()
        self._refuses_steps = config.current().config.fallback.on_fallback == "error"

    def rows(self) -> tuple[CoverageRow, ...]:
        """What has been counted so far."""
        keys = {key for key, _ in self._counted}
        made = [
            CoverageRow(name, dtypes, tier, self._counted[key, False], self._counted[key, True], reason)
            for key in keys
            for name, dtypes, tier, reason in (key,)
        ]
        return tuple(sorted(made, key=lambda row: (-TIERS.index(row.tier), -row.calls, row.operator, str(row.dtypes))))

    # ---- The dispatcher ----------------------------------------------------------------------------------------------

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Called by torch for every operator, with this mode itself switched off."""
        args, kwargs = self._without_memory((args, kwargs or {}))
        if func.namespace == "prim" or not self._arrives(args, kwargs):
            return self._elsewhere(func, args, kwargs)
        args, kwargs = schemas.without_numbers(func, args, kwargs)
        if schemas.has_kernel(func, DispatchKey.PrivateUse1):
            return self._kernel(func, args, kwargs)
        if (key := schemas.composite(func)) is not None:
            # Those that may be views and may be copies, such as reshape, are composed of the ones that know which.
            is_view = schemas.is_view(func) and key is not DispatchKey.CompositeImplicitAutograd
            return func(*args, **kwargs) if is_view else self._compose_directly(key, func, args, kwargs)
        return self._step_down(func, args, kwargs, _NO_OPERATOR)

    def _without_memory(self, values: Any) -> Any:
        """With fakes for tensors of the device that are none: a user's own, and views that composite kernels make
        without asking anybody. What came to the device with them would be computed there."""

        def stand_in(tensor: Tensor) -> Tensor:
            return (
                self._fake(tensor) if not isinstance(tensor, FakeTensor) and schemas.meets_devices(tensor) else tensor
            )

        return pytree.tree_map_only(Tensor, stand_in, values)

    def _arrives(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        tensors = [tensor for value in (*args, *kwargs.values()) for tensor in schemas.tensors_in(value)]
        if tensors:
            return any(tensor.device == self._device for tensor in tensors)
        return any(isinstance(value, torch.device) and value == self._device for value in (*args, *kwargs.values()))

    def _elsewhere(self, func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        is_random = torch.Tag.nondeterministic_seeded in func.tags
        tensors = schemas.tensors_in([*args, *kwargs.values()])
        if self._depth and not is_random and not any(isinstance(tensor, FakeTensor) for tensor in tensors):
            with _disable_current_modes():  # numbers on the host, which composite kernels read
                return func(*args, **kwargs)
        return func(*args, **kwargs)

    def _compose_directly(
        self, key: DispatchKey, func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        try:
            with self._within():
                return self._without_memory(schemas.run_kernel(func, key, args, kwargs))
        except Refused:
            raise
        except _Shapeless:
            return _outputs(func, args, kwargs)
        except NotImplementedError as error:
            return self._fail(func, args, kwargs, f"torch's own kernel for it says: {_first_line(error)}")

    # ---- Native kernels ----------------------------------------------------------------------------------------------

    def _kernel(self, func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        name = schemas.name_of(func)
        if name in rows.COPIES:
            return self._copy(func, args, kwargs)
        if name in rows.OWN:
            return self._own(func, args, kwargs)
        if (forward := rows.FORWARDS.get(name)) is not None:
            with self._within():
                out = forward(*args, **kwargs)
            if out is not NotImplemented:
                return out
        operator = rows.operator_of(func)
        assert operator is not None, f"torch_fl/foresight/rows.py does not know the bridge's kernel for {name}"
        return self._native(operator, func, args, kwargs)

    def _own(self, func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if func is torch.ops.aten._resize_output_.default:  # FakeTensorMode refuses it
            return args[0] if args[0].shape == torch.Size(args[1]) else torch.ops.aten.resize_(args[0], args[1])
        try:
            return func(*args, **kwargs)
        except DataDependentOutputException:
            if not self._depth:
                raise
            # What decompositions ask is whether something is wrong with the values.
            return False if args[0].dtype is torch.bool else 0.0 if args[0].is_floating_point() else 0

    def _native(self, operator: Operator, func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        given = schemas.named(func, args, kwargs)
        functional = schemas.functional_form(func)
        if functional is None or functional is func:
            values = first = func(*args, **kwargs)
        else:
            first = None
            values = functional(**{argument.name: given[argument.name] for argument in functional._schema.arguments})
        made = list(schemas.tensors_in(values))
        if made and all(tensor.numel() == 0 for tensor in made):
            return first if first is not None else func(*args, **kwargs)
        row = rows.row_of(operator, given, [tensor.dtype for tensor in made])
        if row is None or not serves(self._index, operator.op, row):
            return self._step_down(func, args, kwargs, _NO_KERNEL)
        for tensor, dtype in rows.casts_of(operator, given, row):
            self._copies(SHORT_NAMES.get(tensor.dtype, "none"), dtype, same_layout=True, bits=copies.bits(tensor))
        self._count(operator.op, tuple(TORCH_DTYPES[dtype] for dtype in row), "native")
        if first is not None:
            return first
        out = func(*args, **kwargs)
        wanted = operator.dtype_of(operator.outs[0].type, row)
        written = next(schemas.tensors_in(out))
        if operator.op_class == "pointwise" and SHORT_NAMES.get(written.dtype) != wanted:
            self._copies(wanted, SHORT_NAMES.get(written.dtype, "none"), same_layout=True, bits=copies.bits(written))
        return out

    def _copy(self, func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        given = schemas.named(func, args, kwargs)
        destination, source = (given[name] for name in rows.COPIES[schemas.name_of(func)])
        out = func(*args, **kwargs)
        if destination.device == source.device == self._device and destination.numel() > 0:
            source = source.expand(destination.shape)
            if not copies.is_same_memory(destination, source):
                names = [SHORT_NAMES.get(tensor.dtype, "none") for tensor in (source, destination)]
                same_layout = copies.moves_memory(destination, source)
                self._copies(names[0], names[1], same_layout=same_layout, bits=copies.bits(source))
        return out

    def _copies(self, source: str, destination: str, *, same_layout: bool, bits: str) -> None:
        """Count the copy of a tensor within the device."""
        name = "aten::_to_copy"
        if source == destination and same_layout:
            return
        candidates = [(source, destination), *([(bits, bits)] if source == destination else [])]
        for row in candidates:
            if row in newest_operators()[name].rows and serves(self._index, name, row):
                return self._count(name, tuple(TORCH_DTYPES[dtype] for dtype in row), "native")
        self._abandon()
        reason = "no kernel of the device copies between these dtypes and strides"
        on = not self._refuses_steps and self._bridge.policy("cpu")
        dtypes = tuple(TORCH_DTYPES[dtype] for dtype in (source, destination) if dtype in TORCH_DTYPES)
        self._count(name, dtypes, "cpu" if on else "error", reason)

    # ---- Tiers below -------------------------------------------------------------------------------------------------

    def _step_down(self, func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any], reason: str) -> Any:
        if self._refuses_steps:
            return self._fail(func, args, kwargs, f"{reason}; fallback.on_fallback is 'error'")
        generic = self._bridge.policy("generic")
        if generic:
            try:
                served, out = self._generic(func, args, kwargs)
            except NotImplementedError as error:
                return self._fail(func, args, kwargs, f"{reason}; {_first_line(error)}")
            if served:
                self._count(schemas.name_of(func), _dtypes(args, kwargs), "generic", reason)
                return out
        self._abandon()
        why_not = "other operators of the device do not add up to it" if generic else "the generic tier is switched off"
        if schemas.is_view(func):
            return self._fail(func, args, kwargs, f"{reason}; {why_not}; it returns a view, which no CPU can give")
        if not torch._C._dispatch_has_computed_kernel_for_dispatch_key(schemas.name_of(func), "CPU"):
            return self._fail(func, args, kwargs, f"{reason}; {why_not}; torch has no CPU kernel for it")
        if not self._bridge.policy("cpu"):
            return self._fail(func, args, kwargs, f"{reason}; {why_not}; the CPU tier is switched off")
        out = _outputs(func, args, kwargs)
        self._count(schemas.name_of(func), _dtypes(args, kwargs), "cpu", f"{reason}; {why_not}")
        return out

    def _fail(self, func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any], reason: str) -> Any:
        """The call raises. Within the generic tier that is one way for an attempt to fail; else the model does, and
        what would come after it is followed all the same."""
        if self._attempts:
            raise Refused(reason)
        self._count(schemas.name_of(func), _dtypes(args, kwargs), "error", reason)
        return _outputs(func, args, kwargs)

    # ---- The generic tier --------------------------------------------------------------------------------------------

    def _generic(self, func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[bool, Any]:
        if any(attempt.op is func for attempt in self._attempts):
            return False, None
        key = generic_kernel(func)
        found = None
        if key is None:
            found = decompositions.find(func._schema.name, func._schema.overload_name)
            if found is None:
                return False, None
        signature = (func, *(value.dtype for value in (*args, *kwargs.values()) if isinstance(value, Tensor)))
        if signature in self._hopeless:
            return False, None

        leaves_writing = found is not None and not found[1]
        is_random = torch.Tag.nondeterministic_seeded in func.tags
        attempt = Attempt(func, not is_random and (leaves_writing or can_begin_again(func, args, kwargs)))
        self._attempts.append(attempt)
        try:
            with self._within():
                if key is not None:
                    out = self._without_memory(schemas.run_kernel(func, key, args, kwargs))
                else:
                    assert found is not None
                    out = self._decompose(attempt, found, args, kwargs)
            served = not attempt.abandoned
        except NotImplementedError:
            raises = not attempt.can_be_abandoned if found is None else found[1] and not attempt.abandoned
            if raises:
                raise
            served, out = False, None
        except Exception:
            if not attempt.abandoned:
                raise
            served, out = False, None
        finally:
            self._attempts.pop()
        if attempt.abandoned:
            self._hopeless.add(signature)  # the bridge does not try these again either, and from then on counts nothing
        else:
            (self._attempts[-1].counted if self._attempts else self._counted).update(attempt.counted)
        return served, out

    def _decompose(
        self, attempt: Attempt, found: tuple[decompositions.Decomposition, bool], args: Any, kwargs: Mapping[str, Any]
    ) -> Any:
        decomposition, writes = found
        arguments = attempt.op._schema.arguments
        outs = {argument.name for argument in arguments if argument.is_out}
        if writes:
            return decomposition(*args, **kwargs)
        out = decomposition(*args, **{name: value for name, value in kwargs.items() if name not in outs})
        if any(tensor.device != self._device for tensor in schemas.tensors_in(out)):
            raise Refused("the decomposition leaves the device")
        attempt.can_be_abandoned = False
        given = schemas.named(attempt.op, args, kwargs)
        written = [given[argument.name] for argument in arguments if schemas.is_written(argument)]
        if not written:
            return out
        values = list(schemas.tensors_in(out))
        if len(values) != len(written):
            raise Refused("the decomposition does not give all that is written")
        for target, value in zip(written, values, strict=True):
            if value.dtype != target.dtype:
                raise Refused("the decomposition gives another dtype")
            if any(size > 1 and stride == 0 for size, stride in zip(target.shape, target.stride(), strict=True)):
                raise Refused("elements of what is written lie in one place")
            torch.ops.aten._resize_output_(target, value.shape, target.device)
            target.copy_(value)
        return written[0] if len(written) == 1 else tuple(written)

    def _abandon(self) -> None:
        """An operator is about to leave the device: the innermost attempt that nobody would miss leaves as a whole."""
        for attempt in reversed(self._attempts):
            if attempt.can_be_abandoned:
                attempt.abandoned = True
                raise Refused(f"an operator within {schemas.name_of(attempt.op)} would leave the device")

    # ---- Counting ----------------------------------------------------------------------------------------------------

    def _count(self, name: str, dtypes: tuple[torch.dtype, ...], tier: Tier, reason: str | None = None) -> None:
        counted = self._attempts[-1].counted if self._attempts else self._counted
        counted[(name, dtypes, tier, reason), self.backward] += 1

    @contextlib.contextmanager
    def _within(self) -> Iterator[None]:
        """While others are followed that an operator consists of."""
        self._depth += 1
        try:
            with self, schemas.below_autograd():
                yield
        finally:
            self._depth -= 1


def _outputs(op: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Of an operator that is not followed further: sizes, strides and dtypes, as torch knows them."""
    try:
        return op(*args, **kwargs)
    except UnsupportedOperatorException:
        raise _Shapeless(f"torch cannot tell what {schemas.name_of(op)} gives before it runs") from None


def _dtypes(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[torch.dtype, ...]:
    tensors = (tensor for value in (*args, *kwargs.values()) for tensor in schemas.tensors_in(value))
    return tuple(dict.fromkeys(tensor.dtype for tensor in tensors))


def _first_line(error: BaseException) -> str:
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__
