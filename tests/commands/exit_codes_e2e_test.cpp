// Exit codes and their messages, as a table.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "runner/base/files.hpp"
#include "tests/support/command.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;

TEST_CASE("each kind of end has an exit code", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  struct Row {
    std::vector<std::string> arguments;
    int code;
    const char* said;
  };
  std::vector<Row> rows = {
      {{"--version"}, 0, ""},
      {{"nonsense"}, 2, ""},
      {{"run"}, 2, "recipe"},
      {{"run", "missing.toml"}, 2, "missing.toml"},
      {{"run", "tiny.toml", "--set", "model.dmi=3"}, 2, "did you mean"},
      {{"run", "tiny.toml", "--set", "strategy=dpp"}, 2, "ddp"},
      {{"run", "tiny.toml", "--set", "strategy=hivemind"}, 2, "target_batch_size"},
      {{"run", "tiny.toml", "--set", "devices=5"}, 2, "cannot be divided among 5"},
      {{"run", "tiny.toml", "--set", "data.train=[\"none.txt\"]"}, 2, "none.txt"},
      {{"run", "tiny.toml", "--set", "devices.accelerator=cuda"}, 4, "CUDA"},
      {{"run", "tiny.toml", "--set", "optimizer.lr=1e30"}, 1, "not finite"},
      {{"run", "tiny.toml", "--set", "optimizer={lr=0.0, groups=[{pattern=\"*\", lr=1e-3}]}"}, 0, "finished"},
      {{"resume", "nothing"}, 2, ""},
      {{"run", "tiny.toml", "--set", "run.fast_dev_run=2"}, 0, "finished after 2 steps"},
      {{"check", "tiny.toml"}, 0, ""},
      {{"check", "tiny.toml", "--set", "strategy=dpp"}, 2, "ddp"},
      {{"check", "tiny.toml", "--set", "data.seq_len=64"},
       2,
       "data.seq_len = 64 is longer than model.max_seq_len = 32\n"},
      {{"check", "tiny.toml", "--set", "data.format=bin"},
       2,
       "\"bin\" files do not contain the vocabulary size; set model.vocab_size\n"},
  };
  for (const auto& row : rows) {
    std::string line;
    for (const auto& argument : row.arguments) line += " " + argument;
    auto result = place.run(row.arguments);
    INFO("runner" << line << "\n" << result.out << result.err);
    CHECK(result.code == row.code);
    CHECK_THAT(result.out + result.err, ContainsSubstring(row.said));
  }
}

TEST_CASE("a machine without /proc has a message of its own", "[e2e]") {
  if (::system("unshare -m true 2>/dev/null") != 0) SKIP("this user cannot make a mount namespace (unshare -m)");
  Workplace place;
  write_tiny_recipe(place);
  const std::string line = "cd " + place.path().string() + " && RUNNER_HOME=" + place.home().string() +
                           " unshare -m sh -c 'mount -t tmpfs none /proc && exec " RUNNER_BINARY_DIR
                           "/bin/runner run tiny.toml' 2>messages";
  const int status = ::system(line.c_str());
  CHECK(WEXITSTATUS(status) == 4);
  CHECK(runner::read_file(place.path() / "messages") ==
        "error: /proc/self/exe cannot be read (No such file or directory); runner finds its files with it: is /proc "
        "mounted?\n");
}

TEST_CASE("a run without a reader of its output trains to its end", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  place.replace_worker("emit '{\"event\":\"ready\",\"steps\":1}'; emit '{\"event\":\"note\",\"message\":\"half\"}'");
  auto unread = [&](const std::vector<std::string>& arguments) {
    return place.finish(place.start(arguments, "command", {}, 0, /*unread=*/true)).code;
  };
  CHECK(unread({"run", "tiny.toml", "--json", "--set", "devices=1"}) == 0);
  CHECK(place.run({"show", "--json"}).json().at("status") == "finished");
  CHECK(unread({"resume", "--set", "train.max_steps=20"}) != 128 + SIGPIPE);
  CHECK(unread({"ls"}) == 128 + SIGPIPE);  // commands that only print end, as usual
}

TEST_CASE("a file that reaches the limit of file sizes is named, and no signal ends the run", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  const std::string command = "cd '" + place.path().string() + "' && ulimit -f 1 && RUNNER_HOME=home " +
                              RUNNER_BINARY_DIR "/bin/runner run tiny.toml 2>full.err";
  CHECK(WEXITSTATUS(std::system(command.c_str())) == 4);
  CHECK_THAT(slurp(place.path() / "full.err"), ContainsSubstring("ledger.db: File too large"));
}

