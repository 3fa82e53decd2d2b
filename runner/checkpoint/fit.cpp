#include "runner/checkpoint/fit.hpp"

#include <algorithm>
#include <set>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/checkpoint/adapter_files.hpp"
#include "runner/config/config.hpp"
#include "runner/config/group_optimizer.hpp"
#include "runner/config/model_families.hpp"
#include "runner/models/models.hpp"

namespace runner {

namespace {

using nlohmann::json;

/// The key of a list of all groups if one has an optimizer of its own. Only such a group has `name` and `momentum`.
constexpr const char* groups_key = "optimizer.groups";

/// The kinds of state tensors that optimizers keep for parameters.
std::set<std::string> state_kinds(const json& settings) {
  std::set<std::string> kinds;
  const auto add = [&](const json& name, double momentum) {
    if (const auto* optimizer = find_optimizer(name))
      for (const auto& kind : optimizer->state_names(momentum)) kinds.insert(kind);
  };
  add(settings.at("optimizer.name"), settings.value("optimizer.momentum", 0.0));
  for (const auto& group : settings.at(groups_key))
    if (group.contains("name")) add(group["name"], group.value("momentum", 0.0));
  return kinds;
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
WantedOf wanted_states(const Recipe::Optimizer& optimizer, const std::string& name) {
  return [=](const ParameterSpec& parameter) -> std::optional<Wanted> {
    const auto own = optimizer_of(optimizer, parameter.name);
    const auto& spec = *find_optimizer(own.name);
    for (const auto& state :
         spec.states_for(parameter.shape, parameter.of_layer, !spec.state_names(own.momentum).empty()))
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
  const auto add_optimizer = [](const Recipe::Optimizer& optimizer, const std::string& prefix, json& to) {
    to[prefix + "name"] = optimizer.name;
    if (find_optimizer(optimizer.name)->states_need_momentum) to[prefix + "momentum"] = optimizer.momentum;
  };
  add_optimizer(resolved.optimizer, "optimizer.", settings);
  const auto& groups = resolved.optimizer.groups;
  const auto has_own = [](const Recipe::Optimizer::Group& group) { return !group.own.empty(); };
  // The others decide, too, which parameters belong to such a group: the first one that matches applies.
  if (std::ranges::any_of(groups, has_own))
    for (const auto& group : groups) {
      json& made = settings[groups_key].emplace_back(json{{"params", group.patterns()}});
      if (has_own(group)) add_optimizer(optimizer_of(resolved.optimizer, group), "", made);
    }
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
  json before = settings_in(checkpoint), now = settings_of_tensors(resolved);
  for (json* settings : {&before, &now}) settings->emplace(groups_key, json::array());
  const bool same_groups = before[groups_key] == now[groups_key];
  auto problems = differences(before, now, "model.");
  for (const char* section : {"fine_tune.", "the weights", "the seed"})
    for (const auto& text : differences(before, now, section)) problems.push_back(text);
  const bool same_model = problems.empty();
  for (const auto& text : other_optimizer(before, now)) problems.push_back(text);
  if (!problems.empty()) refuse(checkpoint, problems, same_model ? other_optimizer_advice : other_model_advice);

  compare_tensors(checkpoint, spec, "param/", wanted_values(), problems);
  if (!problems.empty()) refuse(checkpoint, problems, other_model_advice);
  for (const auto& kind : same_groups ? state_kinds(now) : std::set<std::string>()) {
    for (const auto& name :
         frozen_before(checkpoint, spec, "optimizer/" + kind + "/", wanted_states(resolved.optimizer, kind)))
      problems.push_back(
          fmt::format("`{}` was frozen (model.frozen), so the checkpoint has no optimizer state of it", name));
    if (!problems.empty()) refuse(checkpoint, problems, frozen_advice);
  }
  if (!same_groups) problems.push_back(difference(groups_key, now[groups_key], before[groups_key]));
  const auto differing = problems.size();
  for (const auto& kind : state_kinds(now))
    compare_tensors(checkpoint, spec, "optimizer/" + kind + "/", wanted_states(resolved.optimizer, kind), problems);
  if (problems.size() > differing) refuse(checkpoint, problems, other_optimizer_advice);

  if (before.contains("optimizer.name") && before["optimizer.name"] != now["optimizer.name"])
    problems.push_back(difference("optimizer.name", now["optimizer.name"], before["optimizer.name"]));
  for (auto& note : problems) note += "; it continues with the same moments";
  return problems;
}

}  // namespace runner
