#include "warning.h"

#include "gil.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/python_headers.h>

namespace torch_fl {
namespace {

// New reference, null with an exception set.
PyObject* fallback_warning() {
  PyObject* module = PyImport_ImportModule("torch_fl.fallback");
  if (module == nullptr) return nullptr;
  PyObject* category = PyObject_GetAttrString(module, "FallbackWarning");
  Py_DECREF(module);
  return category;
}

}  // namespace

void warn_of_fallback(const std::string& message) {
  if (!python_runs()) return;
  const PyGILState_STATE state = PyGILState_Ensure();
  PyObject* category = fallback_warning();
  const bool given = category != nullptr && PyErr_WarnEx(category, message.c_str(), 1) == 0;
  Py_XDECREF(category);
  if (given) return PyGILState_Release(state);
  python_error raised;
  raised.persist();
  PyGILState_Release(state);
  throw raised;
}

}  // namespace torch_fl
