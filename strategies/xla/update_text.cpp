#include "strategies/xla/update_text.hpp"

#include <cmath>

#include "runner/base/error.hpp"

namespace runner::xla {

using pjrt::Binary, pjrt::ModuleText, pjrt::Unary, pjrt::Value;

namespace {

using Kind = OptimizerKind;

/// Operations with numbers that are arguments.
class Arithmetic {
 public:
  Arithmetic(ModuleText& text, const std::vector<Value>& numbers) : text_(text), numbers_(numbers) {}

  Value times(const Value& a, size_t number) const {
    return text_.multiply(a, text_.expand(numbers_[number], a.shape()));
  }
  Value over(const Value& a, size_t number) const { return text_.divide(a, text_.expand(numbers_[number], a.shape())); }
  Value wide(const Value& a) const { return text_.convert(a, numbers_.front().type.element); }
  /// a + weight * (b - a).
  Value lerp(const Value& a, const Value& b, double weight) const {
    return text_.add(a, text_.multiply(text_.subtract(b, a), weight));
  }

 private:
  ModuleText& text_;
  const std::vector<Value>& numbers_;
};

/// Numbers: decay, correction of the second moment, rate of the step.
UpdatedArrays adam(ModuleText& text, const Arithmetic& with, const OptimizerConfig& config, const UpdatedArrays& old,
                   Value gradient) {
  const bool decoupled = config.kind == Kind::adamw;
  auto parameter = old.parameter;
  if (!decoupled) gradient = text.add(gradient, with.times(parameter, 0));
  const auto average = with.lerp(old.states[0], gradient, 1 - config.beta1);
  const auto squares = text.add(text.multiply(old.states[1], config.beta2),
                                text.multiply(text.multiply(gradient, gradient), 1 - config.beta2));
  if (decoupled) parameter = with.times(parameter, 0);
  const auto divisor = text.add(with.over(text.unary(Unary::sqrt, squares), 1), config.eps);
  parameter = text.subtract(parameter, with.times(text.divide(average, divisor), 2));
  return {parameter, {average, squares}};
}

/// Numbers: decay, rate.
UpdatedArrays sgd(ModuleText& text, const Arithmetic& with, const OptimizerConfig& config, const UpdatedArrays& old,
                  Value gradient) {
  gradient = text.add(gradient, with.times(old.parameter, 0));
  std::vector<Value> states;
  if (!old.states.empty()) {
    states.push_back(text.add(text.multiply(old.states[0], config.momentum), gradient));
    gradient = config.nesterov ? text.add(gradient, text.multiply(states[0], config.momentum)) : states[0];
  }
  return {text.subtract(old.parameter, with.times(gradient, 1)), states};
}

/// Numbers: decay, rate.
UpdatedArrays lion(ModuleText& text, const Arithmetic& with, const OptimizerConfig& config, const UpdatedArrays& old,
                   Value gradient) {
  const auto mixed = with.lerp(gradient, old.states[0], config.beta1);
  const auto direction = text.unary(Unary::sign, mixed);
  const auto parameter = text.subtract(with.times(old.parameter, 0), with.times(direction, 1));
  return {parameter, {with.lerp(gradient, old.states[0], config.beta2)}};
}

}  // namespace

size_t update_number_count(const OptimizerConfig& config) { return update_numbers(config, {}, 1, 1).size(); }

std::vector<double> update_numbers(const OptimizerConfig& config, const GroupSettings& group, double lr_factor,
                                   int64_t step) {
  const double lr = group.lr * lr_factor, decay = group.weight_decay;
  const auto correction = [&](double beta) { return 1 - std::pow(beta, static_cast<double>(step)); };
  switch (config.kind) {
    case Kind::adamw:
      return {1 - lr * decay, std::sqrt(correction(config.beta2)), lr / correction(config.beta1)};
    case Kind::adam:
      return {decay, std::sqrt(correction(config.beta2)), lr / correction(config.beta1)};
    case Kind::sgd:
      return {decay, lr};
    case Kind::lion:
      return {1 - lr * decay, lr};
    default:
      RUNNER_CHECK(false, "the update of {} cannot be compiled", config.spec().name);
  }
}

UpdatedArrays write_update(ModuleText& text, const OptimizerConfig& config, const UpdatedArrays& old,
                           const Value& gradient, const std::vector<Value>& numbers) {
  const Arithmetic with(text, numbers);
  UpdatedArrays wide{.parameter = with.wide(old.parameter), .states = {}};
  for (const auto& state : old.states) wide.states.push_back(with.wide(state));
  const auto update = config.kind == Kind::sgd ? sgd : config.kind == Kind::lion ? lion : adam;
  auto made = update(text, with, config, wide, with.wide(gradient));
  made.parameter = text.convert(made.parameter, old.parameter.type.element);
  for (size_t i = 0; i < made.states.size(); ++i)
    made.states[i] = text.convert(made.states[i], old.states[i].type.element);
  return made;
}

}  // namespace runner::xla
