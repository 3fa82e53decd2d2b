// Compiles and runs programs on virtual CPU devices, with values as vectors of numbers.
#pragma once
#include <vector>

#include "strategies/pjrt/client.hpp"
#include "strategies/pjrt/module_text.hpp"

namespace runner::testing {

using Numbers = std::vector<double>;

/// The plug-in that scripts/setup --xla installs.
std::shared_ptr<const pjrt::Plugin> loaded_cpu_plugin();
pjrt::CompileOptions on_replicas(int replicas);

/// The outputs [replica][output] of a program. arguments[replica][i] are the values of argument i.
std::vector<std::vector<Numbers>> run_program(const std::string& module, const std::vector<pjrt::Type>& types,
                                              const std::vector<std::vector<Numbers>>& arguments);

}  // namespace runner::testing
