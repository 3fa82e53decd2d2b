// runner tail and runner logs: following a run from another shell, and searching what its ranks wrote.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/support/command.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;
using nlohmann::json;

namespace {

/// A worker that reports steps until the file `go` exists, prints to both streams, and finishes.
const char* worker = R"(echo "out of rank $RANK"
echo "error of rank $RANK" >&2
if [ "$RANK" = 0 ]; then
  emit '{"event":"ready","rank":0}'
  emit '{"event":"step","rank":0,"step":1,"loss":2.5,"lr":0.1,"grad_norm":1.0,"seconds":0.1,"tokens":10,"rows":1,"epoch":0,"data_wait_s":0,"memory_bytes":100}'
fi
while [ ! -e go ]; do sleep 0.05; done
if [ "$RANK" = 0 ]; then
  emit '{"event":"step","rank":0,"step":2,"loss":1.5,"lr":0.1,"grad_norm":1.0,"seconds":0.1,"tokens":10,"rows":1,"epoch":0,"data_wait_s":0,"memory_bytes":100}'
  emit '{"event":"finished","rank":0,"step":2,"final_loss":1.5}'
fi
echo "the end of rank $RANK")";

}  // namespace

TEST_CASE("expectation 23: tail follows metrics and output of a running run from another shell", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  place.replace_worker(worker);
  const pid_t run = place.start({"run", "tiny.toml"}, "run");
  REQUIRE(wait_until([&] { return place.run({"metrics", "--json"}).out.find("2.5") != std::string::npos; }, 60));
  CHECK_THAT(place.run({"tail", "--no-follow"}).out,
             StartsWith("step 1  loss 2.5  lr 0.1  grad_norm 1  tokens_per_s 100\nrank 0 | out of rank 0\nrank 0 | "
                        "error of rank 0\n"));
  const pid_t tail = place.start({"tail", "last", "-f"}, "tail");
  REQUIRE(wait_until(
      [&] { return slurp(place.path() / "tail.out").find("rank 1 | error of rank 1\n") != std::string::npos; }, 60));
  CHECK(slurp(place.path() / "tail.out").find("step 2") == std::string::npos);
  place.write("go", "");
  const auto ended = place.finish(run, "run");
  INFO(ended.err);
  CHECK(ended.code == 0);
  const auto followed = place.finish(tail, "tail");
  CHECK(followed.code == 0);
  CHECK_THAT(followed.out, ContainsSubstring("\nstep 2  loss 1.5  lr 0.1  grad_norm 1  tokens_per_s 100\n"));
  CHECK_THAT(followed.out, ContainsSubstring("\nrank 1 | the end of rank 1\n"));
  const auto last = followed.out.substr(followed.out.rfind("\nrun ") + 1);
  CHECK_THAT(last, ContainsSubstring(" finished after 2 steps, ") && EndsWith(": loss 1.5\n"));
}

TEST_CASE("tail shows a metric that arrives after the others of its step", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  place.replace_worker(R"(if [ "$RANK" = 0 ]; then
  emit '{"event":"ready","rank":0}'
  emit '{"event":"step","rank":0,"step":1,"loss":2.5,"lr":0.1,"grad_norm":1.0,"seconds":0.1,"tokens":10,"rows":1,"epoch":0,"data_wait_s":0,"memory_bytes":100}'
fi
while [ ! -e go ]; do sleep 0.05; done
if [ "$RANK" = 0 ]; then
  emit '{"event":"validation","rank":0,"step":1,"loss":1.25,"metrics":{}}'
  emit '{"event":"finished","rank":0,"step":1,"final_loss":2.5}'
fi)");
  const pid_t run = place.start({"run", "tiny.toml"}, "run");
  REQUIRE(wait_until([&] { return place.run({"metrics", "--json"}).out.find("2.5") != std::string::npos; }, 60));
  const pid_t tail = place.start({"tail", "last"}, "tail");
  REQUIRE(wait_until([&] { return slurp(place.path() / "tail.out").find("step 1") != std::string::npos; }, 60));
  place.write("go", "");
  CHECK(place.finish(run, "run").code == 0);
  CHECK_THAT(place.finish(tail, "tail").out, ContainsSubstring("\nstep 1  val_loss 1.25\n"));
}

