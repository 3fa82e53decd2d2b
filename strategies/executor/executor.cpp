// Executes the program of a plan on LibTorch (program.hpp): each instruction calls one of the parts below.
//
// A unit's parameters are views of one flat buffer (shard_store.hpp). Its storage is empty except while the unit is in use. A
// gather moves new memory into the same StorageImpl, so the tensors in the model's slots, and the tensors that autograd saved,
// become valid again. Each rank stores 1/shards of the flat buffer, of its gradients (reduction.hpp) and of its optimizer state.
// The buffer of a resident unit is never emptied: its shards are gathered after each update.
//
// With offload the update runs in host memory. Optimizer state, masters and the shards that gathers send may be in a file on
// NVMe. On a device without NVMe, the update runs in a separate thread (background_update.hpp): a step ends when its update has
// started, the next forward waits for each unit before it uses it, and all other readers of the training state wait for all
// units. Otherwise the update ends within the step: the file is streamed in one fixed order, and on CPU the same cores would
// compute forward and update.
// Source: Zhao et al., PyTorch FSDP (VLDB 2023); Rajbhandari et al., ZeRO (SC 2020), ZeRO-Infinity (SC 2021); Ren et al.,
// ZeRO-Offload (ATC 2021).
#include "strategies/executor/executor.hpp"

#include <map>
#include <ranges>

#include "runner/base/error.hpp"
#include "strategies/executor/background_update.hpp"
#include "strategies/executor/block_graphs.hpp"
#include "strategies/executor/instruction_spans.hpp"
#include "strategies/executor/reduction.hpp"
#include "strategies/executor/shard_store.hpp"
#include "strategies/executor/stage_transfers.hpp"
#include "strategies/program/program.hpp"

namespace runner {

namespace {

class Executor : public Strategy {
 public:
  Executor(StrategySetup setup, ParallelPlan plan, ShardEvents events)
      : Strategy(std::move(setup)),
        plan_(std::move(plan)),
        events_(with_spans(std::move(events), spans_)),
        forward_program_(forward_program(*job_.model, plan_)),
        graphs_(
            model_, job_, world_.device, conversion_.get(),
            [this](size_t slot, torch::Tensor gradient) { reduction_->add(slot, std::move(gradient)); },
            [this](size_t slot, const torch::Tensor& ids, const torch::Tensor& rows) {
              reduction_->add_rows(slot, ids, rows);
            }) {
    optimizer_.set_copied_elements(plan_.update_elements);
    if (!spans_) return;
    std::vector<std::string> blocks;
    for (const auto& block : model_.spec.blocks) blocks.push_back(block.name);
    spans_->set_names(std::move(blocks), names_of_units(model_.spec, plan_));
  }

  void module_to_device() override {
    mesh_ = bind(plan_.mesh, world_);
    if (model_.spec.stage) transfers_.emplace(plan_.mesh, plan_.pipeline.virtual_stages, world_);
    if (model_.spec.division.divides()) use_tensor_axis(mesh_.groups.at(Axis::tensor));
    if (const auto& context = model_.spec.context; context.divides()) {
      auto bound = bind_context(job_.mesh, context.form, world_);
      use_context_axis(std::move(bound.group), std::move(bound.ring));
    }
    store_.emplace(plan_, mesh_, model_.spec, world_.device, optimizer_.config().state_names(),
                   fmt::format("rank {}", world_.rank));
    if (const auto& swap = store_->optimizer_swap()) optimizer_.swap_to(*swap);
    std::vector<FlatLayout> layouts;
    for (const bool frozen : {false, true})
      for (size_t u = 0; u < store_->size(); ++u)
        if (plan_.units[u].frozen == frozen) make_parameters(u);
    make_buffers();
    source_ = {};  // frees the files of initial values
    for (size_t u = 0; u < store_->size(); ++u) layouts.push_back((*store_)[u].layout);
    if (optimizer_.needs_matrix() && plan_.shards() > 1) share_matrices();
    reduction_.emplace(model_.spec, plan_, mesh_, layouts, world_.device, additions_.reducer);
    if (optimizer_.config().adascale) reduction_->measure_own();
    spread(false);
    additions_.each([this](Extension& addition) { prepare(addition); });
    if (plan_.updates_beside()) make_background_update();
  }

