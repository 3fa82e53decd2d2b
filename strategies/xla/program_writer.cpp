#include "strategies/xla/program_writer.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "strategies/xla/lowering_tools.hpp"
#include "strategies/xla/model_pass.hpp"
#include "strategies/xla/sharing.hpp"
#include "strategies/xla/update_text.hpp"

namespace runner::xla {

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
