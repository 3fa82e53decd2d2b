// The keys of [plugins].
#include "runner/config/key_adder.hpp"

// The rows of the tables are wrapped by hand.
// clang-format off

namespace runner::keys {

namespace {

std::optional<std::string> not_a_table(nlohmann::json& value) {
  return value.is_object() ? std::nullopt : std::optional<std::string>("");
}

std::optional<std::string> no_file(nlohmann::json& value) {
  return value == "" ? std::optional<std::string>("") : std::nullopt;
}

}  // namespace

void add_plugins(std::vector<Key>& keys) {
  Adder add(keys, "plugins", &Recipe::plugins);
  using P = PluginPaths;
  add({.name = "cluster_environment", .type = T::path,
       .help = "Says where the ranks of the job run, instead of devices.cluster: a library, or a .lua file.",
       .wanted = "the file of a library, or a .lua file", .fits = no_file},
      &P::cluster_environment, {.quiet = true});
  add({.name = "checkpoint_io", .type = T::path,
       .help = "A second place for checkpoints, such as an object store: a library, or a .lua file with "
               "hooks.trusted.",
       .wanted = "the file of a library, or a .lua file", .fits = no_file},
      &P::checkpoint_io, {.quiet = true});
  add({.name = "precision", .type = T::path,
       .help = "Dtypes, and what the computation gets of each parameter, instead of precision.mode: a library.",
       .wanted = "the file of a library", .fits = no_file},
      &P::precision, {.quiet = true});
  add({.name = "accelerator", .type = T::path,
       .help = "The devices that ranks compute on, instead of devices.accelerator: a library.",
       .wanted = "the file of a library", .fits = no_file},
      &P::accelerator, {.quiet = true});
  add({.name = "options", .type = T::other,
       .help = "The options of these plug-ins: numbers, strings, true, false, and lists.",
       .wanted = "a table such as { bucket = \"/mnt/store\" }", .fits = not_a_table}, &P::options,
      {.quiet = true, .schema = {{"type", "object"}}});
}

}  // namespace runner::keys
