// Checks the recipes of trials before any of them starts.
#include <algorithm>
#include <cmath>
#include <set>

#include "runner/base/metric_names.hpp"
#include "runner/config/config.hpp"
#include "runner/config/located_json.hpp"
#include "runner/config/schedule.hpp"
#include "runner/data/data_meaning.hpp"
#include "runner/lua/key_places.hpp"
#include "runner/lua/known_metrics.hpp"
#include "runner/selection/strategy_options.hpp"
#include "runner/sweep/lua_sweep.hpp"
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

/// A point that the constraints accept, with `value` for `wanted`; null if no draw gives one.
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

/// The keys that determine the model's parameters and the optimizer's state.
const std::vector<std::string> shaping_keys = {"model.name",        "model.n_layers",
                                               "model.dim",         "model.n_heads",
                                               "model.n_kv_heads",  "model.vocab_size",
                                               "model.max_seq_len", "model.hidden_dim",
                                               "model.multiple_of", "model.ffn_dim_multiplier",
                                               "model.bias",        "model.tie_embeddings",
                                               "model.head_dim",    "model.norm",
                                               "model.norm_place",  "model.qk_norm",
                                               "model.mlp_bias",    "model.attention_bias",
                                               "model.gated_mlp",   "model.parallel_residual",
                                               "data.tokenizer",    "data.tokenizer_vocab_size",
                                               "optimizer.name"};

bool is_shaping(const std::string& key) {
  return std::find(shaping_keys.begin(), shaping_keys.end(), key) != shaping_keys.end();
}

void check_pbt(const SweepFile& sweep, const Recipe& recipe, const Origin& place, Problems& problems) {
  auto refuse = [&](const std::string& why) { problems.add(place, "contradiction", why); };
  const auto& schedule = recipe.lr_scheduler.name;
  if (needs_end(recipe.lr_scheduler))
    refuse(
        fmt::format("pbt changes train.max_steps in each generation, and lr_scheduler.name = \"{}\" depends on it: "
                    "use \"constant\", \"step\" or \"inverse_sqrt\"",
                    schedule));
  if (!recipe.checkpoint.save_at_end) refuse("pbt continues from final checkpoints: set checkpoint.save_at_end = true");
  for (const char* key : {"train.max_steps", "train.max_epochs", "lr_scheduler.name", "checkpoint.save_at_end"})
    if (sweep.space.find(key))
      refuse(
          fmt::format("pbt trains in generations of `interval` steps and continues from final checkpoints: `{}` "
                      "cannot be varied",
                      key));
  for (const auto& key : shaping_keys)
    if (sweep.space.find(key))
      refuse(fmt::format(
          "pbt's members continue from each other's checkpoints, which need the same model and the same optimizer: "
          "`{}` cannot be varied",
          key));
  for (const auto& parameter : sweep.space.parameters())
    if (changes_meaning(recipe, parameter.name) && !is_shaping(parameter.name))
      refuse(fmt::format(
          "pbt's members continue from each other's checkpoints, and this key changes the meaning of their position "
          "in the data: `{}` cannot be varied",
          parameter.name));
  const auto* momentum = sweep.space.find("optimizer.momentum");
  const auto values = momentum ? telling_values(*momentum) : std::vector<json>{};
  const auto zeros = std::count(values.begin(), values.end(), json(0));
  if (zeros > 0 && zeros < static_cast<int64_t>(values.size()))
    refuse(
        "pbt's members continue from each other's checkpoints, which contain no momentum if optimizer.momentum is 0: "
        "its range must begin above 0");
}

/// Whether a parameter configures hooks. The metrics may then differ between trials.
bool varies_hooks(const SweepFile& sweep) {
  const auto& parameters = sweep.space.parameters();
  return std::any_of(parameters.begin(), parameters.end(),
                     [](const Parameter& parameter) { return parameter.name.starts_with("hooks."); });
}

/// Without this check, all trials would train and then fail for lack of a value.
void check_metric(const SweepFile& sweep, const Recipe& recipe, const Origin& place, Problems& problems) {
  if (sweep.metric == metric::val_loss || sweep.in_lua() || varies_hooks(sweep))
    return;  // val_loss: see check_demands()
  if (lua::trainer_records(recipe, sweep.metric)) return;
  auto known = lua::known_metrics(recipe);
  if (known.recorded(sweep.metric) != lua::KnownMetrics::Recorded::no) return;
  problems.add(place, "unknown-metric", fmt::format("no trial will report a metric `{}`", sweep.metric), known.names,
               sweep.metric);
}

/// Checks what the method and the metric require of the recipe. Mistakes are reported at their keys.
void check_demands(const SweepFile& sweep, const Recipe& recipe, const LocatedJson& table, Problems& problems) {
  auto place = [&](const char* key) { return table.find(key) ? table.find(key)->place : table.place; };
  if (sweep.metric == metric::val_loss && !recipe.data.validates())
    problems.add(
        place("metric"), "contradiction",
        "metric = \"val_loss\" needs data.validation or data.validation_fraction in the recipe; or use metric = "
        "\"loss\"");
  check_metric(sweep, recipe, place("metric"), problems);
  if (sweep.method == "asha" && sweep.metric == metric::val_loss) {
    int64_t first = sweep.method_options.at("min_steps"), interval = recipe.train.val_check_interval.value_or(0);
    if (interval == 0 || interval > first)
      problems.add(
          place("method"), "contradiction",
          fmt::format("asha first decides at step {}, and val_loss comes {}: set train.val_check_interval = {}", first,
                      interval == 0 ? "at the ends of epochs" : fmt::format("every {} steps", interval), first));
  }
  if (sweep.method == "pbt") check_pbt(sweep, recipe, place("method"), problems);
}