TEST_CASE("tail goes on when the ledger of a running run was deleted and is written again", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  place.replace_worker(worker);
  const pid_t run = place.start({"run", "tiny.toml"}, "run");
  REQUIRE(wait_until([&] { return place.run({"metrics", "--json"}).out.find("2.5") != std::string::npos; }, 60));
  const pid_t tail = place.start({"tail", "last"}, "tail");
  REQUIRE(wait_until([&] { return slurp(place.path() / "tail.out").find("step 1") != std::string::npos; }, 60));
  for (const char* name : {"ledger.db", "ledger.db-wal", "ledger.db-shm"}) fs::remove(place.home() / name);
  CHECK(wait_until(
      [&] {
        return fs::exists(place.home() / "ledger.db") ||
               slurp(place.path() / "tail.err").find("waiting for the ledger") != std::string::npos;
      },
      60));
  place.write("go", "");
  const auto ended = place.finish(run, "run");
  INFO(ended.err);
  CHECK(ended.code == 0);
  const auto followed = place.finish(tail, "tail");
  INFO(followed.err);
  CHECK(followed.code == 0);
  CHECK_THAT(followed.out, ContainsSubstring("\nstep 2  loss 1.5  ") && ContainsSubstring(" finished after 2 steps, "));
  CHECK(followed.err.find("waiting for", followed.err.find("waiting for") + 1) == std::string::npos);
}

TEST_CASE("logs prints and searches what the ranks wrote, by rank and attempt", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  place.replace_worker(worker);
  place.write("go", "");
  REQUIRE(place.run({"run", "tiny.toml"}).code == 0);
  CHECK(place.run({"logs", "--rank", "1"}).out == "out of rank 1\nerror of rank 1\nthe end of rank 1\n");
  CHECK(place.run({"logs", "--rank", "0", "--rank", "1", "--grep", "^out|end"}).out ==
        "rank 0 | out of rank 0\nrank 0 | the end of rank 0\nrank 1 | out of rank 1\nrank 1 | the end of rank 1\n");
  CHECK_THAT(place.run({"logs", "--tail", "1"}).out,
             StartsWith("run    | ") && EndsWith("\nrank 0 | the end of rank 0\nrank 1 | the end of rank 1\n"));
  const std::string shown = place.run({"logs", "--grep", "^(step|finished)"}).out;
  CHECK_THAT(shown, StartsWith("run    | step  1/") && ContainsSubstring("\nrun    | finished after 2 steps: "));
  const auto line = place.run({"logs", "--grep", "^finished", "--json"}).json();
  CHECK((line.at("rank").is_null() && line.at("attempt") == 1));
  CHECK(place.run({"logs", "--rank", "0", "--tail", "1", "--json"}).json() ==
        json{{"schema", 1}, {"kind", "log"}, {"rank", 0}, {"attempt", 1}, {"text", "the end of rank 0"}});
  place.run({"resume", "--from-beginning", "--set", "train.max_steps=13"});
  CHECK(place.run({"logs", "--rank", "1", "--grep", "out"}).out == "out of rank 1\nout of rank 1\n");
  CHECK(place.run({"logs", "--rank", "1", "--grep", "out", "--attempt", "2"}).out == "out of rank 1\n");
  CHECK_THAT(place.run({"logs", "--attempt", "7"}).err,
             ContainsSubstring("--attempt 7: run ") && ContainsSubstring(" has the attempts 1 to 2"));
  const auto none = place.run({"logs", "--grep", "nothing"});
  CHECK(none.out == "");
  CHECK(none.err == "no line matches\n");
  CHECK(none.code == 0);
  const auto id = place.run({"ls", "--json"}).json().at("runs").at(0).at("id").get<std::string>();
  CHECK(place.run({"logs", "--rank", "7"}).err == "error: --rank 7: run " + id + " has logs of ranks 0, 1\n");
  const auto wrong = place.run({"logs", "--grep", "(a"});
  CHECK(wrong.code == 2);
  CHECK_THAT(wrong.err, StartsWith("error: --grep (a: this is no regular expression: "));
}