  void state_loaded() override {
    settle();
    spread(false);
  }

  /// Frees everything first, and then throws the exception of the last update or of the reducer, if one failed.
  void teardown() override {
    std::exception_ptr error;
    try {
      settle();
      additions_.each([](Extension& addition) { addition.teardown(); });
    } catch (...) {
      error = std::current_exception();
    }
    update_.reset();
    reduction_.reset();
    store_.reset();
    if (error) std::rethrow_exception(error);
  }

 protected:
  torch::Tensor forward(const ForwardContext& context) override {
    graphs_.begin(/*micro_batch=*/0, context, /*loss_factor=*/1);
    for (const auto& instruction : forward_program_) execute(instruction);
    if (transfers_) transfers_->finish();
    auto output = has_loss() ? graphs_.take_output() : torch::Tensor();
    return transfers_ && context.logits_of ? logits_of_last_stage(std::move(output)) : output;
  }

  torch::Tensor accumulate_gradients(const std::vector<TrainedBatch>& micro_batches, double loss_factor) override {
    auto loss = torch::zeros({}, torch::dtype(torch::kFloat64).device(world_.device));
    // Without a pipeline one micro-batch ends before the next one begins, and they share their memory.
    const auto place = [&](uint32_t m) { return model_.spec.stage ? m : 0; };
    std::vector<bool> begun(micro_batches.size()), in_backward(micro_batches.size());
    const auto& [program, ends] = step_of(micro_batches.size());
    for (size_t i = 0; program[i].op != Op::norm; ++i) {
      const auto& instruction = program[i];
      const uint32_t m = instruction.micro_batch;
      if (!begun[m])
        graphs_.begin(place(m), micro_batches[m].context, loss_factor * plan_.gradient_factor);
      else
        graphs_.select(place(m));
      begun[m] = true;
      const bool backward = passes_back(instruction.op) || instruction.op == Op::recompute;
      if (backward && !in_backward[m]) begin_backward();
      in_backward[m] = in_backward[m] || backward;
      execute(instruction);
      if (instruction.op == Op::forward && model_.spec.is_last(instruction.block))
        loss.add_(graphs_.take_output().to(torch::kFloat64));
      if (i == ends[m] && observer_) observer_->after_backward();
    }
    if (transfers_) transfers_->finish();
    return loss;
  }

  std::vector<torch::Tensor> finish_gradients() override {
    reduction_->finish();
    std::vector<torch::Tensor> gradients;
    for (size_t i = 0; i < trained_; ++i)
      gradients.push_back(reduction_->sum(places_[i].unit, places_[i].begin, places_[i].length));
    return gradients;
  }

  OwnSquares take_own_squares() override { return reduction_->take_own_squares(); }
  bool counts_in_norm(size_t local) const override {
    if (replicas_differ()) return true;
    return mesh_.coordinate(Axis::replicate) == 0 &&
           (!plan_.units[places_[local].unit].replicated || mesh_.mesh.data_rank(world_.rank) == 0);
  }

  void update(std::vector<torch::Tensor> gradients, double lr_factor, double gradient_divisor) override {
    if (!update_) {
      // If it changes host memory, copies of the old values to the device have ended: kernels have used them, and
      // finish_gradients() has waited for the gradients of these kernels.
      optimizer_.step(gradients, lr_factor, gradient_divisor);
      return;
    }
    update_->start(std::move(gradients), lr_factor, gradient_divisor);
    for (size_t u : trained_units(plan_)) to_spread_[u] = plan_.units[u].resident;
  }

  void settle() override {
    if (!update_) return;
    const SpanScope span(spans_, {Phase::update, "wait for the update"});
    update_->wait_all();
  }

