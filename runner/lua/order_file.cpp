#include "runner/lua/order_file.hpp"

namespace runner::lua {

namespace {

const ScriptKind& order_kind() {
  static const std::map<std::string, std::string> none_shipped;
  static const ScriptKind kind{
      .noun = "sample order", .section = "data", .folder = "", .functions = {"sample"}, .shipped = none_shipped};
  return kind;
}

}  // namespace

std::optional<ScriptFile> load_order_file(State& state, const Recipe& recipe, std::vector<Diagnostic>& diagnostics) {
  const auto place = recipe.origin("data.order");
  auto file = load_script(state, order_kind(), {*recipe.data.order, place}, diagnostics);
  if (!file || file->functions.contains("sample")) return file;
  diagnostics.push_back(
      {.place = place,
       .code = "order",
       .message = fmt::format("{} has no function `sample`, which returns the sample at a position", file->shown)});
  return {};
}

}  // namespace runner::lua
