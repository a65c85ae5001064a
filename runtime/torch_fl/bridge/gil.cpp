#include "gil.h"

#include <string>

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

namespace torch_fl {

bool python_runs() noexcept {
#if PY_VERSION_HEX >= 0x030d0000
  return Py_IsInitialized() && !Py_IsFinalizing();
#else
  return Py_IsInitialized() && !_Py_IsFinalizing();
#endif
}

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

namespace {

namespace py = pybind11;

void log_warning(const char* where, const std::string& text) {
  py::module_::import("logging").attr("getLogger")("torch_fl.devices").attr("warning")("%s: %s", where, text);
}

}  // namespace

void note_swallowed(const char* where) noexcept {
  if (!python_runs()) return;
  bool interrupted = false;
  try {
    py::gil_scoped_acquire gil;
    std::string text = "unknown failure";
    try {
      throw;
    } catch (const py::error_already_set& raised) {
      text = raised.what();
      interrupted = raised.matches(PyExc_KeyboardInterrupt);
    } catch (const python_error& raised) {
      text = raised.what();
      interrupted = PyErr_GivenExceptionMatches(raised.type, PyExc_KeyboardInterrupt) != 0;
    } catch (const std::exception& raised) {
      text = raised.what();
    } catch (...) {
    }
    log_warning(where, text);
  } catch (...) {  // nothing may be raised here
  }
  if (interrupted) PyErr_SetInterrupt();  // last: the next line of Python raises
}

}  // namespace torch_fl
