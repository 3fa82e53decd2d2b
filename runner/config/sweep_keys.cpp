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
      {.name = "name",
       .wanted = "a string; default the file's name",
       .help = "Name in listings; its trials are NAME-0000 and so on.",
       .schema = any_text},
      {.name = "recipe",
       .wanted = "a string; required",
       .help = "The recipe that is varied, relative to this file.",
       .schema = any_text},
      {.name = "set",
       .wanted = "a table of recipe keys and values",
       .help = "Overrides of the recipe for all trials: [sweep.set] optimizer.name = \"sgd\".",
       .schema = {{"type", "object"}}},
      {.name = "method",
       .wanted = "a name, or { name, options }: grid, random, sobol, tpe, asha or pbt; default random",
       .help = "How trials are chosen: every combination (grid); random or evenly distributed points (random, sobol); "
               "from the results of ended trials (tpe); with early stops of the worse trials (asha); with parameters "
               "that change during training (pbt).",
       .schema = {{"anyOf",
                   {any_text, {{"type", "object"}, {"properties", {{"name", any_text}}}, {"required", {"name"}}}}}},
       .in = In::toml},
      {.name = "run",
       .wanted = "a function",
       .help = "In Lua: proposes trials and receives their results.",
       .schema = json::object(),
       .in = In::lua},
      {.name = "metric",
       .wanted = "a string; default \"val_loss\"",
       .help = "The metric that compares trials, of the trainer or of a hook.",
       .schema = any_text},
      {.name = "value",
       .wanted = "last or best; default last",
       .help = "A trial's value: the metric's last point, or its best.",
       .schema = one_word_of({"last", "best"})},
      {.name = "goal",
       .wanted = "min or max; default min, but max for accuracy, F1, AUC and R2 of validation",
       .help = "Whether small or great values are better.",
       .schema = one_word_of({"min", "max"})},
      {.name = "reports",
       .wanted = "true or false; default false",
       .help = "In Lua: `run` receives each point of the metric and may stop the trial.",
       .schema = {{"type", "boolean"}},
       .in = In::lua},
      {.name = "seed",
       .wanted = "an integer; default 0",
       .help = "Decides which trials are proposed.",
       .schema = integer_from(0)},
      {.name = "parallel",
       .wanted = "an integer, or \"auto\" (the default): as many as the machine has devices for",
       .help = "Trials at the same time.",
       .schema = {{"anyOf", {integer_from(1), one_word_of({"auto"})}}}},
      {.name = "budget",
       .wanted = "a table: trials (an integer), time and trial_time (durations)",
       .help = "Limits: the number of trials, the time after which no trial starts, and the time after which a trial "
               "fails.",
       .schema = fixed_table({{"trials", integer_from(1)}, {"time", any_text}, {"trial_time", any_text}})},
      {.name = "stop",
       .wanted = "a table: target (a number), no_improvement and failures (integers)",
       .help = "Ends the sweep when a trial reaches `target`, after `no_improvement` trials in a row without a better "
               "value, or after `failures` failed trials.",
       .schema =
           fixed_table({{"target", any_number}, {"no_improvement", integer_from(1)}, {"failures", integer_from(1)}})},
      {.name = "constraints",
       .wanted = "a list of strings",
       .help = "Conditions on keys that every trial must meet: \"model.dim % model.n_heads == 0\".",
       .schema = {{"type", "array"}, {"items", any_text}}},
      {.name = "space",
       .wanted = "a table from recipe keys to ranges; required except in Lua",
       .help = "[sweep.space] \"optimizer.lr\" = { log_uniform = [1e-5, 1e-2] }: a list of choices, or one of { "
               "uniform = [low, high], step }, { log_uniform = [low, high] }, { integer = [low, high], step, log }, { "
               "choice = [...] }. All take when = { \"KEY\" = value }, and points = n for method \"grid\".",
       .schema = {{"type", "object"}, {"additionalProperties", {{"type", {"array", "object"}}}}}},
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
