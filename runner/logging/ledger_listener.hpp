// Writes a run to the ledger while it goes on.
#pragma once
#include <chrono>

#include "runner/logging/run_listener.hpp"

namespace runner {

class LedgerListener final : public RunListener {
 public:
  /// `patience`: how long, in seconds, the first end() may wait for a ledger that cannot be written; later ones do not wait. Throws
  /// Error(environment) if the ledger cannot be opened.
  LedgerListener(const std::string& home, std::chrono::seconds patience)
      : ledger_(home, Ledger::Mode::write), patience_(patience) {}

  /// Commits the row of a new run.
  void begin_run(const NewRun& row) { run_ = ledger_.begin_run(row); }
  /// See Ledger::reopen_run().
  std::string reopen(const std::string& run, const NewRun& row);

  Ledger& ledger() { return ledger_; }
  const Ledger& ledger() const { return ledger_; }
  const std::string& run() const { return run_; }
  /// The number of the attempt that began last.
  int64_t attempt() const { return attempt_; }

  void begin(const AttemptStart& attempt) override;
  void points(const PointGroup& group) override { ledger_.metrics(run_, group.points); }
  void event(const std::string& kind, const nlohmann::json& fields) override;
  void artifact(const std::string& kind, const std::string& path, const nlohmann::json& fields) override {
    ledger_.artifact(run_, kind, path, fields);
  }
  /// Throws Error(environment) if another process has resumed the run.
  void tick() override;
  void end(const RunEnd& end) override;

 private:
  Ledger ledger_;
  std::string run_;
  int64_t attempt_ = 0;
  std::chrono::seconds patience_;
  double last_heartbeat_ = 0;
};

}  // namespace runner
