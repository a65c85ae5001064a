#include "warning.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/python_headers.h>

namespace torch_fl {
namespace {

PyObject* fallback_warning = nullptr;

}  // namespace

void set_fallback_warning(void* python_class) { fallback_warning = static_cast<PyObject*>(python_class); }

void warn_of_fallback(const std::string& message) {
  if (fallback_warning == nullptr || !Py_IsInitialized()) return;
  const PyGILState_STATE state = PyGILState_Ensure();
  if (PyErr_WarnEx(fallback_warning, message.c_str(), 1) == 0) {
    PyGILState_Release(state);
    return;
  }
  python_error raised;
  raised.persist();
  PyGILState_Release(state);
  throw raised;
}

}  // namespace torch_fl
