#include "cpu_tier.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <c10/util/irange.h>

#include "convert.h"
#include "copy.h"
#include "generator.h"
#include "host_twin.h"
#include "schema.h"

namespace torch_fl {
namespace {

bool lives_on_fl(const at::Tensor& tensor) { return tensor.device().type() == kFl; }

// ---- Devices -------------------------------------------------------------------------------------------------------

// Operators that take tensors on the host next to others on a device, as they do on other devices of torch: indices,
// lengths, steps of an optimizer.
bool takes_host_tensors(std::string_view name) {
  static constexpr std::array<std::string_view, 9> names{
      "aten::index",  "aten::index_put", "aten::index_put_", "aten::_index_put_impl_", "aten::_unsafe_index",
      "aten::_unsafe_index_put", "aten::_ctc_loss", "aten::_ctc_loss_backward", "aten::_pack_padded_sequence"};
  return name.substr(0, 15) == "aten::_foreach_" || name.substr(0, 13) == "aten::_fused_" ||
         std::find(names.begin(), names.end(), name) != names.end();
}

// A generator leads torch to its device, wherever the tensors are.
void check_generator(c10::ArrayRef<c10::IValue> arguments) {
  at::Tensor elsewhere;
  for (const c10::IValue& value : arguments) {
    if (value.isDevice() && value.toDevice().type() == kFl) return;
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    if (lives_on_fl(value.toTensor())) return;
    elsewhere = value.toTensor();
  }
  const bool draws = std::any_of(arguments.begin(), arguments.end(), [](const auto& value) { return value.isGenerator(); });
  if (!draws || !elsewhere.defined()) return;
  TORCH_CHECK(false, "Expected a '", elsewhere.device().type(), "' device type for generator but found 'fl'");
}

void check_devices(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments, Device& target) {
  check_generator(arguments);
  if (schema.name() == "aten::equal") {  // takes no number for a tensor, and has words of its own
    const c10::Device self = arguments[0].toTensor().device();
    const c10::Device other = arguments[1].toTensor().device();
    TORCH_CHECK(self == other, "Cannot compare two tensors on different devices. Got: ", self, " and ", other);
  }
  const bool lenient = takes_host_tensors(schema.name());
  for (const auto i : c10::irange(arguments.size())) {
    for_tensors_in(arguments[i], [&](const at::Tensor& tensor) {
      const bool is_number = tensor.is_cpu() && tensor.dim() == 0 && !is_written(schema.arguments()[i]);
      if (tensor.device() == torch_device(target.index) || is_number || (lenient && tensor.is_cpu())) return;
      TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ",
                  torch_device(target.index), " and ", tensor.device(), "! (when checking argument ",
                  schema.arguments()[i].name(), " of ", schema.operator_name(), ")");
    });
  }
}

// ---- Random numbers ------------------------------------------------------------------------------------------------

bool is_generator(const c10::Argument& argument) {
  c10::TypePtr type = argument.type();
  if (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
  return type->kind() == c10::TypeKind::GeneratorType;
}

// A generator of the host's that follows from the state of the device's, which moves on.
c10::IValue host_generator(const c10::IValue& value, Device& target) {
  std::optional<at::Generator> generator;
  if (value.isGenerator()) generator = value.toGenerator();
  const fl_rng state = next_random(generator, target, 1);
  uint64_t seed = state.seed + (state.offset + 1) * 0x9E3779B97F4A7C15u;
  seed = (seed ^ (seed >> 30)) * 0xBF58476D1CE4E5B9u;
  seed = (seed ^ (seed >> 27)) * 0x94D049BB133111EBu;
  return at::detail::createCPUGenerator(seed ^ (seed >> 31));
}

}  // namespace

const char* why_not_on_cpu(const c10::OperatorHandle& op) {
  for (const c10::Argument& result : op.schema().returns()) {
    if (result.alias_info() != nullptr && !result.alias_info()->isWrite())
      return "it returns a view of its argument, and a copy on the CPU shares no memory with that";
  }
  if (!op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU)) return "torch has no CPU kernel for it";
  return nullptr;
}

void run_on_cpu(const c10::OperatorHandle& op, c10::Stack* stack, Device& target) {
  const c10::FunctionSchema& schema = op.schema();
  const size_t n_arguments = schema.arguments().size();
  const std::vector<c10::IValue> arguments(stack->end() - static_cast<std::ptrdiff_t>(n_arguments), stack->end());
  check_devices(schema, arguments, target);

  HostTwins twins;
  for (const auto i : c10::irange(n_arguments)) {
    const c10::Argument& argument = schema.arguments()[i];
    for_tensors_in(arguments[i], [&](const at::Tensor& tensor) {
      if (!lives_on_fl(tensor)) return;
      twins.add(tensor, is_written(argument) || is_written_silently(schema, arguments, i), argument.is_out());
    });
  }
  twins.make();
  torch::jit::drop(*stack, n_arguments);
  for (const auto i : c10::irange(n_arguments)) {
    c10::IValue value = with_tensors(arguments[i], [&](const at::Tensor& tensor) {
      return lives_on_fl(tensor) ? twins.host(tensor) : tensor;
    });
    if (value.isDevice() && value.toDevice().type() == kFl) value = c10::Device(c10::DeviceType::CPU);
    if (is_generator(schema.arguments()[i])) value = host_generator(value, target);
    stack->push_back(std::move(value));
  }

  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  twins.write_back();

  const size_t n_results = schema.returns().size();
  for (const auto i : c10::irange(n_results)) {
    c10::IValue& result = (*stack)[stack->size() - n_results + i];
    if (const auto original = argument_behind(schema, i)) {
      result = arguments[*original];
      continue;
    }
    result = with_tensors(result, [&](const at::Tensor& tensor) {
      TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == c10::kStrided && !tensor.is_quantized(), schema.operator_name(),
                                  " gives a tensor of layout ", tensor.layout(), " and dtype ", tensor.scalar_type(),
                                  ", and fl devices hold strided tensors that are not quantized only: ",
                                  "call it on the CPU");
      const at::Tensor* known = twins.device_tensor(tensor);
      return known != nullptr ? *known : to_device(tensor, target);
    });
  }
}

}  // namespace torch_fl
