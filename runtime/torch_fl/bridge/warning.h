// Warnings by way of Python's warnings module.
#pragma once
#include <string>

namespace torch_fl {

// Gives a torch_fl.FallbackWarning, at the line of Python that the calling thread is at. Called with or without the GIL.
// Throws what a filter makes of the warning.
void warn_of_fallback(const std::string& message);

}  // namespace torch_fl
