// Which checkpoint a resumed run continues from, and what it refuses before anything is recorded.
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/commands/resume_support.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using nlohmann::json;

TEST_CASE("resume --checkpoint uses that checkpoint, and refuses a wrong one before changing the record", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place, fsdp + checkpoints);
  REQUIRE(place.run({"run", "tiny.toml"}).code == 0);
  const fs::path folder = fs::path(only_run_dir(place)) / "checkpoints";
  const fs::path damaged = folder / "step-000004" / "rank-00000.safetensors";
  const auto size = fs::file_size(damaged);
  fs::resize_file(damaged, size - 1);
  const auto before = place.run({"show", "--json"}).json();
  const std::string newest = "; the newest one is " + (folder / "step-000012").string();
  struct Row {
    std::string checkpoint;
    int code;
    std::string words;
  };
  for (const auto& row :
       {Row{"nowhere/step-000002", 2,
            (place.path() / "nowhere/step-000002").string() + ": there is no such checkpoint" + newest},
        Row{(folder / "step-000007/").string(), 2,
            (folder / "step-000007").string() + ": there is no such checkpoint" + newest},
        Row{folder.string(), 2,
            folder.string() + ": this is not a checkpoint folder, it has no manifest.json" + newest},
        Row{(folder / "step-000004").string(), 4,
            damaged.string() + " is truncated: " + std::to_string(size - 1) + " of " + std::to_string(size) +
                " bytes; the previous good checkpoint is step-000002"}}) {
    auto refused = place.run({"resume", "--checkpoint", row.checkpoint});
    CHECK(refused.code == row.code);
    CHECK_THAT(refused.err, EndsWith("error: " + row.words + "\n"));
    CHECK(place.run({"show", "--json"}).json() == before);
  }

  fs::copy(folder / "step-000002", place.path() / "kept");
  int64_t attempts = 1;
  struct Start {
    std::string checkpoint;
    fs::path named;
    int step;
  };
  for (const auto& [checkpoint, named, step] : {Start{(folder / "step-000006/").string(), folder / "step-000006", 6},
                                                Start{"kept", place.path() / "kept", 2}}) {
    auto result = place.run({"resume", "--checkpoint", checkpoint, "--set", "train.max_steps=14"});
    INFO(result.err);
    REQUIRE(result.code == 0);
    CHECK_THAT(result.err, ContainsSubstring("\ncontinuing from " + named.string() + "\n"));
    auto shown = place.run({"show", "--json"}).json();
    CHECK(shown.at("steps") == 14);
    REQUIRE(shown.at("attempts").size() == static_cast<size_t>(++attempts));
    CHECK(shown.at("attempts").back().at("reason") == "resume from " + named.string());
    CHECK(shown.at("attempts").back().at("from_step") == step);
  }
}

