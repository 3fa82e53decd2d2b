// Errors of XLA's compiler, with the line of the module that they are about.
#pragma once
#include <string>

namespace runner::pjrt {

/// `problem`: XLA's message. If it names a line and a column of the module ("7:12"), the line follows, with a caret.
std::string module_error(const std::string& module, const std::string& problem);

}  // namespace runner::pjrt
