#include "runner/lua/hook_set.hpp"

#include <algorithm>
#include <cmath>

#include "runner/base/clock.hpp"
#include "runner/base/metric_names.hpp"
#include "runner/base/text.hpp"
#include "runner/lua/training.hpp"

namespace runner::lua {

using nlohmann::json;

namespace {

const char* const early_stopping = "early_stopping";

StateOptions state_options(const Recipe& recipe, const HookSet::Talk& talk) {
  StateOptions options = script_state_options(recipe);
  options.print = talk.print;
  options.mistake_of = talk.mistake_of;
  return options;
}

/// The options in [hooks.NAME], or those in train.early_stopping for that hook.
json given_options(const Recipe& recipe, const ScriptFile& hook) {
  if (hook.name == early_stopping && recipe.train.early_stopping) {
    const auto& rule = *recipe.train.early_stopping;
    const auto mode = rule.mode == "auto" ? (higher_is_better(rule.monitor) ? "max" : "min") : rule.mode;
    return {{"monitor", rule.monitor}, {"patience", rule.patience}, {"min_delta", rule.min_delta}, {"mode", mode}};
  }
  return recipe.hooks.options.value(hook.name, json::object());
}

void check_names(const Recipe& recipe, const std::vector<HookSet::Hook>& hooks, std::vector<Diagnostic>& diagnostics) {
  std::vector<std::string> names;
  for (const auto& hook : hooks) {
    bool twice = std::find(names.begin(), names.end(), hook.file.name) != names.end();
    if (twice)
      diagnostics.push_back({.place = hook.file.asked_at,
                             .code = "duplicate",
                             .message = fmt::format("two hooks are named {}", hook.file.name),
                             .section = "hooks"});
    names.push_back(hook.file.name);
  }
  const HookSet::Hook* with_loss = nullptr;
  for (const auto& hook : hooks) {
    if (!hook.has("loss")) continue;
    if (with_loss)
      diagnostics.push_back(
          {.place = hook.file.asked_at,
           .code = "two-losses",
           .message = fmt::format("the hooks {} and {} both have a `loss`, and a training can have only one",
                                  with_loss->file.name, hook.file.name),
           .section = "hooks"});
    with_loss = &hook;
  }
  for (const auto& [name, options] : recipe.hooks.options.items()) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    auto key = "hooks." + name + "." + (options.empty() ? "" : options.begin().key());
    diagnostics.push_back({.place = recipe.origin(key),
                           .code = "unknown-key",
                           .message = fmt::format("[hooks.{}] does not belong to a hook of this recipe", name),
                           .allowed = names,
                           .suggestion = nearest(name, names),
                           .section = "hooks"});
  }
}

/// [hooks.early_stopping] would be ignored, because train.early_stopping contains the options.
void check_early_stopping(const Recipe& recipe, std::vector<Diagnostic>& diagnostics) {
  auto beside = recipe.hooks.options.find(early_stopping);
  if (!recipe.train.early_stopping || beside == recipe.hooks.options.end()) return;
  auto key = std::string("hooks.") + early_stopping + "." + (beside->empty() ? "" : beside->begin().key());
  diagnostics.push_back({.place = recipe.origin(key),
                         .code = "contradiction",
                         .message = "[hooks.early_stopping] and train.early_stopping set the same options",
                         .other = recipe.origin("train.early_stopping"),
                         .other_message = "train.early_stopping already adds this hook; set its options here",
                         .section = "hooks"});
}

/// Loads all files and completes their options. Mistakes go to `diagnostics`.
std::vector<HookSet::Hook> load_hooks(State& state, const Recipe& recipe, std::vector<Diagnostic>& diagnostics) {
  std::vector<HookSet::Hook> hooks;
  bool all_loaded = true;
  check_early_stopping(recipe, diagnostics);
  for (const auto& source : hook_sources(recipe)) {
    auto file = load_hook_file(state, source, diagnostics);
    if (!file) {
      all_loaded = false;
      continue;
    }
    HookSet::Hook hook;
    auto place = [&, &name = file->name](const std::string& option) {
      auto key = name == early_stopping && recipe.train.early_stopping ? std::string("train.early_stopping")
                                                                       : "hooks." + name + "." + option;
      return recipe.origin(key);
    };
    hook.option_values = complete_options(*file, given_options(recipe, *file), place, diagnostics);
    hook.file = std::move(*file);
    hooks.push_back(std::move(hook));
  }
  if (all_loaded) check_names(recipe, hooks, diagnostics);
  return hooks;
}

}  // namespace

