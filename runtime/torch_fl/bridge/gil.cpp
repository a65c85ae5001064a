#include "gil.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/python_headers.h>

namespace torch_fl {
namespace {

bool python_runs() noexcept {
#if PY_VERSION_HEX >= 0x030d0000
  return Py_IsInitialized() && !Py_IsFinalizing();
#else
  return Py_IsInitialized() && !_Py_IsFinalizing();
#endif
}

}  // namespace

ReleaseGil::ReleaseGil() noexcept
    : thread_state_(python_runs() && PyGILState_Check() ? PyEval_SaveThread() : nullptr) {}

ReleaseGil::~ReleaseGil() {
  if (thread_state_ != nullptr) PyEval_RestoreThread(static_cast<PyThreadState*>(thread_state_));
}

void run_signal_handlers() {
  if (!python_runs()) return;
  const PyGILState_STATE state = PyGILState_Ensure();
  if (PyErr_CheckSignals() == 0) {
    PyGILState_Release(state);
    return;
  }
  python_error raised;
  raised.persist();
  PyGILState_Release(state);
  throw raised;
}

}  // namespace torch_fl
