#include "strategies/xla/program_writer.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runner/base/error.hpp"
#include "strategies/xla/lowering_tools.hpp"
#include "strategies/xla/update_text.hpp"

namespace runner::xla {

namespace {

/// Forward and backward of a model's blocks in a program, block by block, as the executor on LibTorch runs them
/// (executor/block_graphs.hpp).
class ModelPass {
 public:
  /// `parameters`: what the device has of each. All must outlive the pass.
  ModelPass(Trace& trace, Model& model, const Job& job, const ParallelPlan& plan, const Arrays& arrays,
            const std::vector<pjrt::Value>& parameters);

  /// Runs the blocks without gradients.
  pjrt::Value forward(const ForwardContext& context);
  /// Runs the blocks, and keeps what backward() needs. Returns the loss.
  pjrt::Value forward_for_backward(const ForwardContext& context);
  /// Calls `take` for each unit with this device's gradients of its whole trained parameters, before any sum over devices.
  /// `factor` is the gradient of the loss.
  using Take = std::function<void(const std::vector<const ParameterArray*>& parameters,
                                  const std::vector<pjrt::Value>& gradients)>;
  void backward(const pjrt::Value& factor, const Take& take);

 private:
  struct Graph {
    torch::Tensor input;   ///< a leaf, or the kept input of a block that is recomputed
    torch::Tensor output;  ///< undefined: the block has no graph
  };
  torch::Tensor run(size_t block, const torch::Tensor& x);
  /// Gathers the units that the block uses and that were not gathered yet, and puts their parameters into the model's slots.
  void gather(size_t block);
  /// Gathers, in backward, the block's units that are not kept after forward (Unit::keep_after_forward). A barrier keeps the compiler from
  /// using the first gather for both.
  void gather_again(size_t block);
  void recompute(size_t last);
  /// Differentiates a block. Returns the gradient of its input.
  torch::Tensor differentiate(size_t block, const torch::Tensor& gradient);
  void take_unit(size_t unit, const Take& take);