json storable(json value) {
  if (value.is_structured())
    for (auto& item : value) item = storable(std::move(item));
  if (const auto* text = value.get_ptr<const std::string*>())
    return first_invalid_utf8(*text) ? json{{"$bytes", to_hex(*text)}} : value;
  if (!value.is_number_float() || std::isfinite(value.get<double>())) return value;
  return {{"$number", nonfinite_word(value.get<double>())}};
}

/// Calls body({"$object": NAME, ...}) for each object in a saved state.
static void for_each_object(const json& value, const std::function<void(const json&)>& body) {
  if (!value.is_structured()) return;
  if (value.is_object() && value.contains("$object")) return body(value);
  for (const auto& item : value) for_each_object(item, body);
}

json restore_stored(json value) {
  if (value.is_object() && value.size() == 1 && value.contains("$number")) {
    auto text = value["$number"];
    return text == "nan" ? std::nan("") : text == "inf" ? HUGE_VAL : -HUGE_VAL;
  }
  if (value.is_object() && value.size() == 1 && value.contains("$bytes") && value["$bytes"].is_string())
    if (auto bytes = from_hex(value["$bytes"].get_ref<const std::string&>())) return *bytes;
  if (value.is_structured())
    for (auto& item : value) item = restore_stored(std::move(item));
  return value;
}

std::vector<ScriptSource> hook_sources(const Recipe& recipe) {
  std::vector<ScriptSource> sources;
  for (const auto& file : recipe.hooks.files) sources.push_back({file, recipe.origin("hooks.files")});
  if (recipe.train.early_stopping) sources.push_back({early_stopping, recipe.origin("train.early_stopping")});
  return sources;
}

void check_hooks(const Recipe& recipe, std::vector<Diagnostic>& diagnostics) {
  if (hook_sources(recipe).empty() && recipe.hooks.options.empty()) return;
  State state(state_options(recipe, {}));
  load_hooks(state, recipe, diagnostics);
}

HookSet::HookSet(const Recipe& recipe, Talk talk)
    : disables_(recipe.hooks.on_error == "disable"), talk_(std::move(talk)), draws_(recipe.run.seed) {
  if (hook_sources(recipe).empty()) return;
  state_ = std::make_unique<State>(state_options(recipe, talk_));
  std::vector<Diagnostic> diagnostics;
  hooks_ = load_hooks(*state_, recipe, diagnostics);
  if (!diagnostics.empty()) throw RecipeError(diagnostics);
  for (size_t i = 0; i < hooks_.size(); ++i) {
    hooks_[i].options = state_->read_only(hooks_[i].option_values);
    hooks_[i].state = state_->table(json::object());
    for (size_t moment = 0; moment < moments_count; ++moment)
      if (hooks_[i].has(moment_names()[moment])) callers_[moment].push_back(i);
  }
}

void HookSet::call(Moment moment, const Value& context) {
  for (size_t i : callers_[static_cast<size_t>(moment)]) call_one(hooks_[i], moment, context);
}

void HookSet::call_one(Hook& hook, Moment moment, const Value& context) {
  if (hook.disabled) return;
  const std::string name = moment_names()[static_cast<size_t>(moment)];
  double started = steady_seconds();
  std::string failure;
  try {
    begin_call(hook, name);
    state_->call(hook.file.functions.at(name), {context, Value(hook.state), Value(hook.options)});
  } catch (const LuaError& error) {
    failure = error.what();
  }
  hook.seconds += steady_seconds() - started;
  end_call(hook, name, failure);
}

void HookSet::begin_call(Hook& hook, const std::string& function) {
  ++hook.calls[function];
  draws_.seed(*state_, hook.file.name, function, talk_.step ? talk_.step() : 0);
}

