// Replicas of the parameters and gradients in flat buckets. Autograd fills them bucket by bucket. Each full bucket is
// passed to the script while backward continues, in the same order on every rank (Li et al., PyTorch Distributed, VLDB
// 2020). In a sharded bucket, the optimizer updates only this rank's part of the flat buffer. Parts are gathered after
// each update (Rajbhandari et al., ZeRO, SC 2020, stage 1).
#include "runner/train/strategies/strategy.hpp"

#include <torch/csrc/autograd/utils/lambda_post_hook.h>

#include <cmath>

#include "runner/base/error.hpp"
#include "runner/selection/script_strategy.hpp"
#include "runner/train/strategies/script.hpp"
#include "strategies/contract/dtype.hpp"

namespace runner {

namespace {

/// Factor of the base class's norm if replicas differ. The norm is then defined as the root mean square of the
/// replicas' norms. The base class sums squares over ranks, so that it detects NaN on any rank. Its norm and its
/// clipping threshold are therefore larger by this factor.
double norm_excess(const StrategyScript& script, const World& world) {
  return script.replicas_differ() ? std::sqrt(world.size) : 1;
}

class ScriptStrategy : public Strategy {
 public:
  ScriptStrategy(StrategySetup setup, std::unique_ptr<StrategyScript> script)
      : Strategy(std::move(setup)), script_(std::move(script)) {}

  bool replicas_differ() const { return script_->replicas_differ(); }

  StepResult step(const StepInput& input) override {
    auto result = Strategy::step(input);
    result.grad_norm /= norm_excess(*script_, world_);
    return result;
  }

  void module_to_device() override {
    auto planned = script_buckets(job_, [&](const ParameterSpec& parameter) { return script_->shards(parameter); });
    std::vector<BucketTensors> tensors;
    sharded_.assign(model_.slots.size(), false);
    for (auto& bucket : planned) {
      tensors.push_back(place(bucket));
      buckets_.push_back({std::move(bucket), {}, 0});
    }
    script_->begin(std::move(tensors), torch::dtype(torch::kFloat32).device(world_.device),
                   {[this] { return optimizer_steps(); }, [this] { return loss_scale(); }});
    add_locals();
    watch_gradients();
  }

  void state_loaded() override { gather_shards(); }

  void teardown() override {
    accumulators_.clear();
    script_->wait_for_works();
  }

 protected:
  void begin_micro_batch(bool last) override {
    last_ = last;
    next_ = 0;
    for (auto& bucket : buckets_) bucket.missing = bucket.plan.layout.items.size();
  }

  /// Fills the gradients of parameters that this step did not use with zeros.
  void end_micro_batch(bool last) override {
    if (!last) return;
    torch::NoGradGuard no_grad;
    for (; next_ < buckets_.size(); ++next_) {
      Bucket& bucket = buckets_[next_];
      for (size_t i = 0; i < bucket.arrived.size(); ++i)
        if (!bucket.arrived[i]) gradient_of(next_, i).zero_();
      reduce(next_);
    }
  }

  std::vector<torch::Tensor> finish_gradients() override {
    torch::NoGradGuard no_grad;
    for (size_t b = 0; b < buckets_.size(); ++b) script_->finish(b);
    std::vector<torch::Tensor> gradients;
    for (const auto& place : places_) {
      const auto& tensors = script_->buckets()[place.bucket];
      gradients.push_back(
          (tensors.shard.defined() ? tensors.shard : tensors.gradients).narrow(0, place.begin, place.length));
    }
    return gradients;
  }

  bool counts_in_norm() const override { return world_.rank == 0; }
  bool counts_in_norm(size_t local) const override {
    return script_->replicas_differ() || sharded_[locals_[local].slot] || counts_in_norm();
  }

  void after_update(bool updated) override {
    for (auto& bucket : buckets_) bucket.arrived.assign(bucket.arrived.size(), false);
    if (!updated) return;
    gather_shards();
    script_->after_update();
  }

  /// Ranks write equal parts of replicated elements. If replicas differ, rank 0's replica is the model, and the others
  /// are in own_state().
  std::pair<int64_t, int64_t> write_range(const LocalParameter& parameter) const override {
    int64_t n = parameter.numel;
    if (sharded_[parameter.slot]) return {0, n};
    if (script_->replicas_differ()) return {0, world_.rank == 0 ? n : 0};
    return {n * world_.rank / world_.size, n * (world_.rank + 1) / world_.size};
  }

