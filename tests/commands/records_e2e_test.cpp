// Data of records, end to end: equal losses for any division of the batch, refusals, mixtures that are resumed, and tokenising
// that was killed.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <random>

#include "tests/commands/resume_support.hpp"
#include "tests/support/every_nth.hpp"
#include "tests/support/wait_until.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;
using nlohmann::json;

namespace {

/// Conversations of one to three turns with 0 to 40 words each.
std::string conversations(int count, unsigned seed) {
  std::mt19937 random(seed);
  auto words = [&] {
    std::string text;
    for (unsigned i = random() % 40; i > 0; --i) text += "w" + std::to_string(random() % 50) + " ";
    return text;
  };
  std::string lines;
  for (int i = 0; i < count; ++i) {
    auto messages = json::array();
    for (unsigned turn = 1 + random() % 3; turn > 0; --turn) {
      messages.push_back({{"role", "user"}, {"content", words()}});
      messages.push_back({{"role", "assistant"}, {"content", words()}});
    }
    lines += json{{"messages", messages}}.dump() + "\n";
  }
  return lines;
}

void write_recipe(const Workplace& place, const std::string& data) {
  place.write("chat.toml", R"([run]
seed = 3
[model]
name = "llama"
n_layers = 2
dim = 32
n_heads = 2
max_seq_len = 1024
[data]
format = "jsonl"
chat_template = "chatml"
)" + data + R"(
[devices]
accelerator = "cpu"
threads_per_rank = 1
cpu_processes = 1
[train]
max_steps = 4
global_batch_size = 8
micro_batch_size = 8
)");
}

const std::string one_source = "train = \"chat.jsonl\"\n";

std::vector<double> losses_of(const Workplace& place, const std::string& run) {
  std::vector<double> losses;
  const auto points = place.run({"metrics", run, "--name", "loss", "--json"}).json().at("points");
  for (const auto& point : points) losses.push_back(point[1]);
  return losses;
}

std::string run_of(const Workplace& place, std::vector<std::string> settings) {
  std::vector<std::string> arguments = {"run", "chat.toml", "--json"};
  for (auto& setting : settings) {
    arguments.emplace_back("--set");
    arguments.push_back(std::move(setting));
  }
  const auto result = place.run(arguments);
  INFO(result.err);
  REQUIRE(result.code == 0);
  return result.json().at("run");
}

std::vector<double> train(const Workplace& place, std::vector<std::string> settings) {
  return losses_of(place, run_of(place, std::move(settings)));
}

}  // namespace

TEST_CASE("supervised losses are equal for every micro-batch size, number of ranks and strategy", "[e2e]") {
  Workplace place;
  place.write("chat.jsonl", conversations(60, 1));
  EveryNth chosen(2);
  for (const std::string layout :
       {"", "group_by_length = true\n", "packing = \"best_fit\"\n", "packing = \"wrapped\"\nseq_len = 64\n"}) {
    write_recipe(place, one_source + layout);
    INFO(layout);
    const auto expected = train(place, {});
    REQUIRE(expected.size() == 4);
    CHECK(expected.back() < expected.front());
    for (const std::vector<std::string>& settings :
         {std::vector<std::string>{"train.micro_batch_size=2"},
          {"train.micro_batch_size=1", "devices.cpu_processes=2", "strategy=ddp"},
          {"train.micro_batch_size=4", "devices.cpu_processes=2", "strategy=fsdp"}}) {
      if (!chosen()) continue;
      const auto losses = train(place, settings);
      REQUIRE(losses.size() == expected.size());
      for (size_t i = 0; i < losses.size(); ++i) CHECK_THAT(losses[i], WithinRel(expected[i], 1e-6));
    }
  }
}

TEST_CASE("packed records have the validation loss of separate records", "[e2e][rank9]") {
  Workplace place;
  place.write("chat.jsonl", conversations(60, 1));
  place.write("validation.jsonl", conversations(25, 2));
  for (const std::string model : {"llama", "gpt"}) {
    std::vector<double> losses;
    for (const std::string packing : {"none", "best_fit"}) {
      write_recipe(place, one_source + "validation = \"validation.jsonl\"\npacking = \"" + packing + "\"\n");
      // Without learning, both validate the same weights.
      const auto run = run_of(place, {"model.name=" + model, "optimizer.lr=0", "train.max_steps=1"});
      const auto points = place.run({"metrics", run, "--name", "val_loss", "--json"}).json().at("points");
      losses.push_back(points.back()[1]);
    }
    CHECK_THAT(losses[1], WithinRel(losses[0], 1e-6));
  }
}