  Trace& trace_;
  Model& model_;
  const Job& job_;
  const ParallelPlan& plan_;
  const Arrays& arrays_;
  const std::vector<pjrt::Value>& parameters_;
  std::optional<ForwardContext> context_;
  std::vector<std::vector<const ParameterArray*>> units_;  ///< parameters of each
  std::vector<std::vector<size_t>> slots_of_;              ///< of each block, also those of earlier blocks
  std::vector<std::vector<size_t>> units_of_;              ///< of each block
  std::vector<size_t> first_use_;                          ///< of each unit: the first block with it
  std::vector<bool> gathered_, gathered_again_;            ///< each unit: in forward, in backward
  std::vector<Graph> graphs_;
  std::vector<torch::Tensor> gradients_;  ///< by slot
};

using pjrt::Value;

ModelPass::ModelPass(Trace& trace, Model& model, const Job& job, const ParallelPlan& plan, const Arrays& arrays,
                     const std::vector<Value>& parameters)
    : trace_(trace),
      model_(model),
      job_(job),
      plan_(plan),
      arrays_(arrays),
      parameters_(parameters),
      units_(plan.units.size()),
      first_use_(plan.units.size(), model.blocks.size()),
      gathered_(plan.units.size()),
      gathered_again_(plan.units.size()),
      graphs_(model.blocks.size()),
      gradients_(parameters.size()) {
  for (const auto& parameter : arrays.parameters) {
    units_[parameter.unit].push_back(&parameter);
    // A block may ask for the dtype of a parameter of a later one.
    const auto options = torch::dtype(scalar_type(arrays.compute)).device(torch::kMeta);
    const c10::impl::ExcludeDispatchKeyGuard unseen(c10::DispatchKey::Fake);
    model_.place(parameter.slot, torch::empty(parameter.shape, options));
  }
  size_t next = 0;
  for (size_t b = 0; b < model.spec.blocks.size(); ++b) {
    const auto& block = model.spec.blocks[b];
    auto& slots = slots_of_.emplace_back();
    for (size_t i = 0; i < block.parameters.size(); ++i) slots.push_back(next++);
    for (const auto& name : block.shared) slots.push_back(model.spec.slot(name));
    auto& units = units_of_.emplace_back();
    for (const size_t slot : slots) {
      const size_t unit = arrays.parameters[slot].unit;
      if (std::ranges::find(units, unit) == units.end()) units.push_back(unit);
      first_use_[unit] = std::min(first_use_[unit], b);
    }
  }
}

void ModelPass::gather(size_t block) {
  for (const size_t unit : units_of_[block]) {
    if (gathered_[unit]) continue;
    gathered_[unit] = true;
    std::vector<Value> parts;
    for (const auto* parameter : units_[unit]) parts.push_back(parameters_[parameter->slot]);
    const auto whole = gathered(trace_.text(), arrays_, units_[unit], parts);
    for (size_t i = 0; i < whole.size(); ++i) {
      const auto& parameter = *units_[unit][i];
      model_.place(parameter.slot, trace_.tensor(whole[i]).requires_grad_(parameter.trained));
    }
  }
}

void ModelPass::gather_again(size_t block) {
  auto& text = trace_.text();
  for (const size_t unit : units_of_[block]) {
    const bool kept = !units_[unit].front()->sharded || plan_.units[unit].keep_after_forward;
    if (kept || gathered_again_[unit]) continue;
    gathered_again_[unit] = true;
    std::vector<Value> parts;
    for (const auto* parameter : units_[unit]) parts.push_back(parameters_[parameter->slot]);
    const auto whole = gathered(text, arrays_, units_[unit], text.barrier(parts));
    for (size_t i = 0; i < whole.size(); ++i) trace_.write(model_.slots[units_[unit][i]->slot], whole[i]);
  }
}

torch::Tensor ModelPass::run(size_t block, const torch::Tensor& x) {
  try {
    return model_.blocks[block]->forward(x, *context_);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("block {}: {}", model_.spec.blocks[block].name, error.what()));
  }
}

Value ModelPass::forward(const ForwardContext& context) {
  const torch::NoGradGuard no_grad;
  context_ = context;
  torch::Tensor x;
  for (size_t b = 0; b < graphs_.size(); ++b) {
    gather(b);
    x = run(b, x);
  }
  return trace_.read(x);
}

Value ModelPass::forward_for_backward(const ForwardContext& context) {
  context_ = context;
  const auto& spec = model_.spec;
  const size_t first = spec.first_trained_block();
  torch::Tensor x;
  for (size_t b = 0; b < graphs_.size(); ++b) {
    gather(b);
    const bool again = is_recomputed(spec, job_.recompute, b);
    if (x.defined()) graphs_[b].input = x.detach().requires_grad_(!again && b >= first && spec.passes_gradient(b));
    const torch::AutoGradMode records(b >= first && !again);
    x = run(b, graphs_[b].input);
    if (b >= first && !again) graphs_[b].output = x;
    x = x.detach();
  }
  return trace_.read(x);
}

void ModelPass::recompute(size_t last) {
  size_t first = last;
  while (joins_recomputation(model_.spec, job_.recompute, first)) --first;
  auto x = trace_.tensor(trace_.text().barrier({trace_.read(graphs_[first].input)}).front());
  context_->recomputes = true;
  for (size_t b = first; b <= last; ++b) {
    gather_again(b);
    graphs_[b].input = x.requires_grad_(model_.spec.passes_gradient(b));
    const torch::AutoGradMode records(true);
    graphs_[b].output = run(b, graphs_[b].input);
    x = graphs_[b].output.detach();
  }
  context_->recomputes = false;
}

torch::Tensor ModelPass::differentiate(size_t block, const torch::Tensor& gradient) {
  auto [input, output] = std::exchange(graphs_[block], {});
  if (!output.requires_grad()) return {};
  std::vector<torch::Tensor> wanted;
  std::vector<size_t> slots;
  for (const size_t slot : slots_of_[block])
    if (arrays_.parameters[slot].trained) slots.push_back(slot), wanted.push_back(model_.slots[slot]);
  const bool passes = input.defined() && input.requires_grad();
  if (passes) wanted.push_back(input);
  auto found = torch::autograd::grad({output}, wanted, {gradient}, /*retain_graph=*/false, /*create_graph=*/false,
                                     /*allow_unused=*/true);
  for (size_t i = 0; i < slots.size(); ++i) {
    auto& sum = gradients_[slots[i]];
    if (found[i].defined()) sum = sum.defined() ? sum + found[i] : found[i];
  }
  return passes ? found.back() : torch::Tensor();
}

void ModelPass::take_unit(size_t unit, const Take& take) {
  std::vector<const ParameterArray*> trained;
  std::vector<Value> values;
  for (const auto* parameter : units_[unit]) {
    if (!parameter->trained) continue;
    auto& gradient = gradients_[parameter->slot];
    trained.push_back(parameter);
    values.push_back(gradient.defined() ? trace_.read(gradient)
                                        : trace_.text().splat(0, {arrays_.compute, parameter->shape}));
    gradient.reset();
  }
  if (!trained.empty()) take(trained, values);
}

void ModelPass::backward(const Value& factor, const Take& take) {
  const auto& spec = model_.spec;
  const size_t first = spec.first_trained_block();
  auto gradient = trace_.tensor(factor);
  for (size_t b = graphs_.size(); b-- > 0;) {
    if (b >= first) {
      gather_again(b);
      if (!graphs_[b].output.defined()) recompute(b);
      try {
        gradient = differentiate(b, gradient);
      } catch (const Error& error) {
        throw Error(error.code(), fmt::format("backward of block {}: {}", spec.blocks[b].name, error.what()));
      }
    }
    for (size_t unit = 0; unit < first_use_.size(); ++unit)
      if (first_use_[unit] == b) take_unit(unit, take);
  }
}

}  // namespace

