// Finding a run by the text on the command line.
#include <catch2/catch_test_macros.hpp>
#include <regex>

#include "support.hpp"

using namespace runner;

namespace {

/// A ledger with runs of the given ids and names.
struct Named {
  LedgerFolder folder;
  std::unique_ptr<Ledger> ledger;
  explicit Named(const std::vector<std::pair<std::string, std::string>>& runs) {
    ledger = std::make_unique<Ledger>(folder.home(), Ledger::Mode::write);
    for (const auto& [id, name] : runs) {
      const std::string made = ledger->begin_run(new_run(folder, name));
      folder.raw().run("UPDATE run SET id = ? WHERE id = ?", id, made);
    }
  }
  std::string find(const std::string& text) { return ledger->find_run(text); }
};

}  // namespace

TEST_CASE("ids are sortable, short and unique, down to their last four characters") {
  LedgerFolder folder;
  Ledger ledger(folder.home(), Ledger::Mode::write);
  std::vector<std::string> ids, tails;
  for (int i = 0; i < 50; ++i) {
    ids.push_back(ledger.begin_run(new_run(folder)));
    CHECK(std::regex_match(ids.back(), std::regex("20[0-9]{6}-[0-9]{6}-[2-9a-hjkmnp-z]{4}")));
    tails.push_back(ids.back().substr(16));
  }
  for (size_t i = 0; i < ids.size(); ++i) CHECK(ledger.find_run(tails[i]) == ids[i]);
  CHECK(ledger.runs().back().id == ids.back());
}

TEST_CASE("a run is found by id, prefix, suffix, name or as the last one") {
  Named runs({{"20261120-100000-aaaa", "base"},
              {"20261121-065403-k3f9", "llm_fsdp"},
              {"20261121-070000-bbbb", "llm_fsdp"},
              {"20261122-080000-cccc", "20261120"}});
  CHECK(runs.find("20261121-065403-k3f9") == "20261121-065403-k3f9");
  CHECK(runs.find("k3f9") == "20261121-065403-k3f9");
  CHECK(runs.find("20261121-06") == "20261121-065403-k3f9");
  CHECK(runs.find("llm_fsdp") == "20261121-070000-bbbb");
  CHECK(runs.find("base") == "20261120-100000-aaaa");
  CHECK(runs.find("last") == "20261122-080000-cccc");
  CHECK(runs.find("20261120") == "20261122-080000-cccc");  // a name has precedence over a prefix of an id
}

TEST_CASE("a part of an id's end names no run: it is too easily another run") {
  Named runs({{"20261120-100000-aaaa", "base"}, {"20261121-065403-k3fa", "llm"}});
  CHECK(runs.find("k3fa") == "20261121-065403-k3fa");
  for (const std::string text : {"a", "fa", "3fa", "-k3fa"})
    CHECK(error_of([&] { runs.find(text); }).starts_with("2: there is no run \"" + text + "\""));
}

TEST_CASE("a name in the trash is not taken for the beginning of another run's name or id") {
  Named runs({{"20261120-100000-aaaa", "a"}, {"20261121-065403-bbbb", "ab"}, {"a-065403-cccc", "c"}});
  runs.folder.raw().execute("UPDATE run SET deleted = 1 WHERE name = 'a'");
  CHECK(error_of([&] { runs.find("a"); }) ==
        "2: run 20261120-100000-aaaa is in the trash: `runner restore 20261120-100000-aaaa` brings it back");
  CHECK(runs.find("ab") == "20261121-065403-bbbb");
}

TEST_CASE("the last run is none that is archived") {
  Named runs({{"20261120-100000-aaaa", "a"}, {"20261121-065403-bbbb", "b"}});
  runs.folder.raw().execute("UPDATE run SET archived = 1 WHERE name = 'b'");
  CHECK(runs.find("last") == "20261120-100000-aaaa");
  CHECK(runs.find("b") == "20261121-065403-bbbb");
  runs.folder.raw().execute("UPDATE run SET archived = 1");
  CHECK(error_of([&] { runs.find("last"); }) == "2: there is no last run: all runs in " + runs.folder.file().string() +
                                                    " are archived; `runner ls archived:yes` lists them");
}

