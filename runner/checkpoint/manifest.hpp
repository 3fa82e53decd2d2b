// manifest.json: what a checkpoint holds and where each piece of each tensor lies. Reading it trusts nothing.
#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runner/base/files.hpp"

namespace runner {

constexpr int64_t manifest_version = 1;
inline const char* const manifest_name = "manifest.json";

/// Elements [offset, offset + length) of the flattened tensor, at `byte` of a file.
struct ManifestPiece {
  size_t file = 0;  ///< index into Manifest::files
  int64_t byte = 0, offset = 0, length = 0;
};
struct ManifestTensor {
  std::string dtype;
  std::vector<int64_t> shape;
  std::vector<ManifestPiece> pieces;  ///< by offset
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

/// What is wrong with the pieces, each of which lies in its file: every element of every tensor must be there exactly
/// once. Sorts them by offset.
std::optional<std::string> coverage_fault(std::map<std::string, ManifestTensor>& tensors);

/// The text of manifest.json.
std::string write_manifest(const Manifest& manifest);
/// Adds the hash that tells a damaged manifest from a sound one: of the dump of everything else.
void seal_manifest(nlohmann::json& manifest);
/// Reads FOLDER/manifest.json. Throws Error(environment) naming the file and the fault.
Manifest read_manifest(const fs::path& folder);

}  // namespace runner