  std::vector<StateTensor> own_state() override {
    auto list = script_->state();
    if (!script_->replicas_differ() || world_.rank == 0) return list;
    auto specs = model_.spec.parameters();
    auto names = optimizer_.config().state_names();
    auto add = [&](const std::string& name, const torch::Tensor& values) {
      list.push_back(replica_piece(world_, name, values));
    };
    for (size_t i = 0; i < locals_.size(); ++i) {
      const auto& name = specs[locals_[i].slot]->name;
      add("param/" + name, locals_[i].value);
      auto tensors = optimizer_.state(i);
      for (size_t k = 0; k < names.size(); ++k) add("optimizer/" + names[k] + "/" + name, tensors[k]);
    }
    return list;
  }
  nlohmann::json own_scalars() const override { return script_->scalars(); }
  void load_own_scalars(const nlohmann::json& scalars) override { script_->load_scalars(scalars); }

 private:
  struct Bucket {
    ScriptBucket plan;
    std::vector<bool> arrived;  ///< per layout item, since the last update
    size_t missing = 0;         ///< items without a gradient in this micro-batch so far
  };
  /// Position of a local parameter's gradient in the bucket's shard, or in its gradients if it is not sharded.
  struct Place {
    size_t bucket;
    int64_t begin, length;
  };

  /// Allocates a bucket and moves its parameters into it.
  BucketTensors place(const ScriptBucket& bucket) {
    auto options = torch::dtype(scalar_type(job_.precision.parameter)).device(world_.device);
    BucketTensors tensors{bucket.layout.total,
                          torch::zeros({bucket.layout.total}, options),
                          torch::zeros({bucket.layout.total}, options),
                          {}};
    if (bucket.sharded) tensors.shard = torch::zeros({bucket.layout.shard}, options);
    auto specs = model_.spec.parameters();
    for (const auto& item : bucket.layout.items) {
      auto value = tensors.parameters.narrow(0, item.offset, item.numel);
      fill(item.slot, 0, value);
      model_.slots[item.slot] = value.view(specs[item.slot]->shape).variable_data().requires_grad_(true);
      sharded_[item.slot] = bucket.sharded;
    }
    return tensors;
  }

  /// Adds them in the order of the model's parameters, so that sums of squares are in the same order as in other
  /// strategies.
  void add_locals() {
    struct Local {
      size_t slot;
      int64_t offset;
      torch::Tensor value;
      Place place;
    };
    std::vector<Local> locals;
    for (size_t b = 0; b < buckets_.size(); ++b) {
      const auto& plan = buckets_[b].plan;
      int64_t first = plan.sharded ? world_.rank * plan.layout.shard : 0;
      int64_t last = first + (plan.sharded ? plan.layout.shard : plan.layout.total);
      for (const auto& item : plan.layout.items) {
        int64_t from = std::max(first, item.offset), to = std::min(last, item.offset + item.numel);
        if (from >= to) continue;
        locals.push_back({item.slot,
                          from - item.offset,
                          script_->buckets()[b].parameters.narrow(0, from, to - from),
                          {b, from - first, to - from}});
      }
    }
    std::stable_sort(locals.begin(), locals.end(), [](const auto& a, const auto& b) { return a.slot < b.slot; });
    for (auto& local : locals) {
      add_local(local.slot, local.offset, local.value);
      places_.push_back(local.place);
    }
  }

  void watch_gradients() {
    for (size_t b = 0; b < buckets_.size(); ++b) {
      const auto& items = buckets_[b].plan.layout.items;
      buckets_[b].arrived.assign(items.size(), false);
      for (size_t i = 0; i < items.size(); ++i) {
        auto node = torch::autograd::impl::grad_accumulator(model_.slots[items[i].slot]);
        node->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
            [this, b, i](const torch::autograd::variable_list& outputs, const torch::autograd::variable_list&) {
              gradient_arrived(b, i);
              return outputs;
            }));
        accumulators_.push_back(std::move(node));
      }
    }
  }

  torch::Tensor gradient_of(size_t bucket, size_t item) const {
    const auto& place = buckets_[bucket].plan.layout.items[item];
    return script_->buckets()[bucket].gradients.narrow(0, place.offset, place.numel);
  }

