// Ledgers with runs that have records, logs and real checkpoints, for the tests of what keeps, moves and deletes them.
#pragma once
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "runner/base/files.hpp"
#include "runner/checkpoint/checkpoint.hpp"
#include "runner/ledger/ledger.hpp"
#include "runner/ledger/sqlite.hpp"
#include "tests/support/command.hpp"

namespace runner::testing {

/// Publishes a checkpoint of one tensor, like a rank of a training does.
inline void publish(const fs::path& run_dir, int64_t step, double val_loss) {
  const std::vector<float> values(2000, static_cast<float>(step));
  CheckpointWriter writer(run_dir / "checkpoints", step, 0, 1);
  const auto entry = writer.write_rank({{.tensor = "param/w",
                                         .dtype = "F32",
                                         .global_shape = {2000},
                                         .offset = 0,
                                         .data = std::as_bytes(std::span(values))}});
  writer.publish({entry}, {{"val_loss", val_loss}, {"attempt", 1}});
}

/// The published checkpoints that open and verify. Fails the test if one does not.
inline std::vector<int64_t> sound_checkpoints(const fs::path& run_dir) {
  std::vector<int64_t> steps;
  for (const auto& path : list_checkpoints(run_dir / "checkpoints")) steps.push_back(Checkpoint(path).step());
  return steps;
}

/// A finished run with `points` points of two metrics, checkpoints of the steps 10, 20, ..., 60, and a rule that keeps one.
inline std::string add_run(const fs::path& home, const std::string& name, int64_t points = 100,
                           const std::string& parent = "", const std::string& status = "finished") {
  Ledger ledger(home.string(), Ledger::Mode::write);
  NewRun run;
  run.name = name;
  run.run_dir_root = (home / "runs").string();
  run.recipe_source = "[run]\nname = \"" + name + "\"\n";
  run.resolved = run.recipe_source;
  run.config = {{"run", {{"name", name}}},
                {"optimizer", {{"lr", 0.1}}},
                {"checkpoint", {{"keep_last", 1}, {"monitor", "val_loss"}}}};
  run.origins = nlohmann::json::object();
  run.plan = {{"strategy", "single"}, {"reason", "asked for"}};
  run.strategy = "single";
  run.argv = {"runner"};
  run.host = {{"hostname", "box"}};
  run.parent = parent;
  run.parent_kind = "evaluated";
  const auto id = ledger.begin_run(run);
  ledger.begin_attempt(id, "start");
  std::vector<MetricPoint> list;
  for (int64_t step = 1; step <= points; ++step) {
    list.push_back({"loss", step, 1.0 / static_cast<double>(step)});
    list.push_back({"odd, \"name\"", step,
                    step % 7 == 0    ? std::nan("")
                    : step % 11 == 0 ? -INFINITY
                                     : static_cast<double>(step) / 3});
  }
  ledger.metrics(id, list);
  const fs::path run_dir = ledger.run_dir(id);
  write_file_atomic(run_dir / "recipe.toml", run.recipe_source);
  fs::create_directories(run_dir / "logs");
  write_file_atomic(run_dir / "logs" / "rank-0.log", "a line\n");
  for (int64_t step = 10; step <= 60; step += 10) {
    publish(run_dir, step, step == 30 ? 0.1 : 1.0);
    ledger.artifact(id, "checkpoint", (run_dir / "checkpoints" / checkpoint_name(step)).string(), {{"step", step}});
  }
  if (status == "running")
    ledger.flush();
  else
    ledger.finish_run(id, status, 0, "");
  return id;
}

inline sqlite::Database raw(const fs::path& home) { return {home / "ledger.db", sqlite::Access::existing}; }

inline bool is_whole(const fs::path& file) {
  sqlite::Database database(file, sqlite::Access::existing);
  return database.text("PRAGMA integrity_check") == "ok" &&
         database.integer("SELECT count(*) FROM pragma_foreign_key_check") == 0;
}

}  // namespace runner::testing
