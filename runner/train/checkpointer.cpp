#include "runner/train/checkpointer.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "runner/base/clock.hpp"
#include "runner/base/error.hpp"
#include "runner/base/text.hpp"

namespace runner {

namespace {

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
  throw environment_error("the checkpoint holds dtype {}, which is no training state of ours", name);
}

std::span<std::byte> bytes_of_tensor(const torch::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), static_cast<size_t>(tensor.nbytes())};
}

/// Read from where it is, some elements at a time, while it is written.
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
  int64_t step = 0;
  TrainerState state;
  std::vector<torch::Tensor> tensors;  ///< keep the pieces' bytes alive
  std::vector<Piece> pieces;
  double begun = 0;
};

Checkpointer::Checkpointer(World& world, Options options, std::function<void(const Published&)> published)
    : world_(world), options_(std::move(options)), published_(std::move(published)) {}

Checkpointer::~Checkpointer() {
  if (running_.valid()) running_.wait();
}

void Checkpointer::wait() {
  if (running_.valid()) running_.get();
}

void Checkpointer::rethrow_failure() {
  if (running_.valid() && running_.wait_for(std::chrono::seconds(0)) == std::future_status::ready) running_.get();
}

void Checkpointer::save(Strategy& strategy, int64_t step, const TrainerState& state,
                        const std::vector<StateTensor>& more, bool steps_follow) {
  wait();
  auto snapshot = std::make_shared<Snapshot>();
  snapshot->step = step;
  snapshot->state = state;
  snapshot->begun = steady_seconds();
  auto tensors = strategy.state_to_save();
  tensors.insert(tensors.end(), more.begin(), more.end());
  // What lies in a file is not copied first: training waits until it is written.
  bool swapped = std::any_of(tensors.begin(), tensors.end(), [](const auto& tensor) { return tensor.swapped.has_value(); });
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
    tensor.local.reset();  // a tensor that was collected from all ranks for this goes before the next is copied
  }
  if (copied)
    running_ = std::async(std::launch::async, [this, snapshot] { write(*snapshot); });
  else
    write(*snapshot);
}

void Checkpointer::write(const Snapshot& snapshot) {
  CheckpointWriter writer(options_.folder, snapshot.step, world_.rank, world_.size);
  auto entry = write_rank(writer, snapshot);
  if (world_.rank != 0) return tell_rank_0(snapshot.step, entry);
  std::vector<nlohmann::json> entries{entry};
  for (int rank = 1; rank < world_.size && !entries.back().contains("failed"); ++rank)
    entries.push_back(entry_of(rank, snapshot.step));
  auto path = writer.publish(entries, snapshot.state);
  uint64_t bytes = 0;
  for (const auto& file : fs::directory_iterator(path)) bytes += file.file_size();
  retain(options_.folder, options_.keep_last, options_.save_top_k, options_.monitor);
  published_({snapshot.step, path.string(), steady_seconds() - snapshot.begun, bytes});
}

nlohmann::json Checkpointer::write_rank(CheckpointWriter& writer, const Snapshot& snapshot) {
  try {
    return writer.write_rank(snapshot.pieces);
  } catch (const std::exception& error) {
    if (world_.rank != 0) tell_rank_0(snapshot.step, {{"rank", world_.rank}, {"failed", error.what()}});
    throw;
  }
}

namespace {

// Ranks meet in the store, not in a collective: the training thread owns those.
std::string entry_key(int64_t step, int rank) { return fmt::format("checkpoint/{}/{}", step, rank); }

}  // namespace

void Checkpointer::tell_rank_0(int64_t step, const nlohmann::json& entry) {
  auto text = entry.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  world_.store->set(entry_key(step, world_.rank), std::vector<uint8_t>(text.begin(), text.end()));
}

nlohmann::json Checkpointer::entry_of(int rank, int64_t step) {
  auto bytes = world_.store->get(entry_key(step, rank));
  world_.store->deleteKey(entry_key(step, rank));
  return nlohmann::json::parse(bytes.begin(), bytes.end());
}

torch::Tensor read_elements(const Checkpoint& checkpoint, const std::string& tensor, int64_t offset, int64_t count) {
  auto host = torch::empty({count}, scalar_type_named(checkpoint.dtype(tensor)));
  checkpoint.read(tensor, offset, count, bytes_of_tensor(host));
  return host;
}

namespace {

/// Elements that are read from a checkpoint at once.
constexpr int64_t loaded_piece = 1 << 20;

/// Values pass through host memory in pieces.
void load(const StateTensor& tensor, const Checkpoint& checkpoint) {
  for (int64_t begin = 0; begin < tensor.numel(); begin += loaded_piece) {
    int64_t count = std::min(loaded_piece, tensor.numel() - begin);
    tensor.write(begin, read_elements(checkpoint, tensor.name, tensor.offset + begin, count));
  }
}

}  // namespace

void load_state(Strategy& strategy, const Checkpoint& checkpoint) {
  torch::NoGradGuard no_grad;
  std::vector<std::string> problems;
  for (const auto& tensor : strategy.state()) {
    if (!checkpoint.has(tensor.name)) {
      if (!tensor.optional) problems.push_back(fmt::format("`{}` is missing", tensor.name));
    } else if (checkpoint.shape(tensor.name) != tensor.global_shape) {
      problems.push_back(
          fmt::format("`{}` has shape [{}] instead of [{}]{}", tensor.name,
                      fmt::join(checkpoint.shape(tensor.name), ", "), fmt::join(tensor.global_shape, ", "),
                      tensor.optional ? " (each rank's own: as many ranks as wrote it can go on with it)" : ""));
    } else {
      load(tensor, checkpoint);
    }
    if (problems.size() == 10) break;
  }
  if (!problems.empty())
    throw environment_error("the checkpoint does not fit the recipe's model and optimizer: {}", join(problems, "; "));
  strategy.state_loaded();
}

}  // namespace runner