std::string ProgramForm::name() const {
  if (validates()) return "validation";
  if (!differentiates) return "update";
  const std::string micro_batch = !reduces      ? accumulates ? "middle micro-batch" : "first micro-batch"
                                  : accumulates ? "last micro-batch"
                                                : "micro-batch";
  if (!updates) return micro_batch;
  return accumulates ? micro_batch + " and update" : "step";
}

std::string ProgramForm::key() const {
  std::string shapes;
  for (const auto& field : fields)
    shapes += fmt::format(" {}:{}", static_cast<int>(field.element), fmt::join(field.shape, "x"));
  return fmt::format("{}\n{}{}{}{}{}", name(), differentiates, updates, accumulates, reduces, shapes);
}

ProgramWriter::ProgramWriter(Model& model, const Job& job, const ParallelPlan& plan, const Arrays& arrays,
                             const OptimizerConfig& optimizer, const Clipping& clipping)
    : model_(model), job_(job), plan_(plan), arrays_(arrays), optimizer_(optimizer), clipping_(clipping) {}

namespace {

/// Values of a program, by slot.
struct Inputs {
  std::vector<Value> parameters, gradients;
  std::vector<std::vector<Value>> states;
  std::vector<Value> fields;
  Value loss_factor, numbers;
  StepNumbers step;
  size_t count = 0;
};

/// The arguments that the form needs.
Inputs declared(ModuleText& text, const ProgramForm& form, const Arrays& arrays, const OptimizerConfig& optimizer) {
  Inputs in;
  const auto argument = [&](const Type& type) {
    ++in.count;
    return text.argument(type);
  };
  const auto type_of = [&](size_t slot) { return arrays.parameters[slot].type(arrays.master); };
  const auto trained = arrays.trained();
  const size_t slots = arrays.parameters.size();
  in.gradients.resize(slots);
  in.states.resize(slots);
  for (size_t slot = 0; slot < slots; ++slot) in.parameters.push_back(argument(type_of(slot)));
  if (form.takes_states())
    for (const size_t slot : trained)
      for (int k = 0; k < arrays.states; ++k) in.states[slot].push_back(argument(type_of(slot)));
  if (form.takes_gradients())
    for (const size_t slot : trained) in.gradients[slot] = argument(type_of(slot));
  for (const auto& field : form.fields) in.fields.push_back(argument(field));
  const auto number = wide(arrays.master);
  if (form.differentiates) {
    in.loss_factor = argument({number, {}});
    in.step = {.dropout_key = argument({ElementType::int64, {}}), .first_row = argument({ElementType::int64, {}})};
  }
  if (form.updates)
    in.numbers = argument({number, {static_cast<int64_t>(update_number_count(optimizer) * arrays.groups.size() + 1)}});
  return in;
}

/// The squared norm of all gradients.
Value squared_norm(ModuleText& text, const Arrays& arrays, const std::vector<Value>& gradients) {
  const Type scalar{wide(arrays.master), {}};
  Value whole = text.splat(0, scalar), parts = whole;
  for (const size_t slot : arrays.trained()) {
    const auto values = text.convert(gradients[slot], scalar.element);
    Shape dims;
    for (int64_t d = 0; d < std::ssize(values.shape()); ++d) dims.push_back(d);
    const auto squares = text.reduce(Reduction::sum, text.multiply(values, values), dims);
    auto& sum = arrays.parameters[slot].sharded ? parts : whole;
    sum = text.add(sum, squares);
  }
  return text.add(whole, text.all_reduce(parts));
}

/// Divides gradients, so that their norm is at most the bound, and limits their values.
Value clipped(ModuleText& text, const Clipping& clipping, Value gradient, const Value& norm) {
  if (clipping.norm) {
    const auto bound = text.splat(*clipping.norm, norm.type), one = text.splat(1, norm.type);
    const auto exceeds = text.compare(Comparison::greater, norm, bound);
    const auto divisor = text.select(exceeds, text.divide(text.add(norm, 1e-6), bound), one);
    gradient = text.divide(gradient, text.expand(divisor, gradient.shape()));
  }
  if (clipping.value) {
    const Type type = gradient.type;
    gradient = text.binary(Binary::maximum, gradient, text.splat(-*clipping.value, type));
    gradient = text.binary(Binary::minimum, gradient, text.splat(*clipping.value, type));
  }
  return gradient;
}

using Output = ModuleText::Output;

/// Adds the new parameters and states to the results. With `finite`, they are the old ones unless it is true.
void add_update(ModuleText& text, const Arrays& arrays, const OptimizerConfig& optimizer, const Clipping& clipping,
                const Inputs& in, const std::vector<Value>& gradients, const Value& squares,
                const std::optional<Value>& finite, std::vector<Output>& outputs) {
  const auto per_group = static_cast<int64_t>(update_number_count(optimizer));
  const auto number = [&](int64_t i) { return text.reshape(text.slice(in.numbers, 0, i, i + 1), {}); };
  std::vector<std::vector<Value>> numbers(arrays.groups.size());
  for (int64_t i = 0; i < std::ssize(arrays.groups) * per_group; ++i)
    numbers[static_cast<size_t>(i / per_group)].push_back(number(i));
  const auto divisor = number(std::ssize(arrays.groups) * per_group);
  const auto norm = text.divide(text.unary(Unary::sqrt, squares), divisor);
  std::vector<Output> states;
  const auto add = [&](std::vector<Output>& list, const Value& made, const Value& old) {
    const auto kept = finite ? text.select(text.expand(*finite, old.shape()), made, old) : made;
    list.push_back({.value = kept, .donated = old});
  };
  for (const size_t slot : arrays.trained()) {
    const UpdatedArrays old{.parameter = in.parameters[slot], .states = in.states[slot]};
    auto gradient = text.convert(gradients[slot], norm.type.element);
    gradient = clipped(text, clipping, text.divide(gradient, text.expand(divisor, gradient.shape())), norm);
    const auto made = write_update(text, optimizer, old, gradient, numbers[arrays.parameters[slot].group]);
    add(outputs, made.parameter, old.parameter);
    for (size_t k = 0; k < made.states.size(); ++k) add(states, made.states[k], old.states[k]);
  }
  outputs.insert(outputs.end(), states.begin(), states.end());
}

}  // namespace

