#include "runner/lua/hook_file.hpp"

#include "runner/base/text.hpp"
#include "runner/lua/shipped.hpp"

namespace runner::lua {

using nlohmann::json;

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

namespace {

const ScriptKind& hook_kind() {
  static const ScriptKind kind = [] {
    std::vector<std::string> functions{"loss"};
    functions.insert(functions.end(), moment_names().begin(), moment_names().end());
    return ScriptKind{"hook", "hooks", "recipes/hooks", functions, {}, shipped_hooks()};
  }();
  return kind;
}

}  // namespace

std::optional<HookFile> load_hook_file(State& state, const HookSource& source, std::vector<Diagnostic>& diagnostics) {
  auto script = load_script(state, hook_kind(), source, diagnostics);
  if (!script) return {};
  HookFile hook{script->name, script->about, script->shown, script->asked_at, std::move(script->options), {}, {}};
  for (size_t moment = 0; moment < moments_count; ++moment)
    if (auto found = script->functions.find(moment_names()[moment]); found != script->functions.end())
      hook.functions[moment] = found->second;
  if (auto found = script->functions.find("loss"); found != script->functions.end()) hook.loss = found->second;
  return hook;
}

json complete_hook_options(const HookFile& hook, const json& given,
                           const std::function<Origin(const std::string&)>& place,
                           std::vector<Diagnostic>& diagnostics) {
  json complete = json::object();
  for (const auto& [name, option] : hook.options)
    if (!option.default_value.is_null()) complete[name] = option.default_value;
  if (!given.is_object()) return complete;
  for (const auto& [name, written] : given.items()) {
    Diagnostic diagnostic{place(name), "unknown-key", "", {}, {}, {}, "", "hooks"};
    auto found = hook.options.find(name);
    if (found == hook.options.end()) {
      diagnostic.message = fmt::format("the hook {} has no option `{}`", hook.name, name);
      for (const auto& [known, option] : hook.options) diagnostic.allowed.push_back(known);
      diagnostic.suggestion = nearest(name, diagnostic.allowed);
      diagnostics.push_back(diagnostic);
      continue;
    }
    json value = written;
    diagnostic.message = option_problem(name, found->second, value);
    if (diagnostic.message.empty()) {
      complete[name] = value;
      continue;
    }
    diagnostic.code = "wrong-value";
    diagnostic.message += fmt::format(" (an option of the hook {})", hook.name);
    diagnostic.allowed = found->second.choices;
    if (value.is_string()) diagnostic.suggestion = nearest(value.get<std::string>(), found->second.choices);
    diagnostics.push_back(diagnostic);
  }
  return complete;
}

const std::map<std::string, std::string>& shipped_hooks() {
  static const std::map<std::string, std::string> hooks = [] {
    std::map<std::string, std::string> all;
    for (size_t i = 0; i < shipped_count; ++i) all.emplace(shipped_names[i], shipped_texts[i]);
    return all;
  }();
  return hooks;
}

}  // namespace runner::lua
