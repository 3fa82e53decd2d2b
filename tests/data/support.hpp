// Helpers of the data tests: a temporary folder, files in it, and errors as text.
#pragma once
#include <concepts>
#include <fstream>
#include <string>
#include <vector>

#include "runner/base/error.hpp"
#include "runner/base/files.hpp"
#include "runner/data/data.hpp"
#include "strategies/engine/token_batch.hpp"
#include "tests/support/temporary_folder.hpp"

namespace runner::test {

struct DataFolder : TemporaryFolder {
  std::string operator/(const std::string& name) const { return (path / name).string(); }

  std::string write(const std::string& name, std::string_view content) const {
    std::ofstream(path / name, std::ios::binary) << content;
    return *this / name;
  }
  template <std::integral Item>
  std::string write_tokens(const std::string& name, const std::vector<Item>& tokens) const {
    return write(name, {reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(Item)});
  }
};

/// "usage: message" or "environment: message" of the Error that `action` throws, "" if it throws none.
template <typename Action>
std::string error_of(Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    const char* kind = error.code() == ExitCode::usage         ? "usage: "
                       : error.code() == ExitCode::environment ? "environment: "
                                                               : "other: ";
    return kind + std::string(error.what());
  }
  return "";
}

inline Recipe::Data text_data(std::vector<std::string> train) {
  Recipe::Data data;
  data.format = "text";
  data.train = std::move(train);
  return data;
}

inline Recipe::Data bin_data(std::vector<std::string> train, const std::string& token_dtype = "uint16") {
  Recipe::Data data;
  data.format = "bin";
  data.train = std::move(train);
  data.token_dtype = token_dtype;
  return data;
}

struct Sample {
  std::vector<int64_t> inputs, targets;
  bool operator==(const Sample&) const = default;
};
inline Sample read_sample(const Dataset& dataset, int64_t index) {
  HostBatch batch(1, dataset.fields());
  dataset.read(index, batch, 0);
  const auto inputs = batch.row<int64_t>(token_field::inputs, 0), targets = batch.row<int64_t>(token_field::targets, 0);
  return {{inputs.begin(), inputs.end()}, {targets.begin(), targets.end()}};
}

/// The stream of tokens, reconstructed from the samples, up to the last target of the last sample.
inline std::vector<int64_t> stream_of(const Dataset& dataset) {
  std::vector<int64_t> tokens;
  for (int64_t k = 0; k < dataset.size(); ++k) {
    Sample sample = read_sample(dataset, k);
    tokens.insert(tokens.end(), sample.inputs.begin(), sample.inputs.end());
    if (k + 1 == dataset.size()) tokens.push_back(sample.targets.back());
  }
  return tokens;
}

}  // namespace runner::test
