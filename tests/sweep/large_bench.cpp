// Measures long sweeps for scripts/bench/sweep_large, with a ledger of many ended trials. One JSON line per method.
#include <cstdio>
#include <cstdlib>

#include "runner/base/clock.hpp"
#include "runner/base/files.hpp"
#include "runner/sweep/executor.hpp"

using namespace runner;
using namespace runner::sweep;
using nlohmann::json;

namespace {

const char* const recipe =
    "[model]\nname = \"gpt\"\nn_layers = 1\ndim = 32\nn_heads = 2\nmax_seq_len = 32\n[data]\nformat = \"text\"\n"
    "train = [\"text.txt\"]\n[devices]\naccelerator = \"cpu\"\nthreads_per_rank = 1\n[train]\nmax_steps = 1\n"
    "global_batch_size = 4\n";

const char* const space =
    "\"optimizer.lr\" = { log_uniform = [1e-5, 1e-1] }\n\"optimizer.weight_decay\" = { uniform = [0, 0.5] }\n"
    "\"model.dropout\" = { uniform = [0.0, 0.3] }\n\"train.global_batch_size\" = [4, 8, 16]\n";

std::string file_of(const std::string& method, int64_t trials) {
  if (method == "lua")
    return "return {recipe = 'base.toml', metric = 'loss', parallel = 1, budget = {trials = " + std::to_string(trials) +
           "}, run = function(sweep) while true do sweep:try{['optimizer.lr'] = 10 ^ -(1 + 4 * math.random())} end "
           "end}";
  return "[sweep]\nrecipe = \"base.toml\"\nmetric = \"loss\"\nparallel = 1\nmethod = \"" + method +
         "\"\nbudget = { trials = " + std::to_string(trials) + " }\n[sweep.space]\n" + space;
}

/// The mean of the last hundred proposals, and the time of the complete replay.
json measure(const fs::path& folder, const std::string& method, int64_t trials) {
  const auto file = folder / (method + (method == "lua" ? ".lua" : ".toml"));
  write_file_atomic(file, file_of(method, trials + 1));
  SweepFile sweep = load_sweep(file.string());
  Sweeps store((folder / "home").string(), Ledger::Mode::write);
  NewSweep row;
  row.name = method;
  row.recipe = "extends = \"" + sweep.recipe + "\"\n";
  row.space = {{"source", sweep.source}, {"file", file.string()}, {"recipe", sweep.recipe}, {"set", json::array()},
               {"method", method},       {"metric", "loss"},      {"goal", "min"},          {"trials", trials + 1}};
  std::string id = store.begin(row);
  Search search = sweep.make_search();
  double proposing = 0;
  for (int64_t i = 0; i < trials; ++i) {
    double begun = steady_seconds();
    Trial trial = search.propose().trial;
    if (i >= trials - 100) proposing += (steady_seconds() - begun) / 100;
    store.propose(id, i, trial.parameters, to_json(proposed(trial)));
    double value = std::abs(std::log10(trial.parameters.at("optimizer.lr").get<double>()) + 3);
    auto entry = search.end(i, "finished", value, 1, "");
    store.finish(id, i, {"finished", value, 1, "", ""}, to_json(entry));
  }
  store.end(id, "interrupted", "", 1);
  double begun = steady_seconds();
  Search again = sweep.make_search();
  replay_history(again, store, id);
  double replay = steady_seconds() - begun;
  return {{"method", method}, {"trials", trials}, {"propose_ms", 1e3 * proposing}, {"replay_s", replay}, {"id", id}};
}

}  // namespace

int main(int count, char** words) {
  if (count < 4) return std::fprintf(stderr, "usage: bench_sweep_large FOLDER TRIALS METHOD...\n"), 2;
  const fs::path folder = words[1];
  write_file_atomic(folder / "base.toml", recipe);
  write_file_atomic(folder / "text.txt", std::string(20'000, 'x'));
  for (int i = 3; i < count; ++i)
    std::printf("%s\n", measure(folder, words[i], std::atoll(words[2])).dump().c_str()), std::fflush(stdout);
}
