// Reading a checkpoint: the manifest maps a range of a tensor to bytes of files.
#include "runner/checkpoint/checkpoint.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <mutex>
#include <thread>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/checkpoint/manifest.hpp"

namespace runner {

struct Checkpoint::Impl {
  enum class Check { nothing, sizes, hashes };
  Impl(const fs::path& folder, Check check);
  const ManifestTensor& tensor(const std::string& name) const;
  /// Maps it, if it is not mapped yet. Throws Error(environment) if it is missing or has another size.
  const MappedFile& file(size_t index) const;
  void check_size(size_t index) const;
  void verify_hashes() const;
  /// Calls `visit` for the pieces of a tensor that may have elements of the part. `slice`: that of the part, normalized.
  void visit_pieces(const ManifestTensor& tensor, const SlicePart& part, const TensorSlice& slice,
                    const std::function<void(const ManifestPiece&)>& visit) const;

  fs::path path;
  Manifest manifest;
  std::unique_ptr<PieceRecords> records;                   ///< if the pieces have not been read
  mutable std::mutex mutex;                                ///< guards `files`
  mutable std::vector<std::unique_ptr<MappedFile>> files;  ///< in the order of manifest.files; null: not opened yet
  mutable std::atomic<uint64_t> bytes_read{0};
};

Checkpoint::Impl::Impl(const fs::path& folder, Check check)
    : path(folder),
      manifest(check == Check::nothing ? read_manifest_only(folder) : read_manifest(folder)),
      files(manifest.files.size()) {
  if (check == Check::nothing && !manifest.pieces_file.name.empty())
    records = std::make_unique<PieceRecords>(folder, manifest);
  if (check != Check::nothing)
    for (size_t i = 0; i < files.size(); ++i) check_size(i);
  if (check == Check::hashes) verify_hashes();
}

void Checkpoint::Impl::check_size(size_t index) const {
  const auto& expected = manifest.files[index];
  const fs::path name = path / expected.name;
  std::error_code error;
  const auto bytes = static_cast<int64_t>(fs::file_size(name, error));
  if (error) throw environment_error("{} is missing", name.string());
  if (bytes < expected.bytes)
    throw environment_error("{} is truncated: {} of {} bytes", name.string(), bytes, expected.bytes);
  if (bytes > expected.bytes)
    throw environment_error("{} has grown: {} instead of {} bytes", name.string(), bytes, expected.bytes);
}

const MappedFile& Checkpoint::Impl::file(size_t index) const {
  std::lock_guard lock(mutex);
  auto& file = files[index];
  if (!file) {
    check_size(index);
    file = std::make_unique<MappedFile>(path / manifest.files[index].name);
  }
  return *file;
}

void Checkpoint::Impl::verify_hashes() const {
  for (size_t i = 0; i < files.size(); ++i) file(i);  // here, because a helper thread must not throw
  std::vector<std::string> found(files.size());
  std::atomic<size_t> next{0};
  auto hash_some = [&] {
    for (size_t i = next++; i < files.size(); i = next++) found[i] = xxh3_hex(file(i).bytes());
  };
  {
    std::vector<std::jthread> helpers;
    size_t threads = std::min<size_t>(files.size(), std::max(1u, std::thread::hardware_concurrency()));
    for (size_t i = 1; i < threads; ++i) helpers.emplace_back(hash_some);
    hash_some();
  }
  for (const auto& file : manifest.files) bytes_read += static_cast<uint64_t>(file.bytes);
  for (size_t i = 0; i < files.size(); ++i)
    if (found[i] != manifest.files[i].xxh3)
      throw environment_error("{} is corrupted: its hash is {} instead of {}", (path / manifest.files[i].name).string(),
                              found[i], manifest.files[i].xxh3);
}

void Checkpoint::Impl::visit_pieces(const ManifestTensor& tensor, const SlicePart& part, const TensorSlice& slice,
                                    const std::function<void(const ManifestPiece&)>& visit) const {
  for (const auto& piece : tensor.pieces)
    if (piece.slice != slice || (piece.offset < part.end && piece.offset + piece.length > part.begin)) visit(piece);
  for (const auto& run : tensor.runs) {
    const bool same = run.slice == slice;
    if (!same && !slices_overlap(run.slice, slice, tensor.shape)) continue;
    records->visit(run, dtype_bytes(tensor.dtype), same ? part.begin : 0, same ? part.end : INT64_MAX, visit);
  }
}

const ManifestTensor& Checkpoint::Impl::tensor(const std::string& name) const {
  auto found = manifest.tensors.find(name);
  if (found != manifest.tensors.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, ignored] : manifest.tensors) names.push_back(known);
  auto near = nearest(name, names);
  throw environment_error("{} has no tensor `{}`{}", path.string(), name,
                          near ? fmt::format(" (did you mean `{}`?)", *near) : "");
}

