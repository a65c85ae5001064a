// Warnings by way of Python's warnings module.
#pragma once
#include <string>

namespace torch_fl {

// The Python class of FallbackWarning, a new reference; set once, when the module is loaded.
void set_fallback_warning(void* python_class);

// Called with or without the GIL. Throws what a filter makes of the warning.
void warn_of_fallback(const std::string& message);

}  // namespace torch_fl
