// Recipes of trials that will be made, looked at before any is.
#include <cmath>

#include "runner/config/config.hpp"
#include "runner/selection/strategy_options.hpp"
#include "runner/sweep/random_bits.hpp"
#include "runner/sweep/space_reader.hpp"
#include "runner/sweep/sweep_file.hpp"

namespace runner::sweep {

namespace {

using nlohmann::json;

std::vector<json> telling_values(const Parameter& parameter) {
  if (parameter.kind == Parameter::Kind::choice) return parameter.choices;
  return {parameter.at(0), parameter.at(std::nextafter(1.0, 0.0))};
}

/// A point that the constraints accept in which `parameter` is active and has `value`; null where draws find none.
json point_with(const Space& space, const Parameter& wanted, const json& value, uint64_t seed) {
  RandomBits random(seed, 0);
  for (int draw = 0; draw < 1000; ++draw) {
    auto point = space.point([&](size_t, const Parameter& parameter) -> json {
      double u = random.uniform();
      if (parameter.name == wanted.name) return value;
      return parameter.at(u);
    });
    if (point.contains(wanted.name) && space.accepts(point)) return point;
  }
  return {};
}

/// What the method and the metric ask of the recipe, at the key that asks.
void check_demands(const SweepFile& sweep, const Recipe& recipe, const LocatedJson& table, Problems& problems) {
  auto place = [&](const char* key) { return table.find(key) ? table.find(key)->place : table.place; };
  if (sweep.metric == "val_loss" && recipe.data.validation.empty() && !recipe.data.validation_fraction)
    problems.add(
        place("metric"), "contradiction",
        "metric = \"val_loss\" needs data.validation or data.validation_fraction in the recipe; or take metric = "
        "\"loss\"");
  if (sweep.method == "asha" && sweep.metric == "val_loss") {
    int64_t first = sweep.method_options.at("min_steps"), interval = recipe.train.val_check_interval.value_or(0);
    if (interval == 0 || interval > first)
      problems.add(
          place("method"), "contradiction",
          fmt::format("asha first decides at step {}, and val_loss comes {}: set train.val_check_interval = {}", first,
                      interval == 0 ? "at the ends of epochs" : fmt::format("every {} steps", interval), first));
  }
  if (sweep.method != "pbt") return;
  const auto& schedule = recipe.lr_scheduler.name;
  if (schedule != "constant" && schedule != "step")
    problems.add(
        place("method"), "contradiction",
        fmt::format("pbt trains in parts that end at train.max_steps, on which lr_scheduler.name = \"{}\" depends: "
                    "take \"constant\" or \"step\"",
                    schedule));
  if (!recipe.checkpoint.save_at_end)
    problems.add(place("method"), "contradiction",
                 "pbt goes on from final checkpoints: it needs checkpoint.save_at_end = true");
  for (const char* key : {"train.max_steps", "train.max_epochs", "lr_scheduler.name", "checkpoint.save_at_end"})
    if (sweep.space.find(key))
      problems.add(place("method"), "contradiction",
                   fmt::format("pbt decides itself how long parts are: `{}` cannot be varied", key));
}

}  // namespace

void check_recipes(const SweepFile& sweep) {
  Problems problems;
  const Recipe base = load_whole_recipe(sweep.recipe, sweep.overrides);  // its own mistakes come with its own places
  auto tree = parse_located_toml(sweep.source, sweep.file);
  const LocatedJson& table = *tree.find("sweep");
  check_demands(sweep, base, table, problems);
  Problems seen_before;
  auto read = read_space(*table.find("space"), sweep.method == "grid", seen_before);
  for (const auto& parameter : sweep.space.parameters())
    for (const auto& value : telling_values(parameter)) {
      json point = point_with(sweep.space, parameter, value, sweep.seed);
      if (point.is_null()) continue;
      auto overrides = sweep.overrides;
      for (const auto& text : overrides_of(point)) overrides.push_back(text);
      try {
        load_whole_recipe(sweep.recipe, overrides);
      } catch (const RecipeError& error) {
        const auto& first = error.diagnostics().front();
        Diagnostic diagnostic{read.places.at(parameter.name), first.code, "", {}, {}, {}, ""};
        diagnostic.message =
            fmt::format("trials with {} would fail: {}", join(overrides_of(point), ", "), first.message);
        diagnostic.other_message = "leave such points out with `constraints`, or change the range";
        problems.add(diagnostic);
        break;
      }
    }
  problems.throw_if_any();
}

}  // namespace runner::sweep
