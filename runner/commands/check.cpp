// `runner check`.
#include <memory>

#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/commands/command.hpp"
#include "runner/commands/place.hpp"
#include "runner/commands/plan_here.hpp"
#include "runner/commands/preflight.hpp"
#include "runner/commands/shared_options.hpp"
#include "runner/data/data.hpp"
#include "runner/data/data_check.hpp"
#include "runner/devices/devices.hpp"
#include "runner/ledger/ledger.hpp"
#include "runner/report/axis_text.hpp"
#include "runner/selection/script_strategy.hpp"

namespace runner {

namespace {

/// The results of checking a recipe or a sweep file.
struct Findings {
  std::vector<Diagnostic> mistakes;
  std::vector<std::string> notes;
  std::string plan;      ///< description of the plan; empty if there is none
  std::string pipeline;  ///< pipeline_text(); empty if there is none
  nlohmann::json stages;
  std::string data;      ///< data_summary()
  std::string not_here;  ///< why this machine cannot run it; empty if it can
};

/// A note if a global batch has more samples than the training data, which are counted if that takes well under a second.
std::string short_epoch_note(const Plan& plan) {
  const auto& data = plan.recipe.data;
  constexpr uintmax_t quick_bytes = 2 << 20;
  if (data.is_plugin()) return "";
  if (needs_tokenizing(data) && (!data.sources.empty() || data.tokenizer == "sentencepiece")) return "";
  uintmax_t bytes = 0;
  for (const auto& file : data.train)
    if ((needs_tokenizing(data) || data.is_table()) && fs::is_regular_file(file)) bytes += fs::file_size(file);
  if (bytes > quick_bytes) return "";
  const auto training = open_dataset(data, Split::train, plan.seq_len, plan.vocab_size, data_cache());
  const int64_t batch = global_batch_size(plan.recipe, plan.job.data_ranks(), 0), there = training->size_up_to(batch);
  if (there >= batch) return "";
  return fmt::format(
      "a global batch has {}, and the training data {}: {}", counted(batch, "sample"), there,
      data.drop_last ? "data.drop_last leaves no batch" : "each epoch is one step of " + counted(there, "sample"));
}

/// Adds the recipe's plan on this machine. If only this machine's hardware is insufficient, that is not a mistake in
/// the recipe.
void look_at_plan(const Recipe& recipe, Findings& findings) {
  try {
    const Topology topology = topology_here(recipe, facts_for(recipe));
    Plan plan = plan_on(recipe, topology, /*several_supervisors=*/false);
    findings.notes = plan.notes;
    if (recipe.plugins.cluster_environment)
      findings.notes.push_back(
          fmt::format("plugins.cluster_environment says at the start of a run where its ranks are; this plan is for {}",
                      counted(topology.num_nodes, "node")));
    findings.plan = describe(plan);
    if (plan.pipeline) findings.pipeline = pipeline_text(*plan.pipeline), findings.stages = to_json(*plan.pipeline);
    Recipe::Data summed = plan.recipe.data;
    if (summed.tokenizer == "sentencepiece") {  // which is trained on the training files
      summed.validation.clear();
      for (auto& source : summed.sources) source.validation.clear();
    }
    findings.data = data_summary(summed, plan.seq_len, plan.vocab_size, data_cache(), /*tokenized=*/false);
    if (auto note = short_epoch_note(plan); !note.empty()) findings.notes.push_back(std::move(note));
    if (memory_known(*plan.entry)) {  // `recommend` shows the same sum
      const int64_t tensors = plan.memory_bytes(), context = memory_limit(topology, 0).context;
      findings.plan += fmt::format(
          ", predicted to need {} {}, {} of it for tensors", format_bytes(tensors + context),
          plan.pipeline ? fmt::format("on rank {} of the pipeline, which needs most", plan.pipeline->largest)
                        : "a rank",
          format_bytes(tensors));
      if (auto host = plan.host_bytes(); host > 0)
        findings.plan += fmt::format(", and {} of host memory", format_bytes(host));
    }
    auto space = free_bytes(fs::absolute(ledger_home()));
    auto note = space ? disk_space_note(plan, *space, 0) : "";
    if (!note.empty()) findings.notes.push_back(note);
  } catch (const RecipeError&) {
    throw;
  } catch (const NothingFits& nothing) {
    findings.not_here = nothing.what();
  } catch (const Error& error) {
    if (error.code() != ExitCode::environment) throw;
    findings.not_here = error.what();
  }
}

Findings look_at(const std::string& file, const std::vector<std::string>& overrides) {
  Findings findings;
  try {
    if (is_sweep_file(file)) {
      if (!overrides.empty())
        throw usage_error("--set is for recipes, but {} is a sweep file: use its section [sweep.set]", file);
      load_ready_sweep(file, findings.notes);
    } else {
      Recipe recipe = load_ready_recipe(file, overrides);
      look_at_plan(recipe, findings);
      for (const auto& note : input_notes(recipe)) findings.notes.push_back(note);
    }
  } catch (const RecipeError& error) {
    findings.mistakes = error.diagnostics();
  } catch (const Error& error) {
    if (error.code() != ExitCode::usage) throw;
    Origin whole;
    whole.file = file;
    findings.mistakes.push_back({whole, "usage", error.what()});
  }
  return findings;
}

}  // namespace

Action setup_check(CLI::App& app) {
  auto file = std::make_shared<std::string>();
  auto overrides = std::make_shared<std::vector<std::string>>();
  auto json = std::make_shared<bool>(false);
  app.add_option("recipe", *file, "A recipe or a sweep file")->required();
  add_overrides(app, *overrides);
  add_json_option(app, *json);
  return [file, overrides, json] {
    const Findings findings = look_at(*file, *overrides);
    const auto& mistakes = findings.mistakes;
    if (*json) {
      auto errors = nlohmann::json::array();
      for (const auto& diagnostic : mistakes) errors.push_back(to_json(diagnostic));
      auto or_null = [](const std::string& text) { return text.empty() ? nlohmann::json() : nlohmann::json(text); };
      print_json(nlohmann::json{{"schema", 1},
                                {"ok", mistakes.empty()},
                                {"errors", errors},
                                {"notes", findings.notes},
                                {"plan", or_null(findings.plan)},
                                {"pipeline", findings.stages},
                                {"data", or_null(findings.data)},
                                {"not_here", or_null(findings.not_here)}});
      return mistakes.empty() ? ExitCode::done : ExitCode::usage;
    }
    if (!mistakes.empty()) throw RecipeError(mistakes);
    for (const auto& note : findings.notes) log::info("note: {}", note);
    if (!findings.plan.empty()) log::info("{}", findings.plan);
    if (!findings.pipeline.empty()) log::info("{}", trim(findings.pipeline));
    if (!findings.data.empty()) log::info("data: {}", findings.data);
    if (!findings.not_here.empty()) log::warning("this machine cannot run it: {}", findings.not_here);
    log::info("{} is fine{}", *file, findings.not_here.empty() ? "" : ", but not for this machine");
    return ExitCode::done;
  };
}

}  // namespace runner
