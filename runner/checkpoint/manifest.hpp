// manifest.json: the contents of a checkpoint, with file and byte offset of each piece of each tensor. The reader
// validates every value.
//
// If there are many pieces, because many ranks have written, they are in pieces.bin instead: records of a fixed size, so that a rank finds
// those that it needs by bisection and reads no others. They are sorted by tensor, slice and offset, and manifest.json has the first record
// of each slice of each tensor.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runner/base/files.hpp"
#include "strategies/engine/slice.hpp"

namespace runner {

/// Version 1 has no slices: its pieces are intervals of whole tensors. Version 3 has pieces.bin; a manifest with few pieces is written as
/// version 2, which earlier programs read.
constexpr int64_t manifest_version = 3;
constexpr size_t pieces_in_json_max = 4096;
inline const char* const manifest_name = "manifest.json";
inline const char* const pieces_name = "pieces.bin";

/// Elements [offset, offset + length) of the flattened slice. They start at byte `byte` of the file.
struct ManifestPiece {
  size_t file = 0;  ///< index into Manifest::files
  int64_t byte = 0, offset = 0, length = 0;
  TensorSlice slice = {};
};
/// A piece in pieces.bin, with the bytes of a little-endian machine. `file` counts the files by name.
struct PieceRecord {
  uint64_t file = 0;
  int64_t byte = 0, offset = 0, length = 0;
};
/// The records of a slice: they cover it, in order.
struct PieceRun {
  TensorSlice slice = {};
  size_t first = 0, count = 0;
};
struct ManifestTensor {
  std::string dtype;
  std::vector<int64_t> shape;
  std::vector<ManifestPiece> pieces = {};  ///< sorted by slice and offset; none if they have been left in pieces.bin
  std::vector<PieceRun> runs = {};         ///< none if there is no pieces.bin
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
  std::vector<ManifestFile> files;  ///< when read: sorted by name
  ManifestFile pieces_file;         ///< pieces.bin; without a name if the pieces are in manifest.json
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

/// The texts of manifest.json and of pieces.bin, which is empty if there need not be one.
struct ManifestTexts {
  std::string manifest, pieces;
};
ManifestTexts write_manifest(const Manifest& manifest);
/// Sets "xxh3" to the hash of all other entries (of their dump), by which a damaged manifest is detected.
void seal_manifest(nlohmann::json& manifest);
/// Reads FOLDER/manifest.json and pieces.bin. Throws Error(environment) with the path and the fault.
Manifest read_manifest(const fs::path& folder);
/// Leaves pieces.bin alone, if there is one. Then it is not checked, nor is whether the pieces cover the tensors.
Manifest read_manifest_only(const fs::path& folder);

/// The records of pieces.bin, for reading some of them. Throws Error(environment) if the file is missing or has another size.
class PieceRecords {
 public:
  PieceRecords(const fs::path& folder, const Manifest& manifest);
  /// Calls `visit` for the pieces of a run that have elements of [begin, end). Throws Error(environment) if one reaches beyond its file.
  void visit(const PieceRun& run, int64_t element_bytes, int64_t begin, int64_t end,
             const std::function<void(const ManifestPiece&)>& visit);
  uint64_t bytes_read() const { return bytes_read_; }
  const MappedFile& file() const { return file_; }

 private:
  PieceRecord at(size_t index);

  const Manifest& manifest_;
  MappedFile file_;
  std::atomic<uint64_t> bytes_read_{0};
};
/// A digest of manifest.json, which has digests of all files: checkpoints with the same one have the same content. Empty if there is none.
std::string manifest_digest(const fs::path& folder);

}  // namespace runner
