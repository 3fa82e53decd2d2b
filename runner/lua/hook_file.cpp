#include "runner/lua/hook_file.hpp"

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
    for (const auto& name : made.functions)
      if (name != "memory") made.objects[name] = {context};
    return made;
  }();
  return load_script(state, kind, source, diagnostics);
}

}  // namespace runner::lua