TEST_CASE("fast_dev_run leaves no run", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  REQUIRE(place.run({"run", "tiny.toml", "--set", "run.fast_dev_run=2"}).code == 0);
  CHECK_FALSE(fs::exists(place.home() / "runs"));
}

TEST_CASE("a rank that is killed ends the run within seconds and is named", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  pid_t pid = place.start({"run", "tiny.toml", "--json", "--set", "train.max_steps=100000"});
  auto stepping = [&] { return slurp(place.path() / "command.err").find("loss") != std::string::npos; };
  REQUIRE(wait_until(stepping, 30));
  auto workers = children_of(pid);
  REQUIRE(workers.size() == 2);
  ::kill(workers[1], SIGKILL);
  auto result = place.finish(pid);
  CHECK(result.code == 1);
  CHECK_THAT(result.err, ContainsSubstring("rank 1 was killed by signal 9"));
  CHECK(result.json().at("status") == "failed");
  CHECK(::kill(workers[0], 0) != 0);
}

TEST_CASE("mistakes in keys, in combinations of values and in the strategy are reported in one pass", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  auto result = place.run({"run", "tiny.toml", "--set", "model.n_heads=5", "--set", "optimizer.learning_rate=1",
                           "--set", "strategy={name=\"fsdp\",sharding=\"FULL\"}"});
  CHECK(result.code == 2);
  CHECK_THAT(result.err, ContainsSubstring("n_heads = 5 does not divide dim = 32"));
  CHECK_THAT(result.err, ContainsSubstring("unknown key `learning_rate` in [optimizer]"));
  CHECK_THAT(result.err, ContainsSubstring("did you mean `sharding_strategy`?"));
  CHECK(place.untouched());
  result = place.run({"check", "tiny.toml", "--set", "model.n_heads=5", "--set", "data.seq_len=64"});
  CHECK_THAT(result.err, ContainsSubstring("n_heads = 5 does not divide dim = 32"));
  CHECK_THAT(result.err, ContainsSubstring("data.seq_len = 64 is longer than model.max_seq_len = 32"));
  result = place.run({"check", "tiny.toml", "--set", "model.max_seq_len=true", "--set", "data.seq_len=64"});
  CHECK_THAT(result.err, !ContainsSubstring("is longer than"));  // it may be a consequence of the other error
}

TEST_CASE("mistakes that need the vocabulary size are reported before a tokenizer is trained", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  std::string text;  // with more pieces than the recipe's text
  for (int i = 0; i < 2000; ++i)
    text += "pack my box with five dozen liquor jugs before quick zephyrs blow, vexing daft Jim\n";
  place.write("text.txt", text);
  std::vector<std::string> arguments = {
      "run", "tiny.toml", "--set", "data.tokenizer=sentencepiece", "--set", "data.tokenizer_vocab_size=300"};
  auto wrong = arguments;
  wrong.insert(wrong.end(), {"--set", "train.global_batch_size=7"});
  auto result = place.run(wrong);
  CHECK(result.code == 2);
  CHECK_THAT(result.err, ContainsSubstring("global_batch_size = 7 cannot be divided among 2 data-parallel ranks"));
  CHECK_THAT(result.err, !ContainsSubstring("training a SentencePiece model"));
  CHECK(place.untouched());
  arguments.push_back("--json");
  result = place.run(arguments);
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK_THAT(result.err, ContainsSubstring("training a SentencePiece model of 300 tokens"));
  CHECK_THAT(slurp(fs::path(result.json().at("run_dir").get<std::string>()) / "resolved.toml"),
             ContainsSubstring("\nvocab_size = 300\n"));
}

TEST_CASE("without a worker program, run is refused", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  place.replace_worker("");
  auto result = place.run({"run", "tiny.toml"});
  CHECK(result.code == 4);
  CHECK_THAT(result.err,
             EndsWith("error: " + place.worker().string() + " is missing: build it, or reinstall runner\n"));
  CHECK(place.run({"ls", "--json"}).json().at("runs").empty());
}