TEST_CASE("after resume --checkpoint a restart uses that checkpoint until there is a newer one", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place, fsdp + checkpoints);
  REQUIRE(place.run({"run", "tiny.toml"}).code == 0);
  const fs::path folder = fs::path(only_run_dir(place)) / "checkpoints";
  const std::string real_worker = RUNNER_BINARY_DIR "/bin/runner-worker";
  // The first two workers fail at once. The third trains to step 8 and then fails. The fourth finishes.
  place.replace_worker("echo \"$@\" >> started\ncount=$(wc -l < started)\n[ $count -lt 3 ] && exit 1\n" + real_worker +
                       " \"$@\" || exit\n[ $count != 3 ]");
  fs::remove(place.path() / "started");
  auto result = place.run({"resume", "--checkpoint", (folder / "step-000004").string(), "--json", "--set", "devices=1",
                           "--set", "train.max_restarts=3", "--set", "train.max_steps=8"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  std::istringstream started(slurp(place.path() / "started"));
  for (const char* step : {"step-000004", "step-000004", "step-000004", "step-000008"}) {
    std::string arguments;
    REQUIRE(std::getline(started, arguments));
    CHECK_THAT(arguments, EndsWith(" --resume " + (folder / step).string()));
  }
  auto shown = place.run({"show", "--json"}).json();
  std::vector<int64_t> from;
  for (const auto& attempt : shown.at("attempts")) from.push_back(attempt.at("from_step"));
  CHECK(from == std::vector<int64_t>{0, 4, 4, 4, 8});
  CHECK(result.json().at("restarts") == 3);
  CHECK_THAT(result.err, ContainsSubstring(" and 3 restarts: val_loss "));
  CHECK_THAT(place.run({"show"}).out, ContainsSubstring("\n  restarts  3\n"));
}

TEST_CASE("a run resumed from an earlier checkpoint continues from there after a kill", "[e2e]") {
  End expected = undisturbed(fsdp, 12);
  Workplace place;
  write_tiny_recipe(place, fsdp + checkpoints);
  REQUIRE(place.run({"run", "tiny.toml"}).code == 0);
  const fs::path early = fs::path(only_run_dir(place)) / "checkpoints" / "step-000004";
  auto killed =
      place.finish(place.start({"resume", "--checkpoint", early.string()}, "command", {{"RUNNER_FAULT", "step:1"}}));
  CHECK(killed.code == 128 + SIGKILL);
  CHECK_THAT(place.run({"export", "last", "--output", "weights"}).err, ContainsSubstring(" at step 4, "));
  auto resumed = place.run({"resume", "--json"});
  CHECK_THAT(resumed.err, ContainsSubstring("\ncontinuing from " + early.string() + "\n"));
  check_end(place, resumed, expected);
  CHECK(place.points("loss").size() == 12);
}

TEST_CASE("a run keeps the tokenizer that it has trained when its data change", "[e2e]") {
  Workplace place;
  std::string words;
  for (int i = 0; i < 4000; ++i)
    words += fmt::format("word{} {}{} ", i % 17, char('a' + i % 26), char('a' + i * 3 % 25));
  place.write("train.txt", words);
  write_tiny_recipe(place, checkpoints);
  const auto run = place.run({"run", "tiny.toml", "--json", "--set", "devices.cpu_processes=1", "data.train=train.txt",
                              "data.tokenizer=sentencepiece", "data.tokenizer_vocab_size=310"});
  INFO(run.err);
  REQUIRE(run.code == 0);
  const auto model = slurp(fs::path(only_run_dir(place)) / "tokenizer.model");
  place.write("train.txt", words + std::string(20'000, 'x') + " quite other words");
  const auto resumed = place.run({"resume", "--set", "train.max_steps=14", "--accept-changed-data"});
  INFO(resumed.err);
  REQUIRE(resumed.code == 0);
  CHECK_THAT(resumed.err, !ContainsSubstring("tokenizer"));
  CHECK(slurp(fs::path(only_run_dir(place)) / "tokenizer.model") == model);
  CHECK(place.run({"evaluate", "last", "--step", "12", "--data", "train.txt"}).code == 0);
}

TEST_CASE("a resume with other data is refused with the differences, and continues if they are accepted", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place, fsdp + checkpoints);
  REQUIRE(place.run({"run", "tiny.toml"}).code == 0);
  const std::string newest = (fs::path(only_run_dir(place)) / "checkpoints" / "step-000012").string();
  CHECK_FALSE(place.run({"evaluate", "last", "--json", "--limit", "2"}).json().contains("changed_data"));
  const auto before = place.run({"show", "--json"}).json();
  const std::string text = slurp(place.path() / "text.txt"), file = (place.path() / "text.txt").string();
  struct Row {
    std::vector<std::string> set;
    std::string text, words;
  };
  for (const auto& row : {Row{{"data.seq_len=16"}, text, "data.seq_len was 32 and is 16"},
                          Row{{"run.seed=4"}, text, "run.seed was 3 and is 4"},
                          Row{{"data.shuffle=false"}, text, "data.shuffle was true and is false"},
                          Row{{}, "L" + text.substr(1), "the content of " + file + " has changed"}}) {
    place.write("text.txt", row.text);
    std::vector<std::string> arguments{"resume", "--set", "train.max_steps=14"};
    for (const auto& set : row.set) arguments.insert(arguments.end(), {"--set", set});
    auto refused = place.run(arguments);
    CHECK(refused.code == 2);
    CHECK_THAT(refused.err,
               EndsWith("error: the training data have changed since " + newest +
                        " was written, so its data position now has another meaning: " + row.words +
                        ". Restore the data, start a new run, or continue anyway with --accept-changed-data\n"));
    CHECK(place.run({"show", "--json"}).json() == before);
  }
  // The text is still changed. An evaluation says so, also after a resume that accepts it.
  const std::string change = "the content of " + file + " has changed";
  const auto says_that_data_changed = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words{"evaluate", before.at("id"), "--json", "--limit", "2"};
    words.insert(words.end(), more.begin(), more.end());
    const auto result = place.run(words);
    INFO(result.err);
    REQUIRE(result.code == 0);
    const bool said = result.json().contains("changed_data");
    if (said) CHECK(result.json().at("changed_data") == std::vector{change});
    const bool warned = result.err.find("the data have changed since the run began to train on them: " + change +
                                        ". Rows that it trained on may now be validated\n") != std::string::npos;
    CHECK(warned == said);
    return said;
  };
  CHECK(says_that_data_changed({}));
  CHECK_FALSE(says_that_data_changed({"--data", "text.txt"}));
  auto accepted = place.run({"resume", "--set", "train.max_steps=14", "--accept-changed-data"});
  INFO(accepted.err);
  REQUIRE(accepted.code == 0);
  auto notes = events_of(place, "note");
  REQUIRE_FALSE(notes.empty());
  CHECK(notes[0].at("message") ==
        "continues with changed training data (--accept-changed-data): the content of " + file + " has changed");
  CHECK(says_that_data_changed({}));
  // What is accepted once is known to the next checkpoint. Other steps and other ranks move no position.
  auto more = place.run({"resume", "--set", "train.max_steps=16", "--set", "devices=1", "--set", "strategy=single",
                         "--set", "train.global_batch_size=24"});
  INFO(more.err);
  CHECK(more.code == 0);
  CHECK_THAT(more.err, ContainsSubstring("a step now takes 24 sequences instead of 12"));
}

TEST_CASE("another model or optimizer, or no step left, is refused before anything is recorded", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place, fsdp + checkpoints);
  REQUIRE(place.run({"run", "tiny.toml"}).code == 0);
  const fs::path run_dir = only_run_dir(place);
  const std::string newest = (run_dir / "checkpoints" / "step-000012").string();
  const auto before = place.run({"show", "--json"}).json();
  const std::string recipe = slurp(run_dir / "recipe.toml");
  struct Row {
    std::string set, words;
  };
  const auto more = "train.max_steps=14";
  for (const auto& row : {Row{"model.n_layers=1", "\n  model.n_layers = 1, the checkpoint's is 2\n"},
                          Row{"model.n_heads=4", "\n  model.n_heads = 4, the checkpoint's is 2\n"},
                          Row{"model.dim=64", "\n  model.dim = 64, the checkpoint's is 32\n"},
                          Row{"optimizer.name=sgd", "\n  optimizer.name = \"sgd\", the checkpoint's is \"adamw\"\n"}}) {
    auto resumed = place.run({"resume", "--set", more, row.set});
    CHECK(resumed.code == 2);
    CHECK_THAT(resumed.err, ContainsSubstring("error: the recipe cannot continue from " + newest + ":" + row.words));
    auto started = place.run({"run", "tiny.toml", "--checkpoint", newest, "--set", more, row.set});
    CHECK(started.code == 2);
    CHECK_THAT(started.err, ContainsSubstring(row.words));
  }
  auto ended = place.run({"run", "tiny.toml", "--checkpoint", newest});
  CHECK(ended.code == 2);
  CHECK_THAT(ended.err, ContainsSubstring("error: train.max_steps = 12: the checkpoint " + newest +
                                          " is of step 12, so there is no step left to train."));
  CHECK(place.run({"show", "--json"}).json() == before);
  CHECK(place.run({"ls", "--json"}).json().at("runs").size() == 1);
  CHECK(slurp(run_dir / "recipe.toml") == recipe);

  auto other = place.run({"resume", "--set", more, "strategy=ddp", "devices=1", "precision=bf16-mixed",
                          "model.dropout=0", "optimizer.lr=1e-4", "optimizer.name=adam"});
  INFO(other.err);
  CHECK(other.code == 0);
  CHECK_THAT(other.err,
             ContainsSubstring("note: optimizer.name = \"adam\", the checkpoint's is \"adamw\"; it continues "
                               "with the same moments\n"));
}

