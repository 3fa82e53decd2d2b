#include "runner/lua/fake_training.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "runner/base/text.hpp"
#include "runner/config/config.hpp"
#include "runner/lua/fake_matrix.hpp"
#include "runner/lua/known_metrics.hpp"

namespace runner::lua {

using nlohmann::json;

namespace {

using Numbers = std::vector<double>;
constexpr int epochs = 2, steps_of_epoch = 5;

const Class& fake_tensor_class();

Numbers& self(const Arguments& arguments) { return arguments.as<Numbers>(0, fake_tensor_class()); }
Value handle(Numbers numbers) { return Value(Object::make(fake_tensor_class(), std::move(numbers))); }

/// An operator between two tensors of equal shape, or between a tensor and a number.
Function between(double (*combine)(double, double)) {
  return [combine](const Arguments& arguments) {
    auto left = arguments.value(1), right = arguments.value(2);
    Numbers result =
        left.object ? arguments.as<Numbers>(1, fake_tensor_class()) : arguments.as<Numbers>(2, fake_tensor_class());
    for (size_t i = 0; i < result.size(); ++i) {
      double a = left.object ? arguments.as<Numbers>(1, fake_tensor_class()).at(i) : arguments.number(1);
      double b = right.object ? arguments.as<Numbers>(2, fake_tensor_class()).at(i) : arguments.number(2);
      result[i] = combine(a, b);
    }
    return handle(result);
  };
}

json histogram(const Numbers& numbers, int64_t bins) {
  if (bins < 1 || bins > 10000) throw ScriptMistake("histogram: argument 1 must be a number of bins, 1 to 10000");
  auto [low, high] = std::minmax_element(numbers.begin(), numbers.end());
  std::vector<int64_t> counts(static_cast<size_t>(bins));
  double width = (*high - *low) / static_cast<double>(bins);
  for (double number : numbers) {
    auto bin = width > 0 ? static_cast<int64_t>((number - *low) / width) : 0;
    ++counts[static_cast<size_t>(std::min(bin, bins - 1))];
  }
  return {{"min", *low}, {"max", *high}, {"counts", counts}};
}

const Class& fake_tensor_class() {
  static const Class kind = [] {
    Class made("tensor");
    made.property("numel", [](Object& object) { return Value(object.as<Numbers>().size()); });
    made.property("shape", [](Object& object) { return Value(json{object.as<Numbers>().size()}); });
    made.method("norm", [](const Arguments& arguments) {
      double sum = 0;
      for (double number : self(arguments)) sum += number * number;
      return Value(std::sqrt(sum));
    });
    made.method("mean", [](const Arguments& arguments) {
      const auto& numbers = self(arguments);
      return Value(std::accumulate(numbers.begin(), numbers.end(), 0.0) / static_cast<double>(numbers.size()));
    });
    made.method("sum", [](const Arguments& arguments) {
      const auto& numbers = self(arguments);
      return Value(std::accumulate(numbers.begin(), numbers.end(), 0.0));
    });
    made.method("min", [](const Arguments& arguments) {
      return Value(*std::min_element(self(arguments).begin(), self(arguments).end()));
    });
    made.method("max", [](const Arguments& arguments) {
      return Value(*std::max_element(self(arguments).begin(), self(arguments).end()));
    });
    made.method("add_", [](const Arguments& arguments) {
      auto& numbers = self(arguments);
      for (size_t i = 0; i < numbers.size(); ++i)
        numbers[i] +=
            arguments.value(1).object ? arguments.as<Numbers>(1, fake_tensor_class()).at(i) : arguments.number(1);
      return arguments.value(0);
    });
    made.method("lerp_", [](const Arguments& arguments) {
      auto& numbers = self(arguments);
      const auto& to = arguments.as<Numbers>(1, fake_tensor_class());
      for (size_t i = 0; i < numbers.size(); ++i) numbers[i] += arguments.number(2) * (to.at(i) - numbers[i]);
      return arguments.value(0);
    });
    made.method("histogram",
                [](const Arguments& arguments) { return Value(histogram(self(arguments), arguments.integer(1, 10))); });
    made.method("clone", [](const Arguments& arguments) { return handle(self(arguments)); });
    made.method("scale_", [](const Arguments& arguments) {
      double factor = arguments.number(1);
      for (double& number : self(arguments)) number *= factor;
      return arguments.value(0);
    });
    made.method("copy_", [](const Arguments& arguments) {
      self(arguments) = arguments.as<Numbers>(1, fake_tensor_class());
      return arguments.value(0);
    });
    made.operation("__add", between([](double a, double b) { return a + b; }));
    made.operation("__sub", between([](double a, double b) { return a - b; }));
    made.operation("__mul", between([](double a, double b) { return a * b; }));
    made.operation("__div", between([](double a, double b) { return a / b; }));
    return made;
  }();
  return kind;
}

}  // namespace

FakeTraining::FakeTraining(State& state, const Recipe& recipe, std::function<void(const std::string&)> said)
    : said_(std::move(said)),
      recipe_(state.read_only(recipe_to_json(recipe))),
      context_(make_context(*this)),
      loss_(std::nan("")),
      schedule_lr_(recipe.optimizer.lr),
      lr_(recipe.optimizer.lr),
      has_tokenizer_(recipe.data.format != "bin") {
  double seed = 0.1;
  for (const char* name : {"embedding.tokens.weight", "blocks.0.attention.out.weight", "head.weight"}) {
    parameters_[name] = Object::make(fake_tensor_class(), Numbers{seed, -2 * seed, 3 * seed, seed});
    first_gradients_[name] = {seed / 10, 0, -seed / 5, seed};
    gradients_[name] = Object::make(fake_tensor_class(), Numbers(first_gradients_[name]));
    seed *= 2;
  }
}

FakeTraining::~FakeTraining() { context_->invalidate("the training is over"); }

void FakeTraining::moment(HookSet& hooks, Moment moment) {
  if (!hooks.wants(moment)) return;
  said_(moment_names()[static_cast<size_t>(moment)]);
  hooks.call(moment, Value(context_));
  lr_ = std::exchange(next_lr_, std::nullopt).value_or(lr_);
}

void FakeTraining::make_gradients() {
  for (const auto& [name, gradient] : gradients_) {
    auto& numbers = gradient->as<Numbers>();
    numbers = first_gradients_.at(name);
    for (double& number : numbers) number *= 1 + 0.1 * static_cast<double>(step_);
  }
}

void FakeTraining::update() {
  if (std::exchange(skip_, false)) return;
  double rate = schedule_lr_ > 0 ? 0.1 * lr_ / schedule_lr_ : 0.1;
  for (const auto& [name, parameter] : parameters_) {
    auto& numbers = parameter->as<Numbers>();
    const auto& gradient = gradients_.at(name)->as<Numbers>();
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] -= rate * gradient.at(i);
  }
}

