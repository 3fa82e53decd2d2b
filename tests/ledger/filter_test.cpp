// The language of filters: what it reads, what it refuses and where, and which runs it finds.
#include "runner/ledger/filter.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>

#include "runner/base/text.hpp"
#include "runner/ledger/filter_sql.hpp"
#include "support.hpp"

using namespace runner;

namespace {

/// Six runs, r0 to r5, begun in this order.
struct SixRuns {
  LedgerFolder folder;
  std::unique_ptr<Ledger> ledger;

  SixRuns() {
    ledger = std::make_unique<Ledger>(folder.home(), Ledger::Mode::write);
    const char* strategies[] = {"ddp", "ddp", "fsdp", "fsdp", "single", "evaluate"};
    for (int i = 0; i < 6; ++i) {
      NewRun run = new_run(folder, "r" + std::to_string(i));
      run.tags = i % 2 ? std::vector<std::string>{"odd", "Big one"} : std::vector<std::string>{};
      run.notes = i == 4 ? "warm restarts help" : "";
      run.strategy = strategies[i];
      run.group = i < 2 ? "gpt-small" : i < 4 ? "gpt-large" : "";
      run.config = {{"optimizer", {{"lr", std::pow(10.0, -i)}, {"name", i < 3 ? "adamw" : "sgd"}}},
                    {"lr_scheduler", {{"name", "cosine"}}},
                    {"train", {{"loss", "cross_entropy"}, {"max_steps", 10 * i}}},
                    {"data", {{"train", {"a.txt", "b.txt"}}, {"shuffle", i != 3}}},
                    {"run", {{"seed", 7}}}};
      const std::string id = ledger->begin_run(run);
      ledger->begin_attempt(id, "start");
      ledger->metrics(id, {{"loss", 1, 6.0 - i}, {"loss", 2, 3.0 + i}, {"val_accuracy", 2, 0.1 * i}, {"lr", 2, 5.0}});
      if (i == 5) ledger->metrics(id, {{"loss", 3, std::nan("")}});
      ledger->finish_run(id, i == 2 ? "failed" : i == 3 ? "interrupted" : "finished", 0, i == 2 ? "out of memory" : "");
      folder.raw().run("UPDATE run SET started = ? WHERE id = ?", 1'000'000'000.0 + i, id);
    }
  }
  /// The matching runs: "r0 r2".
  std::string find(const std::string& filter) const {
    std::vector<std::string> names;
    for (const auto& run : ledger->runs(parse_filter(filter))) names.push_back(run.name);
    return join(names, " ");
  }
  std::string error(const std::string& filter) const {
    return error_of([&] { find(filter); });
  }
};

}  // namespace

TEST_CASE("a filter of one field finds the runs with one of its values") {
  const SixRuns runs;
  CHECK(runs.find("") == "r0 r1 r2 r3 r4 r5");
  CHECK(runs.find("status:failed") == "r2");
  CHECK(runs.find("status:failed,interrupted") == "r2 r3");
  CHECK(runs.find("STATUS") == "");  // a word to search for
  CHECK(runs.find("status:f*") == "r0 r1 r2 r4 r5");
  CHECK(runs.find("tag:odd") == "r1 r3 r5");
  CHECK(runs.find("tag:\"big one\"") == "r1 r3 r5");
  CHECK(runs.find("tag:none") == "r0 r2 r4");
  CHECK(runs.find("name:R?") == "r0 r1 r2 r3 r4 r5");
  CHECK(runs.find("name:r") == "");
  CHECK(runs.find("strategy:fsdp,single") == "r2 r3 r4");
  CHECK(runs.find("group:gpt-*") == "r0 r1 r2 r3");
  CHECK(runs.find("group:none") == "r4 r5");
  CHECK(runs.find("notes:warm") == "r4");
  CHECK(runs.find("message:memory") == "r2");
  CHECK(runs.find("sweep:none") == "r0 r1 r2 r3 r4 r5");
  CHECK(runs.find("host:box") == "");
}

TEST_CASE("recipe keys are found by their name or by its unique end, and metrics by their last value") {
  const SixRuns runs;
  CHECK(runs.find("optimizer.lr>1e-3") == "r0 r1 r2");
  CHECK(runs.find("lr>=1e-3") == "r0 r1 r2 r3");
  CHECK(runs.find("lr = 0.001") == "r3");
  CHECK(runs.find("lr:0.1,1e-5") == "r1 r5");
  CHECK(runs.find("optimizer.name:ADAM*") == "r0 r1 r2");
  CHECK(runs.find("optimizer.name!=sgd") == "r0 r1 r2");
  CHECK(runs.find("shuffle:false") == "r3");
  CHECK(runs.find("data.train:b.txt status:failed") == "r2");
  CHECK(runs.find("seed:7 max_steps<=20") == "r0 r1 r2");
  CHECK(runs.find("loss<5") == "r0 r1");  // train.loss is a text
  CHECK(runs.find("train.loss:cross*") == "r0 r1 r2 r3 r4 r5");
  CHECK(runs.find("last(lr)>1") == "r0 r1 r2 r3 r4 r5");
  CHECK(runs.find("max(loss)<6") == "r1 r2");
  CHECK(runs.find("best(loss)<3") == "r4 r5");
  CHECK(runs.find("best(val_accuracy)>0.25") == "r3 r4 r5");
  CHECK(runs.find("loss:nan") == "r5");
  CHECK(runs.find("-loss<5 -loss:nan") == "r2 r3 r4");
}

TEST_CASE("whole numbers beyond 2^53 are compared as they are") {
  SixRuns runs;
  for (const auto& [name, seed] : {std::pair("r1", 9007199254740993), {"r2", 9007199254740992}})
    runs.folder.raw().run(
        "UPDATE config SET content = json_set(content, '$.run.seed', ?) WHERE hash = (SELECT config FROM run WHERE "
        "name "
        "= ?)",
        int64_t{seed}, name);
  CHECK(runs.find("run.seed:9007199254740993") == "r1");
  CHECK(runs.find("run.seed:9007199254740992") == "r2");
  CHECK(runs.find("run.seed>9007199254740992") == "r1");
  CHECK(runs.find("run.seed:9007199254740992.0,7.0 name:r1,r2") == "r2");
}

TEST_CASE("terms are joined by and, and each can be negated") {
  const SixRuns runs;
  CHECK(runs.find("tag:odd strategy:fsdp") == "r3");
  CHECK(runs.find("tag:odd and strategy:fsdp") == "r3");
  CHECK(runs.find("-tag:odd !strategy:ddp") == "r2 r4");
  CHECK(runs.find("not tag:odd not -status:failed") == "r2");
  CHECK(runs.find("-unknown_word") == "r0 r1 r2 r3 r4 r5");
}

TEST_CASE("a word without a field is searched for in name, id, tags, group and notes") {
  const SixRuns runs;
  CHECK(runs.find("R3").find("r3") != std::string::npos);  // ids end in random characters, so others may match, too
  CHECK(runs.find("restarts") == "r4");
  CHECK(runs.find("\"Big one\" ddp*") == "");
  CHECK(runs.find("large") == "r2 r3");
  CHECK(runs.find("'100%'") == "");
}

TEST_CASE("times are durations before now, dates or words") {
  const SixRuns runs;
  CHECK(runs.find("since:7d") == "");
  CHECK(runs.find("before:7d") == "r0 r1 r2 r3 r4 r5");
  CHECK(runs.find("since:2001-09-01 before:2001-09-30") == "r0 r1 r2 r3 r4 r5");
  CHECK(runs.find("started>2001-12-01") == "");
  CHECK(runs.find("since:today") == "");
  CHECK(runs.find("took>1d") == "");
}

TEST_CASE("sort orders by any value, runs without one come last, and limit keeps the first") {
  const SixRuns runs;
  CHECK(runs.find("sort:-name") == "r5 r4 r3 r2 r1 r0");
  CHECK(runs.find("sort:-last(loss)") == "r4 r3 r2 r1 r0 r5");
  CHECK(runs.find("sort:last(loss)") == "r0 r1 r2 r3 r4 r5");
  CHECK(runs.find("sort:lr limit:2") == "r5 r4");
  CHECK(runs.find("sort:strategy,-best(loss)") == "r1 r0 r5 r2 r3 r4");
  CHECK(runs.find("limit:2") == "r4 r5");
  CHECK(runs.find("newest:3 sort:-name limit:2") == "r5 r4");
  CHECK(runs.find("tag:odd newest:2") == "r3 r5");
}

TEST_CASE("archived and deleted runs are hidden unless a filter names them") {
  const SixRuns runs;
  runs.folder.raw().execute(
      "UPDATE run SET archived = 1 WHERE name = 'r1'; UPDATE run SET deleted = 1 WHERE name = 'r2'");
  CHECK(runs.find("") == "r0 r3 r4 r5");
  CHECK(runs.find("archived:yes") == "r1");
  CHECK(runs.find("deleted:yes") == "r2");
  CHECK(runs.find("archived:any deleted:any") == "r0 r1 r2 r3 r4 r5");
  CHECK(runs.ledger->runs().size() == 6);
}

TEST_CASE("a mistake in a filter is shown with its place and the nearest name") {
  const SixRuns runs;
  CHECK(
      runs.error("lr>1 status:faild") ==
      "2: there is no status \"faild\"; did you mean \"failed\"?; it is one of running, finished, failed, interrupted, "
      "preempted, pruned or lost\n"
      "  lr>1 status:faild\n"
      "              ^^^^^");
  CHECK(runs.error("staus:failed") ==
        "2: no run has a field, recipe key or metric \"staus\"; did you mean \"status\"?\n"
        "  staus:failed\n"
        "  ^^^^^");
  CHECK(runs.error("best(val_acuracy)>1") ==
        "2: no run has a metric \"val_acuracy\"; did you mean \"val_accuracy\"?\n"
        "  best(val_acuracy)>1\n"
        "  ^^^^^^^^^^^^^^^^^");
  CHECK(runs.error("bst(loss)>1") ==
        "2: there is no function `bst`: it is last, best, min or max; did you mean \"best\"?\n"
        "  bst(loss)>1\n"
        "  ^^^");
  CHECK(runs.error("seed:7 best(loss)") ==
        "2: compare `best(loss)` with a number, as in best(loss)<2\n"
        "  seed:7 best(loss)\n"
        "         ^^^^^^^^^^");
  CHECK(runs.error("name>3") == "2: `name` is not a number; write name:3\n  name>3\n  ^^^^");
  CHECK(runs.error("lr>fast") == "2: `lr` is compared with a number, and \"fast\" is none\n  lr>fast\n     ^^^^");
  CHECK(runs.error("limit:many") ==
        "2: `limit` is followed by a number of runs, as in limit:20\n  limit:many\n  ^^^^^^^^^^");
  CHECK(runs.error("since:monday") ==
        "2: \"monday\" is no time: write a duration before now (7d, 12h, 30m), a date (2026-11-20), a date with a time "
        "(2026-11-20T18:00), today or yesterday\n"
        "  since:monday\n"
        "        ^^^^^^");
  CHECK(runs.error("a or b") ==
        "2: terms cannot be joined by \"or\"; several values of one field can: status:failed,lost\n  a or b\n    ^^");
  CHECK(runs.error("failed") == "2: did you mean status:failed? name:failed finds the name\n  failed\n  ^^^^^^");
  CHECK(runs.error("tag:") == "2: `tag` has no value\n  tag:\n  ^^^^");
  CHECK(runs.error("tag:\"x") == "2: there is no closing \"\n  tag:\"x\n      ^^");
  CHECK(runs.error("archived:maybe") ==
        "2: `archived` is yes, no or any, not \"maybe\"\n  archived:maybe\n           ^^^^^");
  CHECK(runs.error("name:x optimizer.name:a confg.name>1").starts_with("2: no run has a field"));
  CHECK(runs.error("(tag:x)") == "2: terms cannot be grouped by parentheses\n  (tag:x)\n  ^");
  try {
    parse_filter("tag:ä status:nö");
    FAIL();
  } catch (const FilterError& error) {
    CHECK(error.place().offset == 14);
    CHECK(error.place().length == 3);
  }
}

TEST_CASE("the end of several recipe keys must be written out") {
  const SixRuns runs;
  runs.folder.raw().execute("INSERT INTO config_key VALUES ('model.seed', '$.model.seed', 1)");
  CHECK(runs.error("seed:7") ==
        "2: \"seed\" is the end of several recipe keys: write model.seed or run.seed\n  seed:7\n  ^^^^");
  CHECK(runs.find("run.seed:7 name:r1") == "r1");
}

TEST_CASE("columns are fields, recipe keys, and values of metrics") {
  const SixRuns runs;
  const auto rows = runs.ledger->runs(parse_filter("name:r3"),
                                      parse_columns("name, status,lr,best(val_accuracy),last(loss),tag,shuffle"));
  REQUIRE(rows.size() == 1);
  CHECK(nlohmann::json(rows[0].cells) ==
        nlohmann::json({"r3", "interrupted", 0.001, 0.1 * 3, 6.0, {"odd", "Big one"}, false}));
  CHECK(error_of([&] { runs.ledger->runs(parse_filter(""), parse_columns("name,lrr")); }) ==
        "2: no run has a field, recipe key or metric \"lrr\"; did you mean \"lr\"?\n  name,lrr\n       ^^^");
}

TEST_CASE("a column shows a metric that is not a number, and lists and booleans of recipes") {
  const SixRuns runs;
  const auto cells = [&](const std::string& filter, const std::string& columns) {
    return nlohmann::json(runs.ledger->runs(parse_filter(filter), parse_columns(columns)).at(0).cells);
  };
  CHECK(cells("name:r5", "last(loss),best(loss),monitor") == nlohmann::json({"NaN", 1.0, "loss"}));
  CHECK(cells("name:r4", "data.train,shuffle") == nlohmann::json({{"a.txt", "b.txt"}, true}));
  runs.folder.raw().execute("DELETE FROM metric_last WHERE run = (SELECT run FROM run WHERE name = 'r4')");
  CHECK(cells("name:r4", "last(loss)") == nlohmann::json::array({nullptr}));  // no points
}

TEST_CASE("nan is found as the last value, and as the best one if no point is a number") {
  const SixRuns runs;
  CHECK(runs.find("last(loss):nan") == "r5");
  CHECK(runs.find("best(loss):nan") == "");
  runs.folder.raw().execute(
      "UPDATE metric_last SET value = NULL, min = NULL, max = NULL WHERE run = (SELECT run FROM run WHERE name = "
      "'r1')");
  CHECK(runs.find("best(loss):nan") == "r1");
  CHECK(runs.find("metric:nan") == "");
}

TEST_CASE("the best value of a metric is finite, and min and max are not only") {
  const SixRuns runs;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const auto add = [&](const char* name, const std::vector<MetricPoint>& points) {
    const auto id = runs.ledger->begin_run(new_run(runs.folder, name));
    runs.ledger->begin_attempt(id, "start");
    runs.ledger->metrics(id, points);
    runs.ledger->finish_run(id, "finished", 0, "");
  };
  add("r6", {{"loss", 1, 1.5}, {"loss", 2, -infinity}, {"val_accuracy", 1, 0.9}, {"val_accuracy", 2, infinity}});
  add("r7", {{"loss", 1, -infinity}, {"loss", 2, std::nan("")}});
  CHECK(runs.find("best(loss):1.5") == "r6");
  CHECK(runs.find("best(loss)<1.5") == "r5");
  CHECK(runs.find("min(loss)<1") == "r6 r7");
  CHECK(runs.find("sort:-best(val_accuracy) limit:1 best(val_accuracy)<1") == "r6");
  CHECK(runs.find("sort:best(loss)").ends_with(" r7"));
  const auto rows = runs.ledger->runs(parse_filter("name:r6,r7"), parse_columns("best(loss)"));
  CHECK(nlohmann::json(rows.at(0).cells) == nlohmann::json::array({1.5}));
  CHECK(nlohmann::json(rows.at(1).cells) == nlohmann::json::array({"-Infinity"}));
}

TEST_CASE("a day means all of it, and a date that does not exist is none") {
  const SixRuns runs;
  runs.folder.raw().run("UPDATE run SET started = ? WHERE name = 'r2'", *filter_time("2026-11-20T18:30", 0));
  CHECK(runs.find("started:2026-11-20") == "r2");
  CHECK(runs.find("started:2026-11-19") == "");
  CHECK_FALSE(filter_time("2026-02-31", 0));
  CHECK(filter_time("2024-02-29", 0));
}

TEST_CASE("names as MLflow writes them are explained") {
  const SixRuns runs;
  CHECK(runs.error("metrics.loss<3") ==
        "2: names have no \"metrics.\" in front: write \"loss\"\n  metrics.loss<3\n  ^^^^^^^^^^^^");
}

TEST_CASE("the trash has archived runs, too") {
  const SixRuns runs;
  runs.folder.raw().execute("UPDATE run SET archived = 1, deleted = 2 WHERE name = 'r1'");
  CHECK(runs.find("deleted:yes") == "r1");
}

TEST_CASE("a filter searches metrics by their keys and never scans them") {
  const SixRuns runs;
  auto database = runs.folder.raw();
  for (const char* text :
       {"", "status:failed lr>1e-3 tag:odd since:7d sort:-best(val_accuracy) limit:20",
        "best(loss)<2 last(loss)>1 loss:nan metric<3 sort:max(loss)", "sweep:none took>1s newest:5"}) {
    const RunFilter filter = parse_filter(text);
    FilterSql sql(database, filter, {});
    const std::string where = sql.where(), order = sql.order_by();
    sqlite::Statement plan(database, "EXPLAIN QUERY PLAN SELECT run.run FROM run WHERE " + where + " " + order);
    sql.bind(plan);
    while (plan.step()) {
      INFO(text << ": " << plan.text(3));
      CHECK(plan.text(3).find("SCAN metric") == std::string::npos);
    }
  }
}
