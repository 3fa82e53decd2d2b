#include "tests/lua/pretended_training.hpp"

#include <cmath>

#include "runner/base/metric_names.hpp"
#include "runner/config/config.hpp"
#include "runner/lua/error.hpp"
#include "runner/lua/known_metrics.hpp"

namespace runner::lua::testing {

using nlohmann::json;

namespace {

constexpr int epochs = 2, steps_of_epoch = 5;

const char* const any_tensor = R"lua(
local results = {norm = 1, sum = 1, mean = 1, min = 1, max = 1, is_finite = true,
                 histogram = {min = 1, max = 1, counts = {1}}}
local tensor, operators = {numel = 1, shape = {1}}, {}
function operators.__index(_, name)
  return function() return results[name] or tensor end
end
for _, name in ipairs {"__add", "__sub", "__mul", "__div", "__pow", "__unm"} do
  operators[name] = function() return tensor end
end
return setmetatable(tensor, operators)
)lua";

struct NoSnapshot : Snapshot {
  int64_t step() override { return 0; }
  void take() override {}
  void restore() override {}
};

}  // namespace

PretendedTraining::PretendedTraining(State& state, const Recipe& recipe)
    : recipe_(state.read_only(recipe_to_json(recipe))),
      tensor_(state.load_text(any_tensor, "tensor").reference),
      context_(make_context(*this)),
      lr_(recipe.optimizer.lr),
      has_tokenizer_(!recipe.data.has_token_ids()) {}

void PretendedTraining::run(HookSet& hooks) {
  auto call = [&](Moment moment) { hooks.call(moment, Value(context_)); };
  call(Moment::setup);
  call(Moment::on_train_start);
  for (epoch_ = 0; epoch_ < epochs && stopped_.empty(); ++epoch_) {
    call(Moment::on_train_epoch_start);
    for (int i = 1; i <= steps_of_epoch && stopped_.empty(); ++i) {
      batch(hooks);
      if (i % 2 != 0 && i != steps_of_epoch && stopped_.empty()) continue;
      call(Moment::on_validation_start);
      metrics_[metric::val_loss] = validations_ < 2 ? 2.0 - 0.5 * validations_ : 1.4 + 0.1 * validations_;
      ++validations_;
      call(Moment::on_validation_end);
    }
    call(Moment::on_train_epoch_end);
    call(Moment::on_save_checkpoint);
    call(Moment::on_load_checkpoint);
  }
  exception_ = "out of memory (as a test)";
  call(Moment::on_exception);
  exception_.clear();
  call(Moment::on_train_end);
  call(Moment::teardown);
}

void PretendedTraining::batch(HookSet& hooks) {
  for (auto moment : {Moment::on_train_batch_start, Moment::on_before_backward, Moment::on_after_backward,
                      Moment::on_before_optimizer_step})
    hooks.call(moment, Value(context_));
  ++step_;
  metrics_[metric::loss] = loss();
  hooks.call(Moment::on_train_batch_end, Value(context_));
}

std::optional<int64_t> PretendedTraining::max_steps() { return int64_t{epochs} * steps_of_epoch; }
double PretendedTraining::loss() { return step_ == 0 ? std::nan("") : 4.0 / static_cast<double>(step_); }

void PretendedTraining::log(const std::string& name, double value, const std::string&) {
  check_metric_name(name);
  metrics_[name] = value;
}

std::vector<std::string> PretendedTraining::parameter_names() {
  return {"embedding.tokens.weight", "blocks.0.attention.out.weight", "head.weight"};
}

std::shared_ptr<Snapshot> PretendedTraining::snapshot() { return std::make_shared<NoSnapshot>(); }

json PretendedTraining::generate(const Generation& wanted) {
  if (!wanted.text) return wanted.tokens;
  if (!has_tokenizer_) throw ScriptMistake(no_tokenizer);
  return *wanted.text;
}

}  // namespace runner::lua::testing
