// The sources of [[data.sources]], each with all settings of [data].
#pragma once
#include <string>
#include <vector>

#include "runner/config/recipe.hpp"

namespace runner {

struct DataSource {
  std::string name;   ///< empty: the recipe has no sources, only data.train
  Recipe::Data data;  ///< without sources
  std::optional<double> weight = {};
  int64_t epochs = 1;
  std::optional<std::string> format = {};  ///< unset: data.format
};

/// The sources of a recipe; data without sources are one.
std::vector<DataSource> sources_of(const Recipe::Data& data);

}  // namespace runner
