#include "strategies/hivemind/reducer.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "runner/base/clock.hpp"
#include "runner/base/error.hpp"
#include "runner/base/foreign_json.hpp"
#include "runner/base/hash.hpp"
#include "runner/base/host_name.hpp"
#include "strategies/contract/state_tensor.hpp"
#include "strategies/hivemind/options.hpp"

namespace runner {

namespace {

using swarm::AverageResult, swarm::Collector, swarm::PeerId, swarm::State, swarm::Swarm;

/// A hash of what all peers must have alike: the tensors, the order in which gradients are sent, and the samples of an update.
uint64_t schema_of(const std::vector<StateTensor>& tensors, const std::vector<Extension::Bucket>& buckets,
                   int64_t target) {
  std::string text = fmt::format("{} samples\n", target);
  for (const auto& tensor : tensors) {
    text += fmt::format("{} {}", tensor.name, c10::toString(tensor.local.scalar_type()));
    for (const int64_t size : tensor.global_shape) text += fmt::format(" {}", size);
    text += '\n';
  }
  for (const auto& bucket : buckets) {
    text += fmt::format("bucket of {}\n", bucket.gradients.numel());
    for (const auto& item : bucket.items) text += fmt::format("{}: {}\n", item.offset, fmt::join(item.shape, " "));
  }
  return fnv1a(text);
}

size_t bytes_of_tensor(const torch::Tensor& tensor) { return static_cast<size_t>(tensor.nbytes()); }

std::vector<swarm::TensorSize> sizes_of(const std::vector<StateTensor>& tensors) {
  std::vector<swarm::TensorSize> sizes;
  for (const auto& tensor : tensors) sizes.push_back({.name = tensor.name, .bytes = bytes_of_tensor(tensor.local)});
  return sizes;
}

/// Optimizer steps, from State::scalars.
int64_t steps_in(const std::string& scalars) {
  const auto parsed = foreign_json(scalars);
  const auto found = parsed.is_object() ? parsed.find("steps") : parsed.end();
  if (found == parsed.end() || !found->is_number_integer() || *found < 0)
    throw environment_error(
        "hivemind: another peer sent a state with the scalars `{}`, where {{\"steps\": N}} is expected; start all "
        "peers with the same version of runner",
        scalars);
  return found->get<int64_t>();
}

class HivemindReducer : public Reducer {
 public:
  HivemindReducer(HivemindOptions options, std::function<void(const std::string&)> note)
      : options_(std::move(options)), note_(std::move(note)) {}

  void prepare(std::vector<Bucket> buckets, const torch::TensorOptions&, Host host) override {
    buckets_ = std::move(buckets);
    host_ = std::move(host);
    size_t values = 0;
    for (const auto& bucket : buckets_) values += static_cast<size_t>(bucket.gradients.numel());
    gradients_.resize(values);
    const auto state = exchanged_state();
    swarm::check_head(sizes_of(state));
    schema_ = schema_of(state, buckets_, options_.target_batch_size);
    swarm_ = std::make_unique<Swarm>(swarm_options(options_, schema_));
    collector_ = std::make_unique<Collector>(*swarm_, values, collector_options(options_));
    swarm_->serve_state_with([this] { return make_state(); });
  }

  void before_step() override {
    if (!joined_) join();
    if (std::exchange(averaged_, false) && !options_.use_local_updates) {
      collector_->skipped();
      say(fmt::format("update {} was not made, because the step was skipped: its gradients are dropped",
                      collector_->epoch() + 1));
    }
    if (collector_->needs_state()) load_state();
    tell_of_other_models();
    swarm_->serve_state();
    begun_ = steady_seconds();
  }

  void begin(size_t) override {}
  void finish(size_t bucket) override {
    if (bucket + 1 == buckets_.size()) collect();
  }
  bool makes_update() override { return due_; }
  std::optional<int64_t> update_number() const override { return collector_->epoch() + 1; }

  void after_update() override {
    averaged_ = false;
    const int64_t epoch = collector_->epoch();
    const AverageResult average = collector_->last_average();
    collector_->updated();
    if (collector_->epoch() == epoch) return;
    tell_of_update(epoch + 1, average);
    if (collector_->state_due()) average_state();
    swarm_->serve_state();
  }

