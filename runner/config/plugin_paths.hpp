// [plugins]: libraries and scripts that replace parts of the runner.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace runner {

/// The parameters that the library of plugins.precision converts (strategies/contract/conversion.hpp).
struct ConvertedParameters {
  std::vector<std::string> patterns = {};  ///< globs over names; empty: none
  bool matrices_only = true;               ///< only parameters with two or more dimensions
  /// Bytes for each element, as ConvertedBytes of the model's spec.
  std::optional<double> kept_bytes = {}, working_bytes = {};
};

/// Each is a path. The interfaces are in runner/plugins/parts.hpp and runner/train/parts/torch_parts.hpp.
struct PluginPaths {
  std::optional<std::string> cluster_environment, checkpoint_io;  ///< a library, or a .lua file
  std::optional<std::string> precision, accelerator;              ///< a library (torch_parts.hpp)
  nlohmann::json options = nlohmann::json::object();              ///< what the plug-ins ask for
  /// Not a key. What the library of `precision` states; resolve_precision_part() and open_precision() set it.
  ConvertedParameters converted = {};
};

}  // namespace runner
