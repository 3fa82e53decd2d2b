#include "strategies/executor/block_graphs.hpp"

#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/engine.h>

#include <limits>
#include <utility>

#include "runner/base/error.hpp"
#include "strategies/contract/dtype.hpp"
#include "strategies/contract/row_gradients.hpp"
#include "strategies/contract/tensor_axis.hpp"

namespace runner {

using torch::autograd::Node, torch::autograd::variable_list;

namespace {

/// Enables autocast during a block's forward. The cache of cast weights is cleared at the end of the scope.
class Autocast {
 public:
  Autocast(bool on, at::DeviceType device, at::ScalarType dtype) : on_(on), device_(device) {
    if (!on_) return;
    at::autocast::increment_nesting();
    at::autocast::set_autocast_dtype(device_, dtype);
    at::autocast::set_autocast_enabled(device_, true);
  }
  ~Autocast() {
    if (!on_) return;
    at::autocast::set_autocast_enabled(device_, false);
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  bool on_;
  at::DeviceType device_;
};

}  // namespace

/// The end of a parameter's graph. It has the highest priority, so that a gradient is passed on before others are computed.
class BlockGraphs::Sink : public Node, public RowGradients {
 public:
  Sink(BlockGraphs& owner, size_t slot) : Node(std::numeric_limits<uint64_t>::max()), owner_(owner), slot_(slot) {}
  variable_list apply(variable_list&& gradients) override {
    if (gradients[0].defined()) owner_.gradient_arrived(slot_, std::move(gradients[0]));
    return {};
  }
  void add_rows(const torch::Tensor& ids, const torch::Tensor& rows) override { owner_.rows_arrived(slot_, ids, rows); }

 private:
  BlockGraphs& owner_;
  size_t slot_;
};

/// The first node of a block's backward. It passes the gradient of the block's output on without keeping it. Autograd would keep
/// a gradient that it is given as an argument until the end of the backward.
class BlockGraphs::Feed : public Node {
 public:
  explicit Feed(torch::Tensor gradient) : gradient_(std::move(gradient)) {}
  variable_list apply(variable_list&&) override { return {std::move(gradient_)}; }

 private:
  torch::Tensor gradient_;
};

/// Puts what a block computes with instead of its parameters into the model's slots, until the end of the scope.
class BlockGraphs::Converted {
 public:
  Converted(BlockGraphs& owner, size_t block) : model_(owner.model_) {
    if (!owner.conversion_) return;
    const auto parameters = model_.spec.parameters();
    std::vector<torch::Tensor> results;
    for (const size_t slot : owner.converted_[block]) {
      const auto& value = model_.slots[slot];
      const auto dtype = owner.autocast_ ? owner.compute_ : value.scalar_type();
      results.push_back(convert(*owner.conversion_, value.to(dtype), parameters[slot]->name));
      values_.emplace_back(slot, value);
    }
    for (size_t i = 0; i < results.size(); ++i) model_.place(values_[i].first, results[i]);
  }
  ~Converted() {
    for (const auto& [slot, value] : values_) model_.place(slot, value);
  }
  Converted(const Converted&) = delete;
  Converted& operator=(const Converted&) = delete;

