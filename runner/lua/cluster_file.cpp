#include "runner/lua/cluster_file.hpp"

#include <algorithm>
#include <limits>

#include "runner/base/text.hpp"

namespace runner::lua {

namespace {

using nlohmann::json;

/// The first argument of `ranks`: env(name).
const Class& variables_class() {
  static const Class kind = [] {
    Class made("env");
    made.operation("__call", [](const Arguments& arguments) -> Value {
      const auto name = arguments.value(2);
      if (!name.plain.is_string())
        throw ScriptMistake(fmt::format("env(name): `name` must be a string, not {}", kind_of(name)));
      const auto value = arguments.value(1).object->as<ReadVariable>()(name.plain.get<std::string>());
      return value ? Value(json(*value)) : Value();
    });
    return made;
  }();
  return kind;
}

/// Reads a table of the result of `ranks`. A mistake is an error with the file, the field, its value and what is allowed.
class FieldReader {
 public:
  /// `within`: the name of the table in the result, with a dot; empty for the result itself.
  FieldReader(const std::string& file, const json& table, const std::string& within)
      : file_(file), table_(table), within_(within) {}

  int number(const char* name, std::optional<int> otherwise = {}) {
    known_.emplace_back(name);
    json value = table_.value(name, json());
    if (value.is_null() && otherwise) return *otherwise;
    if (value.is_null())
      throw usage_error("{}: ranks() must return `{}{}`, a whole number; it is missing or nil", file_, within_, name);
    using Limits = std::numeric_limits<int>;
    if (!to_integer(value) || value < Limits::min() || value > Limits::max())
      throw usage_error("{}: ranks() returned `{}{}` = {}, which must be a whole number{}", file_, within_, name,
                        value_text(value), value.is_string() ? "; tonumber(...) makes one of a string" : "");
    return value.get<int>();
  }
  std::string text(const char* name) {
    known_.emplace_back(name);
    const json value = table_.value(name, json(""));
    if (value.is_string()) return value.get<std::string>();
    throw usage_error("{}: ranks() returned `{}{}` = {}, which must be a string", file_, within_, name,
                      value_text(value));
  }
  std::optional<json> table(const char* name) {
    known_.emplace_back(name);
    if (!table_.contains(name)) return {};
    if (table_.at(name).is_object()) return table_.at(name);
    throw usage_error("{}: ranks() returned `{}{}` = {}, which must be a table", file_, within_, name,
                      value_text(table_.at(name)));
  }
  /// Throws for a field that nobody has read.
  void refuse_others() const {
    for (const auto& [name, value] : table_.items()) {
      if (std::ranges::find(known_, name) != known_.end()) continue;
      const auto near = nearest(name, known_);
      throw usage_error("{}: ranks() returned an unknown field `{}{}`{}", file_, within_, name,
                        near ? fmt::format("; did you mean `{}`?", *near) : "; allowed are " + join(known_, ", "));
    }
  }

 private:
  const std::string& file_;
  const json& table_;
  const std::string within_;
  std::vector<std::string> known_;
};

parts::Ranks::Launched read_launched(const std::string& file, const json& table) {
  FieldReader read(file, table, "launched.");
  parts::Ranks::Launched launched{.rank = read.number("rank"),
                                  .world_size = read.number("world_size"),
                                  .local_rank = read.number("local_rank"),
                                  .local_size = read.number("local_size")};
  read.refuse_others();
  return launched;
}

parts::Ranks read_ranks(const std::string& file, const json& table) {
  FieldReader read(file, table, "");
  parts::Ranks ranks{.node_rank = read.number("node_rank"),
                     .num_nodes = read.number("num_nodes"),
                     .main_address = read.text("main_address"),
                     .main_port = read.number("main_port", 0)};
  if (const auto launched = read.table("launched")) ranks.launched = read_launched(file, *launched);
  ranks.job_id = read.text("job_id");
  read.refuse_others();
  return ranks;
}

}  // namespace

ClusterFile::ClusterFile(const Recipe& recipe, ReadVariable variable, AskedOptions& asked)
    : state_(script_state_options(recipe)), variable_(std::move(variable)) {
  static const ScriptKind kind{
      .noun = "cluster environment", .section = "plugins", .functions = {"ranks"}, .needs_all = true};
  const auto place = recipe.origin("plugins.cluster_environment");
  std::vector<Diagnostic> mistakes;
  auto file = load_script(state_, kind, {*recipe.plugins.cluster_environment, place}, mistakes);
  if (file) options_ = part_options(*file, recipe, asked, mistakes);
  if (!mistakes.empty()) throw RecipeError(std::move(mistakes));
  file_ = std::move(*file);
}

parts::Ranks ClusterFile::ranks() {
  const auto env = Object::make(variables_class(), variable_);
  const Value result = state_.call(file_.functions.at("ranks"), {env, state_.table(options_)});
  if (!result.reference.is_table())
    throw usage_error(
        "{}: ranks() must return a table such as {{ node_rank = 0, num_nodes = 2, main_address = \"10.0.0.1\" }}, not "
        "{}",
        file_.shown, kind_of(result));
  json table;
  try {
    table = state_.to_json(result.reference, "the result of ranks()");
  } catch (const ScriptMistake& mistake) {
    throw usage_error("{}: {}", file_.shown, mistake.what());
  }
  if (table.is_array() && !table.empty())
    throw usage_error("{}: ranks() must return a table with names, not a list", file_.shown);
  return read_ranks(file_.shown, table.is_array() ? json::object() : table);
}

}  // namespace runner::lua
