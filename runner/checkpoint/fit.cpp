#include "runner/checkpoint/fit.hpp"

#include <algorithm>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/checkpoint/adapter_files.hpp"
#include "runner/config/config.hpp"
#include "runner/config/model_families.hpp"
#include "runner/models/models.hpp"
#include "strategies/optimizer/optimizer_spec.hpp"

namespace runner {

namespace {

using nlohmann::json;

/// The kinds of state tensors that an optimizer keeps for each parameter.
std::vector<std::string> state_kinds(const json& settings) {
  const auto* optimizer = find_optimizer(settings.at("optimizer.name"));
  return optimizer ? optimizer->state_names(settings.value("optimizer.momentum", 0.0)) : std::vector<std::string>();
}

json settings_in(const Checkpoint& checkpoint) { return checkpoint.state().value("settings", json::object()); }

std::string difference(const std::string& key, const json& now, const json& before) {
  auto text = [](const json& value) { return value.is_null() ? "unset" : toml_value(value); };
  return fmt::format("{} = {}, the checkpoint's is {}", key, text(now), text(before));
}

/// Differences of the settings that begin with `section`, in the order of their names. A derived value is omitted if
/// the value that it is derived from differs too.
std::vector<std::string> differences(const json& before, const json& now, const std::string& section) {
  auto differs = [&](const std::string& key) { return before.contains(key) && before[key] != now.value(key, json()); };
  if (differs("model.name") && section == "model.")
    return {difference("model.name", now["model.name"], before["model.name"])};
  std::vector<std::string> list;
  for (const auto& [key, value] : now.items()) {
    if (!key.starts_with(section) || !differs(key)) continue;
    if (key == "model.hidden_dim" && differs("model.dim")) continue;
    if (key == "model.n_kv_heads" && differs("model.n_heads")) continue;
    list.push_back(difference(key, value, before[key]));
  }
  return list;
}

/// Differences that make the optimizer's state unusable.
std::vector<std::string> other_optimizer(const json& before, const json& now) {
  if (!before.contains("optimizer.name") || state_kinds(before) == state_kinds(now)) return {};
  return differences(before, now, "optimizer.");
}

/// A tensor that a kind of state has for a parameter.
struct Wanted {
  std::vector<int64_t> shape;
  bool needed;
};
using WantedOf = std::function<std::optional<Wanted>(const ParameterSpec& parameter)>;

WantedOf wanted_values() {
  return [](const ParameterSpec& parameter) { return Wanted{parameter.shape, !parameter.of_base}; };
}

/// The state of this name, of parameters that have it.
WantedOf wanted_states(const json& settings, const std::string& name) {
  const auto* optimizer = find_optimizer(settings.at("optimizer.name"));
  return [=](const ParameterSpec& parameter) -> std::optional<Wanted> {
    for (const auto& state : optimizer->states_for(parameter.shape, parameter.of_layer))
      if (state.name == name) return Wanted{state.shape(parameter.shape), parameter.trainable};
    return std::nullopt;
  };
}

/// Compares the checkpoint's tensors of kind "param/" or "optimizer/KIND/" with the model's parameters.
void compare_tensors(const Checkpoint& checkpoint, const ModelSpec& spec, const std::string& kind,
                     const WantedOf& wanted_of, std::vector<std::string>& problems) {
  std::vector<std::string> expected;
  for (const auto* parameter : spec.stored()) {
    const auto wanted = wanted_of(*parameter);
    if (!wanted) continue;
    const auto& name = expected.emplace_back(kind + parameter->name);
    if (!checkpoint.has(name) && !wanted->needed) continue;
    if (!checkpoint.has(name))
      problems.push_back(fmt::format("the checkpoint has no `{}`", name));
    else if (checkpoint.shape(name) != wanted->shape)
      problems.push_back(fmt::format("`{}` is [{}], the checkpoint's is [{}]", name, fmt::join(wanted->shape, ", "),
                                     fmt::join(checkpoint.shape(name), ", ")));
  }
  std::sort(expected.begin(), expected.end());
  for (const auto& name : checkpoint.tensors())
    if (name.starts_with(kind) && !std::binary_search(expected.begin(), expected.end(), name))
      problems.push_back(fmt::format("the recipe's model has no `{}`, which the checkpoint has", name));
}

/// Parameters that the recipe trains, and for which the checkpoint has no optimizer state although it has that of others.
std::vector<std::string> frozen_before(const Checkpoint& checkpoint, const ModelSpec& spec, const std::string& kind,
                                       const WantedOf& wanted_of) {
  std::vector<std::string> names;
  bool any = false;
  for (const auto* parameter : spec.parameters()) {
    if (!wanted_of(*parameter)) continue;
    any |= checkpoint.has(kind + parameter->name);
    if (parameter->trainable && !checkpoint.has(kind + parameter->name)) names.push_back(parameter->name);
  }
  return any ? names : std::vector<std::string>();
}

[[noreturn]] void refuse(const Checkpoint& checkpoint, std::vector<std::string> problems, const std::string& advice) {
  constexpr size_t listed = 12;
  if (problems.size() > listed) {
    auto more = fmt::format("and {} more differences", problems.size() - listed);
    problems.resize(listed);
    problems.push_back(more);
  }
  throw usage_error("the recipe cannot continue from {}:\n  {}\n{}", checkpoint.path().string(), join(problems, "\n  "),
                    advice);
}

constexpr const char* other_model_advice = "A run keeps its model. Keep these settings, or start a new run";
constexpr const char* frozen_advice =
    "Keep model.frozen, or start a new run from the weights alone: runner export RUN --output DIR, then "
    "model.init_from = \"DIR\"";
constexpr const char* other_optimizer_advice =
    "An optimizer cannot continue with the state of another one. Keep these settings, or start a new run from the "
    "weights alone: runner export RUN --output DIR, then model.init_from = \"DIR\"";

}  // namespace

json settings_of_tensors(const Recipe& resolved) {
  json settings = model_settings(resolved.model, outputs_of(resolved.model).value());
  settings["optimizer.name"] = resolved.optimizer.name;
  if (find_optimizer(resolved.optimizer.name)->states_need_momentum)
    settings["optimizer.momentum"] = resolved.optimizer.momentum;
  const auto& fine_tune = resolved.fine_tune;
  settings["fine_tune.method"] =
      fine_tune.adapts() ? fine_tune.method : "full";  // frozen parameters are compared one by one
  if (!fine_tune.adapts()) return settings;
  settings["fine_tune.rank"] = fine_tune.rank;
  settings["fine_tune.alpha"] = fine_tune.alpha;
  settings["fine_tune.rslora"] = fine_tune.rslora;
  settings["fine_tune.targets"] = fine_tune.targets;
  settings["fine_tune.modules_to_save"] = fine_tune.modules_to_save;
  settings["fine_tune.quantization"] = fine_tune.quantization;
  if (fine_tune.quantizes()) settings["fine_tune.double_quantization"] = fine_tune.double_quantization;
  // Quantized parameters are not in checkpoints, so they are drawn again.
  if (fine_tune.quantizes() && !resolved.model.init_from) settings["the seed of the base"] = resolved.run.seed;
  if (resolved.model.init_from) settings["the weights of model.init_from"] = base_digest(*resolved.model.init_from);
  return settings;
}

std::vector<std::string> other_model(const Checkpoint& checkpoint, const Recipe::Model& model, int64_t vocab_size) {
  return differences(settings_in(checkpoint), model_settings(model, vocab_size), "model.");
}

std::vector<std::string> check_fit(const Checkpoint& checkpoint, const Recipe& resolved, const ModelSpec& spec) {
  const json before = settings_in(checkpoint), now = settings_of_tensors(resolved);
  auto problems = differences(before, now, "model.");
  for (const char* section : {"fine_tune.", "the weights", "the seed"})
    for (const auto& text : differences(before, now, section)) problems.push_back(text);
  const bool same_model = problems.empty();
  for (const auto& text : other_optimizer(before, now)) problems.push_back(text);
  if (!problems.empty()) refuse(checkpoint, problems, same_model ? other_optimizer_advice : other_model_advice);

  compare_tensors(checkpoint, spec, "param/", wanted_values(), problems);
  if (!problems.empty()) refuse(checkpoint, problems, other_model_advice);
  for (const auto& kind : state_kinds(now)) {
    for (const auto& name : frozen_before(checkpoint, spec, "optimizer/" + kind + "/", wanted_states(now, kind)))
      problems.push_back(
          fmt::format("`{}` was frozen (model.frozen), so the checkpoint has no optimizer state of it", name));
    if (!problems.empty()) refuse(checkpoint, problems, frozen_advice);
  }
  for (const auto& kind : state_kinds(now))
    compare_tensors(checkpoint, spec, "optimizer/" + kind + "/", wanted_states(now, kind), problems);
  if (!problems.empty()) refuse(checkpoint, problems, other_optimizer_advice);

  if (!before.contains("optimizer.name") || before["optimizer.name"] == now["optimizer.name"]) return {};
  return {difference("optimizer.name", now["optimizer.name"], before["optimizer.name"]) +
          "; it continues with the same moments"};
}

}  // namespace runner