TEST_CASE("a resume that fails before its first step leaves the run's settings as they were", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place, checkpoints);
  place.write("bad.lua", "return {on_train_start = function(ctx) error('broken') end}");
  REQUIRE(place.run({"run", "tiny.toml"}).code == 0);
  const fs::path run_dir = only_run_dir(place);
  const std::string recipe = slurp(run_dir / "recipe.toml"), resolved = slurp(run_dir / "resolved.toml");
  const auto row_of = [&] {
    const auto run = place.run({"show", "last", "--json"}).json();
    nlohmann::json row;
    for (const char* key : {"name", "tags", "notes", "strategy", "world_size", "argv", "config", "origins", "plan",
                            "resolved", "predicted", "start"})
      row[key] = run.at(key);
    return row;
  };
  const auto row = row_of();
  auto failed = place.run({"resume", "--set", "train.max_steps=14", "hooks.files=[\"bad.lua\"]", "optimizer.lr=0.5",
                           "run.name=other", "run.tags=[\"a\"]", "strategy=single", "devices=1"});
  INFO(failed.err);
  CHECK(failed.code != 0);
  CHECK_THAT(failed.err, ContainsSubstring("\ncontinue with: runner resume ") &&
                             EndsWith("\nthe settings of this attempt are not kept, because it made no step\n"));
  CHECK(slurp(run_dir / "recipe.toml") == recipe);
  CHECK(slurp(run_dir / "resolved.toml") == resolved);
  CHECK(row_of() == row);
  auto resumed = place.run({"resume", row.at("name"), "--set", "train.max_steps=14"});
  INFO(resumed.err);
  CHECK(resumed.code == 0);
  CHECK(resumed.err.find("learning rate") == std::string::npos);
}