  std::string name() const override { return "hivemind"; }
  std::vector<StateTensor> state() override {
    auto& sum = collector_->sum();
    const auto values = static_cast<int64_t>(sum.size());
    return {{.name = "reducer/collected_gradients",
             .global_shape = {1, values},
             .offset = 0,
             .local = torch::from_blob(sum.data(), {values}, torch::kFloat32),
             .write_end = values,
             .optional = true}};
  }
  nlohmann::json scalars() const override {
    return {{"epoch", collector_->epoch()}, {"weight", collector_->weight()}, {"samples", collector_->samples()}};
  }
  void load_scalars(const nlohmann::json& scalars) override {
    collector_->restore(scalars.at("epoch"), scalars.at("weight"), scalars.at("samples"));
    restored_ = true;
  }
  /// The other peers go on without this one.
  void teardown() override {
    collector_.reset();
    swarm_.reset();
  }

 private:
  void say(const std::string& text) const {
    if (note_) note_("hivemind: " + text);
  }

  /// The parameters and the optimizer state that peers have alike, without those of a base model, which each reads from its file.
  std::vector<StateTensor> exchanged_state() const {
    auto all = host_.trained_state();
    std::erase_if(all, [](const StateTensor& tensor) { return tensor.optional; });
    return all;
  }

  /// After a checkpoint is loaded, if there is one. That of another strategy has its steps only, each of which was an update.
  void join() {
    joined_ = true;
    if (!restored_ && host_.steps() > 0) collector_->restore(host_.steps(), 0, 0);
    collector_->loaded(collector_->epoch());
    swarm_->enter();
    const auto mine = exchanged_state();
    if (const auto state = swarm_->load_first_state(collector_->epoch(), sizes_of(mine))) take(*state, mine);
    swarm_->participate();
    const bool everywhere = options_.host == "0.0.0.0" || options_.host == "::";
    const auto at = options_.announce.empty()
                        ? swarm::to_text({everywhere ? host_name() : options_.host, swarm_->port()})
                        : options_.announce;
    say(fmt::format("peer {} listens; others join with strategy.initial_peers = [\"{}\"]{}", to_text(swarm_->id()), at,
                    secret_of(options_).empty() ? "" : " and the same secret in " + options_.key_variable));
  }

  void load_state() {
    const auto mine = exchanged_state();
    std::string why;
    if (const auto state = swarm_->load_state(collector_->epoch(), sizes_of(mine), why)) return take(*state, mine);
    if (!why.empty() && why != last_failure_) say("no state was loaded: " + why);
    last_failure_ = why;
  }

  void take(const State& state, const std::vector<StateTensor>& mine) {
    const int64_t steps = steps_in(state.scalars);  // before anything is written
    torch::NoGradGuard no_grad;
    for (size_t i = 0; i < mine.size(); ++i) {
      auto* bytes = const_cast<uint8_t*>(state.tensors[i].bytes.data());  // from_blob() has no form for constants
      mine[i].local.copy_(torch::from_blob(bytes, {mine[i].local.numel()}, mine[i].local.scalar_type()));
    }
    host_.state_written(steps);
    collector_->loaded(state.epoch);
    say(fmt::format("loaded the state of another peer, after update {}", state.epoch));
  }

  /// Once for each peer.
  void tell_of_other_models() {
    for (const auto& peer : swarm_->peers()) {
      if (peer.schema == schema_ || !told_.insert(peer.id).second) continue;
      const auto name = fmt::format("peer {} at {}", to_text(peer.id), to_text(peer.at));
      if (peer.target != options_.target_batch_size)
        say(fmt::format("{} has strategy.target_batch_size = {}, and this one {}; it is ignored", name, peer.target,
                        options_.target_batch_size));
      else
        say(name + " trains another model or optimizer; it is ignored");
    }
  }

  /// Each problem is reported once: that no group was found, and for each peer that it was left out.
  void tell_of_update(int64_t update, const AverageResult& average) {
    if (options_.verbose)
      say(fmt::format("update {}: {}", update,
                      options_.use_local_updates
                          ? "own gradients"
                          : "gradients of " + counted(static_cast<int64_t>(average.members), "peer")));
    if (options_.use_local_updates) return;
    if (average.members == 1 && swarm_->progress().peers > 1 && !std::exchange(told_alone_, true))
      say(fmt::format("update {} has this peer's gradients only: no other peer joined within {:g} s (matchmaking_time)",
                      update, options_.matchmaking_time));
    const double patience = options_.next_chunk_timeout.value_or(options_.matchmaking_time);
    for (const auto& id : average.excluded)
      if (told_.insert(id).second)
        say(fmt::format("update {}: peer {} was left out (its values did not arrive within {:g} s, next_chunk_timeout)",
                        update, to_text(id), patience));
    for (const auto& id : average.failed)
      if (told_.insert(id).second)
        say(fmt::format("update {}: peer {} did not average its part, which has this peer's own gradients", update,
                        to_text(id)));
  }