/// The mistake in the recipe of a trial.
struct TrialProblem {
  std::string message;            ///< empty: none
  std::vector<std::string> keys;  ///< parameters to whose values the recipe's error points
};

/// The key of a position in --set: "model.dim" for "model.dim=96".
std::string key_set_at(const Origin& place) {
  return place.kind == Origin::Kind::set ? place.file.substr(0, place.file.find('=')) : "";
}

class TrialRecipes {
 public:
  TrialRecipes(const SweepFile& sweep, const RecipeCheck& inputs) : sweep_(sweep), inputs_(inputs) {}

  TrialProblem problem(const json& parameters) const {
    try {
      load_whole_layered_recipe(sweep_.recipe, {sweep_.overrides, overrides_of(parameters)},
                                changes_inputs(parameters) ? inputs_ : RecipeCheck());
    } catch (const RecipeError& error) {
      return blame(error.diagnostics().front(), parameters);
    }
    return {};
  }

 private:
  /// Otherwise the inputs are those of the base recipe, which are checked once.
  static bool changes_inputs(const json& parameters) {
    for (const auto& [name, value] : parameters.items())
      if (name.starts_with("data.") || name.starts_with("model.") || name.starts_with("hooks.")) return true;
    return false;
  }

  static TrialProblem blame(const Diagnostic& diagnostic, const json& parameters) {
    auto message =
        fmt::format("trials with {} would fail: {}",
                    parameters.empty() ? "no parameters" : join(overrides_of(parameters), ", "), diagnostic.message);
    TrialProblem problem{message, {}};
    for (const auto& key : {key_set_at(diagnostic.place), diagnostic.other ? key_set_at(*diagnostic.other) : ""})
      if (parameters.contains(key)) problem.keys.push_back(key);
    return problem;
  }

  const SweepFile& sweep_;
  const RecipeCheck& inputs_;
};

void check_space(const SweepFile& sweep, const LocatedJson& table, const TrialRecipes& recipes, Problems& problems) {
  Problems seen_before;
  auto read = read_space(table, sweep.method == "grid", seen_before);
  std::set<std::string> blamed;
  for (const auto& parameter : sweep.space.parameters())
    for (const auto& value : telling_values(parameter)) {
      json point = point_with(sweep.space, parameter, value, sweep.seed);
      auto found = point.is_null() ? TrialProblem() : recipes.problem(point);
      if (found.message.empty()) continue;
      const auto& key = found.keys.empty() ? parameter.name : found.keys.front();
      if (!blamed.insert(key).second) continue;
      Diagnostic diagnostic{read.places.at(key), "trial", found.message};
      diagnostic.other_message = "leave such points out with `constraints`, or change the range";
      problems.add(diagnostic);
    }
}

/// Checks the first trials, at most 100, that `run` proposes before it needs a result.
void check_first_trials(const SweepFile& sweep, const Origin& place, const TrialRecipes& recipes, Problems& problems) {
  auto method = sweep.make_method();
  method->set_replaying(true);  // its output appears when the sweep runs
  for (int64_t number = 0; number < 100; ++number) {
    auto proposal = method->propose(number);
    if (proposal.kind != Proposal::Kind::trial) return;
    auto found = recipes.problem(proposal.trial.parameters);
    if (found.message.empty()) continue;
    problems.add(place, "trial", fmt::format("trial {} of `run`: {}", number, found.message));
    return;
  }
}

}  // namespace

std::string metric_note(const SweepFile& sweep, const Recipe& recipe) {
  if (lua::trainer_records(recipe, sweep.metric)) return "";
  if (lua::known_metrics(recipe).recorded(sweep.metric) != lua::KnownMetrics::Recorded::maybe) return "";
  return fmt::format(
      "metric = \"{}\": this name is in no hook, but hooks compute names; trials that do not log it fail",
      sweep.metric);
}

void check_recipes(const SweepFile& sweep, const RecipeCheck& inputs) {
  Problems problems;
  const Recipe base = load_whole_recipe(sweep.recipe, sweep.overrides);  // reports positions in the recipe
  const auto tree =
      sweep.in_lua() ? read_lua_sweep(sweep.source, sweep.file) : parse_located_toml(sweep.source, sweep.file);
  const LocatedJson& table = sweep.in_lua() ? tree : *tree.find("sweep");
  check_demands(sweep, base, table, problems);
  const TrialRecipes recipes(sweep, inputs);
  if (const auto* space = table.find("space")) check_space(sweep, *space, recipes, problems);
  problems.throw_if_any();
  if (sweep.in_lua())
    check_first_trials(sweep, lua::KeyPlaces(sweep.source, sweep.file).find_path({"run"}), recipes, problems);
  problems.throw_if_any();
}

}  // namespace runner::sweep
