// Reading a checkpoint: the manifest maps a range of a tensor to bytes of files. Writing one: each rank writes its file; rank 0 writes the
// manifest and renames the folder.
#include "runner/checkpoint/checkpoint.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <mutex>
#include <set>
#include <thread>

#include "runner/base/clock.hpp"
#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/checkpoint/manifest.hpp"

namespace runner {

namespace {

using nlohmann::json;

/// Replaces the checkpoint `final_name` by `temporary`. Afterwards the old checkpoint has the temporary name or is
/// removed.
void exchange_directories(const fs::path& temporary, const fs::path& final_name) {
  sync_path(temporary);
  if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, final_name.c_str(), RENAME_EXCHANGE) != 0) {
    // Network filesystems cannot exchange names, so two renames are needed. If the process is killed between them,
    // neither checkpoint has the final name; newest_good_checkpoint() then gives it to one of them.
    if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP)
      throw environment_error("cannot rename {} to {}: {}", temporary.string(), final_name.string(),
                              std::strerror(errno));
    fs::path old = final_name.parent_path() / ("." + final_name.filename().string() + ".replaced");
    fs::remove_all(old);
    fs::rename(final_name, old);
    std::error_code error;
    fs::rename(temporary, final_name, error);
    if (error) {
      fs::rename(old, final_name);
      throw fs::filesystem_error("rename", temporary, final_name, error);
    }
    fs::remove_all(old);
  }
  sync_path(final_name.parent_path());
}

/// The current time, but later than every existing checkpoint: the order of publication must not depend on a clock that
/// was set back.
double publication_time(const fs::path& checkpoints) {
  constexpr double tick = 1e-6;
  double time = wall_seconds();
  for (const auto& path : list_checkpoints(checkpoints)) {
    try {
      time = std::max(time, read_manifest_only(path).created + tick);
    } catch (const Error&) {
      // Damaged checkpoints are not part of the order.
    }
  }
  return time;
}

ManifestTensor& tensor_of(Manifest& manifest, const json& piece) {
  const auto& name = piece.at("tensor").get_ref<const std::string&>();
  auto shape = piece.at("shape").get<std::vector<int64_t>>();
  auto [found, added] = manifest.tensors.try_emplace(name, ManifestTensor{piece.at("dtype"), shape, {}});
  RUNNER_CHECK(added || (found->second.dtype == piece.at("dtype") && found->second.shape == shape),
               "ranks disagree about dtype or shape of `{}`", name);
  return found->second;
}

void write_piece(SafetensorsWriter& writer, const Piece& piece) {
  if (!piece.source) return writer.write(piece.data);
  constexpr int64_t chunk = 8 << 20;
  std::vector<std::byte> buffer(static_cast<size_t>(std::min(chunk, piece.bytes)));
  for (int64_t begin = 0; begin < piece.bytes; begin += chunk) {
    auto part = std::span(buffer).first(static_cast<size_t>(std::min(chunk, piece.bytes - begin)));
    piece.source(begin, part);
    writer.write(part);
  }
}

}  // namespace

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

CheckpointWriter::CheckpointWriter(fs::path checkpoints, int64_t step, int rank, int world_size, int64_t attempt)
    : final_(checkpoints / checkpoint_name(step)),
      temporary_(checkpoints / fmt::format(".{}.{}.tmp", checkpoint_name(step), attempt)),
      step_(step),
      rank_(rank),
      world_size_(world_size) {}

template <typename Work>
auto CheckpointWriter::naming_it(Work&& work) {
  try {
    return work();
  } catch (const fs::filesystem_error& error) {
    throw environment_error("cannot write {}: {} ({})", final_.string(), error.code().message(),
                            error.path1().string());
  }
}

json CheckpointWriter::write_rank(const std::vector<Piece>& pieces) {
  return naming_it([&] { return write_file(pieces); });
}

fs::path CheckpointWriter::publish(const std::vector<json>& rank_entries, const TrainerState& state) {
  try {
    return naming_it([&] {
      auto manifest = collect(rank_entries);
      manifest.state = state;
      manifest.created = publication_time(final_.parent_path());
      const auto texts = write_manifest(manifest);
      if (!texts.pieces.empty()) write_file_atomic(temporary_ / pieces_name, texts.pieces);
      write_file_atomic(temporary_ / manifest_name, texts.manifest);
      move_into_place();
      return final_;
    });
  } catch (...) {
    abandon();
    throw;
  }
}

void CheckpointWriter::move_into_place() {
  if (!fs::exists(final_)) return publish_directory(temporary_, final_);
  exchange_directories(temporary_, final_);
  abandon();  // the temporary name now belongs to the old checkpoint
}