  State make_state() const {
    State state{.epoch = collector_->epoch(), .scalars = nlohmann::json{{"steps", host_.steps()}}.dump()};
    for (const auto& tensor : exchanged_state()) {
      const auto values = tensor.local.to(torch::kCPU).contiguous();
      const auto* first = static_cast<const uint8_t*>(values.data_ptr());
      state.tensors.push_back({.name = tensor.name, .bytes = {first, first + bytes_of_tensor(values)}});
    }
    return state;
  }

  /// Calls `work` with each bucket's gradients and the part of `gradients_` for them.
  template <typename Work>
  void for_each_bucket(float* values, Work&& work) {
    for (auto& bucket : buckets_) {
      const int64_t count = bucket.gradients.numel();
      work(bucket.gradients, torch::from_blob(values, {count}, torch::kFloat32));
      values += count;
    }
  }

  /// Gradients that are not finite stay as they are, and the step is that of any strategy.
  void collect() {
    torch::NoGradGuard no_grad;
    const double scale = host_.loss_scale();
    for_each_bucket(gradients_.data(), [&](torch::Tensor& gradients, torch::Tensor values) {
      values.copy_(gradients);
      if (scale != 1) values.div_(scale);
    });
    due_ = !std::ranges::all_of(gradients_, [](float value) { return std::isfinite(value); });
    if (due_) return;
    due_ = collector_->add(gradients_, static_cast<double>(host_.weight()), host_.rows(), steady_seconds() - begun_);
    if (!due_) return;
    averaged_ = true;
    std::ranges::copy(collector_->gradients(), gradients_.begin());
    for_each_bucket(gradients_.data(), [&](torch::Tensor& gradients, torch::Tensor values) {
      if (scale != 1) values.mul_(scale);
      gradients.copy_(values);
    });
  }

  bool is_averaged(const StateTensor& tensor) const {
    if (tensor.name.starts_with("param/")) return true;
    return std::ranges::any_of(options_.average_opt_statistics, [&](const std::string& kind) {
      return tensor.name.starts_with("optimizer/" + kind + "/");
    });
  }

  void average_state() {
    torch::NoGradGuard no_grad;
    auto tensors = exchanged_state();
    std::erase_if(tensors, [this](const StateTensor& tensor) { return !is_averaged(tensor); });
    int64_t count = 0;
    for (const auto& tensor : tensors) count += tensor.local.numel();
    std::vector<float> values(static_cast<size_t>(count));
    const auto for_each_part = [&](const auto& work) {
      float* first = values.data();
      for (const auto& tensor : tensors) {
        work(tensor.local, torch::from_blob(first, {tensor.local.numel()}, torch::kFloat32));
        first += tensor.local.numel();
      }
    };
    for_each_part([](const torch::Tensor& tensor, torch::Tensor part) { part.copy_(tensor); });
    if (!collector_->average_state(values)) return;
    for_each_part([](torch::Tensor tensor, const torch::Tensor& part) { tensor.copy_(part); });
    host_.state_written(host_.steps());
  }

  HivemindOptions options_;
  std::function<void(const std::string&)> note_;
  std::vector<Bucket> buckets_;
  Host host_;
  std::vector<float> gradients_;  ///< of all buckets, not multiplied by the loss scale
  std::unique_ptr<Swarm> swarm_;
  std::unique_ptr<Collector> collector_;
  double begun_ = 0;               ///< of the step
  std::string last_failure_ = "";  ///< to load a state
  uint64_t schema_ = 0;
  std::set<PeerId> told_;  ///< peers of which the user was told something
  bool joined_ = false, due_ = false, restored_ = false, told_alone_ = false;
  bool averaged_ = false;  ///< gradients of an update that is not made yet
};

}  // namespace

std::shared_ptr<Reducer> make_hivemind(const ReducerPlan& plan, const StrategySetup& setup) {
  return std::make_shared<HivemindReducer>(hivemind_options().read(plan.options), setup.note);
}

}  // namespace runner