TEST_CASE("wrapped samples without a supervised token are refused, and no restart is tried", "[e2e]") {
  Workplace place;
  place.write("chat.jsonl", conversations(60, 1));
  const json question{{"role", "user"}, {"content", std::string(600, 'q')}},
      answer{{"role", "assistant"}, {"content", "a"}};
  place.write("validation.jsonl", json{{"messages", {question, answer}}}.dump() + "\n");
  write_recipe(place, one_source + "validation = \"validation.jsonl\"\npacking = \"wrapped\"\nseq_len = 32\n");
  const auto result = place.run({"run", "chat.toml", "--set", "train.max_restarts=3"});
  CHECK(result.code == 2);
  CHECK_THAT(result.err,
             ContainsSubstring("data.validation: none of the samples of 32 tokens has a supervised token, so "
                               "there is nothing to validate"));
  CHECK_THAT(result.err, !ContainsSubstring("restart"));
}

TEST_CASE("a row of packed records shows its sequences", "[e2e]") {
  Workplace place;
  place.write("chat.jsonl", conversations(60, 1));
  write_recipe(place, one_source + "packing = \"best_fit\"\n");
  const auto text = place.run({"data", "chat.toml", "--samples", "4"});
  CHECK(text.code == 0);
  CHECK_THAT(text.err + text.out, ContainsSubstring("next sequence of this row"));
  const auto shown = place.run({"data", "chat.toml", "--json", "--samples", "4"}).json();
  CHECK_THAT(shown.at("data").get<std::string>(), ContainsSubstring("60 sequences packed"));
  for (const auto& sample : shown.at("samples")) CHECK(sample.at("positions")[0] == 0);
}

TEST_CASE("data without supervised tokens, and records of another layout, stop before a run starts", "[e2e]") {
  Workplace place;
  place.write("chat.jsonl", R"({"messages": [{"role": "user", "content": "only a question"}]})"
                            "\n");
  write_recipe(place, one_source);
  const auto empty = place.run({"run", "chat.toml"});
  CHECK(empty.code == 2);
  CHECK_THAT(empty.err, ContainsSubstring("has a supervised token"));
  place.write("chat.jsonl", conversations(3, 1) + R"({"messages": [{"role": "asistant", "content": "x"}]})"
                                                  "\n");
  const auto wrong = place.run({"check", "chat.toml"});
  CHECK(wrong.code == 2);
  CHECK_THAT(wrong.err, ContainsSubstring("chat.jsonl:4: /messages/0/role: "));
  CHECK_THAT(wrong.err, ContainsSubstring("assistant"));
  CHECK(place.run({"ls", "--json"}).json().at("runs").empty());
}

