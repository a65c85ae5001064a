// The fast lane: unboxed kernels, made by one line per operator from its schema (at::_ops::X) and its shape function.
//
// A kernel tries the shortcut, then lets the shape function decide on sizes, dtypes and strides, then hands the call to
// the device. Where no kernel of the device takes it, it steps down a tier.
#pragma once
#include <string>
#include <type_traits>
#include <utility>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

#include "elementwise.h"
#include "fallback.h"
#include "shaped.h"

namespace torch_fl::fast {

// "aten::add.Tensor"
template <class Op>
std::string name_of() {
  std::string name = Op::name;
  if (*Op::overload_name != '\0') name.append(".").append(Op::overload_name);
  return name;
}

// The registry's entry, null where it has none.
template <class Op>
const Operator* entry_of() {
  static const Operator* const entry = find_operator(name_of<Op>().c_str());
  return entry;
}

// ---- Stepping down -----------------------------------------------------------------------------------------------

template <class T>
c10::IValue boxed(const T& value) {
  if constexpr (std::is_same_v<T, std::string_view>)
    return std::string(value);
  else if constexpr (std::is_same_v<T, std::optional<std::string_view>>)
    return value.has_value() ? c10::IValue(std::string(*value)) : c10::IValue();
  else if constexpr (std::is_same_v<T, at::OptionalIntArrayRef>)
    return value.has_value() ? c10::IValue(*value) : c10::IValue();
  else
    return c10::IValue(value);
}

// Computes Op one tier further down; the results are left on the returned stack.
template <class Op, class... Args>
c10::Stack stepped_down(const Args&... args) {
  static const c10::OperatorHandle handle =
      c10::Dispatcher::singleton().findSchemaOrThrow(Op::name, Op::overload_name);
  c10::Stack stack;
  stack.reserve(sizeof...(args));
  (stack.push_back(boxed(args)), ...);
  step_down(handle, &stack, kNoKernel);
  return stack;
}

// ---- Arguments of shape functions --------------------------------------------------------------------------------

template <class T>
const T& for_meta(const T& value) {
  return value;
}
inline at::OptionalScalarRef for_meta(const std::optional<at::Scalar>& value) {
  return value.has_value() ? at::OptionalScalarRef(&*value) : at::OptionalScalarRef();
}

// Stands for a form that an operator has not got.
struct None {};

// ---- Pointwise operators -----------------------------------------------------------------------------------------

// Op: at::_ops of the functional form. Row: of the registry's entry, whose slots the arguments fill one by one.
template <class Op, class Meta, class Row = Op, class Schema = typename Op::schema>
struct Pointwise;

template <class Op, class Meta, class Row, class First, class... Rest>
struct Pointwise<Op, Meta, Row, at::Tensor(First, Rest...)> {
  static at::Tensor functional(First first, Rest... rest) {
    at::Tensor out;
    if (const Operator* op = entry_of<Row>()) {
      const Argument args[] = {argument(first), argument(rest)...};
      if (C10_LIKELY(run_flat(*op, args, out))) return out;
      Shaped<Meta> shape;
      shape.meta(for_meta(first), for_meta(rest)...);
      if (run(*op, args, shape)) return shape.output();
    }
    return stepped_down<Op>(first, rest...).back().toTensor();
  }

  template <class Inplace>
  static at::Tensor& inplace(at::Tensor& self, Rest... rest) {
    if (const Operator* op = entry_of<Row>()) {
      const Argument args[] = {argument(self), argument(rest)...};
      if (C10_LIKELY(run_flat(*op, args, self))) return self;
      Shaped<Meta> shape(Form::kInplace, self);
      shape.meta(for_meta(self), for_meta(rest)...);
      if (run(*op, args, shape)) return self;
    }
    stepped_down<Inplace>(self, rest...);
    return self;
  }

  template <class Out>
  static at::Tensor& out(First first, Rest... rest, at::Tensor& out) {
    if (const Operator* op = entry_of<Row>()) {
      const Argument args[] = {argument(first), argument(rest)...};
      Shaped<Meta> shape(Form::kOut, out);
      shape.meta(for_meta(first), for_meta(rest)...);
      if (run(*op, args, shape)) return out;
    }
    stepped_down<Out>(first, rest..., out);
    return out;
  }

