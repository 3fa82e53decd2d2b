#include "runner/lua/checkpoint_io_file.hpp"

#include <limits>

#include "runner/base/log.hpp"
#include "runner/lua/script_file.hpp"

namespace runner::lua {

namespace {

using nlohmann::json;

const char* const io_key = "plugins.checkpoint_io";

StateOptions io_state_options(const Recipe& recipe, const std::string& name) {
  auto options = script_state_options(recipe);
  options.limits.seconds = std::numeric_limits<double>::infinity();
  options.limits.instructions = std::numeric_limits<int64_t>::max();
  options.print = [name](std::string_view line) { log::info("{}: {}", name, line); };
  return options;
}

class LuaCheckpointIO final : public parts::CheckpointIO {
 public:
  explicit LuaCheckpointIO(const Recipe& recipe)
      : state_(io_state_options(recipe, fs::path(*recipe.plugins.checkpoint_io).filename())) {}

  /// Returns the names of the options that the file declares; mistakes go to `diagnostics`.
  std::set<std::string> read(const Recipe& recipe, std::vector<Diagnostic>& diagnostics) {
    static const ScriptKind kind{.noun = "checkpoint store",
                                 .section = "plugins",
                                 .functions = {"save", "load", "remove", "names"},
                                 .needs_all = true};
    auto file = load_script(state_, kind, {*recipe.plugins.checkpoint_io, recipe.origin(io_key)}, diagnostics);
    if (!file) return {};
    AskedOptions asked;
    options_ = state_.read_only(part_options(*file, recipe, asked, diagnostics));
    functions_ = file->functions;
    return asked.names();
  }

  void save(const std::string& run, const std::string& name, const fs::path& folder) override {
    must_succeed("save", {json(run), json(name), json(folder.string()), options_});
  }
  void load(const std::string& run, const std::string& name, const fs::path& folder) override {
    must_succeed("load", {json(run), json(name), json(folder.string()), options_});
  }
  void remove(const std::string& run, const std::string& name) override {
    must_succeed("remove", {json(run), json(name), options_});
  }

  std::vector<std::string> names(const std::string& run) override {
    const auto result = state_.call(functions_.at("names"), {json(run), options_});
    std::vector<std::string> names;
    const json list = result.reference.is_table() ? state_.to_json(result.reference, "the result") : json();
    if (!list.is_array() && !(list.is_object() && list.empty()))
      throw ScriptMistake("it must return a list of names, not " + kind_of(result));
    for (const auto& name : list) {
      if (!name.is_string()) throw ScriptMistake("it must return a list of strings, and one of them is " + name.dump());
      names.push_back(name);
    }
    return names;
  }

 private:
  void must_succeed(const std::string& function, const std::vector<Value>& arguments) {
    const auto result = state_.call(functions_.at(function), arguments);
    if (result.plain == true) return;
    const bool told = result.plain.is_boolean();
    throw ScriptMistake(fmt::format("it returned {}; it returns true if it has succeeded, as os.execute does",
                                    told ? "false" : kind_of(result)));
  }

  State state_;
  std::map<std::string, Reference> functions_;
  Reference options_;
};

}  // namespace

CheckpointIOFile load_checkpoint_io_file(const Recipe& recipe, std::vector<Diagnostic>& diagnostics) {
  if (!recipe.hooks.trusted) {
    Diagnostic diagnostic{recipe.origin(io_key), "not-trusted",
                          fmt::format("{} needs files or commands, which the sandbox of Lua files does not have: set "
                                      "hooks.trusted = true, which gives all Lua files of the recipe all of Lua's "
                                      "libraries, or use a library",
                                      *recipe.plugins.checkpoint_io)};
    diagnostic.section = "plugins";
    diagnostics.push_back(std::move(diagnostic));
    return {};
  }
  const auto before = diagnostics.size();
  auto io = std::make_unique<LuaCheckpointIO>(recipe);
  CheckpointIOFile file{.io = nullptr, .options = io->read(recipe, diagnostics)};
  if (diagnostics.size() == before) file.io = std::move(io);
  return file;
}

}  // namespace runner::lua
