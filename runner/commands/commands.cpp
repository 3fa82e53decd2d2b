// The list of all verbs. Each verb is implemented in the file of its name, or in one with those that do alike.
#include <algorithm>

#include "runner/base/text.hpp"
#include "runner/commands/command.hpp"

namespace runner {

Action setup_run(CLI::App& app);
Action setup_resume(CLI::App& app);
Action setup_rerun(CLI::App& app);
Action setup_sweep(CLI::App& app);
Action setup_submit(CLI::App& app);
Action setup_check(CLI::App& app);
Action setup_recommend(CLI::App& app);
Action setup_data(CLI::App& app);
Action setup_print(CLI::App& app);
Action setup_init(CLI::App& app);
Action setup_import(CLI::App& app);
Action setup_help(CLI::App& app);
Action setup_lua(CLI::App& app);
Action setup_strategies(CLI::App& app);
Action setup_ls(CLI::App& app);
Action setup_show(CLI::App& app);
Action setup_metrics(CLI::App& app);
Action setup_diff(CLI::App& app);
Action setup_compare(CLI::App& app);
Action setup_plot(CLI::App& app);
Action setup_tail(CLI::App& app);
Action setup_logs(CLI::App& app);
Action setup_query(CLI::App& app);
Action setup_tag(CLI::App& app);
Action setup_note(CLI::App& app);
Action setup_rename(CLI::App& app);
Action setup_group(CLI::App& app);
Action setup_archive(CLI::App& app);
Action setup_rm(CLI::App& app);
Action setup_restore(CLI::App& app);
Action setup_purge(CLI::App& app);
Action setup_gc(CLI::App& app);
Action setup_export(CLI::App& app);
Action setup_generate(CLI::App& app);
Action setup_chat(CLI::App& app);
Action setup_evaluate(CLI::App& app);
Action setup_predict(CLI::App& app);
Action setup_embed(CLI::App& app);
Action setup_doctor(CLI::App& app);
Action setup_ui(CLI::App& app);
Action setup_completion(CLI::App& app);

namespace {

/// The headings of `runner --help`, with their verbs.
constexpr std::pair<const char*, const char*> headings[] = {
    {"Every day", "run resume check ls show compare generate chat evaluate export"},
    {"Recipes", "init import print data recommend strategies lua help"},
    {"Training", "rerun sweep submit"},
    {"Records", "metrics diff plot tail logs query ui"},
    {"Changing records", "tag note rename group archive rm restore purge gc"},
    {"Models", "predict embed"},
    {"This program", "doctor completion"}};

/// The verbs in the order of the headings.
std::vector<Command> under_headings(const std::vector<Command>& all) {
  std::vector<Command> sorted;
  for (const auto& [heading, verbs] : headings)
    for (const auto& verb : split(verbs, ' ')) {
      const auto found = std::ranges::find(all, verb, [](const Command& command) { return std::string(command.name); });
      RUNNER_CHECK(found != all.end(), "{}", verb);
      sorted.push_back(*found);
      sorted.back().heading = heading;
    }
  RUNNER_CHECK(sorted.size() == all.size(), "a verb has no heading");
  return sorted;
}

}  // namespace

const std::vector<Command>& commands() {
  static const std::vector<Command> list = under_headings({
      {"run", "Train what a recipe describes", setup_run, {"train", "fit", "start", "launch"}},
      {"resume", "Continue a run from its newest checkpoint", setup_resume, {"continue", "restart"}},
      {"rerun", "Train a run again from what the ledger recorded", setup_rerun, {"reproduce", "repeat"}},
      {"sweep", "Run, resume and look at sweeps: many trials of one recipe", setup_sweep, {"tune", "search", "hpo"}},
      {"submit",
       "Submit a recipe or a sweep to Slurm, as a job that resumes",
       setup_submit,
       {"sbatch", "slurm", "queue"}},
      {"check", "Read a recipe and report its mistakes, without starting anything", setup_check, {"validate", "lint"}},
      {"recommend",
       "Say which strategy fits a recipe best, here or on other devices, and why",
       setup_recommend,
       {"plan", "estimate"}},
      {"data",
       "Show samples of a recipe's data as a training sees them, with what is supervised",
       setup_data,
       {"dataset", "samples", "preprocess"}},
      {"print", "Print a recipe with every default filled in", setup_print, {"config", "resolve"}},
      {"init", "Write a new recipe", setup_init, {"new", "create"}},
      {"import",
       "Add runs of another ledger or program, or print another tool's configuration as a recipe",
       setup_import,
       {"convert", "merge"}},
      {"help", "Explain a verb or the keys of recipes: runner help VERB, runner help recipe [SECTION | KEY]",
       setup_help},
      {"lua", "Check a Lua hook or strategy: runner lua check FILE", setup_lua},
      {"strategies", "List strategies and their options, and which of them do nothing on this machine",
       setup_strategies},
      {"ls", "List runs", setup_ls, {"list", "runs", "ps"}},
      {"show", "Show what is known about runs", setup_show, {"status", "info", "describe"}},
      {"metrics", "Print the metrics of runs", setup_metrics, {"history"}},
      {"diff", "Show what differs between two runs", setup_diff},
      {"compare", "Compare runs by the keys in which they differ", setup_compare, {"table"}},
      {"plot", "Draw curves of runs in the terminal, or as SVG or PNG", setup_plot, {"chart", "graph", "curve"}},
      {"tail", "Follow the metrics and the output of a running run", setup_tail, {"follow", "watch", "attach"}},
      {"logs", "Print or search what the ranks of a run wrote", setup_logs, {"log", "output"}},
      {"query", "Read the ledger with SQL: runner query \"SELECT ...\"", setup_query, {"sql", "select"}},
      {"tag", "Add tags to runs and remove them: runner tag RUN +good -draft", setup_tag, {"label", "untag"}},
      {"note", "Print, replace or extend the notes of a run", setup_note, {"notes", "comment", "annotate"}},
      {"rename", "Give a run another name", setup_rename, {"name"}},
      {"group", "Put runs into a group", setup_group},
      {"archive", "Hide runs from listings, or show them again", setup_archive, {"hide"}},
      {"rm", "Move runs to the trash", setup_rm, {"remove", "delete", "trash", "del"}},
      {"restore", "Bring runs back from the trash", setup_restore, {"undelete", "unrm", "untrash"}},
      {"purge", "Delete runs in the trash for good, with their folders", setup_purge, {"empty"}},
      {"gc",
       "Remove checkpoints that no rule keeps, and what killed processes have left",
       setup_gc,
       {"clean", "prune", "cleanup"}},
      {"export",
       "Write a run's weights, its points, or its whole record for another program or machine",
       setup_export,
       {"save"}},
      {"generate",
       "Continue a prompt with a run's model, or with one in a Hugging Face folder",
       setup_generate,
       {"sample", "complete", "inference", "infer"}},
      {"chat", "Talk with a model in the terminal", setup_chat, {"talk", "repl"}},
      {"evaluate",
       "Measure a model: loss and metrics on validation data, or a multiple-choice task",
       setup_evaluate,
       {"eval", "test", "score"}},
      {"predict",
       "Write a model's answer to each record, row or image, as JSON lines",
       setup_predict,
       {"apply", "classify"}},
      {"embed", "Write a vector for each text of a file, as JSON lines", setup_embed, {"embeddings", "encode"}},
      {"doctor", "Check this machine, with a fix under each failing line", setup_doctor},
      {"ui", "Open the runs as a local web page", setup_ui, {"web", "dashboard", "serve", "board", "tensorboard"}},
      {"completion", "Print a script that completes runner's words in a shell", setup_completion},
  });
  return list;
}

}  // namespace runner