void HookSet::end_call(Hook& hook, const std::string& doing, std::string failure) {
  auto agreed = talk_.agree ? talk_.agree(hook.file.name, failure) : Talk::Failure{std::move(failure)};
  if (!agreed.text.empty()) fail(hook, doing, agreed);
}

static std::string failure_text(const HookSet::Hook& hook, const std::string& doing, const std::string& what) {
  return failure_text("hook " + hook.file.name, doing, what, hook.file.asked_at);
}

void HookSet::fail(Hook& hook, const std::string& doing, const Talk::Failure& failure) {
  auto text = failure_text(hook, doing, failure.text);
  if (!disables_) throw HookError(text);
  if (failure.left_changes)
    throw HookError(
        text +
        "\n  it had already changed parameters or gradients, maybe not all of them or not on every rank: training "
        "stops, although hooks.on_error = \"disable\"");
  hook.disabled = true;
  if (talk_.report) talk_.report(text + "\n  it is disabled from now on (hooks.on_error = \"disable\")");
}

std::vector<json> HookSet::records() const {
  std::vector<json> records;
  for (const auto& hook : hooks_)
    records.push_back({{"hook", hook.file.name}, {"seconds", hook.seconds}, {"calls", hook.calls}});
  return records;
}

std::vector<std::string> HookSet::disabled() const {
  std::vector<std::string> names;
  for (const auto& hook : hooks_)
    if (hook.disabled) names.push_back(hook.file.name);
  return names;
}

void HookSet::disable(const std::vector<std::string>& names) {
  if (!disables_) return;
  for (auto& hook : hooks_) {
    if (std::find(names.begin(), names.end(), hook.file.name) == names.end()) continue;
    hook.disabled = true;
    if (talk_.report)
      talk_.report(
          fmt::format("hook {} had failed before this checkpoint and stays disabled (hooks.on_error = "
                      "\"disable\"; with \"stop\" it would be called again)",
                      hook.file.name));
  }
}

namespace {

/// A number means bytes on the parameters' device. nullopt if `memory` must not return the value.
std::optional<HookSet::Kept> claimed_bytes(const json& claim) {
  if (auto number = claimed_count(claim)) return HookSet::Kept{*number, 0};
  if (!claim.is_object()) return {};
  for (const auto& [name, bytes] : claim.items())
    if (name != "device" && name != "host") return {};
  auto device = claimed_count(claim.value("device", json(0))), host = claimed_count(claim.value("host", json(0)));
  if (!device || !host) return {};
  return HookSet::Kept{*device, *host};
}

}  // namespace

bool HookSet::says_memory() const {
  return std::any_of(hooks_.begin(), hooks_.end(), [](const Hook& hook) { return hook.has("memory"); });
}

HookSet::Kept HookSet::memory(const json& job) {
  Kept all;
  for (const auto& hook : hooks_) {
    if (!hook.has("memory")) continue;
    try {
      Value bytes =
          state_->call(hook.file.functions.at("memory"), {Value(state_->read_only(job)), Value(hook.options)});
      auto claimed =
          claimed_bytes(bytes.reference.is_table() ? state_->to_json(bytes.reference, "memory") : bytes.plain);
      if (!claimed)
        throw usage_error(
            "{}: `memory` must return the bytes that a rank keeps, or {{device = bytes, host = bytes}}, not {}",
            hook.file.shown, bytes.plain.is_number() ? fmt::format("{}", bytes.plain.get<double>()) : kind_of(bytes));
      all.device += claimed->device;
      all.host += claimed->host;
    } catch (const LuaError& error) {
      throw Error(ExitCode::usage, failure_text(hook, "memory", error.what()));
    }
  }
  return all;
}

bool HookSet::has_loss() const {
  return std::any_of(hooks_.begin(), hooks_.end(), [](const Hook& hook) { return hook.has("loss"); });
}