TEST_CASE("a mixture that was killed continues with the same samples, also on two ranks", "[e2e]") {
  Workplace place;
  place.write("a.jsonl", conversations(40, 1));
  place.write("b.jsonl", conversations(15, 2));
  write_recipe(place,
               "group_by_length = true\n[[data.sources]]\nname = \"a\"\ntrain = \"a.jsonl\"\nweight = 0.7\n"
               "[[data.sources]]\nname = \"b\"\ntrain = \"b.jsonl\"\nweight = 0.3\n");
  const std::vector<std::string> settings = {"train.max_steps=14", "checkpoint.every_n_steps=2",
                                             "checkpoint.keep_last=0"};
  const auto expected = train(place, settings);
  fs::remove_all(place.home() / "runs");
  fs::remove(place.home() / "ledger.db");
  std::vector<std::string> arguments = {"run", "chat.toml", "--json"};
  for (const auto& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
  const pid_t pid = place.start(arguments);
  REQUIRE(wait_until([&] { return has_checkpoint(place, 2); }, 30));
  ::kill(pid, SIGKILL);
  place.finish(pid);
  const auto resumed = place.run({"resume", "last", "--json", "--set", "devices.cpu_processes=2", "--set",
                                  "strategy=fsdp", "--set", "train.micro_batch_size=4"});
  INFO(resumed.err);
  REQUIRE(resumed.code == 0);
  const auto losses = losses_of(place, resumed.json().at("run"));
  REQUIRE(losses.size() == expected.size());
  for (size_t i = 0; i < losses.size(); ++i) CHECK_THAT(losses[i], WithinRel(expected[i], 1e-6));
}

TEST_CASE("streamed data train before they are tokenised, and a killed run continues with the same samples", "[e2e]") {
  Workplace place;
  // Long records, of which a sample is the beginning: 60 are a part, so 14 steps of 8 need two parts.
  std::string lines;
  for (int i = 0; i < 200; ++i)
    lines +=
        json{{"prompt", fmt::format("{} {}", i, i * i)}, {"completion", std::string(70'000, 'a' + i % 20)}}.dump() +
        "\n";
  place.write("chat.jsonl", lines);
  write_recipe(place, one_source + "streaming = true\nseq_len = 32\n");
  const std::vector<std::string> settings = {"train.max_steps=14", "checkpoint.every_n_steps=2",
                                             "checkpoint.keep_last=0"};
  const auto expected = train(place, settings);
  auto sharded = settings;
  sharded.insert(sharded.end(), {"devices.cpu_processes=2", "strategy=fsdp", "train.micro_batch_size=2"});
  const auto same = [&](const std::vector<double>& losses) {
    REQUIRE(losses.size() == expected.size());
    for (size_t i = 0; i < losses.size(); ++i) CHECK_THAT(losses[i], WithinRel(expected[i], 1e-6));
  };
  same(train(place, sharded));
  std::vector<std::string> arguments = {"run", "chat.toml", "--json"};
  for (const auto& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
  for (const char* fault : {"step:5", "step:11"}) {
    CHECK(place.run(arguments, {{"RUNNER_FAULT", fault}}).code != 0);
    const auto resumed = place.run({"resume", "last", "--json", "--set", "devices.cpu_processes=2", "--set",
                                    "strategy=fsdp", "--set", "train.micro_batch_size=4"});
    INFO(resumed.err);
    REQUIRE(resumed.code == 0);
    same(losses_of(place, resumed.json().at("run")));
  }
}

TEST_CASE("a mistake in a later part of streamed data ends the run where it is needed, with its place", "[e2e]") {
  Workplace place;
  place.write("good.jsonl", conversations(20, 1));
  place.write("bad.jsonl", conversations(2, 1) + "{\"messages\": 3}\n");
  write_recipe(place, "train = [\"good.jsonl\", \"bad.jsonl\"]\nstreaming = true\n");
  const auto result = place.run({"run", "chat.toml", "--set", "train.max_steps=9"});
  CHECK(result.code == 2);
  CHECK_THAT(result.err, ContainsSubstring("bad.jsonl:3: /messages: "));
}

TEST_CASE("tokenising that was killed continues with the parts that are missing", "[e2e]") {
  Workplace place;
  std::string lines;
  const std::string some = conversations(2000, 3);
  while (lines.size() < size_t{60} << 20) lines += some;
  place.write("chat.jsonl", lines);
  write_recipe(place, one_source);
  const auto parts = [&] {
    std::vector<std::pair<fs::path, fs::file_time_type>> found;
    for (const auto& entry : fs::recursive_directory_iterator(place.home()))
      if (entry.path().extension() == ".tok") found.emplace_back(entry.path(), fs::last_write_time(entry));
    return found;
  };
  const pid_t pid = place.start({"data", "chat.toml"});
  REQUIRE(wait_until([&] { return fs::exists(place.home()) && !parts().empty(); }, 60));
  ::kill(pid, SIGKILL);
  place.finish(pid);
  const auto before = parts();
  const auto shown = place.run({"data", "chat.toml", "--json", "--samples", "2"});
  INFO(shown.err);
  REQUIRE(shown.code == 0);
  CHECK(shown.json().at("samples").size() == 2);
  const auto after = parts();
  CHECK(after.size() == 8);
  CHECK(before.size() < after.size());
  for (const auto& [path, time] : before) CHECK(fs::last_write_time(path) == time);
}
