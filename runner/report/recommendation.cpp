#include "runner/report/recommendation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runner/base/text.hpp"
#include "runner/config/config.hpp"
#include "runner/config/key_table.hpp"
#include "runner/report/axis_text.hpp"
#include "runner/report/table.hpp"
#include "runner/report/terminal.hpp"
#include "runner/selection/mesh_plan.hpp"
#include "runner/selection/strategy_options.hpp"
#include "strategies/pipeline/picture.hpp"

namespace runner {

namespace {

/// A bar of ten cells, filled in proportion to bytes / limit.
std::string bar(int64_t bytes, int64_t limit) {
  constexpr int cells = 10;
  if (limit <= 0) return "";
  int filled = static_cast<int>(std::ceil(cells * static_cast<double>(bytes) / static_cast<double>(limit)));
  bool over = filled > cells;
  filled = std::clamp(filled, 0, cells);
  bool wide = utf8_locale();
  std::string text;
  for (int i = 0; i < cells; ++i) text += i < filled ? (wide ? "█" : "#") : (wide ? "░" : ".");
  return over ? text + "!" : text;
}

/// "tokens", or "samples" of a model of labels or numbers.
std::string unit_of(const Candidate& candidate) { return candidate.job.model->task ? "samples" : "tokens"; }

/// Tokens of a row, without the padding of a context axis.
int64_t tokens_of_row(const ModelSpec& model) { return model.batch.front().row.front(); }

double units_per_second(const Candidate& candidate) {
  const auto& model = *candidate.job.model;
  return candidate.sequences() * static_cast<double>(model.task ? 1 : tokens_of_row(model)) / *candidate.step_seconds;
}

/// Model FLOPs utilization: the model's FLOP/s divided by the peak. Attention counts the full T x T scores;
/// recomputation is not counted. `model`: all of it.
double mfu(const Candidate& candidate, const ModelSpec& model, double peak_flops) {
  const double sequences_per_second = candidate.sequences() / *candidate.step_seconds;
  return sequences_per_second * static_cast<double>(tokens_of_row(model)) * model.training_flops_per_token() /
         (peak_flops * candidate.job.world_size());
}

/// "4 ranks"; "2 data ranks" if several ranks read the same data.
std::string data_ranks_text(const Job& job) {
  return counted(job.data_ranks(), job.data_ranks() == job.world_size() ? "rank" : "data rank");
}

/// Layers that are recomputed, and all layers.
std::pair<int64_t, int64_t> recomputed_layers(const Candidate& candidate) {
  if (const auto& pipeline = candidate.pipeline) return {pipeline->recomputed_layers, pipeline->layers};
  return {candidate.job.model->layers_with(candidate.job.recompute), candidate.job.model->layers()};
}

std::string checkpointing(const Candidate& candidate) {
  const auto [count, layers] = recomputed_layers(candidate);
  return count == 0 ? "-" : count >= layers ? "all" : fmt::format("{} of {}", count, layers);
}

/// (verdict, detail): whether the candidate fits, and its speed compared with the chosen one.
std::pair<std::string, std::string> verdict(const Choice& choice, size_t index) {
  const Candidate& candidate = choice.candidates[index];
  if (!candidate.refused.empty()) return {"refused", candidate.refused};
  if (static_cast<int>(index) == choice.chosen) return {"chosen", choice.reason};
  if (!candidate.fits) {
    int64_t device = candidate.bytes - choice.limit.device, host = candidate.host - choice.limit.host;
    if (choice.limit.device > 0 && device > 0) return {"does not fit", format_bytes(device) + " too much"};
    if (choice.limit.host > 0 && host > 0) return {"does not fit", format_bytes(host) + " of host memory too much"};
    return {"does not fit", "too close to the limit for the accuracy of the prediction"};
  }
  if (!choice.fits() || !candidate.step_seconds || !choice.plan().step_seconds) return {"fits", ""};
  double ratio = units_per_second(candidate) / units_per_second(choice.plan());
  double percent = std::round(100 * std::abs(ratio - 1));
  if (percent < 1) return {"fits", "as fast"};
  return {"fits", fmt::format("{:.0f} % {}", percent, ratio > 1 ? "faster" : "slower")};
}

/// The memory of a rank. With a pipeline: of the rank that needs most.
std::string memory_text(const Candidate& candidate) {
  const auto bytes = format_bytes(candidate.bytes);
  return candidate.pipeline ? fmt::format("{} on rank {}", bytes, candidate.pipeline->largest) : bytes;
}

/// "24 ms ±12 %".
std::string step_text(const Candidate& candidate) {
  return fmt::format("{} {}{:.0f} %", format_duration(*candidate.step_seconds), utf8_locale() ? "±" : "+-",
                     100 * candidate.step_error);
}

std::vector<std::string> row(const Recommendation& r, size_t index) {
  const Choice& choice = r.plan.choice;
  const Candidate& candidate = choice.candidates[index];
  auto [word, reason] = verdict(choice, index);
  std::string name = (static_cast<int>(index) == choice.chosen ? "> " : "  ") + label(candidate);
  if (candidate.named && candidate.form != own_form) name += fmt::format(", {}", own_form);
  if (!candidate.refused.empty()) return {name, "", "", "", "", "", "", "", "", "refused: " + reason};
  bool timed = candidate.step_seconds.has_value();
  std::string said = static_cast<int>(index) == choice.chosen ? "chosen"
                     : word == "fits" && !reason.empty()      ? reason
                     : reason.empty()                         ? word
                                                              : fmt::format("{}: {}", word, reason);
  return {name,
          std::to_string(candidate.job.micro_batch_size),
          checkpointing(candidate),
          bar(candidate.bytes, choice.limit.device),
          memory_text(candidate),
          candidate.host > 0 ? format_bytes(candidate.host) : "-",
          timed ? step_text(candidate) : "-",
          timed ? format_count(units_per_second(candidate)) : "-",
          timed && r.peak_flops > 0 ? fmt::format("{:.0f} %", 100 * mfu(candidate, *r.plan.model, r.peak_flops)) : "-",
          said};
}

/// Whether any candidate needs host memory in addition to device memory.
bool needs_host(const Choice& choice) {
  return std::any_of(choice.candidates.begin(), choice.candidates.end(),
                     [](const Candidate& candidate) { return candidate.host > 0; });
}

std::string table(const Recommendation& r, bool all) {
  const std::string speed = r.plan.model->task ? "SAMPLES/S" : "TOKENS/S";
  std::vector<Column> columns{{"  STRATEGY"}, {"MICRO", true}, {"RECOMPUTED", true}, {""},          {"MEMORY", true},
                              {"HOST", true}, {"STEP", true},  {speed, true},        {"MFU", true}, {"", false, true}};
  constexpr std::ptrdiff_t host = 5;
  std::vector<std::vector<std::string>> rows;
  for (size_t i = 0; i < r.plan.choice.candidates.size(); ++i)
    if (const auto& candidate = r.plan.choice.candidates[i]; all || candidate.named || candidate.refused.empty())
      rows.push_back(row(r, i));
  if (!needs_host(r.plan.choice)) {
    columns.erase(columns.begin() + host);
    for (auto& cells : rows) cells.erase(cells.begin() + host);
  }
  return format_table(columns, rows);
}

std::string headline(const Recommendation& r) {
  const Candidate& chosen = r.plan.choice.plan();
  std::string text = fmt::format("{}: {}, {}", r.recipe_file, label(chosen), step_size_text(chosen.job));
  if (chosen.every > 0)
    text += chosen.every == 1 ? ", all layers recomputed"
                              : fmt::format(", every {} layer recomputed", ordinal(chosen.every));
  return text;
}

/// A short description of how choice `then` differs from `now`; empty if there is no relevant difference, or if it is slower.
std::string difference(const Choice& now, const Choice& then) {
  if (!then.fits()) return "";
  if (!now.fits()) return fmt::format("{} fits, {}", label(then.plan()), memory_needed(then.plan()));
  const Candidate &a = now.plan(), &b = then.plan();
  std::vector<std::string> parts;
  if (label(a) != label(b)) parts.push_back(label(b));
  if (a.job.micro_batch_size != b.job.micro_batch_size)
    parts.push_back(fmt::format("micro-batch {}", b.job.micro_batch_size));
  if (checkpointing(a) != checkpointing(b))
    parts.push_back(checkpointing(b) == "-" ? std::string("nothing recomputed")
                                            : fmt::format("{} layers recomputed", checkpointing(b)));
  if (a.step_seconds && b.step_seconds) {
    double ratio = units_per_second(b) / units_per_second(a);
    if (ratio < 0.98) return "";
    if (!parts.empty() || ratio > 1.02) parts.push_back(fmt::format("{:.2f} times the {}/s", ratio, unit_of(a)));
  }
  return join(parts, ", ");
}

/// Why the plan's global batch size differs from the recipe's.
std::string why_changed(const Recommendation& r) {
  const Job& job = r.plan.choice.candidates.front().job;
  auto text = fmt::format("the recipe's {1} cannot be divided among {0}", data_ranks_text(job), *r.asked_batch);
  return *r.asked_batch % job.data_ranks() != 0 ? text
                                                : fmt::format("{} in micro-batches of {}", text, job.micro_batch_size);
}

bool timed(const Choice& choice) {
  return std::any_of(choice.candidates.begin(), choice.candidates.end(),
                     [](const Candidate& candidate) { return candidate.step_seconds.has_value(); });
}

nlohmann::json number_or_null(const std::optional<int64_t>& number) {
  return number ? nlohmann::json(*number) : nlohmann::json();
}

/// For a chosen plan that needs host memory of unknown size; otherwise empty.
std::string unknown_host_note(const Recommendation& r) {
  const Choice& choice = r.plan.choice;
  if (!choice.fits() || !choice.plan().job.accelerator.own_memory || choice.limit.host > 0 || choice.plan().host == 0)
    return "";
  const int64_t node = choice.plan().host * r.plan.request.topology.devices_per_node;
  return fmt::format("the host memory of a node is not known, and this plan needs {} of it: give it with --host-memory",
                     format_bytes(node));
}

/// The notes of `check` about the recipe and about the memory of the host.
std::vector<std::string> notes_on(const Recommendation& r) {
  auto notes = r.plan.recipe.notes;
  if (auto note = unknown_host_note(r); !note.empty()) notes.push_back(std::move(note));
  return notes;
}

using Sections = nlohmann::ordered_json;  ///< {section: {key: value}}

/// The values of --set, except those about the strategy, because the printed recipe names one.
Sections overridden(const Recipe& recipe) {
  Sections sections = Sections::object();
  const auto values = recipe_to_json(recipe);
  for (const auto& [dotted, origin] : recipe.origins) {
    const auto dot = dotted.find('.');
    const std::string section = dotted.substr(0, dot);
    const nlohmann::json::json_pointer path("/" + join(split(dotted, '.'), "/"));
    if (origin.kind != Origin::Kind::set || section == "strategy" || section == "selection") continue;
    if (values.contains(path)) sections[section][dotted.substr(dot + 1)] = values[path];
  }
  return sections;
}

std::string to_toml(const Recommendation& recommendation, const Sections& sections,
                    const std::vector<std::string>& unset) {
  std::string text = fmt::format("extends = {}\n", toml_value(recommendation.recipe_file));
  if (!unset.empty()) text += fmt::format("unset = {}\n", toml_value(unset));
  for (const auto& [section, keys] : sections.items()) {
    text += fmt::format("\n[{}]\n", section);
    for (const auto& [name, value] : keys.items()) text += fmt::format("{} = {}\n", name, toml_value(value));
  }
  return text;
}

/// Whether the printed recipe takes the value of this key from the command line or from the extended recipe.
bool is_kept(const Key& key) { return key.section != "strategy" && key.section != "selection"; }

/// The keys of the extended recipe that the printed one removes: the options of its strategy, and what the command line
/// removes. For example, a number of devices removes cpu_processes. `registry`: the strategies in Lua remain known.
std::vector<std::string> removed_keys(const Recommendation& recommendation, nlohmann::json& registry) {
  auto removed = recommendation.unset;
  const auto is_removed = [&](const std::string& dotted) {
    return std::ranges::any_of(removed, [&](const auto& name) { return (dotted + ".").starts_with(name + "."); });
  };
  try {
    const Recipe base = recommendation.read(to_toml(recommendation, Sections::object(), {}));
    const auto of_strategy = base.origins.lower_bound("strategy.");
    if (of_strategy != base.origins.end() && of_strategy->first.starts_with("strategy.") && !is_removed("strategy"))
      removed.push_back("strategy");
    registry = base.strategy.options.value("registry", nlohmann::json());
    for (const auto& key : key_table()) {
      const std::string dotted = key.dotted();
      const bool only_base = base.origins.contains(dotted) && !recommendation.plan.recipe.origins.contains(dotted);
      if (only_base && is_kept(key) && !is_removed(dotted)) removed.push_back(dotted);
    }
  } catch (const RecipeError&) {  // it is a recipe only with the values of the command line
  }
  return removed;
}

/// Adds the values that the printed recipe, read as `printed`, would not have. For example, it removes all that the
/// extended recipe sets in [strategy], also precision or recomputation.
void add_lost_values(const Recipe& wanted, const Recipe& printed, Sections& sections) {
  for (const auto& key : key_table()) {
    const auto origin = wanted.origins.find(key.dotted());
    if (!is_kept(key) || origin == wanted.origins.end() || origin->second.kind == Origin::Kind::decided) continue;
    if (sections.contains(key.section) && sections[key.section].contains(key.name)) continue;
    if (key.get(printed) != key.get(wanted)) sections[key.section][key.name] = key.get(wanted);
  }
}

/// The options of the chosen strategy: of its form, given by the recipe, and those that the choice adds.
nlohmann::json chosen_options(const Plan& plan) {
  const Candidate& chosen = plan.choice.plan();
  auto form = rule_book().forms.find(chosen.form);
  auto options = form != rule_book().forms.end() ? form->second.options : nlohmann::json::object();
  if (chosen.form == own_form) options = plan.request.own->options;
  options.update(plan.request.given);
  options.update(chosen.tuned);
  return options;
}

}  // namespace

std::string step_size_text(const Job& job) {
  const bool rows = job.model->task.has_value();
  std::string text = fmt::format("micro-batch {} x {}", job.micro_batch_size, data_ranks_text(job));
  if (job.accumulation > 1) text += fmt::format(" x {} accumulated", job.accumulation);
  text +=
      fmt::format(" = {} {}", job.micro_batch_size * job.data_ranks() * job.accumulation, rows ? "rows" : "sequences");
  return text + (rows ? "" : fmt::format(" of {} tokens", tokens_of_row(*job.model))) + " a step";
}

std::optional<int64_t> Recommendation::changed_batch() const {
  const auto& planned = plan.recipe.train.global_batch_size;
  return asked_batch && planned != asked_batch ? planned : std::nullopt;
}

std::string recommendation_text(const Recommendation& r, bool all, bool why) {
  const Choice& choice = r.plan.choice;
  const ModelSpec& model = *r.plan.model;
  std::string text;
  if (choice.fits())
    text += fmt::format("{}\n  because {}\n", headline(r), choice.reason);
  else
    text += r.recipe_file + ": nothing fits\n";
  if (why) text += fmt::format("  rule: {} ({})\n", choice.rule, choice.source);
  if (why && !choice.differs.empty()) text += fmt::format("  differs: {}\n", choice.differs);
  if (auto batch = r.changed_batch())
    text += fmt::format("  train.global_batch_size = {}: {}\n", *batch, why_changed(r));
  text += fmt::format("  {} with {} parameters in {} on {}", r.plan.recipe.model.name,
                      format_parameters(model.parameter_count()), r.plan.recipe.precision.mode, r.devices);
  text += choice.limit.reason.empty() ? "; memory not known: everything fits\n"
                                      : fmt::format("; limit per rank: {}\n", choice.limit.reason);
  text += "\n" + table(r, all) + "\n";
  if (choice.fits() && choice.plan().pipeline) text += pipeline_text(*choice.plan().pipeline) + "\n";
  if (const auto axes = choice.fits() ? axes_text(choice.plan()) : ""; !axes.empty()) text += axes + "\n";
  if (why)
    text += fmt::format(
        "memory: peak per rank, including {} of context{}; times: {}\n", format_bytes(choice.limit.context),
        needs_host(choice) ? "; HOST: peak host memory per rank, including the copy for checkpoints" : "", r.times);
  for (const auto& note : notes_on(r)) text += "note: " + note + "\n";
  if (why && timed(choice)) text += "STEP has a standard error: about two of three measured times are within it\n";
  if (why && r.peak_flops > 0)
    text += fmt::format("MFU: model FLOPs with full attention ({}FLOP a token), over {} of {}FLOP/s\n",
                        format_count(model.training_flops_per_token()), r.peak_name, format_count(r.peak_flops));
  for (const auto& advice : choice.advice) text += fmt::format("advice: {}\n", advice);
  std::string changes;
  for (const auto& other : r.what_if)
    if (auto words = difference(choice, other.choice); !words.empty())
      changes += fmt::format("  {}: {}\n", other.change, words);
  if (!changes.empty() && choice.fits()) text += "what would change the answer:\n" + changes;
  if (const auto offered = offers_text(r.offers); !offered.empty() && choice.fits()) text += offered + "\n";
  if (!why) text += "--why: the rule, and what the figures mean\n";
  return text;
}

nlohmann::json recommendation_json(const Recommendation& r) {
  const Choice& choice = r.plan.choice;
  nlohmann::json candidates = nlohmann::json::array();
  for (size_t i = 0; i < choice.candidates.size(); ++i) {
    const Candidate& candidate = choice.candidates[i];
    auto [word, reason] = verdict(choice, i);
    nlohmann::json item = {{"strategy", candidate.entry->name},
                           {"label", label(candidate)},
                           {"options", candidate.job.options},
                           {"fits", candidate.fits},
                           {"recipes_own", candidate.named},
                           {"verdict", word},
                           {"reason", reason}};
    if (candidate.refused.empty()) {
      const auto& memory = candidate.memory;
      item["micro_batch_size"] = candidate.job.micro_batch_size;
      item["accumulation"] = candidate.job.accumulation;
      item["recomputed_blocks"] = recomputed_layers(candidate).first;
      item["memory_bytes_per_rank"] = candidate.bytes;
      item["memory_parts"] = parts_json(memory);
      bool on_device = !candidate.job.accelerator.own_memory;  // a CPU rank's device is its host
      item["memory_parts"].update(
          {{"snapshot", on_device ? candidate.snapshot : 0}, {"context", choice.limit.context}});
      item["host_bytes_per_rank"] = candidate.host;
      item["host_parts"] = {{"offloaded", memory.host}, {"snapshot", on_device ? 0 : candidate.snapshot}};
      if (candidate.pipeline) item["pipeline"] = to_json(*candidate.pipeline);
      item["mesh"] = mesh_json(candidate.job.mesh);
      item["traffic_of_axes"] = axes_json(candidate);
      bool timed = candidate.step_seconds.has_value();
      item["step_seconds"] = timed ? nlohmann::json(*candidate.step_seconds) : nlohmann::json();
      item["step_seconds_error"] = timed ? nlohmann::json(candidate.step_error) : nlohmann::json();
      item[unit_of(candidate) + "_per_s"] = timed ? nlohmann::json(units_per_second(candidate)) : nlohmann::json();
      item["mfu"] =
          timed && r.peak_flops > 0 ? nlohmann::json(mfu(candidate, *r.plan.model, r.peak_flops)) : nlohmann::json();
    }
    candidates.push_back(item);
  }
  nlohmann::json chosen;
  if (choice.fits())
    chosen = {{"strategy", choice.plan().entry->name},
              {"label", label(choice.plan())},
              {"options", choice.plan().job.options},
              {"micro_batch_size", choice.plan().job.micro_batch_size},
              {"accumulation", choice.plan().job.accumulation},
              {"recompute_every", choice.plan().every},
              {"mesh", find_key("devices", "mesh")->get(r.plan.recipe)},
              {"rule", choice.rule},
              {"source", choice.source},
              {"differs", choice.differs.empty() ? nlohmann::json() : nlohmann::json(choice.differs)},
              {"reason", choice.reason}};
  if (choice.fits() && choice.plan().pipeline) chosen["schedule"] = to_json(choice.plan().pipeline->simulation());
  nlohmann::json changes = nlohmann::json::array();
  for (const auto& other : r.what_if)
    if (auto words = difference(choice, other.choice); !words.empty())
      changes.push_back({{"change", other.change}, {"then", words}});
  return {{"schema", 1},
          {"chosen", chosen},
          {"candidates", candidates},
          {"global_batch_size", number_or_null(r.plan.recipe.train.global_batch_size)},
          {"asked_global_batch_size", number_or_null(r.asked_batch)},
          {"limit_bytes_per_rank", choice.limit.device},
          {"host_limit_bytes_per_rank", choice.limit.host > 0 ? nlohmann::json(choice.limit.host) : nlohmann::json()},
          {"notes", notes_on(r)},
          {"parameters", r.plan.model->parameter_count()},
          {"precision", r.plan.recipe.precision.mode},
          {"devices", r.devices},
          {"times", {{"source", r.times}, {"earlier_runs", r.earlier_runs}}},
          {"planning_seconds", r.planning_seconds},
          {"advice", choice.advice},
          {"what_if", changes},
          {"offers", offers_json(r.offers)},
          {"shortfall", r.shortfall.empty() ? nlohmann::json() : nlohmann::json(r.shortfall)}};
}

std::string recommendation_toml(const Recommendation& recommendation) {
  const Plan& plan = recommendation.plan;
  const Candidate& chosen = plan.choice.plan();
  Sections sections = overridden(plan.recipe);
  auto& strategy = sections["strategy"] = {{"name", chosen.entry->name}};
  const auto options = chosen_options(plan);
  for (const auto& [name, value] : options.items())
    if (takes(*chosen.entry, name)) strategy[name] = value;
  for (const auto& key : key_table())  // those of every strategy, without the stages that were balanced
    if (key.section == "strategy" && key.name != "name" &&
        plan.recipe.origin(key.dotted()).kind != Origin::Kind::decided)
      if (auto value = key.get(plan.recipe); !value.is_null()) strategy[key.name] = value;
  if (chosen.mesh) {
    sections["devices"]["mesh"] = find_key("devices", "mesh")->get(plan.recipe);
    if (chosen.mesh->virtual_stages > 1) strategy["virtual_stages"] = chosen.mesh->virtual_stages;
  }
  auto& train = sections["train"];
  if (auto batch = recommendation.changed_batch()) train["global_batch_size"] = *batch;
  train["micro_batch_size"] = chosen.job.micro_batch_size;
  if (plan.recipe.origin("train.accumulate_grad_batches").kind == Origin::Kind::decided && chosen.job.accumulation > 1)
    train["accumulate_grad_batches"] = chosen.job.accumulation;
  if (chosen.every > 0) sections["activation_checkpointing"]["mode"] = chosen.every == 1 ? "all" : "every";
  if (chosen.every > 1) sections["activation_checkpointing"]["every"] = chosen.every;
  nlohmann::json registry;
  const auto unset = removed_keys(recommendation, registry);
  if (!registry.is_null()) strategy["registry"] = registry;
  add_lost_values(plan.recipe, recommendation.read(to_toml(recommendation, sections, unset)), sections);
  return to_toml(recommendation, sections, unset);
}

}  // namespace runner