ProgramText ProgramWriter::write(const ProgramForm& form, const TokenLoss* loss) {
  ModuleText text(arrays_.replicas);
  Trace trace(text, constants_);
  const Inputs in = declared(text, form, arrays_, optimizer_);
  std::vector<Output> outputs;
  std::vector<Value> gradients = in.gradients;
  std::optional<Value> loss_sum;
  if (form.differentiates || form.validates()) {
    const Trace::Recording recording(trace);
    if (form.differentiates) trace.use(in.step);
    MicroBatch batch{.rows = form.fields.front().shape.front()};
    for (const auto& field : in.fields) batch.fields.push_back(trace.tensor(field));
    batch.host_fields.resize(batch.fields.size());
    ModelPass pass(trace, model_, job_, plan_, arrays_, in.parameters);
    const ForwardContext context{.batch = &batch, .training = form.differentiates, .token_loss = loss};
    if (form.validates()) {
      const auto sums = pass.forward(context);
      return {text.finish({{.value = text.reshape(sums, {sums.type.numel()})}}), in.count};
    }
    const auto own = pass.forward_for_backward(context);
    loss_sum = text.all_reduce(text.convert(own, in.loss_factor.type.element));
    pass.backward(text.convert(in.loss_factor, own.type.element), [&](const auto& parameters, const auto& values) {
      const bool sharded = parameters.front()->sharded;
      std::vector<Value> of_device = values;
      const auto add_earlier = [&] {
        for (size_t i = 0; form.accumulates && i < parameters.size(); ++i)
          of_device[i] = text.add(in.gradients[parameters[i]->slot], text.convert(of_device[i], arrays_.master));
      };
      if (!sharded) add_earlier();
      if (sharded || form.reduces) of_device = reduced(text, arrays_, parameters, of_device);
      if (sharded) add_earlier();
      for (size_t i = 0; i < parameters.size(); ++i)
        gradients[parameters[i]->slot] = text.convert(of_device[i], arrays_.master);
    });
  }
  std::optional<Value> squares;
  if (form.updates) {
    squares = squared_norm(text, arrays_, gradients);
    // Without a backward, the caller has clipped, and found that all is finite. The factor is NaN if an earlier micro-batch was not finite.
    std::optional<Value> finite;
    if (form.differentiates)
      for (const auto& value : {*squares, *loss_sum, in.loss_factor}) {
        const auto one = text.unary(Unary::is_finite, value);
        finite = finite ? text.binary(Binary::and_, *finite, one) : one;
      }
    static const Clipping none;
    const Clipping& clipping = form.differentiates ? clipping_ : none;
    add_update(text, arrays_, optimizer_, clipping, in, gradients, *squares, finite, outputs);
  } else {
    for (const size_t slot : arrays_.trained())
      outputs.push_back(
          {.value = gradients[slot], .donated = form.accumulates ? std::optional(in.gradients[slot]) : std::nullopt});
  }
  if (loss_sum) outputs.push_back({.value = *loss_sum});
  if (squares) outputs.push_back({.value = *squares});
  return {text.finish(outputs), in.count};
}

}  // namespace runner::xla