 private:
  Model& model_;
  std::vector<std::pair<size_t, torch::Tensor>> values_;
};

BlockGraphs::BlockGraphs(Model& model, const Job& job, torch::Device device, Conversion* conversion, Take take,
                         TakeRows take_rows)
    : model_(model),
      device_(device),
      conversion_(conversion),
      autocast_(job.precision.autocast() && !device.is_meta()),
      compute_(scalar_type(job.precision.compute)),
      recompute_(job.recompute),
      splits_(model.spec.stage && splits_backward(job.pipeline.schedule)),
      first_trained_(model.spec.first_trained_block()),
      take_(std::move(take)),
      take_rows_(std::move(take_rows)) {
  if (job.host_checkpoints) checkpoints_pinned_ = job.accelerator.pinned;
  for (size_t b = 0; conversion && b < model.spec.blocks.size(); ++b)
    converted_.push_back(converted_slots(model.spec, b));
  for (size_t b = 0; b < model.spec.blocks.size(); ++b)
    for (const auto& parameter : model.spec.blocks[b].parameters) {
      owner_.push_back(b);
      trainable_.push_back(parameter.trainable);
    }
}

void BlockGraphs::place_parameter(size_t slot, const torch::Tensor& value) {
  auto parameter = value.variable_data();  // with a separate version counter
  model_.place(slot, parameter);
  if (!trainable_[slot]) return;
  auto sink = std::make_shared<Sink>(*this, slot);
  sink->add_input_metadata(parameter);
  torch::autograd::impl::set_gradient_edge(parameter, {std::move(sink), 0});
}

void BlockGraphs::begin(size_t micro_batch, const ForwardContext& context, double loss_factor) {
  pass_ = &passes_[micro_batch];
  pass_->context = context;
  pass_->loss_factor = loss_factor;
  pass_->x.reset();
  pass_->dy.reset();
  pass_->graphs.assign(model_.blocks.size(), {});
  pass_->waiting.assign(model_.slots.size(), {});
  if (pass_->host_checkpoints)
    pass_->host_checkpoints->clear();
  else if (checkpoints_pinned_)
    pass_->host_checkpoints.emplace(device_, *checkpoints_pinned_);
  kept_.clear();
}

torch::Tensor BlockGraphs::run(size_t block, const torch::Tensor& x) {
  auto& later = pass_->context.weight_gradients;
  later = splits_ && torch::GradMode::is_enabled() ? c10::make_intrusive<WeightGradients>() : nullptr;
  pass_->graphs[block].later = later;
  const Converted converted(*this, block);
  Autocast autocast(autocast_, device_.type(), compute_);
  return model_.blocks[block]->forward(x, pass_->context);
}

void BlockGraphs::forward(size_t block) {
  if (!torch::GradMode::is_enabled()) {
    pass_->x = run(block, std::exchange(pass_->x, {}));
    return;
  }
  Graph& graph = pass_->graphs[block];
  auto input = std::exchange(pass_->x, {});
  if (block < first_trained_) {
    torch::NoGradGuard no_grad;
    pass_->x = run(block, input);
    return;
  }
  const bool again = is_recomputed(model_.spec, recompute_, block);
  const bool keeps = !joins_recomputation(model_.spec, recompute_, block);
  graph.input_on_host = again && keeps && pass_->host_checkpoints;
  if (graph.input_on_host)
    pass_->host_checkpoints->push(input);
  else if (keeps && input.defined())
    graph.input = input.detach().requires_grad_(model_.spec.passes_gradient(block));
  torch::AutoGradMode records(!again);
  pass_->x = run(block, again ? input : graph.input);
  if (!again) graph.output = torch::autograd::impl::gradient_edge(pass_->x);
  pass_->x = pass_->x.detach();
}

torch::Tensor BlockGraphs::empty_stream() const {
  const auto& context = pass_->context;
  const int64_t rows = context.batch->rows, length = context.batch->fields.front().size(1), width = model_.spec.dim;
  const auto options = torch::dtype(compute_).device(device_);
  if (context.tensor_axis && model_.spec.division.divides_rows())
    return torch::empty({context.tensor_axis->stream_rows(rows * length), width}, options);
  return torch::empty({rows, length, width}, options);
}

torch::Tensor BlockGraphs::take_output() {
  RUNNER_CHECK(pass_->x.defined());
  if (torch::GradMode::is_enabled()) pass_->dy = torch::full({}, pass_->loss_factor, pass_->x.options());
  return std::exchange(pass_->x, {});
}

void BlockGraphs::recompute(size_t block) {
  Graph& graph = pass_->graphs[block];
  if (graph.input_on_host)
    graph.input = pass_->host_checkpoints->pop().requires_grad_(model_.spec.passes_gradient(block));
  else if (!graph.input.defined())  // the output of the block before
    graph.input = std::exchange(pass_->x, {}).requires_grad_(true);
  const bool next_follows = joins_recomputation(model_.spec, recompute_, block + 1);
  pass_->context.output_unused = !next_follows;
  pass_->context.recomputes = true;
  const auto output = run(block, graph.input);
  pass_->context.output_unused = pass_->context.recomputes = false;
  graph.output = torch::autograd::impl::gradient_edge(output);
  if (next_follows) pass_->x = output.detach();
}

/// Differentiates the graph that ends at `output`, and frees it.
void BlockGraphs::run_backward(torch::autograd::Edge output, torch::Tensor gradient) {
  auto feed = std::make_shared<Feed>(std::move(gradient));
  const auto unused = torch::empty({}, device_);  // autograd wants an argument for the first node
  feed->add_input_metadata(unused);
  feed->add_next_edge(std::move(output));
  torch::autograd::edge_list roots;
  roots.emplace_back(std::move(feed), 0);
  torch::autograd::Engine::get_default_engine().execute(roots, {unused}, /*keep_graph=*/false, /*create_graph=*/false,
                                                        /*accumulate_grad=*/true);
}

void BlockGraphs::backward(size_t block) {
  Graph& graph = pass_->graphs[block];
  in_backward_ = block;
  run_backward(std::exchange(graph.output, {}), std::exchange(pass_->dy, {}));
  if (graph.input.defined()) pass_->dy = std::move(graph.input.mutable_grad());
  graph.input.reset();
  pass_on_kept();
  pass_on_what_waits();
}

void BlockGraphs::backward_weight(size_t block) {
  in_backward_ = block;
  const auto later = std::exchange(pass_->graphs[block].later, {});
  RUNNER_CHECK(later, "the backward of block {} has one part", block);
  while (!later->empty()) {
    later->compute_first();
    pass_on_kept();
  }
}

namespace {

/// Adds in place if nothing else uses the memory of `a`.
torch::Tensor sum_of(torch::Tensor a, const torch::Tensor& b) {
  const bool alone = a.use_count() == 1 && a.storage().use_count() == 1;
  return alone ? a.add_(b) : a + b;
}

}  // namespace

void BlockGraphs::gradient_arrived(size_t slot, torch::Tensor gradient) {
  torch::NoGradGuard no_grad;
  auto& waiting = pass_->waiting[slot];
  if (waiting.defined()) gradient = sum_of(std::exchange(waiting, {}), gradient);
  if (owner_[slot] == in_backward_)
    pass_on(slot, std::move(gradient));
  else
    waiting = std::move(gradient);
}

/// Where the gradient is kept, waits or is added to what waits, it needs the parameter's shape. Rows that were added to what waits one by
/// one would have other bits than the sum of both parts, which a pipeline with a copy of the tied parameter computes.
void BlockGraphs::rows_arrived(size_t slot, const torch::Tensor& ids, const torch::Tensor& rows) {
  torch::NoGradGuard no_grad;
  const bool whole = pass_->waiting[slot].defined() || owner_[slot] != in_backward_ ||
                     is_recomputed(model_.spec, recompute_, in_backward_);
  if (!whole) return take_rows_(slot, ids, rows);
  gradient_arrived(slot, torch::zeros(model_.slots[slot].sizes(), rows.options()).index_add_(0, ids, rows));
}

void BlockGraphs::pass_on(size_t slot, torch::Tensor gradient) {
  if (is_recomputed(model_.spec, recompute_, in_backward_))
    kept_.emplace_back(slot, std::move(gradient));
  else
    take_(slot, std::move(gradient));
}

void BlockGraphs::pass_on_kept() {
  for (auto& [slot, gradient] : kept_) take_(slot, std::exchange(gradient, {}));
  kept_.clear();
}

/// Only if the owner of a tied parameter computed no gradient for it.
void BlockGraphs::pass_on_what_waits() {
  for (size_t slot = 0; slot < pass_->waiting.size(); ++slot)
    if (pass_->waiting[slot].defined() && owner_[slot] == in_backward_)
      take_(slot, std::exchange(pass_->waiting[slot], {}));
}

}  // namespace runner