 private:
  // With the shape function's own operands, which may be others than the arguments.
  static bool run(const Operator& op, const Argument (&args)[sizeof...(Rest) + 1], const Shaped<Meta>& shape) {
    Argument operands[sizeof...(Rest) + 1];
    int next = shape.noutputs();
    for (size_t i = 0; i <= sizeof...(Rest); ++i) {
      operands[i] = args[i];
      if (args[i].kind == Argument::Kind::kTensor && next < shape.ntensors()) operands[i].tensor = &shape.tensor(next++);
    }
    return run_elementwise(op, operands, row_of(fl_dtype(shape.computed()), 0), shape.output(), shape.given());
  }
};

template <class Op, class Inplace, class Out, class Meta, class Row = Op>
void pointwise(torch::Library& m) {
  using Kernels = Pointwise<Op, Meta, Row>;
  m.impl(name_of<Op>().c_str(), TORCH_FN((&Kernels::functional)));
  if constexpr (!std::is_same_v<Inplace, None>)
    m.impl(name_of<Inplace>().c_str(), TORCH_FN((&Kernels::template inplace<Inplace>)));
  if constexpr (!std::is_same_v<Out, None>)
    m.impl(name_of<Out>().c_str(), TORCH_FN((&Kernels::template out<Out>)));
}

// ---- Other operators with a shape function -----------------------------------------------------------------------

// The device of the first of the tensors; raises where another one is elsewhere.
inline Device& common_device(const char* op, std::initializer_list<const at::Tensor*> tensors) {
  const c10::Device first = (*tensors.begin())->device();
  for (const at::Tensor* tensor : tensors)
    TORCH_CHECK(!tensor->defined() || tensor->device() == first, op,
                ": Expected all tensors to be on the same device, but found at least two devices, ", first, " and ",
                tensor->device(), "!");
  return device_of(first);
}

// Run: a struct with `static bool run(const Operator&, const at::Tensor& out, bool given, args...)`, which builds the
// call and submits it; false: no kernel takes it. It may have a shortcut for plain calls, which the shape function is not
// asked about, `static bool shortcut(const Operator&, at::Tensor& out, args...)`; false: the call is not plain, or no
// kernel takes it as it is. It copies nothing, which the full path does where that helps.
template <class Op, class Meta, class Run, class Schema = typename Op::schema>
struct Structured;

template <class Run, class = void>
inline constexpr bool has_shortcut = false;
template <class Run>
inline constexpr bool has_shortcut<Run, std::void_t<decltype(&Run::shortcut)>> = true;

template <class Op, class Meta, class Run, class First, class... Rest>
struct Structured<Op, Meta, Run, at::Tensor(First, Rest...)> {
  static at::Tensor functional(First first, Rest... rest) {
    if (const Operator* op = entry_of<Op>()) {
      if constexpr (has_shortcut<Run>) {
        at::Tensor out;  // gone before the full path makes its own
        if (Run::shortcut(*op, out, first, rest...)) return out;
      }
      Shaped<Meta> shape;
      shape.meta(for_meta(first), for_meta(rest)...);
      if (Run::run(*op, shape.output(), /*given=*/false, first, rest...)) return shape.output();
    }
    return stepped_down<Op>(first, rest...).back().toTensor();
  }

  template <class Inplace>
  static at::Tensor& inplace(at::Tensor& self, Rest... rest) {
    if (const Operator* op = entry_of<Op>()) {
      Shaped<Meta> shape(Form::kInplace, self);
      shape.meta(for_meta(self), for_meta(rest)...);
      if (Run::run(*op, self, /*given=*/true, self, rest...)) return self;
    }
    stepped_down<Inplace>(self, rest...);
    return self;
  }

  template <class Out>
  static at::Tensor& out(First first, Rest... rest, at::Tensor& out) {
    if (const Operator* op = entry_of<Op>()) {
      Shaped<Meta> shape(Form::kOut, out);
      shape.meta(for_meta(first), for_meta(rest)...);
      if (Run::run(*op, out, /*given=*/true, first, rest...)) return out;
    }
    stepped_down<Out>(first, rest..., out);
    return out;
  }
};

template <class Op, class Inplace, class Out, class Meta, class Run>
void structured(torch::Library& m) {
  using Kernels = Structured<Op, Meta, Run>;
  m.impl(name_of<Op>().c_str(), TORCH_FN((&Kernels::functional)));
  if constexpr (!std::is_same_v<Inplace, None>)
    m.impl(name_of<Inplace>().c_str(), TORCH_FN((&Kernels::template inplace<Inplace>)));
  m.impl(name_of<Out>().c_str(), TORCH_FN((&Kernels::template out<Out>)));
}

}  // namespace torch_fl::fast