void FakeTraining::batch(HookSet& hooks) {
  lr_ = schedule_lr_;
  moment(hooks, Moment::on_train_batch_start);
  make_gradients();
  make_loss(hooks);
  moment(hooks, Moment::on_before_backward);
  moment(hooks, Moment::on_after_backward);
  moment(hooks, Moment::on_before_optimizer_step);
  update();
  ++step_;
  loss_ = 4.0 / static_cast<double>(step_);
  metrics_["loss"] = loss_;
  moment(hooks, Moment::on_train_batch_end);
}

void FakeTraining::make_loss(HookSet& hooks) {
  if (!hooks.has_loss()) return;
  said_("loss");
  auto logits = make_fake_matrix(3, 4, {1, 0, -1, 0.5, 0, 0, 0, 0, -2, 3, 0.5, 1});
  auto losses = hooks.loss(Value(context_), logits, make_fake_matrix(3, 1, {0, 3, 1}, /*whole=*/true));
  said_("  losses " + json(fake_numbers(*losses)).dump());
}

void FakeTraining::checkpoint(HookSet& hooks) {
  std::map<std::string, Numbers> kept;
  auto keep = [&](const std::string& name, const std::shared_ptr<Object>& object) {
    if (&object->kind() != &fake_tensor_class())
      throw ScriptMistake(fmt::format("a {} is not plain data", object->kind().name()));
    for (const auto* handles : {&parameters_, &gradients_})
      for (const auto& [parameter, handle] : *handles)
        if (handle == object) throw ScriptMistake("a handle is valid only in the call that got it; keep a clone()");
    kept[name] = object->as<Numbers>();
    return json{{"numel", kept[name].size()}};
  };
  auto restore = [&](const std::string& name, const json&) { return handle(kept.at(name)).object; };
  if (hooks.wants(Moment::on_save_checkpoint)) said_("on_save_checkpoint");
  auto saved = hooks.save(Value(context_), keep);
  said_("state in the checkpoint: " + saved.dump());
  if (hooks.wants(Moment::on_load_checkpoint)) said_("on_load_checkpoint");
  hooks.load(json::parse(saved.dump()), Value(context_), restore);
}