json CheckpointWriter::write_file(const std::vector<Piece>& pieces) const {
  std::vector<TensorInfo> infos;
  json index = json::array();
  for (const auto& piece : pieces) {
    int64_t length = piece.size() / dtype_bytes(piece.dtype);
    const TensorSlice slice = normalized(piece.slice, piece.global_shape);
    const auto name = piece.tensor + to_text(slice);
    RUNNER_CHECK(length * dtype_bytes(piece.dtype) == piece.size() && checked_numel(piece.global_shape) &&
                     is_inside(piece.slice, piece.global_shape) && piece.offset >= 0 &&
                     piece.offset + length <= slice_numel(slice, piece.global_shape),
                 "[{}, {}) is not a piece of `{}`", piece.offset, piece.offset + length, name);
    infos.push_back({fmt::format("{}[{}:{}]", name, piece.offset, piece.offset + length), piece.dtype, {length}});
    index.push_back({{"tensor", piece.tensor},
                     {"dtype", piece.dtype},
                     {"shape", piece.global_shape},
                     {"offset", piece.offset},
                     {"length", length}});
    add_slice(index.back(), slice);
  }
  std::map<std::string, std::string> metadata = {
      {"format", "runner-checkpoint"}, {"version", std::to_string(manifest_version)}, {"step", std::to_string(step_)},
      {"rank", std::to_string(rank_)}, {"world_size", std::to_string(world_size_)},   {"pieces", index.dump()}};
  std::string name = fmt::format("rank-{:05d}.safetensors", rank_);
  fs::create_directories(temporary_);
  SafetensorsWriter writer(temporary_ / name, std::move(infos), metadata);
  for (size_t i = 0; i < pieces.size(); ++i) {
    index[i]["byte"] = writer.data_offset() + writer.tensors()[i].begin;
    write_piece(writer, pieces[i]);
  }
  auto written = writer.finish();
  return {{"rank", rank_},          {"step", step_},        {"file", name},
          {"bytes", written.bytes}, {"xxh3", written.xxh3}, {"pieces", index}};
}

Manifest CheckpointWriter::collect(const std::vector<json>& rank_entries) const {
  // This check comes first: the entry of a rank that failed has no other fields.
  for (const auto& entry : rank_entries)
    if (auto failed = entry.find("failed"); failed != entry.end()) {
      std::string why = failed->get<std::string>();
      for (const auto& beginning :
           {fmt::format("cannot write {}: ", final_.string()), fmt::format("cannot write {}/", temporary_.string())})
        if (why.starts_with(beginning)) why.erase(0, beginning.size());
      // The name of its file names the rank.
      const std::string rank = why.starts_with("rank-") ? "" : fmt::format("rank {}: ", entry.at("rank").get<int>());
      throw environment_error("cannot write {}: {}{}", final_.string(), rank, why);
    }
  Manifest manifest;
  manifest.step = step_;
  manifest.world_size = world_size_;
  std::set<int> ranks;
  for (const auto& entry : rank_entries) {
    RUNNER_CHECK(entry.at("step") == step_, "an entry of step {} in the checkpoint of step {}", entry.at("step").dump(),
                 step_);
    ranks.insert(entry.at("rank").get<int>());
    const auto& file = manifest.files.emplace_back(ManifestFile{entry.at("file"), entry.at("bytes"), entry.at("xxh3")});
    for (const auto& piece : entry.at("pieces"))
      tensor_of(manifest, piece)
          .pieces.push_back(
              {manifest.files.size() - 1, piece.at("byte"), piece.at("offset"), piece.at("length"), slice_of(piece)});
    std::error_code error;
    auto bytes = fs::file_size(temporary_ / file.name, error);
    if (error || bytes != static_cast<uintmax_t>(file.bytes))
      throw environment_error("{} is missing or incomplete ({}): all nodes must share the run's filesystem",
                              (temporary_ / file.name).string(),
                              error ? error.message() : fmt::format("{} of {} bytes", bytes, file.bytes));
  }
  bool complete = static_cast<int>(rank_entries.size()) == world_size_ && ranks.size() == rank_entries.size() &&
                  *ranks.begin() == 0 && *ranks.rbegin() == world_size_ - 1;
  RUNNER_CHECK(complete, "entries of ranks {}, not of each of {}", fmt::join(ranks, ", "), world_size_);
  auto fault = coverage_fault(manifest.tensors);
  RUNNER_CHECK(!fault, "step {}: {}", step_, fault.value_or(""));
  return manifest;
}

void CheckpointWriter::abandon() {
  std::error_code ignored;
  fs::remove_all(temporary_, ignored);
}

}  // namespace runner
