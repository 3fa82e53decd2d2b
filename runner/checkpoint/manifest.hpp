// manifest.json: the contents of a checkpoint, with file and byte offset of each piece of each tensor. The reader
// validates every value.
#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runner/base/files.hpp"
#include "strategies/engine/slice.hpp"

namespace runner {

/// Version 1 has no slices: its pieces are intervals of whole tensors.
constexpr int64_t manifest_version = 2;
inline const char* const manifest_name = "manifest.json";

/// Elements [offset, offset + length) of the flattened slice. They start at byte `byte` of the file.
struct ManifestPiece {
  size_t file = 0;  ///< index into Manifest::files
  int64_t byte = 0, offset = 0, length = 0;
  TensorSlice slice = {};
};
struct ManifestTensor {
  std::string dtype;
  std::vector<int64_t> shape;
  std::vector<ManifestPiece> pieces;  ///< sorted by slice and offset
};
struct ManifestFile {
  std::string name;
  int64_t bytes = 0;
  std::string xxh3;
};

struct Manifest {
  int64_t step = 0, world_size = 0;
  double created = 0;  ///< seconds since the epoch
  nlohmann::json state;
  std::vector<ManifestFile> files;
  std::map<std::string, ManifestTensor> tensors;
};

/// Describes the first part of a tensor that the pieces do not cover exactly once; empty if there is none. The pieces of
/// a slice must cover all of it, and slices must not overlap. Sorts the pieces by slice and offset. The caller has
/// checked that each piece lies within its file and each slice within its tensor.
std::optional<std::string> coverage_fault(std::map<std::string, ManifestTensor>& tensors);

/// The number of the attempt that wrote the state; 0 if an earlier version of the program did.
int64_t attempt_of(const nlohmann::json& state);

/// {"start", "size"} of a piece in manifest.json and in rank files; nothing for the whole tensor.
void add_slice(nlohmann::json& piece, const TensorSlice& slice);
TensorSlice slice_of(const nlohmann::json& piece);

/// The text of manifest.json.
std::string write_manifest(const Manifest& manifest);
/// Sets "xxh3" to the hash of all other entries (of their dump), by which a damaged manifest is detected.
void seal_manifest(nlohmann::json& manifest);
/// Reads FOLDER/manifest.json. Throws Error(environment) with the path and the fault.
Manifest read_manifest(const fs::path& folder);
/// A digest of manifest.json, which has digests of all files: checkpoints with the same one have the same content. Empty if there is none.
std::string manifest_digest(const fs::path& folder);

}  // namespace runner
