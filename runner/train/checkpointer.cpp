#include "runner/train/checkpointer.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "runner/base/clock.hpp"
#include "runner/base/error.hpp"
#include "runner/base/fault_point.hpp"
#include "runner/base/text.hpp"

namespace runner {

namespace {

/// How long a rank waits for the files of other ranks. If a rank dies, the run ends earlier.
constexpr std::chrono::hours longest_write(24);

const char* dtype_name(torch::ScalarType type) {
  switch (type) {
    case torch::kFloat64:
      return "F64";
    case torch::kFloat32:
      return "F32";
    case torch::kFloat16:
      return "F16";
    case torch::kBFloat16:
      return "BF16";
    default:
      break;
  }
  RUNNER_CHECK(false, "dtype {} in the training state", c10::toString(type));
  return "";
}

torch::ScalarType scalar_type_named(const std::string& name) {
  if (name == "F64") return torch::kFloat64;
  if (name == "F32") return torch::kFloat32;
  if (name == "F16") return torch::kFloat16;
  if (name == "BF16") return torch::kBFloat16;
  throw environment_error("the checkpoint contains dtype {}, which this program does not write", name);
}

std::span<std::byte> bytes_of_tensor(const torch::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), static_cast<size_t>(tensor.nbytes())};
}

/// A piece that is read from the tensor in parts while the file is written, without a complete copy.
Piece streamed_piece(const StateTensor& tensor, int64_t count) {
  auto type = tensor.swapped ? torch::kFloat32 : tensor.local.scalar_type();
  auto element = static_cast<int64_t>(torch::elementSize(type));
  Piece piece{tensor.name, dtype_name(type), tensor.global_shape, tensor.offset + tensor.write_begin, {}};
  piece.bytes = count * element;
  piece.source = [tensor, element](int64_t begin, std::span<std::byte> into) {
    auto part = tensor.read(tensor.write_begin + begin / element, static_cast<int64_t>(into.size()) / element);
    std::memcpy(into.data(), part.data_ptr(), into.size());
  };
  return piece;
}

}  // namespace

struct Checkpointer::Snapshot {
  int64_t number = 0, step = 0;
  TrainerState state;
  std::vector<torch::Tensor> tensors;  ///< keep the pieces' bytes alive
  std::vector<Piece> pieces;
  std::vector<fs::path> files;
  double begun = 0;
};

Checkpointer::Checkpointer(World& world, Options options, Calls calls)
    : world_(world), options_(std::move(options)), calls_(std::move(calls)) {
  if (world_.rank == 0) remove_leftovers(options_.folder, options_.attempt);
  if (world_.size == 1) return;
  store_ = c10::make_intrusive<c10d::PrefixStore>("checkpoint", world_.store->clone());
  store_->setTimeout(longest_write);
}

Checkpointer::~Checkpointer() {
  if (running_.valid()) running_.wait();
}

void Checkpointer::continue_from(int64_t step) { start_ = step; }

void Checkpointer::wait() {
  if (running_.valid()) ended(running_.get());
}

void Checkpointer::look() {
  if (running_.valid() && running_.wait_for(std::chrono::seconds(0)) == std::future_status::ready)
    ended(running_.get());
}

void Checkpointer::finish() {
  wait();
  // A resumed run without a step left publishes nothing, and an earlier attempt may have been killed in its retention.
  if (world_.rank == 0) retain();
  if (!failure_.empty()) throw environment_error("{}; it was the last checkpoint of this run", failure_);
}

void Checkpointer::retain() {
  runner::retain(options_.folder, {.keep_last = options_.keep_last,
                                   .save_top_k = options_.save_top_k,
                                   .monitor = options_.monitor,
                                   .attempts = {{options_.attempt, start_}}});
}