TEST_CASE("a text that matches no run, or several, is refused with similar ids and names") {
  Named runs({{"20261121-065403-k3f9", "llm_fsdp"}, {"20261121-070000-bbbb", "llm_ddp"}});
  const std::string file = runs.folder.file().string();
  CHECK(error_of([&] { runs.find("2026"); }) ==
        "2: \"2026\" names 2 runs: 20261121-065403-k3f9 or 20261121-070000-bbbb");
  CHECK(error_of([&] { runs.find("lm_fsdp"); }) ==
        "2: there is no run \"lm_fsdp\" in " + file +
            ": did you mean \"llm_fsdp\"?; `runner ls` lists all, RUNNER_HOME=FOLDER names another ledger");
  CHECK(error_of([&] { runs.find("k3f8"); }) ==
        "2: there is no run \"k3f8\" in " + file +
            ": did you mean \"k3f9\"?; `runner ls` lists all, RUNNER_HOME=FOLDER names another ledger");
  CHECK(error_of([&] { runs.find("resnet"); }) ==
        "2: there is no run \"resnet\" in " + file +
            "; `runner ls` lists all, RUNNER_HOME=FOLDER names another ledger");
  CHECK(error_of([&] { runs.find(""); }) == "2: an empty text names no run");
}

TEST_CASE("many runs with one prefix are counted, and the newest are listed") {
  std::vector<std::pair<std::string, std::string>> seven;
  for (char c = 'a'; c < 'h'; ++c) seven.emplace_back(std::string("20261121-065403-") + std::string(4, c), "x");
  Named runs(seven);
  CHECK(error_of([&] { runs.find("2026"); }) ==
        "2: \"2026\" names 7 runs: 20261121-065403-cccc, 20261121-065403-dddd, 20261121-065403-eeee, "
        "20261121-065403-ffff or "
        "20261121-065403-gggg (2 more)");
}

TEST_CASE("an unknown metric of a run is refused with the nearest name") {
  LedgerFolder folder;
  Ledger ledger(folder.home(), Ledger::Mode::write);
  const std::string id = ledger.begin_run(new_run(folder));
  CHECK(error_of([&] { ledger.points(id, "loss"); }) == "2: run " + id + " has no metrics yet");
  ledger.metrics(id, {{"loss", 1, 2.0}, {"lr", 1, 1e-3}});
  ledger.flush();
  CHECK(error_of([&] { ledger.points(id, "los"); }) ==
        "2: run " + id + " has no metric \"los\": did you mean \"loss\"?; it has loss, lr");
  CHECK(error_of([&] { ledger.points(id, "accuracy"); }) ==
        "2: run " + id + " has no metric \"accuracy\"; it has loss, lr");
}

TEST_CASE("a run that reads the model of another is linked with it, and is not the last one") {
  LedgerFolder folder;
  Ledger ledger(folder.home(), Ledger::Mode::write);
  const auto training = ledger.begin_run(new_run(folder));
  auto evaluation = new_run(folder);
  evaluation.strategy = "evaluate";
  evaluation.parent = training;
  evaluation.parent_kind = "evaluated";
  const auto child = ledger.begin_run(evaluation);
  ledger.metrics(child, {{.name = "perplexity", .step = 7, .value = 3.5}});
  ledger.flush();
  CHECK(ledger.find_run("last") == training);
  const auto of_training = ledger.show(training), of_child = ledger.show(child);
  CHECK(of_training["parents"].empty());
  REQUIRE(of_training["children"].size() == 1);
  CHECK(of_training["children"][0]["id"] == child);
  CHECK(of_training["children"][0]["kind"] == "evaluated");
  CHECK(of_training["children"][0]["metrics"]["perplexity"]["last"] == 3.5);
  REQUIRE(of_child["parents"].size() == 1);
  CHECK(of_child["parents"][0]["id"] == training);
  CHECK(of_child["children"].empty());
}