namespace {

/// "; the previous good checkpoint is step-000050", or "".
std::string previous_good(const fs::path& path) {
  fs::path folder = path.has_filename() ? path : path.parent_path();  // "step-000100/" names the same folder
  auto all = list_checkpoints(folder.parent_path());
  auto self = std::find(all.begin(), all.end(), folder);
  if (self == all.end()) return "";
  for (auto older = std::make_reverse_iterator(self); older != all.rend(); ++older) {
    try {
      Checkpoint previous(*older, /*verify=*/true, /*name_previous=*/false);
      return fmt::format("; the previous good checkpoint is {}", older->filename().string());
    } catch (const Error&) {
    }
  }
  return "";
}

}  // namespace

Checkpoint::Checkpoint(const fs::path& path, bool verify, bool name_previous) {
  try {
    impl_ = std::make_shared<Impl>(path, verify ? Impl::Check::hashes : Impl::Check::sizes);
  } catch (const Error& error) {
    if (!name_previous) throw;
    throw Error(error.code(), error.what() + previous_good(path));
  }
}

Checkpoint Checkpoint::on_demand(const fs::path& path) {
  return Checkpoint(std::make_shared<Impl>(path, Impl::Check::nothing));
}

const fs::path& Checkpoint::path() const { return impl_->path; }
int64_t Checkpoint::step() const { return impl_->manifest.step; }
int64_t Checkpoint::world_size() const { return impl_->manifest.world_size; }
int64_t Checkpoint::attempt() const { return attempt_of(state()); }
double Checkpoint::created() const { return impl_->manifest.created; }
const TrainerState& Checkpoint::state() const { return impl_->manifest.state; }
bool Checkpoint::has(const std::string& tensor) const { return impl_->manifest.tensors.contains(tensor); }
const std::vector<int64_t>& Checkpoint::shape(const std::string& tensor) const { return impl_->tensor(tensor).shape; }
const std::string& Checkpoint::dtype(const std::string& tensor) const { return impl_->tensor(tensor).dtype; }
uint64_t Checkpoint::bytes_read() const { return impl_->bytes_read; }
uint64_t Checkpoint::index_bytes_read() const { return impl_->records ? impl_->records->bytes_read() : 0; }
size_t Checkpoint::files_opened() const {
  std::lock_guard lock(impl_->mutex);
  return static_cast<size_t>(std::ranges::count_if(impl_->files, [](const auto& file) { return file != nullptr; }));
}

std::vector<std::string> Checkpoint::tensors() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : impl_->manifest.tensors) names.push_back(name);
  return names;
}

void Checkpoint::read(const std::string& name, int64_t offset, int64_t length, std::span<std::byte> out) const {
  read(name, {.begin = offset, .end = offset + length}, out);
}

void Checkpoint::read(const std::string& name, const SlicePart& part, std::span<std::byte> out) const {
  const auto& tensor = impl_->tensor(name);
  const int64_t element_bytes = dtype_bytes(tensor.dtype);
  RUNNER_CHECK(is_inside(part.slice, tensor.shape) && part.begin >= 0 && part.begin <= part.end &&
                   part.end <= slice_numel(part.slice, tensor.shape) &&
                   static_cast<int64_t>(out.size()) == (part.end - part.begin) * element_bytes,
               "[{}, {}) of `{}`{} into {} bytes", part.begin, part.end, name, to_text(part.slice), out.size());
  const TensorSlice slice = normalized(part.slice, tensor.shape);
  int64_t copied = 0;
  impl_->visit_pieces(tensor, part, slice, [&](const ManifestPiece& piece) {
    const SlicePart stored{piece.slice, piece.offset, piece.offset + piece.length};
    for_each_common(tensor.shape, part, stored, [&](int64_t at, int64_t at_stored, int64_t count) {
      const auto bytes = static_cast<size_t>(count * element_bytes);
      const auto* from =
          impl_->file(piece.file).bytes().data() + piece.byte + (at_stored - piece.offset) * element_bytes;
      std::memcpy(out.data() + (at - part.begin) * element_bytes, from, bytes);
      impl_->bytes_read += bytes;
      copied += count;
    });
  });
  if (copied != part.end - part.begin)
    throw environment_error("{}: {} of {} elements of `{}`{} are in its files", path().string(), copied,
                            part.end - part.begin, name, to_text(part.slice));
}

bool written_by(const Checkpoint& checkpoint, const fs::path& run_dir) {
  const std::string folder = checkpoint.path().parent_path().parent_path().filename().string();
  return checkpoint.state().value("run", folder) == run_dir.filename().string();
}

}  // namespace runner