void Checkpointer::ended(const std::string& failure) {
  if (!failure.empty() && options_.stop_on_error) throw environment_error("{}", failure);
  failure_ = failure;
  const int64_t failed_before = std::exchange(failures_, failure.empty() ? 0 : failures_ + 1);
  if (world_.rank != 0) return;
  if (failures_ == 0 && failed_before > 0) calls_.note("checkpoints can be written again");
  if (failures_ == 1)
    calls_.note(failure +
                "; training continues, and the next checkpoint is tried when it is due (checkpoint.on_error = \"stop\" "
                "ends the run instead)");
  else if (std::has_single_bit(static_cast<uint64_t>(failures_)))  // few notes, also if every checkpoint fails
    calls_.note(fmt::format("{} checkpoints in a row could not be written: {}", failures_, failure));
}

void Checkpointer::save(Strategy& strategy, int64_t step, const TrainerState& state, const More& more,
                        bool steps_follow) {
  wait();
  auto snapshot = std::make_shared<Snapshot>();
  snapshot->number = ++saves_;
  snapshot->step = step;
  snapshot->state = state;
  snapshot->begun = steady_seconds();
  auto tensors = strategy.state_to_save();
  tensors.insert(tensors.end(), more.tensors.begin(), more.tensors.end());
  snapshot->files = more.files;
  // Tensors in a swap file are not copied first. Training waits until they are written.
  bool swapped =
      std::any_of(tensors.begin(), tensors.end(), [](const auto& tensor) { return tensor.swapped.has_value(); });
  bool copied = options_.async && steps_follow && !swapped;
  for (auto& tensor : tensors) {
    int64_t count = tensor.write_end - tensor.write_begin;
    if (count == 0) continue;
    if (!copied) {
      snapshot->pieces.push_back(streamed_piece(tensor, count));
      continue;
    }
    auto host = tensor.read(tensor.write_begin, count);
    snapshot->tensors.push_back(host);
    snapshot->pieces.push_back({tensor.name, dtype_name(host.scalar_type()), tensor.global_shape,
                                tensor.offset + tensor.write_begin, bytes_of_tensor(host)});
    tensor.local.reset();  // frees a tensor that was gathered for this save before the next one is copied
  }
  if (copied)
    running_ = std::async(std::launch::async, [this, snapshot] { return write(*snapshot); });
  else
    ended(write(*snapshot));
}

namespace {

nlohmann::json entry_of_rank(CheckpointWriter& writer, int rank, const std::vector<Piece>& pieces) {
  try {
    return writer.write_rank(pieces);
  } catch (const std::exception& error) {
    return {{"rank", rank}, {"failed", error.what()}};
  }
}

// Ranks exchange entries through the store. Only the training thread may use collectives.
std::string entry_key(int64_t save, int rank) { return fmt::format("{}/{}", save, rank); }
std::string verdict_key(int64_t save) { return fmt::format("{}/verdict", save); }

void set_text(c10d::Store& store, const std::string& key, const std::string& text) {
  store.set(key, std::vector<uint8_t>(text.begin(), text.end()));
}

std::string get_text(c10d::Store& store, const std::string& key) {
  auto bytes = store.get(key);
  return {bytes.begin(), bytes.end()};
}

}  // namespace

