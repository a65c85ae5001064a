// Torch's own shape functions (at::meta::structured_*) with outputs on an fl device.
#pragma once
#include <array>
#include <type_traits>

#include <ATen/TensorIterator.h>
#include <ATen/TensorMeta.h>

#include "compat.h"
#include "convert.h"
#include "factories.h"
#include "shape_functions.h"

namespace torch_fl {

enum class Form { kFunctional, kInplace, kOut };

// A new output as a shape function asks for it. No strides: those of the options' memory format.
at::Tensor new_output(c10::IntArrayRef sizes, c10::IntArrayRef strides, const c10::TensorOptions& options);
// Raises where an in-place call would change the tensor's dtype, device or sizes.
void check_inplace(const at::Tensor& self, c10::IntArrayRef sizes, const c10::TensorOptions& options);
// Resizes an out= tensor, with torch's warning where it had elements; raises for another dtype or device.
void fit_out(const at::Tensor& out, c10::IntArrayRef sizes, c10::IntArrayRef strides, const c10::TensorOptions& options);

// Call meta(...) of the base once; then the outputs are there. Meta: a shape function of torch's, or a struct of the same
// form; with an iterator or without.
template <class Meta, size_t N = 1>
class Shaped final : public Meta {
 public:
  static constexpr bool iterates = std::is_base_of_v<at::TensorIteratorBase, Meta>;

  Shaped() = default;
  Shaped(Form form, const at::Tensor& output) : form_(form), outputs_{output} {}

  const at::Tensor& output(size_t i = 0) const { return outputs_[i]; }
  bool given() const { return form_ != Form::kFunctional; }
  // What the inputs promote to.
  c10::ScalarType computed() const {
    static_assert(iterates);
    if constexpr (std::is_base_of_v<shape::Promoting, Meta>)
      return this->promoted;
    else
      return this->common_dtype_;
  }

  const at::Tensor& maybe_get_output(int64_t i) override { return outputs_[size_t(i)]; }
  void set_output_strided(int64_t i, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                          at::TensorOptions options FL_DIMNAMES_PARAMETER) override {
    set(i, sizes, strides, options);
    if constexpr (iterates) at::TensorIteratorBase::set_output_raw_strided(i, sizes, strides, options FL_DIMNAMES);
  }
  void set_output_raw_strided(int64_t i, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                              at::TensorOptions options FL_DIMNAMES_PARAMETER) override {
    set(i, sizes, strides, options);
    if constexpr (iterates) at::TensorIteratorBase::set_output_raw_strided(i, sizes, strides, options FL_DIMNAMES);
  }

 private:
  void set(int64_t i, c10::IntArrayRef sizes, c10::IntArrayRef strides, const at::TensorOptions& options) {
    at::Tensor& output = outputs_[size_t(i)];
    if (form_ == Form::kFunctional) output = new_output(sizes, strides, options);
    if (form_ == Form::kInplace) check_inplace(output, sizes, options);
    if (form_ == Form::kOut) fit_out(output, sizes, strides, options);
  }

  Form form_ = Form::kFunctional;
  std::array<at::Tensor, N> outputs_;
};

}  // namespace torch_fl