TEST_CASE("the folder of --checkpoint may be relative to the run's folder, and a restart names what it removes",
          "[e2e]") {
  Workplace place;
  write_tiny_recipe(place, checkpoints);
  REQUIRE(place.run({"run", "tiny.toml"}).code == 0);
  for (const char* name : {"checkpoints/step-000004", "step-000002"}) {
    auto resumed = place.run({"resume", "--checkpoint", name, "--set", "train.max_steps=6"});
    INFO(resumed.err);
    CHECK(resumed.code == 0);
    CHECK_THAT(resumed.err, ContainsSubstring(std::string("/checkpoints/") + fs::path(name).filename().string()));
  }
  auto again = place.run({"resume", "--from-beginning", "--set", "train.max_steps=2"});
  INFO(again.err);
  CHECK_THAT(again.err,
             ContainsSubstring("starting from the beginning: this removes the record of 6 steps, and later resumes "
                               "do not use the 6 checkpoints written so far\n"));
}

TEST_CASE("a resume notes that the recipe's file has changed", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  place.write("more.toml", "extends = \"tiny.toml\"\n[optimizer]\nlr = 2e-3\n");
  REQUIRE(place.run({"run", "more.toml", "--set", "train.max_steps=2"}).code == 0);
  auto same = place.run({"resume", "--set", "train.max_steps=3"});
  CHECK(same.code == 0);
  CHECK(same.err.find("has changed") == std::string::npos);
  place.write("more.toml", "extends = \"tiny.toml\"\n[optimizer]\nlr = 3e-3\n");
  auto changed = place.run({"resume", "--set", "train.max_steps=4"});
  CHECK(changed.code == 0);
  CHECK_THAT(changed.err,
             ContainsSubstring("note: more.toml has changed since the run began; the run keeps its own copy "
                               "(--set changes it)\n"));
  CHECK(changed.err.find("tiny.toml has changed") == std::string::npos);
  CHECK(place.run({"show", "--json"}).json().at("config").at("optimizer").at("lr") == 2e-3);
}

