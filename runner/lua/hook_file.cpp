#include "runner/lua/hook_file.hpp"

#include "runner/lua/shipped.hpp"
#include "runner/lua/training.hpp"

namespace runner::lua {

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
    std::vector<std::string> functions{"loss", "memory"};
    functions.insert(functions.end(), moment_names().begin(), moment_names().end());
    ScriptKind made{"hook", "hooks", "recipes/hooks", functions, {}, shipped_hooks()};
    for (const auto& name : functions)
      if (name != "memory") made.objects[name] = {&hook_context_class()};
    return made;
  }();
  return kind;
}

}  // namespace

std::optional<HookFile> load_hook_file(State& state, const ScriptSource& source, std::vector<Diagnostic>& diagnostics) {
  auto script = load_script(state, hook_kind(), source, diagnostics);
  if (!script) return {};
  HookFile hook;
  static_cast<ScriptFile&>(hook) = std::move(*script);
  for (size_t moment = 0; moment < moments_count; ++moment)
    if (auto found = hook.functions.find(moment_names()[moment]); found != hook.functions.end())
      hook.moments[moment] = found->second;
  if (auto found = hook.functions.find("loss"); found != hook.functions.end()) hook.loss = found->second;
  return hook;
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
