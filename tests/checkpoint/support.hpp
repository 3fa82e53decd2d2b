// Helpers of the tests in this folder: temporary folders, byte views and small checkpoints.
#pragma once
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <string>
#include <vector>

#include "runner/base/error.hpp"
#include "runner/checkpoint/checkpoint.hpp"
#include "tests/support/temporary_folder.hpp"

namespace runner::testing {

struct Folder : TemporaryFolder {
  fs::path operator/(const std::string& name) const { return path / name; }
};

/// A tensor to write; `data` must stay alive until write_safetensors returns.
struct TensorToWrite {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::span<const std::byte> data;
};

inline WrittenFile write_safetensors(const fs::path& path, const std::vector<TensorToWrite>& tensors,
                                     const std::map<std::string, std::string>& metadata = {}) {
  std::vector<TensorInfo> infos;
  for (const auto& tensor : tensors) infos.push_back({tensor.name, tensor.dtype, tensor.shape});
  SafetensorsWriter writer(path, std::move(infos), metadata);
  for (const auto& tensor : tensors) writer.write(tensor.data);
  return writer.finish();
}

template <typename T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values.data(), values.size()));
}

inline void write_text(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

/// The message of the Error that `work` throws, or "nothing was thrown".
template <typename Work>
std::string message_of(Work&& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

/// The names in a folder, including hidden ones.
inline std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// Publishes a checkpoint of two ranks: "param/w" of shape [2, 3], half per rank, with values first, first + 1, ...
inline fs::path publish_small(const fs::path& checkpoints, int64_t step, float first = 0,
                              const TrainerState& state = nlohmann::json::object()) {
  std::vector<float> values(6);
  for (size_t i = 0; i < values.size(); ++i) values[i] = first + static_cast<float>(i);
  std::vector<nlohmann::json> entries;
  for (int rank = 0; rank < 2; ++rank) {
    CheckpointWriter writer(checkpoints, step, rank, 2);
    entries.push_back(writer.write_rank(
        {{"param/w", "F32", {2, 3}, rank * 3, bytes_of(values).subspan(static_cast<size_t>(rank) * 12, 12)}}));
  }
  return CheckpointWriter(checkpoints, step, 0, 2).publish(entries, state);
}

inline std::vector<float> read_small(const Checkpoint& checkpoint) {
  std::vector<float> values(6);
  checkpoint.read("param/w", 0, 6, std::as_writable_bytes(std::span(values)));
  return values;
}

}  // namespace runner::testing