TEST_CASE("a run whose checkpoints are all damaged starts again only with --from-beginning", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  REQUIRE(place.run({"run", "tiny.toml", "--set", "train.max_steps=3"}).code == 0);
  const fs::path folder = fs::path(only_run_dir(place)) / "checkpoints";
  const auto before = place.run({"show", "--json"}).json();
  auto refused = [&] {
    auto result = place.run({"resume", "--set", "train.max_steps=4"});
    CHECK(result.code == 4);
    CHECK_THAT(result.err, ContainsSubstring(" has no good checkpoint left in " + folder.string() + ": ") &&
                               EndsWith("with --from-beginning\n"));
  };
  fs::resize_file(folder / "step-000003" / "rank-00000.safetensors", 100);
  refused();
  fs::remove_all(folder);
  refused();
  auto after = place.run({"show", "--json"}).json();
  CHECK(after.at("attempts") == before.at("attempts"));
  auto again = place.run({"resume", "--from-beginning", "--set", "train.max_steps=4"});
  INFO(again.err);
  CHECK(again.code == 0);
  CHECK_THAT(again.err, ContainsSubstring("\nstarting from the beginning: this removes the record of 3 steps\n"));
  auto shown = place.run({"show", "--json"}).json();
  CHECK(shown.at("attempts").back().at("from_step") == 0);
  CHECK(shown.at("steps") == 4);
}

TEST_CASE("a run that started from another run's checkpoint, killed before it wrote one, starts from it again",
          "[e2e]") {
  Workplace place;
  write_tiny_recipe(place, checkpoints);
  REQUIRE(place.run({"run", "tiny.toml"}).code == 0);
  const fs::path other = fs::path(only_run_dir(place)) / "checkpoints" / "step-000012";
  fs::rename(other, place.path() / "kept");
  const std::vector<std::string> longer = {"run", "tiny.toml", "--checkpoint", "kept", "--set", "train.max_steps=16"};
  auto whole = place.run(longer);
  REQUIRE(whole.code == 0);
  const auto expected = place.run({"show", "last", "--json"}).json().at("metrics").at("loss");

  place.run(longer, {{"RUNNER_FAULT", "step:1"}});
  auto resumed = place.run({"resume", "last"});
  INFO(resumed.err);
  REQUIRE(resumed.code == 0);
  CHECK_THAT(resumed.err, ContainsSubstring("continuing from " + (place.path() / "kept").string()));
  CHECK(place.run({"show", "last", "--json"}).json().at("metrics").at("loss") == expected);

  place.run(longer, {{"RUNNER_FAULT", "step:1"}});
  fs::rename(place.path() / "kept", place.path() / "gone");
  auto refused = place.run({"resume", "last"});
  CHECK(refused.code == 4);
  CHECK_THAT(refused.err, ContainsSubstring("started from " + (place.path() / "kept").string() +
                                            " and has no checkpoint since then. That checkpoint cannot be used: "));
}

