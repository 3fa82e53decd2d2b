// Writing a checkpoint: each rank writes its file; rank 0 writes the manifest and renames the folder.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include "runner/base/clock.hpp"
#include "runner/base/error.hpp"
#include "runner/checkpoint/checkpoint.hpp"
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
    if (auto failed = entry.find("failed"); failed != entry.end())
      throw environment_error("cannot write {}: rank {}: {}", final_.string(), entry.at("rank").get<int>(),
                              failed->get<std::string>());
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