  /// A skipped step changes no values. The values of a background update are gathered when a block uses them.
  void after_update(bool updated) override {
    reduction_->drop();
    if (updated && !update_) spread(true);
  }

  bool saves_whole() const override { return plan_.saves_whole; }

  /// If replicas differ, rank 0's is the model.
  std::pair<int, int> writer(size_t local) const override {
    if (replicas_differ()) return {0, world_.rank == 0 ? 1 : 0};
    if (plan_.units[places_[local].unit].replicated)
      return {mesh_.mesh.data_rank(world_.rank), mesh_.mesh.data_ranks()};
    return {mesh_.coordinate(Axis::replicate), plan_.copies()};
  }

 private:
  /// The range of a local parameter in its unit's shard.
  struct Place {
    size_t unit;
    int64_t begin, length;
  };

  /// Registers this rank's shard of the unit with the optimizer, and puts the unsharded parameters into the model's slots.
  void make_parameters(size_t u) {
    Shard& shard = (*store_)[u];
    if (plan_.units[u].quantized)
      store_->quantize(u, source_);  // it has no masters
    else
      make_locals(u);
    const auto specs = model_.spec.parameters();
    for (const auto& item : shard.layout.items)
      graphs_.place_parameter(item.slot, shard.full.narrow(0, item.offset, item.numel).view(specs[item.slot]->shape));
    if (!shard.gathered) empty_storage(shard.full);
  }

  void make_locals(size_t u) {
    const Shard& shard = (*store_)[u];
    const int64_t begin = shard.first, end = begin + shard.layout.shard;
    for (const auto& item : shard.layout.items) {
      const int64_t from = std::max(begin, item.offset), to = std::min(end, item.offset + item.numel);
      if (from < to) make_local(u, item, from - begin, to - from);
    }
  }

  /// Initializes elements [begin, begin + count) of the shard, which belong to `item`, and registers them with the optimizer.
  void make_local(size_t u, const FlatLayout::Item& item, int64_t begin, int64_t count) {
    Shard& shard = (*store_)[u];
    int64_t offset = shard.first + begin - item.offset;
    auto part = [&](const torch::Tensor& tensor) { return tensor.defined() ? tensor.narrow(0, begin, count) : tensor; };
    auto value = part(shard.local), copy = part(shard.written);
    if (value.defined()) {
      fill(item.slot, offset, value);
    } else {
      for (int64_t done = 0; done < count; done += ShardStore::piece) {
        auto values = torch::empty({std::min(ShardStore::piece, count - done)}, torch::kFloat32);
        fill(item.slot, offset + done, values);
        store_->write_master(u, begin + done, values);
      }
    }
    if (plan_.units[u].frozen)
      add_frozen(item.slot, offset, shard.begin + begin, count, value);
    else if (optimizer_.swap())
      add_swapped(item.slot, offset, shard.begin + begin, count, value, copy);
    else
      add_local(item.slot, offset, value, copy);
    places_.push_back({u, begin, count});
  }

  /// All sharded parameters in the same order on all ranks.
  void share_matrices() {
    const auto specs = model_.spec.parameters();
    std::vector<SharedParameter> shared;
    for (size_t u : trained_units(plan_)) {
      if (!is_sharded(plan_, plan_.units[u])) continue;
      for (const auto& item : (*store_)[u].layout.items) {
        const auto& spec = *specs[item.slot];
        SharedParameter one{
            .shape = spec.shape, .of_layer = spec.of_layer, .optimizer = group_of(spec, optimizer_.config()).optimizer};
        for (size_t i = 0; i < trained_; ++i)
          if (locals_[i].slot == item.slot) one.index = i;
        shared.push_back(std::move(one));
      }
    }
    auto& group = mesh_.group(Axis::shard);
    /// Calls collective(list) with the tensor on the device of the group, and copies the result back if `takes`.
    const auto on_device = [this](torch::Tensor& values, bool takes, const auto& collective) {
      std::vector<at::Tensor> list{values.to(world_.device)};
      collective(list)->wait();
      if (takes && !list[0].is_same(values)) values.copy_(list[0]);
    };
    const int rank = mesh_.coordinate(Axis::shard);
    optimizer_.share(
        std::move(shared),
        {.rank = rank,
         .size = plan_.shards(),
         .sums = plan_.master == DType::float64 ? torch::kFloat64 : torch::kFloat32,
         .sum =
             [=, &group](torch::Tensor& values) {
               on_device(values, true, [&](auto& list) { return group.allreduce(list, {c10d::ReduceOp::SUM}); });
             },
         .sum_at =
             [=, &group](torch::Tensor& values, int root) {
               on_device(values, rank == root, [&](auto& list) {
                 return group.reduce(list, {.reduceOp = c10d::ReduceOp::SUM, .rootRank = root});
               });
             },
         .send_from =
             [=, &group](torch::Tensor& values, int root) {
               on_device(values, rank != root, [&](auto& list) { return group.broadcast(list, {.rootRank = root}); });
             }});
  }

