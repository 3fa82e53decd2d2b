#include "runner/train/checkpointer.hpp"

#include <fmt/ranges.h>
#include "runner/base/json_text.hpp"
#include "runner/base/metric_names.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <set>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "runner/base/clock.hpp"
#include "runner/base/error.hpp"
#include "runner/base/fault_point.hpp"
#include "runner/base/text.hpp"
#include "strategies/contract/additions.hpp"
#include "strategies/contract/state_tensor.hpp"

namespace runner {

namespace {

/// How long a rank waits for the files of other ranks. If a rank dies, the run ends earlier.
constexpr std::chrono::hours longest_write(24);

/// The piece that this rank writes of a tensor, without its bytes.
Piece piece_of(const StateView& view) {
  return {.tensor = view.name,
          .dtype = view.dtype,
          .global_shape = view.global_shape,
          .offset = view.offset + view.write_begin,
          .data = {},
          .slice = view.slice};
}

/// A piece that is read in parts while the file is written, without a complete copy.
Piece streamed_piece(const StateView& view) {
  const int64_t element = dtype_bytes(view.dtype);
  Piece piece = piece_of(view);
  piece.bytes = (view.write_end - view.write_begin) * element;
  piece.source = [view, element](int64_t begin, std::span<std::byte> into) {
    const auto part = view.read(view.write_begin + begin / element, std::ssize(into) / element);
    std::memcpy(into.data(), part.bytes.data(), into.size());
  };
  return piece;
}

}  // namespace

Checkpointer::Options checkpoint_options(const Recipe& recipe, const fs::path& run_dir, int64_t attempt) {
  const auto& settings = recipe.checkpoint;
  return {.folder = run_dir / "checkpoints",
          .attempt = attempt,
          .async = settings.async,
          .wait_for_store = recipe.plugins.checkpoint_io && !settings.async,
          .stop_on_error = settings.on_error == "stop",
          .keep_last = settings.keep_last,
          .save_top_k = settings.save_top_k.value_or(0),
          .keep_every = settings.keep_every_n_steps.value_or(0),
          .monitor = settings.monitor};
}

struct Checkpointer::Snapshot {
  int64_t number = 0, step = 0;
  TrainerState state;
  std::vector<HostBytes> copies;  ///< of the pieces' bytes
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
                                   .keep_every = options_.keep_every,
                                   .monitor = options_.monitor,
                                   .higher_is_better = higher_is_better(options_.monitor),
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

void Checkpointer::save(Engine& engine, int64_t step, const TrainerState& state, const More& more, bool steps_follow) {
  wait();
  auto snapshot = std::make_shared<Snapshot>();
  snapshot->number = ++saves_;
  snapshot->step = step;
  snapshot->state = state;
  snapshot->begun = steady_seconds();
  auto views = engine.views_to_save();
  views.insert(views.end(), more.tensors.begin(), more.tensors.end());
  snapshot->files = more.files;
  // Tensors in a swap file are not copied first. Training waits until they are written.
  const bool in_file = std::any_of(views.begin(), views.end(), [](const auto& view) { return view.in_file; });
  const bool copied = options_.async && steps_follow && !in_file;
  for (auto& view : views) {
    const int64_t count = view.write_end - view.write_begin;
    if (count == 0) continue;
    if (!copied) {
      snapshot->pieces.push_back(streamed_piece(view));
      continue;
    }
    const auto& copy = snapshot->copies.emplace_back(view.read(view.write_begin, count));
    auto& piece = snapshot->pieces.emplace_back(piece_of(view));
    piece.data = copy.bytes;
    view = {};  // frees a tensor that was gathered for this save before the next one is copied
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
    set_text(*store_, entry_key(number, world_.rank), json_text(entry));
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
  const bool waits = failure.empty() && options_.wait_for_store;
  if (waits) announce(path, snapshot);
  if (waits) calls_.settle();
  if (world_.size > 1) set_text(*store_, verdict_key(snapshot.number), ":" + failure);
  if (permanent) throw run_error("the checkpoint of step {} cannot be written: {}", snapshot.step, failure);
  if (failure.empty() && !waits) announce(path, snapshot);
  return failure;
}

void Checkpointer::announce(const fs::path& path, const Snapshot& snapshot) {
  uint64_t bytes = 0;
  for (const auto& file : fs::directory_iterator(path)) bytes += file.file_size();
  retain();
  calls_.published({snapshot.step, path.string(), steady_seconds() - snapshot.begun, bytes});
}

torch::Tensor read_elements(const Checkpoint& checkpoint, const std::string& tensor, const SlicePart& part) {
  auto host = torch::empty({part.end - part.begin}, scalar_type_named(checkpoint.dtype(tensor)));
  checkpoint.read(tensor, part, {static_cast<std::byte*>(host.data_ptr()), static_cast<size_t>(host.nbytes())});
  return host;
}

namespace {

/// Elements per read from a checkpoint.
constexpr int64_t loaded_piece = 1 << 20;

/// Loads the values piece by piece, to limit the host memory in use.
void load(const StateView& view, const Checkpoint& checkpoint) {
  const auto& dtype = checkpoint.dtype(view.name);
  std::vector<std::byte> buffer(static_cast<size_t>(std::min(loaded_piece, view.count) * dtype_bytes(dtype)));
  for (int64_t begin = 0; begin < view.count; begin += loaded_piece) {
    const int64_t count = std::min(loaded_piece, view.count - begin);
    const auto part = std::span(buffer).first(static_cast<size_t>(count * dtype_bytes(dtype)));
    const int64_t at = view.offset + begin;
    checkpoint.read(view.name, {view.slice, at, at + count}, part);
    view.write(begin, dtype, part);
  }
}

/// An addition to the steps of a plan, which has state of its own in checkpoints.
struct Addition {
  std::string own;                    ///< the field of the strategy's scalars with its scalars
  std::vector<std::string> prefixes;  ///< of the names of its tensors
  std::string owner = Additions::owner_field(own);
};
const std::array<Addition, 2>& additions() {
  static const std::array<Addition, 2> all{Addition{.own = "own", .prefixes = {"reducer/", "lua/"}},
                                           Addition{.own = "extension", .prefixes = {"lua/strategy/"}}};
  return all;
}

/// The addition that a tensor belongs to, or nullptr.
const Addition* owner_of(const std::string& tensor) {
  const Addition* found = nullptr;
  for (const auto& addition : additions())
    for (const auto& prefix : addition.prefixes)
      if (tensor.starts_with(prefix)) found = &addition;
  return found;
}

/// The additions of a checkpoint, and of the engine that loads it.
class OwnState {
 public:
  OwnState(const json& stored, const json& current) : stored_(stored), current_(current) {}

  /// Whether a tensor is that of an addition that the engine does not have.
  bool is_foreign(const std::string& tensor) const {
    const auto* addition = owner_of(tensor);
    return addition && stored_.contains(addition->owner) && name(current_, *addition) != name(stored_, *addition);
  }
  /// A note for each addition whose state the engine does not take. `tensors`: of the checkpoint.
  std::vector<std::string> notes(const std::vector<std::string>& tensors) const {
    std::vector<std::string> list;
    for (const auto& addition : additions()) {
      const auto was = name(stored_, addition), is = name(current_, addition);
      const auto owns = [&](const std::string& tensor) { return owner_of(tensor) == &addition; };
      const bool had_state = stored_.contains(addition.own) || std::ranges::any_of(tensors, owns);
      if (was.empty() || was == is || !had_state) continue;
      list.push_back(fmt::format("the checkpoint has the state of `{}`, which is not continued{}", was,
                                 is.empty() ? "" : fmt::format(": `{}` starts anew", is)));
    }
    return list;
  }
  std::string name_of_owner(const std::string& tensor) const {
    const auto* addition = owner_of(tensor);
    return addition ? name(current_, *addition) : "";
  }

 private:
  static std::string name(const json& scalars, const Addition& addition) { return scalars.value(addition.owner, ""); }
  const json& stored_;
  const json& current_;
};

/// Whether both have a row of values for each rank, of different numbers of ranks.
bool only_ranks_differ(const std::vector<int64_t>& stored, const std::vector<int64_t>& wanted) {
  return stored.size() == wanted.size() && stored.size() > 1 && stored.front() != wanted.front() &&
         std::equal(stored.begin() + 1, stored.end(), wanted.begin() + 1);
}

}  // namespace

std::vector<std::string> load_state(Engine& engine, const Checkpoint& checkpoint) {
  const json stored = checkpoint.state().value("strategy", json::object()), current = engine.scalars();
  const OwnState own(stored, current);
  auto notes = own.notes(checkpoint.tensors());
  std::vector<std::string> problems;
  std::set<std::string> of_other_ranks;
  for (const auto& tensor : engine.state_views()) {
    if (own.is_foreign(tensor.name)) continue;
    if (!checkpoint.has(tensor.name)) {
      if (!tensor.optional) problems.push_back(fmt::format("`{}` is missing", tensor.name));
      continue;
    }
    const auto& shape = checkpoint.shape(tensor.name);
    const auto owner = own.name_of_owner(tensor.name);
    if (shape == tensor.global_shape)
      load(tensor, checkpoint);
    else if (!owner.empty() && only_ranks_differ(shape, tensor.global_shape))
      of_other_ranks.insert(fmt::format("`{}` had values of each of {}, and this run has {}: they start anew", owner,
                                        counted(shape.front(), "rank"), tensor.global_shape.front()));
    else
      problems.push_back(fmt::format(
          "`{}` has shape [{}] instead of [{}]{}", tensor.name, fmt::join(shape, ", "),
          fmt::join(tensor.global_shape, ", "),
          owner.empty() ? ""
                        : fmt::format(" (options of `{}`, bucket_cap_mb or model.frozen have changed, or it is another "
                                      "build: set them as before)",
                                      owner)));
  }
  constexpr size_t listed = 3;
  if (problems.size() > listed) {
    const auto more = fmt::format("and {} more", problems.size() - listed);
    problems.resize(listed);
    problems.push_back(more);
  }
  if (!problems.empty())
    throw environment_error("the checkpoint does not fit the recipe's model and optimizer: {}", join(problems, "; "));
  engine.state_loaded();
  notes.insert(notes.end(), of_other_ranks.begin(), of_other_ranks.end());
  return notes;
}

}  // namespace runner
