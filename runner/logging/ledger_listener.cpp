#include "runner/logging/ledger_listener.hpp"

#include <utility>

#include "runner/base/clock.hpp"
#include "runner/base/fault_point.hpp"

namespace runner {

std::string LedgerListener::reopen(const std::string& run, const NewRun& row) {
  run_ = run;
  return ledger_.reopen_run(run_, row);
}

void LedgerListener::begin(const AttemptStart& attempt) {
  fault_point("begin attempt");
  // If the checkpoint is elsewhere, a resume starts from it again until this attempt writes one.
  const bool elsewhere = !attempt.checkpoint.empty() && !attempt.checkpoint_here;
  ledger_.annotate(run_, "start", elsewhere ? nlohmann::json(attempt.checkpoint.string()) : nlohmann::json());
  attempt_ = ledger_.begin_attempt(run_, attempt.reason, attempt.from_step, attempt.completed);
  // The checkpoint is not recorded yet if the run was killed after the rename and before the event.
  if (attempt.checkpoint_here)
    ledger_.artifact(run_, "checkpoint", attempt.checkpoint.string(),
                     {{"step", attempt.from_step}, {"path", attempt.checkpoint.string()}}, /*unless_known=*/true);
}

void LedgerListener::event(const std::string& kind, const nlohmann::json& fields) {
  if (kind != "first_step" && kind != "printed") ledger_.event(run_, kind, fields);
}

void LedgerListener::tick() {
  constexpr double interval = 5;
  const double now = steady_seconds();
  if (now - last_heartbeat_ < interval) return;
  last_heartbeat_ = now;
  ledger_.heartbeat(run_);
}

void LedgerListener::end(const RunEnd& end) {
  ledger_.annotate(run_, "measured", end.measured);
  ledger_.finish_run(run_, end.outcome.status, static_cast<int>(end.outcome.code), end.message,
                     std::exchange(patience_, {}));
  ledger_.flush();
}

}  // namespace runner