  void prepare(Extension& addition) {
    const auto parameters = model_.spec.parameters();
    std::vector<Extension::Bucket> buckets;
    for (size_t u : trained_units(plan_) | std::views::reverse) {
      auto& bucket = buckets.emplace_back();
      const auto places = plan_.places(plan_.units[u]);
      if (places.sent == ShardPlaces::Sent::shared || places.master == ShardPlaces::Master::whole)
        bucket.parameters = (*store_)[u].full;
      if (additions_.reducer) bucket.gradients = reduction_->gradients(u), bucket.shard = reduction_->shard(u);
      for (const auto& item : (*store_)[u].layout.items)
        buckets.back().items.push_back({.offset = item.offset, .shape = parameters[item.slot]->shape});
    }
    auto host = host_of_additions();
    host.to_momentum = [this](size_t bucket, torch::Tensor& values) { to_momentum(bucket, values); };
    host.shapes = shapes_in_checkpoints(parameters);
    addition.prepare(std::move(buckets), torch::dtype(torch::kFloat32).device(world_.device), std::move(host));
  }

  void to_momentum(size_t bucket, torch::Tensor& values) {
    const auto trained = trained_units(plan_);
    const size_t unit = trained[trained.size() - 1 - bucket];
    const double beta = optimizer_.config().beta1;
    for (size_t i = 0; i < trained_; ++i)
      if (places_[i].unit == unit)
        values.narrow(0, places_[i].begin, places_[i].length).mul_(1 - beta).add_(optimizer_.state(i).front(), beta);
  }

  void make_background_update() {
    std::vector<BackgroundUpdate::Unit> units(store_->size());
    for (size_t u : trained_units(plan_)) {
      const Shard& shard = (*store_)[u];
      if (shard.places.sent == ShardPlaces::Sent::master) continue;
      units[u].values = shard.written.defined() ? shard.written : shard.local;
      units[u].on_device = plan_.units[u].resident ? store_->own_part(shard) : shard.sent;
    }
    for (size_t i = trained_; i-- > 0;) {
      units[places_[i].unit].first = i;
      ++units[places_[i].unit].count;
    }
    update_ = std::make_unique<BackgroundUpdate>(optimizer_, world_.device, std::move(units),
                                                 units_in_forward(model_.spec, plan_),
                                                 fmt::format("the update of rank {}", world_.rank), events_);
  }

  // ---- the program
  torch::Tensor logits_of_last_stage(torch::Tensor logits) {
    if (!logits.defined())
      logits = torch::empty({1, model_.spec.vocab_size}, torch::dtype(torch::kFloat32).device(world_.device));
    std::vector<at::Tensor> list{logits};
    mesh_.group(Axis::pipeline).broadcast(list, {.rootRank = mesh_.mesh.size(Axis::pipeline) - 1})->wait();
    return logits;
  }

  int stage_of(size_t block) const { return model_.spec.stage->stage_of[block]; }

  /// Forward has waited for all units. This frees the update's gradients before there are new ones.
  void begin_backward() {
    if (observer_) observer_->before_backward();
    settle();
  }

