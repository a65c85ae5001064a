#include "wording.h"

#include <sstream>

namespace torch_fl {

namespace {

void say(std::ostream& out, const int64_t* values, uint32_t count) {
  out << '[';
  for (uint32_t i = 0; i < count; ++i) out << (i == 0 ? "" : ", ") << values[i];
  out << ']';
}

void say(std::ostream& out, const fl_tensor* tensor) {
  if (tensor == nullptr) {
    out << "none";
    return;
  }
  out << dtype_name(tensor->dtype);
  say(out, tensor->sizes, tensor->ndim);
}

void say(std::ostream& out, const fl_arg& arg) {
  switch (arg.tag) {
    case FL_TAG_TENSOR:
      return say(out, arg.value.tensor);
    case FL_TAG_TENSOR_LIST:
      out << '(';
      for (uint32_t i = 0; i < arg.count; ++i) {
        if (i != 0) out << ", ";
        say(out, arg.value.tensors[i]);
      }
      out << ')';
      return;
    case FL_TAG_BOOL:
      out << (arg.value.i != 0 ? "true" : "false");
      return;
    case FL_TAG_INT:
      out << arg.value.i;
      return;
    case FL_TAG_UINT:
      out << arg.value.u;
      return;
    case FL_TAG_FLOAT:
      out << arg.value.f;
      return;
    case FL_TAG_DTYPE:
      out << dtype_name(uint32_t(arg.value.i));
      return;
    case FL_TAG_INT_LIST:
      return say(out, arg.value.ints, arg.count);
    case FL_TAG_STRING:
      out << '\'' << std::string(arg.value.string, arg.count) << '\'';
      return;
    case FL_TAG_RNG:
      out << "random state";
      return;
    default:
      out << "none";
  }
}

}  // namespace

std::string dtype_name(uint32_t dtype) {
  static const char* const names[] = {"none", "bool", "u8",  "i8",  "i16", "i32", "i64",  "u16",    "u32",   "u64",
                                      "f16",  "bf16", "f32", "f64", "c32", "c64", "c128", "f8e4m3fn", "f8e5m2"};
  constexpr uint32_t known = sizeof names / sizeof names[0];
  return dtype < known ? names[dtype] : "dtype " + std::to_string(dtype);
}

std::string wording(const Operator& op, const fl_call& call) {
  std::ostringstream out;
  out << op.name << '(';
  for (uint32_t i = 0; i < call.n_args; ++i) {
    out << (i == 0 ? "" : ", ") << op.slots[i].name << ' ';
    say(out, call.args[i]);
  }
  out << ") -> ";
  for (uint32_t i = 0; i < call.n_outs; ++i) {
    if (i != 0) out << ", ";
    say(out, call.outs[i]);
  }
  return out.str();
}

}  // namespace torch_fl
