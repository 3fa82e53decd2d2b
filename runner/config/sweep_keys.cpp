#include "runner/config/sweep_keys.hpp"

namespace runner {

namespace {

using nlohmann::json;
using In = SweepKey::In;

json integer_from(int64_t least) { return {{"type", "integer"}, {"minimum", least}}; }
json one_word_of(std::vector<std::string> words) { return {{"type", "string"}, {"enum", std::move(words)}}; }
json fixed_table(json properties) {
  return {{"type", "object"}, {"properties", std::move(properties)}, {"additionalProperties", false}};
}

const json any_text = {{"type", "string"}};
const json any_number = {{"type", "number"}};

std::vector<SweepKey> make_sweep_keys() {
  return {
      {"name", "a string; default the file's name", "Name in listings; its trials are NAME-0000 and so on.", any_text},
      {"recipe", "a string; required", "The recipe that is varied, relative to this file.", any_text},
      {"set",
       "a table of recipe keys and values",
       "Overrides of the recipe for all trials: [sweep.set] optimizer.name = \"sgd\".",
       {{"type", "object"}}},
      {"method",
       "a name, or { name, options }: grid, random, sobol, tpe, asha or pbt; default random",
       "How trials are chosen: every combination (grid); random or evenly distributed points (random, sobol); from the "
       "results of ended trials (tpe); with early stops of the worse trials (asha); with parameters that change during "
       "training (pbt).",
       {{"anyOf", {any_text, {{"type", "object"}, {"properties", {{"name", any_text}}}, {"required", {"name"}}}}}},
       In::toml},
      {"run", "a function", "In Lua: proposes trials and receives their results.", json::object(), In::lua},
      {"metric", "a string; default \"val_loss\"", "The metric that compares trials, of the trainer or of a hook.",
       any_text},
      {"value", "last or best; default last", "A trial's value: the metric's last point, or its best.",
       one_word_of({"last", "best"})},
      {"goal", "min or max; default min", "Whether small or great values are better.", one_word_of({"min", "max"})},
      {"reports",
       "true or false; default false",
       "In Lua: `run` receives each point of the metric and may stop the trial.",
       {{"type", "boolean"}},
       In::lua},
      {"seed", "an integer; default 0", "Decides which trials are proposed.", integer_from(0)},
      {"parallel",
       "an integer, or \"auto\" (the default): as many as the machine has devices for",
       "Trials at the same time.",
       {{"anyOf", {integer_from(1), one_word_of({"auto"})}}}},
      {"budget", "a table: trials (an integer), time and trial_time (durations)",
       "Limits: the number of trials, the time after which no trial starts, and the time after which a trial fails.",
       fixed_table({{"trials", integer_from(1)}, {"time", any_text}, {"trial_time", any_text}})},
      {"stop", "a table: target (a number), no_improvement and failures (integers)",
       "End the sweep once a trial reaches `target`, after so many trials without an improvement, or after so many "
       "failures.",
       fixed_table({{"target", any_number}, {"no_improvement", integer_from(1)}, {"failures", integer_from(1)}})},
      {"constraints",
       "a list of strings",
       "Conditions on keys that every trial must meet: \"model.dim % model.n_heads == 0\".",
       {{"type", "array"}, {"items", any_text}}},
      {"space",
       "a table from recipe keys to ranges; required except in Lua",
       "[sweep.space] \"optimizer.lr\" = { log_uniform = [1e-5, 1e-2] }: a list of choices, or one of { uniform = "
       "[low, "
       "high], step }, { log_uniform = [low, high] }, { integer = [low, high], step, log }, { choice = [...] }. All "
       "take when = { \"KEY\" = value }, and points = n for method \"grid\".",
       {{"type", "object"}, {"additionalProperties", {{"type", {"array", "object"}}}}}},
  };
}

}  // namespace

const std::vector<SweepKey>& sweep_keys() {
  static const std::vector<SweepKey> keys = make_sweep_keys();
  return keys;
}

std::vector<std::string> sweep_key_names(In kind) {
  std::vector<std::string> names;
  for (const auto& key : sweep_keys())
    if (key.in == In::both || key.in == kind) names.push_back(key.name);
  return names;
}

}  // namespace runner
