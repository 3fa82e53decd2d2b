#include "runner/sweep/lua_sweep.hpp"

#include "runner/lua/key_places.hpp"

namespace runner::sweep {

using nlohmann::json;

namespace {

const lua::Limits limits = {256u << 20, 100'000'000, 30.0};

[[noreturn]] void refuse(const Origin& place, const std::string& message) {
  throw RecipeError({Diagnostic{place, "sweep-file", message}});
}

/// Lua's {} may be a list or a table. It becomes a table for the keys that are tables in [sweep].
json as_table(const std::string& key, json value) {
  const bool table = key == "set" || key == "budget" || key == "stop" || key == "space";
  return table && value.is_array() && value.empty() ? json::object() : value;
}

LocatedJson located(const json& value, std::vector<std::string>& path, const lua::KeyPlaces& places) {
  LocatedJson result;
  result.place = result.key_place = places.find_path(path);
  result.is_object = value.is_object();
  if (!result.is_object) {
    result.value = value;
    return result;
  }
  for (const auto& [name, member] : value.items()) {
    path.push_back(name);
    result.members.emplace_back(name, located(member, path, places));
    path.pop_back();
  }
  return result;
}

}  // namespace

bool is_lua_sweep(const std::string& file) { return fs::path(file).extension() == ".lua"; }

LuaSweep load_lua_sweep(const std::string& text, const std::string& file,
                        std::function<void(std::string_view line)> print) {
  lua::KeyPlaces places(text, file);
  lua::StateOptions options;
  options.limits = limits;
  options.print = std::move(print);
  LuaSweep sweep{std::make_unique<lua::State>(options), {}, {}};
  auto& state = *sweep.state;
  json table = json::object();
  places.guard("sweep-file", [&] {
    lua::Value returned = state.load_text(text, file, fs::absolute(file).lexically_normal().parent_path());
    if (!returned.reference.is_table())
      throw lua::ScriptMistake(
          fmt::format("a sweep in Lua returns a table with `recipe` and `run`, not {}", lua::kind_of(returned)));
    for (const auto& key : state.keys(returned.reference)) {
      lua::Value value = state.field(returned.reference, key);
      if (key == "run") {
        if (!value.reference.is_function())
          refuse(places.find_path({key}), fmt::format("`run` must be a function, not {}", lua::kind_of(value)));
        sweep.run = value.reference;
      } else if (value.reference.is_function()) {
        const bool runs = state.field(returned.reference, "run").reference.is_function();
        const auto kind = runs ? "" : lua::kind_with_functions({key}, file);
        refuse(places.find_path({key}),
               fmt::format("`{}` is a function; only `run` may be one{}{}", key, kind.empty() ? "" : "; ", kind));
      } else {
        table[key] = as_table(key, value.reference ? state.to_json(value.reference, key) : value.plain);
      }
    }
    if (!sweep.run)
      throw lua::ScriptMistake("a sweep in Lua needs `run = function(sweep) ... end`, which proposes its trials");
  });
  std::vector<std::string> path;
  sweep.table = located(table, path, places);
  return sweep;
}

LocatedJson read_lua_sweep(const std::string& text, const std::string& file) {
  return load_lua_sweep(text, file).table;
}

}  // namespace runner::sweep
