// The listeners of a run: their order, and what happens when one fails.
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "runner/base/metric_names.hpp"
#include "runner/logging/csv_log.hpp"
#include "runner/logging/ledger_listener.hpp"
#include "runner/logging/tensorboard_log.hpp"
#include "tests/logging/logged_run.hpp"

using namespace runner;
using runner::testing::LoggedRun;

namespace {

/// Writes down its calls. Fails in the call named by `fails`.
class Recorder final : public RunListener {
 public:
  Recorder(std::string name, std::string& calls, std::string fails = "") : name_(name), calls_(calls), fails_(fails) {}
  std::string title() const override { return name_; }
  void begin(const AttemptStart&) override { note("begin"); }
  void points(const PointGroup& group) override { note("points " + std::to_string(group.step)); }
  void event(const std::string& kind, const nlohmann::json&) override { note(kind); }
  void artifact(const std::string& kind, const std::string& path, const nlohmann::json&) override {
    note(kind + " " + path);
  }
  void end(const RunEnd&) override { note("end"); }

 private:
  void note(const std::string& call) {
    calls_ += name_ + ": " + call + "\n";
    if (call == fails_) throw std::runtime_error(name_ + " is broken");
  }
  std::string name_;
  std::string& calls_;
  std::string fails_;
};

const Outcome finished{.code = ExitCode::done, .status = "finished", .first_cause = ""};

}  // namespace

TEST_CASE("the ledger is told first, and a listener that fails gets no further calls") {
  LoggedRun logged;
  std::string calls;
  Recorder ledger("ledger", calls);
  RunListeners listeners(ledger);
  listeners.add(std::make_shared<Recorder>("a", calls, "points 1"));
  listeners.add(std::make_shared<Recorder>("b", calls));
  listeners.begin(logged.attempt());
  listeners.points(logged.group({{"loss", 1, 2.0}}));
  listeners.points({.from = PointGroup::From::hook, .step = 1, .points = {}, .event = logged.event});  // nobody is told
  listeners.event("note", {});
  listeners.artifact("checkpoint", "step-1", {});
  listeners.end({.outcome = finished});
  CHECK(calls ==
        "ledger: begin\na: begin\nb: begin\n"
        "ledger: points 1\na: points 1\nb: points 1\n"
        "ledger: note\nb: note\n"
        "ledger: checkpoint step-1\nb: checkpoint step-1\n"
        "ledger: end\nb: end\n");
}

TEST_CASE("the end is told in reverse, also if the ledger fails, whose failure is thrown") {
  std::string calls;
  Recorder ledger("ledger", calls, "end");
  RunListeners listeners(ledger);
  listeners.add(std::make_shared<Recorder>("a", calls));
  listeners.add(std::make_shared<Recorder>("b", calls));
  CHECK_THROWS_AS(listeners.end({.outcome = finished}), std::runtime_error);
  CHECK(calls == "ledger: end\nb: end\na: end\n");
}

TEST_CASE("a failure of the ledger during the run is thrown") {
  std::string calls;
  Recorder ledger("ledger", calls, "note");
  RunListeners listeners(ledger);
  CHECK_THROWS_AS(listeners.event("note", {}), std::runtime_error);
}

TEST_CASE("a log that cannot be written is left out, and the others go on") {
  LoggedRun logged;
  const auto in_the_way = logged.folder.path / "metrics.csv";
  fs::create_directories(in_the_way);
  std::string calls;
  Recorder ledger("ledger", calls);
  RunListeners listeners(ledger);
  listeners.add(std::make_shared<CsvLog>(in_the_way));
  listeners.add(std::make_shared<TensorBoardLog>(logged.folder.path / "tensorboard"));
  CHECK(listeners.places().size() == 2);
  listeners.begin(logged.attempt());
  listeners.points(logged.group({{"loss", 1, 1}}));
  CHECK(listeners.places() == std::vector<std::string>{logged.folder.path / "tensorboard"});
}

TEST_CASE("the ledger's listener keeps points, events, artifacts and the end; it leaves out what is only shown") {
  LoggedRun logged;
  LedgerListener listener((logged.folder.path / "other").string(), std::chrono::seconds(1));
  listener.begin_run(logged.row);
  const std::string run = listener.run();
  const fs::path folder = listener.ledger().run_dir(run);
  listener.begin({.home = logged.home,
                  .run = run,
                  .folder = folder,
                  .row = logged.row,
                  .reason = "resume",
                  .from_step = 3,
                  .checkpoint = folder / "checkpoints" / "step-000003",
                  .checkpoint_here = true,
                  .ledger = listener.ledger()});
  CHECK(listener.attempt() == 1);
  listener.points(
      {.from = PointGroup::From::step, .step = 4, .points = {{"loss", 4, std::nan("")}}, .event = logged.event});
  listener.event("first_step", {{"step", 4}});
  listener.event("printed", {{"text", "hello"}});
  listener.event("note", {{"message", "hello"}});
  listener.artifact("artifact", "table.txt", {{"step", 4}});
  listener.end({.outcome = finished, .message = "why", .measured = {{"steps", 4}}});
  const auto shown = listener.ledger().show(run);
  CHECK(std::isnan(listener.ledger().points(run, "loss").at(0).second));
  REQUIRE(shown.at("events").size() == 1);
  CHECK(shown.at("events")[0].at("message") == "hello");
  CHECK(shown.at("artifacts").size() == 1);
  REQUIRE(shown.at("checkpoints").size() == 1);  // the run was killed after it was published and before it was recorded
  CHECK(shown.at("checkpoints")[0].at("path") == "checkpoints/step-000003");
  CHECK(shown.at("status") == "finished");
  CHECK(shown.at("why") == "why");
  CHECK(shown.at("measured").at("steps") == 4);
}

TEST_CASE("metrics are sorted in reading order, and others keep their order at the end") {
  std::vector<std::string> names = {"aux", "epoch", "lr", "lr/head", "val_loss", "loss"};
  sort_metrics(names);
  CHECK(names == std::vector<std::string>{"loss", "val_loss", "lr", "epoch", "aux", "lr/head"});
  REQUIRE(find_metric("val_accuracy"));
  CHECK(higher_is_better("val_accuracy"));
  CHECK(find_metric("aux") == nullptr);
}
