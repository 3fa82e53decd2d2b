// The log of a run, RUN_DIR/logs/run.log: what the terminal shows of it, with steps as plain lines.
#pragma once
#include <memory>
#include <string>

#include "runner/logging/run_listener.hpp"

namespace runner {

/// Collects what is printed (base/log.hpp) from its construction to its destruction. The first attempt's lines include what was
/// printed before it. A log that cannot be written stops nothing. There may be only one object at a time.
class RunLog final : public RunListener {
 public:
  RunLog();
  ~RunLog() override;
  RunLog(const RunLog&) = delete;

  std::string title() const override { return "run.log"; }
  void begin(const AttemptStart& attempt) override;

 private:
  struct Lines;
  std::shared_ptr<Lines> lines_;
};

}  // namespace runner