  /// The program of a step, and the last instruction of each micro-batch before the norm.
  struct Step {
    Program program;
    std::vector<size_t> ends;
  };
  const Step& step_of(size_t micro_batches) {
    auto found = steps_.find(micro_batches);
    if (found != steps_.end()) return found->second;
    Step step{.program = step_program(*job_.model, plan_, job_.recompute, static_cast<int64_t>(micro_batches)),
              .ends = std::vector<size_t>(micro_batches)};
    if (events_.programmed) events_.programmed(step.program);
    for (size_t i = 0; step.program[i].op != Op::norm; ++i) step.ends[step.program[i].micro_batch] = i;
    return steps_.emplace(micro_batches, std::move(step)).first->second;
  }

  void execute(const Instruction& instruction) {
    const SpanScope span(spans_, span_of(instruction));
    const size_t u = instruction.unit, block = instruction.block;
    const auto micro_batch = static_cast<int>(instruction.micro_batch);
    switch (instruction.op) {
      case Op::update:
        return update_->wait(u);
      case Op::gather_updated:
        return gather_updated(u);
      case Op::start_read:
        return store_->start_read(u);
      case Op::start_gather:
        return store_->start_gather(u);
      case Op::wait_gather:
        return store_->gather(u);
      case Op::release:
        return store_->release(u);
      case Op::forward:
        if (events_.forward_begins) events_.forward_begins(block);
        return graphs_.forward(block);
      case Op::recompute:
        return graphs_.recompute(block);
      case Op::backward:
      case Op::backward_input:
        return graphs_.backward(block);
      case Op::backward_weight:
        return graphs_.backward_weight(block);
      case Op::start_reduce:
        return reduction_->start_reduce(u, instruction.axis);
      case Op::wait_reduce:
        return reduction_->wait_reduce(u, instruction.axis);
      case Op::receive_input:
        return graphs_.put_input(transfers_->receive_input(stage_of(block), micro_batch, graphs_.empty_stream()));
      case Op::send_output:
        return transfers_->send_output(stage_of(block), micro_batch, graphs_.take_output_of_stage());
      case Op::receive_gradient:
        return graphs_.put_gradient(transfers_->receive_gradient(stage_of(block), micro_batch, graphs_.empty_stream()));
      case Op::send_gradient:
        return transfers_->send_gradient(stage_of(block), micro_batch, graphs_.take_gradient());
      case Op::norm:  // what follows is done by Strategy::step()
        return;
    }
  }

  // ---- parameters
  void spread(bool updated) {
    to_spread_.assign(store_->size(), false);
    store_->spread(updated);
  }

  /// Gathers a resident unit if it was updated since the last gather. All ranks call this in the same order of units.
  void gather_updated(size_t u) {
    if (!to_spread_[u]) return;
    to_spread_[u] = false;
    store_->gather_resident(u);
  }

  ParallelPlan plan_;
  ShardEvents events_;
  Program forward_program_;
  std::map<size_t, Step> steps_;  ///< by the number of micro-batches
  BoundMesh mesh_;
  BlockGraphs graphs_;
  std::optional<StageTransfers> transfers_;  ///< set if this rank has a stage of a pipeline
  std::optional<ShardStore> store_;
  std::optional<GradientReduction> reduction_;
  std::vector<Place> places_;
  // ---- if the update runs in the background
  std::vector<bool> to_spread_;               ///< resident units that must be gathered because of an update
  std::unique_ptr<BackgroundUpdate> update_;  ///< last member, because its thread uses the others until it ends
};

}  // namespace

std::unique_ptr<Strategy> make_executor(StrategySetup setup, ParallelPlan plan, ShardEvents events) {
  if (plan.loss_scale) setup.loss_scale = *plan.loss_scale;
  RUNNER_CHECK(plan.own_reducer == (setup.reducer != nullptr));
  return std::make_unique<Executor>(std::move(setup), std::move(plan), std::move(events));
}

}  // namespace runner