void HookSet::loss(const Value& context, const Value& logits, const Value& targets,
                   const std::function<void(const Value&)>& take) {
  auto hook = std::find_if(hooks_.begin(), hooks_.end(), [](const Hook& each) { return each.has("loss"); });
  RUNNER_CHECK(hook != hooks_.end(), "no hook makes the loss");
  double started = steady_seconds();
  std::string failure;
  try {
    begin_call(*hook, "loss");
    take(state_->call(hook->file.functions.at("loss"), {context, logits, targets, Value(hook->options)}));
  } catch (const LuaError& error) {
    failure = error.what();
  } catch (const ScriptMistake& mistake) {
    failure = mistake.what();
  }
  hook->seconds += steady_seconds() - started;
  if (!failure.empty()) throw Error(ExitCode::run_failed, failure_text(*hook, "loss", failure));
}

json HookSet::state_of(const Hook& hook, const Keep& keep) {
  KeepObject keep_object;
  if (keep)
    keep_object = [&](const std::shared_ptr<Object>& object, const std::string& path) {
      auto name = hook.file.name + path;
      json kept = keep(name, object);
      kept["$object"] = name;
      return kept;
    };
  return state_->to_json(hook.state, "state", keep_object, Strings::any);
}

json HookSet::save(const Value& context, const Keep& keep) {
  call(Moment::on_save_checkpoint, context);
  json saved = json::object();
  for (auto& hook : hooks_) {
    if (hook.disabled) continue;
    std::string failure;
    try {
      json state = state_of(hook, keep);
      if (!state.empty()) saved[hook.file.name] = storable(std::move(state));
    } catch (const ScriptMistake& mistake) {
      failure = mistake.what();
    }
    end_call(hook, "saving its state", failure);
    if (hook.disabled) saved.erase(hook.file.name);
  }
  return saved;
}

void HookSet::load(const json& saved, const Value& context, const Restore& restore) {
  for (const auto& [name, state] : saved.items()) {
    auto found =
        std::find_if(hooks_.begin(), hooks_.end(), [&name = name](const Hook& hook) { return hook.file.name == name; });
    if (found != hooks_.end()) {
      KeptObjects objects;
      for_each_object(state, [&](const json& kept) {
        const auto& object = kept["$object"].get_ref<const std::string&>();
        if (restore) objects[object] = restore(object, kept);
      });
      found->state = state_->table(restore_stored(state), objects);
    } else if (talk_.report)
      talk_.report(fmt::format("the checkpoint has the state of a hook {}, which this recipe does not have", name));
  }
  call(Moment::on_load_checkpoint, context);
}

const std::array<const char*, moments_count>& moment_names() {
  static const std::array<const char*, moments_count> names = {"setup",
                                                               "on_train_start",
                                                               "on_train_epoch_start",
                                                               "on_train_batch_start",
                                                               "on_before_backward",
                                                               "on_after_backward",
                                                               "on_before_optimizer_step",
                                                               "on_train_batch_end",
                                                               "on_validation_start",
                                                               "on_validation_end",
                                                               "on_train_epoch_end",
                                                               "on_save_checkpoint",
                                                               "on_load_checkpoint",
                                                               "on_exception",
                                                               "on_train_end",
                                                               "teardown"};
  return names;
}

std::optional<ScriptFile> load_hook_file(State& state, const ScriptSource& source,
                                         std::vector<Diagnostic>& diagnostics) {
  static const ScriptKind kind = [] {
    ScriptKind made{.noun = "hook",
                    .section = "hooks",
                    .folder = "recipes/hooks",
                    .functions = {"loss", "memory"},
                    .shipped = shipped_hooks()};
    made.functions.insert(made.functions.end(), moment_names().begin(), moment_names().end());
    ObjectNames context, world;
    context.name = hook_context_class().name();
    context.members = hook_context_class().members();
    world.name = world_class().name();
    world.members = world_class().members();
    context.parts["world"] = world;
    for (const auto& name : made.functions) {
      if (name != "memory") made.objects[name] = {context};
      made.options_at[name] = name == "memory" ? 1 : name == "loss" ? 3 : 2;
    }
    return made;
  }();
  return load_script(state, kind, source, diagnostics);
}

}  // namespace runner::lua