std::string Checkpointer::write(const Snapshot& snapshot) {
  const int64_t number = snapshot.number;
  CheckpointWriter writer(options_.folder, snapshot.step, world_.rank, world_.size, options_.attempt);
  auto entry = entry_of_rank(writer, world_.rank, snapshot.pieces);
  if (world_.rank != 0) {
    set_text(*store_, entry_key(number, world_.rank),
             entry.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    // Removes the leading ":", which is there because a store cannot contain an empty value.
    return get_text(*store_, verdict_key(number)).substr(1);
  }
  fault_point("rank written");
  std::vector<nlohmann::json> entries{entry};
  for (int rank = 1; rank < world_.size; ++rank) {
    entries.push_back(nlohmann::json::parse(get_text(*store_, entry_key(number, rank))));
    store_->deleteKey(entry_key(number, rank));
  }
  if (world_.size > 1) store_->deleteKey(verdict_key(number - 1));  // every rank has read it
  return publish(writer, entries, snapshot);
}

namespace {

/// A mistake of this program or of its data fails again at the next checkpoint, unlike a full disk.
bool is_permanent(const std::exception& error) {
  return dynamic_cast<const std::logic_error*>(&error) || dynamic_cast<const nlohmann::json::exception*>(&error);
}

}  // namespace

std::string Checkpointer::publish(CheckpointWriter& writer, const std::vector<nlohmann::json>& entries,
                                  const Snapshot& snapshot) {
  fs::path path;
  std::string failure;
  bool permanent = false;
  try {
    for (const auto& file : snapshot.files) sync_path(file);
    fault_point("settle");
    calls_.settle();
    fault_point("publish");
    path = writer.publish(entries, snapshot.state);
    fault_point("published");
  } catch (const std::exception& error) {
    writer.abandon();
    failure = error.what();
    permanent = is_permanent(error);
  }
  if (world_.size > 1) set_text(*store_, verdict_key(snapshot.number), ":" + failure);
  if (permanent) throw run_error("the checkpoint of step {} cannot be written: {}", snapshot.step, failure);
  if (!failure.empty()) return failure;
  uint64_t bytes = 0;
  for (const auto& file : fs::directory_iterator(path)) bytes += file.file_size();
  retain();
  calls_.published({snapshot.step, path.string(), steady_seconds() - snapshot.begun, bytes});
  return "";
}

torch::Tensor read_elements(const Checkpoint& checkpoint, const std::string& tensor, int64_t offset, int64_t count) {
  auto host = torch::empty({count}, scalar_type_named(checkpoint.dtype(tensor)));
  checkpoint.read(tensor, offset, count, bytes_of_tensor(host));
  return host;
}

namespace {

/// Elements per read from a checkpoint.
constexpr int64_t loaded_piece = 1 << 20;

/// Loads the values piece by piece, to limit the host memory in use.
void load(const StateTensor& tensor, const Checkpoint& checkpoint) {
  for (int64_t begin = 0; begin < tensor.numel(); begin += loaded_piece) {
    int64_t count = std::min(loaded_piece, tensor.numel() - begin);
    tensor.write(begin, read_elements(checkpoint, tensor.name, tensor.offset + begin, count));
  }
}

}  // namespace

namespace {

/// A tensor that is optional has one row of values for each rank.
const char* why_shape_differs(const StateTensor& tensor, const std::vector<int64_t>& stored) {
  if (!tensor.optional) return "";
  const bool ranks_differ = stored.empty() || stored.front() != tensor.global_shape.front();
  return ranks_differ ? " (it has values of each rank: continue with the same number of ranks)"
                      : " (the strategy's buckets differ: another build or bucket_cap_mb wrote the checkpoint)";
}

}  // namespace

void load_state(Strategy& strategy, const Checkpoint& checkpoint) {
  torch::NoGradGuard no_grad;
  std::vector<std::string> problems;
  for (const auto& tensor : strategy.state()) {
    if (!checkpoint.has(tensor.name)) {
      if (!tensor.optional) problems.push_back(fmt::format("`{}` is missing", tensor.name));
    } else if (checkpoint.shape(tensor.name) != tensor.global_shape) {
      problems.push_back(fmt::format(
          "`{}` has shape [{}] instead of [{}]{}", tensor.name, fmt::join(checkpoint.shape(tensor.name), ", "),
          fmt::join(tensor.global_shape, ", "), why_shape_differs(tensor, checkpoint.shape(tensor.name))));
    } else {
      load(tensor, checkpoint);
    }
  }
  constexpr size_t listed = 3;
  if (problems.size() > listed) {
    const auto more = fmt::format("and {} more", problems.size() - listed);
    problems.resize(listed);
    problems.push_back(more);
  }
  if (!problems.empty())
    throw environment_error("the checkpoint does not fit the recipe's model and optimizer: {}", join(problems, "; "));
  strategy.state_loaded();
}

}  // namespace runner