TEST_CASE("a failed start is recorded as failed, with its cause", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  auto check_end = [&](const std::string& why, const CommandResult& result) {
    CHECK(result.code == 4);
    CHECK_THAT(result.err, EndsWith("\nerror: " + why + "\n"));
    CHECK(result.json().at("status") == "failed");
    auto run = place.run({"show", "--json"}).json();
    CHECK(run.at("status") == "failed");
    CHECK(run.at("exit_code") == 4);
    CHECK(run.at("message") == why);
  };
  place.replace_worker("exit 0");
  REQUIRE(place.run({"check", "tiny.toml"}).code == 0);  // the prediction of memory is kept
  fs::permissions(place.worker(), fs::perms(0644));
  check_end("cannot start " + place.worker().string() + ": Permission denied",
            place.run({"run", "tiny.toml", "--json"}));

  fs::permissions(place.worker(), fs::perms(0755));
  fs::path logs = fs::path(place.run({"show", "--json"}).json().at("run_dir").get<std::string>()) / "logs";
  fs::remove_all(logs);
  std::ofstream(logs) << "in the way";
  check_end("cannot make the folder " + logs.string() + ": Not a directory", place.run({"resume", "--json"}));
}

TEST_CASE("the total of the progress is the number of steps from the worker", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  const std::string step =
      R"({"event":"step","step":1,"epoch":0,"loss":1.5,"lr":0.1,"grad_norm":1,"tokens":9,"seconds":1,"data_wait_s":0,"memory_bytes":1,"skipped":false})";
  for (auto [ready, line] : {std::pair(R"({"event":"ready","steps":7})", "\nstep 1/7  loss 1.5000"),
                             std::pair(R"({"event":"ready"})", "\nstep  1/12  loss 1.5000")}) {
    place.replace_worker("emit '" + std::string(ready) + "'; emit '" + step + "'");
    auto result = place.run({"run", "tiny.toml", "--set", "devices=1"});
    CHECK(result.code == 0);
    CHECK_THAT(result.err, ContainsSubstring(line));
  }
}

TEST_CASE("the measured time of a step is that of the steps whose time is predicted", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  std::string script;
  for (int step = 1; step <= 5; ++step)  // the first two are in epoch 0
    script += "emit '{\"event\":\"step\",\"step\":" + std::to_string(step) + ",\"epoch\":" + (step > 2 ? "1" : "0") +
              R"(,"loss":1,"lr":0.1,"grad_norm":1,"seconds":)" + (step > 2 ? "4" : "1") +
              ",\"rows\":" + (step > 2 ? "8" : "2") + ",\"tokens\":" + (step > 2 ? "256" : "64") +
              R"(,"data_wait_s":0,"memory_bytes":1,"skipped":false}')" + "\n";
  place.replace_worker(script);
  auto result = place.run({"run", "tiny.toml", "--unset", "train.global_batch_size", "--set", "devices=1",
                           "train.micro_batch_size=2", "train.accumulate_grad_batches={0=1,1=4}"});
  INFO(result.err);
  CHECK(result.code == 0);
  CHECK(place.run({"show", "--json"}).json().at("measured").at("step_seconds") == 1);
}

TEST_CASE("a generated text is printed line by line", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  place.replace_worker(
      R"(emit '{"event":"sample","rank":0,"step":4,"text":"ROMEO.\u000aBut soft, what light\u000a"}')");
  auto result = place.run({"run", "tiny.toml", "--set", "devices=1"});
  CHECK_THAT(result.err, ContainsSubstring("\nsample at step 4:\n  ROMEO.\n  But soft, what light\n"));
}

TEST_CASE("running out of memory is reported with the parts of the memory and with solutions", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  // The logits of a micro-batch: 192 tokens x 1 M words, twice.
  auto result =
      place.finish(place.start({"run", "tiny.toml", "--set", "model.vocab_size=1000000", "--set", "devices=1"},
                               "command", {}, uint64_t{3} << 29));
  CHECK(result.code == 1);
  CHECK_THAT(result.err,
             ContainsSubstring(
                 "rank 0: out of memory: a tensor needs 732.4 MiB, which this host does not have; the tensors of "
                 "this rank already need "));
  CHECK_THAT(result.err, ContainsSubstring("a step of this recipe needs "));
  CHECK_THAT(result.err, ContainsSubstring("possible changes, cheapest first:\n"));
  CHECK_THAT(result.err, ContainsSubstring("train.micro_batch_size = 3  (saves 732.8 MiB; "));
  CHECK_THAT(place.run({"show", "last"}).out, ContainsSubstring("out of memory"));
}