void FakeTraining::validation(HookSet& hooks) {
  moment(hooks, Moment::on_validation_start);
  // Falls twice and then rises, as if the model overfits.
  constexpr double falling[] = {2.0, 1.5};
  metrics_["val_loss"] = validations_ < 2 ? falling[validations_] : 1.4 + 0.1 * validations_;
  ++validations_;
  moment(hooks, Moment::on_validation_end);
}

void FakeTraining::run(HookSet& hooks) {
  moment(hooks, Moment::setup);
  moment(hooks, Moment::on_train_start);
  for (epoch_ = 0; epoch_ < epochs && stopped_.empty(); ++epoch_) {
    moment(hooks, Moment::on_train_epoch_start);
    for (int i = 1; i <= steps_of_epoch && stopped_.empty(); ++i) {
      batch(hooks);
      if (i % 2 == 0 || i == steps_of_epoch || !stopped_.empty()) validation(hooks);
    }
    moment(hooks, Moment::on_train_epoch_end);
    checkpoint(hooks);
  }
  exception_ = "out of memory (as a test)";
  moment(hooks, Moment::on_exception);
  exception_.clear();
  moment(hooks, Moment::on_train_end);
  moment(hooks, Moment::teardown);
}

void FakeTraining::log(const std::string& name, double value, const std::string& sync) {
  check_metric_name(name);
  bool remarked = metrics_.contains(name) && !std::isfinite(metrics_[name].get<double>());
  metrics_[name] = value;
  if (std::isnan(value)) value = std::abs(value);  // otherwise some are printed as -nan
  said_(fmt::format("  log {} = {}{}", name, value, sync == "none" ? "" : " (" + sync + ")"));
  if (!std::isfinite(value) && !remarked) said_(fmt::format("  note: {} is not finite: a division by zero?", name));
}
std::string FakeTraining::artifact(const std::string& name) {
  said_("  artifact " + name);
  return "/dev/null";
}
void FakeTraining::append_artifact(const std::string& name, const std::string& text) {
  said_(fmt::format("  write {} to {}", json(escape_invalid_utf8(text)).dump(), name));
}

namespace {

struct FakeSnapshot : Snapshot {
  using Tensors = std::map<std::string, std::shared_ptr<Object>>;
  const std::function<void(const std::string&)>& said;
  Tensors& tensors;
  const int64_t& now;
  int64_t taken = 0;
  std::map<std::string, Numbers> values;

  FakeSnapshot(const std::function<void(const std::string&)>& said, Tensors& tensors, const int64_t& now)
      : said(said), tensors(tensors), now(now) {}
  int64_t step() override { return taken; }
  void take() override {
    taken = now;
    for (const auto& [name, tensor] : tensors) values[name] = tensor->as<Numbers>();
    said("  snapshot");
  }
  void restore() override {
    for (const auto& [name, tensor] : tensors) tensor->as<Numbers>() = values[name];
    said(fmt::format("  restore the snapshot of step {}", taken));
  }
};

}  // namespace

std::shared_ptr<Snapshot> FakeTraining::snapshot() {
  auto made = std::make_shared<FakeSnapshot>(said_, parameters_, step_);
  made->take();
  return made;
}

json FakeTraining::generate(const Generation& wanted) {
  if (wanted.text && !has_tokenizer_) throw ScriptMistake(no_tokenizer);
  said_(fmt::format("  generate {} tokens", wanted.max_new_tokens));
  if (wanted.text) return *wanted.text + " and so on";
  auto tokens = wanted.tokens;
  tokens.resize(tokens.size() + static_cast<size_t>(std::min<int64_t>(wanted.max_new_tokens, 1000)));
  return tokens;
}

std::optional<int64_t> FakeTraining::max_steps() { return int64_t{epochs} * steps_of_epoch; }

void FakeTraining::stop(const std::string& reason) {
  stopped_ = reason;
  said_("  stop: " + reason);
}
void FakeTraining::checkpoint() { said_("  checkpoint"); }
void FakeTraining::set_lr(double lr) {
  next_lr_ = lr;
  said_(fmt::format("  set_lr {}", lr));
}
void FakeTraining::skip_step() {
  skip_ = true;
  said_("  skip_step");
}

std::vector<std::string> FakeTraining::parameter_names() {
  std::vector<std::string> names;
  for (const auto& [name, object] : parameters_) names.push_back(name);
  return names;
}
Value FakeTraining::parameter(const std::string& name) { return Value(parameters_.at(name)); }
Value FakeTraining::gradient(const std::string& name) { return Value(gradients_.at(name)); }

}  // namespace runner::lua