  void gradient_arrived(size_t b, size_t i) {
    torch::NoGradGuard no_grad;
    Bucket& bucket = buckets_[b];
    auto& slot = model_.slots[bucket.plan.layout.items[i].slot];
    auto gradient = slot.grad().reshape({-1});
    if (bucket.arrived[i])
      gradient_of(b, i).add_(gradient);
    else
      gradient_of(b, i).copy_(gradient);
    bucket.arrived[i] = true;
    slot.mutable_grad().reset();
    --bucket.missing;
    for (; last_ && next_ < buckets_.size() && buckets_[next_].missing == 0; ++next_) reduce(next_);
  }

  void reduce(size_t bucket) {
    if (script_->has("reduce")) script_->reduce(bucket);
  }

  void gather_shards() {
    if (world_.size == 1) return;
    torch::NoGradGuard no_grad;
    std::vector<CommHook::Work> gathers;
    for (const auto& tensors : script_->buckets()) {
      if (!tensors.shard.defined()) continue;
      int64_t part = tensors.shard.numel();
      auto whole = tensors.parameters, mine = whole.narrow(0, world_.rank * part, part);
      gathers.push_back(world_.group->_allgather_base(whole, mine));
    }
    for (auto& gather : gathers) gather->wait();
  }

  std::unique_ptr<StrategyScript> script_;
  std::vector<Bucket> buckets_;
  std::vector<bool> sharded_;  ///< by slot
  std::vector<Place> places_;  ///< by local parameter
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators_;
  bool last_ = true;
  size_t next_ = 0;  ///< the bucket that is reduced next
};

/// A Lua comm hook for the Reducer of ddp.
class ScriptCommHook : public CommHook {
 public:
  ScriptCommHook(const Recipe& recipe, World& world, nlohmann::json options)
      : world_(world), script_(StrategyScript::Kind::comm_hook, recipe, world, std::move(options)) {}

  void prepare(const std::vector<int64_t>& bucket_elements, const torch::TensorOptions&, Host host) override {
    std::vector<BucketTensors> buckets;
    for (int64_t elements : bucket_elements) buckets.push_back({elements, {}, {}, {}});
    script_.begin(std::move(buckets), torch::dtype(torch::kFloat32).device(world_.device), std::move(host));
  }
  Work begin(size_t bucket, const torch::Tensor& gradients) override {
    script_.buckets()[bucket].gradients = gradients;
    return script_.reduce(bucket);
  }
  void finish(size_t bucket) override { script_.finish(bucket); }
  std::vector<StateTensor> state() override { return script_.state(); }
  nlohmann::json scalars() const override { return script_.scalars(); }
  void load_scalars(const nlohmann::json& scalars) override { script_.load_scalars(scalars); }

 private:
  World& world_;
  StrategyScript script_;
};

}  // namespace

std::unique_ptr<Strategy> make_script_strategy(const Recipe& recipe, StrategySetup setup) {
  auto script =
      std::make_unique<StrategyScript>(StrategyScript::Kind::strategy, recipe, setup.world, setup.job.options);
  if (setup.clip_norm) *setup.clip_norm *= norm_excess(*script, setup.world);
  return std::make_unique<ScriptStrategy>(std::move(setup), std::move(script));
}

bool replicas_differ(const Strategy& strategy) {
  const auto* script = dynamic_cast<const ScriptStrategy*>(&strategy);
  return script && script->replicas_differ();
}

std::string replica_piece_name(const std::string& name) { return "replica/" + name; }

StateTensor replica_piece(const World& world, const std::string& name, const torch::Tensor& values) {
  int64_t n = values.numel();
  return {.name = replica_piece_name(name),
          .global_shape = {world.size - 1, n},
          .offset = (world.rank - 1) * n,
          .local = values,
          .write_end = n,
          .optional = true};  // missing in checkpoints of other strategies: replicas then start equal
}

std::shared_ptr<CommHook> make_script_comm_hook(const Recipe& recipe, World& world) {
  if (!has_script_hook(recipe.strategy.options)) return nullptr;
  std::vector<Diagnostic> diagnostics;
  auto options = script_hook_options(recipe, diagnostics);
  if (!diagnostics.empty()) throw RecipeError(diagnostics);
  return std::make_shared<ScriptCommHook>(recipe, world, std::move(options));
}

}  // namespace runner