TEST_CASE("a run whose folder was moved continues from its own checkpoints", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place, checkpoints);
  place.run({"run", "tiny.toml"}, {{"RUNNER_FAULT", "step:5"}});
  place.run({"resume"}, {{"RUNNER_FAULT", "step:1"}});  // its second attempt writes no checkpoint
  const fs::path moved = place.path() / "moved";
  fs::rename(place.home(), moved);
  auto resumed = place.run({"resume", "--json"}, {{"RUNNER_HOME", moved.string()}});
  INFO(resumed.err);
  REQUIRE(resumed.code == 0);
  CHECK(resumed.json().at("steps") == 12);
  CHECK_THAT(resumed.err, ContainsSubstring("continuing from " + moved.string()));
}

TEST_CASE("a run that went back to an earlier step drops later checkpoints and does not continue from them", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place, "[checkpoint]\nevery_n_steps = 2\nkeep_last = 3\n");
  REQUIRE(place.run({"run", "tiny.toml"}).code == 0);
  const fs::path folder = fs::path(only_run_dir(place)) / "checkpoints";
  const std::string at_8 = (folder / "step-000008").string(), at_12 = (folder / "step-000012").string();
  place.run({"resume", "--checkpoint", at_8, "--set", "train.max_steps=20"}, {{"RUNNER_FAULT", "step:1"}});
  CHECK(runner::list_checkpoints(folder).size() == 3);  // this attempt has written none
  const std::string copy = place.path() / "copy";
  fs::copy(at_12, copy);
  for (const auto& given_up : {at_12, copy}) {
    auto refused = place.run({"resume", "--checkpoint", given_up, "--set", "train.max_steps=20"});
    CHECK(refused.code == 2);
    CHECK_THAT(refused.err, ContainsSubstring("went back to step 8 after it had written this checkpoint"));
  }
  place.run({"resume"}, {{"RUNNER_FAULT", "published:1"}});
  auto resumed = place.run({"resume", "--json"});
  INFO(resumed.err);
  REQUIRE(resumed.code == 0);
  CHECK_THAT(resumed.err, ContainsSubstring("step-000010"));
  CHECK(runner::list_checkpoints(folder) ==
        std::vector<fs::path>{folder / "step-000016", folder / "step-000018", folder / "step-000020"});
}

TEST_CASE("a run that was to start from another run's checkpoint, killed before its first attempt, starts from it",
          "[e2e]") {
  Workplace place;
  write_tiny_recipe(place, checkpoints);
  REQUIRE(place.run({"run", "tiny.toml"}).code == 0);
  const fs::path kept = place.path() / "kept";
  fs::rename(fs::path(only_run_dir(place)) / "checkpoints" / "step-000012", kept);
  for (const char* moment : {"committed:1", "begin attempt:1"}) {
    place.run({"run", "tiny.toml", "--checkpoint", "kept", "--set", "train.max_steps=16"}, {{"RUNNER_FAULT", moment}});
    auto resumed = place.run({"resume", "last"});
    INFO(moment << resumed.err);
    REQUIRE(resumed.code == 0);
    CHECK_THAT(resumed.err, ContainsSubstring("continuing from " + kept.string()));
  }
}

TEST_CASE("damaged checkpoints that were given up do not prevent a resume", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place, checkpoints);
  REQUIRE(place.run({"run", "tiny.toml"}).code == 0);
  for (const auto& path : runner::list_checkpoints(fs::path(only_run_dir(place)) / "checkpoints"))
    fs::resize_file(path / "rank-00000.safetensors", 100);
  CHECK(place.run({"resume", "--set", "train.max_steps=16"}).code == 4);
  place.run({"resume", "--from-beginning", "--set", "train.max_steps=16"}, {{"RUNNER_FAULT", "step:1"}});
  auto resumed = place.run({"resume"});
  INFO(resumed.err);
  CHECK(resumed.code == 0);
  CHECK_THAT(resumed.err, ContainsSubstring("starting from the beginning"));
}
