// `runner generate`, `chat`, `evaluate` and `predict` with the model of a run, a checkpoint and a folder.
#include <fcntl.h>
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/support/piped_command.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinAbs;
using nlohmann::json;

namespace {

/// A run of a tiny model of bytes, and the same model as a folder.
const Workplace& trained() {
  static const Workplace place;
  static const bool once = [] {
    write_tiny_recipe(place);
    REQUIRE(place.run({"run", "tiny.toml", "--set", "devices.cpu_processes=1"}).code == 0);
    return true;
  }();
  (void)once;
  return place;
}

std::vector<json> lines_of(const std::string& text) {
  std::vector<json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(json::parse(line));
  return lines;
}

std::string only_checkpoint(const Workplace& place) {
  for (const auto& entry : fs::recursive_directory_iterator(place.home() / "runs"))
    if (entry.path().filename() == "manifest.json") return entry.path().parent_path().string();
  return "";
}

}  // namespace

TEST_CASE("rank 5: generate continues a prompt, from a run and from its checkpoint", "[e2e][rank5]") {
  const auto& place = trained();
  const auto of_run = place.run({"generate", "last", "line 4", "--max-new-tokens", "12", "--threads", "1"});
  INFO(of_run.err);
  REQUIRE(of_run.code == 0);
  CHECK_FALSE(of_run.out.empty());
  CHECK_THAT(of_run.err, ContainsSubstring("tokens/s"));
  const auto checkpoint = only_checkpoint(place);
  CHECK(place.run({"generate", checkpoint, "line 4", "--max-new-tokens", "12"}).out == of_run.out);
  CHECK(piped(place, {"generate", "last", "--max-new-tokens", "12"}, "line 4").out == of_run.out);
  place.write("prompt.txt", "line 4");
  CHECK(place.run({"generate", "last", "--file", "prompt.txt", "--max-new-tokens", "12"}).out == of_run.out);
  CHECK(place.run({"generate", "last", "line 4", "--max-new-tokens", "12", "--echo"}).out == "line 4" + of_run.out);
}

TEST_CASE("rank 5: JSON lines of generate: several prompts and samples, in batches or alone", "[e2e][rank5]") {
  const auto& place = trained();
  const std::vector<std::string> common = {
      "generate",  "last", "line 1", "li", "--num-samples",    "3", "--temperature", "1", "--json",
      "--threads", "1",    "--seed", "7",  "--max-new-tokens", "10"};
  auto alone = place.run(common);
  REQUIRE(alone.code == 0);
  auto batched_words = common;
  batched_words.insert(batched_words.end(), {"--batch-size", "4"});
  const auto one = lines_of(alone.out), four = lines_of(place.run(batched_words).out);
  REQUIRE(one.size() == 6);
  REQUIRE(four.size() == 6);
  for (size_t i = 0; i < one.size(); ++i) {
    CHECK(one[i]["text"] == four[i]["text"]);
    CHECK(one[i]["id"] == i / 3);
    CHECK(one[i]["sample"] == i % 3);
    CHECK(one[i]["tokens"] == 10);
    CHECK(one[i]["finish_reason"] == "length");
  }
  CHECK(one[0]["text"] != one[1]["text"]);
  CHECK(one[0]["prompt"] == "line 1");
}

TEST_CASE("a text ends before a stop text, and at the model's max_seq_len", "[e2e]") {
  const auto& place = trained();
  const auto whole = place.run({"generate", "last", "line 4", "--max-new-tokens", "12", "--json"}).json();
  const std::string text = whole["text"], stop = text.substr(4, 3);
  const auto cut = place.run({"generate", "last", "line 4", "--max-new-tokens", "12", "--json", "--stop", stop}).json();
  CHECK(cut["text"] == text.substr(0, text.find(stop)));
  CHECK(cut["finish_reason"] == "stop");
  const auto full = place.run({"generate", "last", "line 4", "--max-new-tokens", "100", "--json"}).json();
  CHECK(full["finish_reason"] == "max_seq_len");
  CHECK(full["tokens"] == 32 - 6);
  const auto long_prompt = place.run({"generate", "last", std::string(100, 'x'), "--max-new-tokens", "8", "--json"});
  CHECK_THAT(long_prompt.err, ContainsSubstring("prompt 0 has 100 tokens, and the model's max_seq_len is 32: its first "
                                                "76 tokens are left out"));
  CHECK(long_prompt.json()["prompt_tokens_dropped"] == 76);
}

TEST_CASE("a verb whose reader has gone away ends without an error message", "[e2e]") {
  const auto& place = trained();
  place.write("some.jsonl", "{\"prompt\": \"line 1\", \"text\": \"line 1\"}\n");
  for (const std::string words :
       {"predict last some.jsonl", "embed last some.jsonl", "generate last --file some.jsonl"}) {
    const std::string line = "cd '" + place.path().string() + "' && (RUNNER_HOME='" + place.home().string() +
                             "' " RUNNER_BINARY_DIR "/bin/runner " + words + " 2>messages; echo $? >code) | true";
    INFO(line);
    CHECK(std::system(line.c_str()) == 0);
    CHECK(slurp(place.path() / "code") == "130\n");
    CHECK_THAT(slurp(place.path() / "messages"), !ContainsSubstring("error"));
  }
}

TEST_CASE("generate says what is wrong", "[e2e]") {
  const auto& place = trained();
  const auto unknown = place.run({"generate", "nothing", "x"});
  CHECK(unknown.code == 2);
  CHECK_THAT(unknown.err,
             ContainsSubstring("there is no run \"nothing\"") && ContainsSubstring("is not a folder either"));
  const auto bad = place.run({"generate", "last", "x", "--top-p", "2"});
  CHECK(bad.code == 2);
  CHECK_THAT(bad.err, ContainsSubstring("--top-p 2: must be above 0 and at most 1"));
  fs::create_directories(place.path() / "empty");
  CHECK_THAT(place.run({"generate", "empty", "x"}).err, ContainsSubstring("is neither a Hugging Face folder"));
  CHECK_THAT(place.run({"generate", "last", "x", "--step", "5"}).err, ContainsSubstring("it has step-000012"));
  place.write("bad.jsonl", "{\"prompt\": \"a\"}\n{\"promt\": \"b\"}\n");
  const auto record = place.run({"generate", "last", "--file", "bad.jsonl"});
  CHECK(record.code == 2);
  CHECK_THAT(record.err, ContainsSubstring("bad.jsonl:2: the record has neither `prompt` (a text) nor `messages`"));
}

TEST_CASE("errors name the options of the command, and not keys of the recipe", "[e2e]") {
  const auto& place = trained();
  const auto error_of = [&](const std::vector<std::string>& words) {
    const auto result = place.run(words);
    CHECK(result.code == 2);
    return result.err;
  };
  const auto folder = place.path().string();
  CHECK_THAT(error_of({"evaluate", "last", "--data", "nothing.txt"}),
             ContainsSubstring("error: --data: there is no file " + folder + "/nothing.txt"));
  CHECK_THAT(error_of({"generate", "last", "x", "--chat", "--chat-template", "chatmll"}),
             ContainsSubstring("error: --chat-template: there is no file \"chatmll\""));
  if (!fs::exists(place.path() / "folder")) REQUIRE(place.run({"export", "last", "--output", "folder"}).code == 0);
  const auto without = error_of({"generate", "folder", "x"});
  CHECK_THAT(without,
             ContainsSubstring("the model needs its tokenizer: " + folder + "/folder is a folder without a tokenizer"));
  CHECK_THAT(without, !ContainsSubstring("data."));
}

TEST_CASE("results that are not finite numbers are said, and no text is drawn from them", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  REQUIRE(place.run({"run", "tiny.toml", "--set", "devices.cpu_processes=1", "optimizer.lr=1e30", "train.max_steps=1"})
              .code == 0);
  place.write("choices.jsonl", "{\"context\": \"line\", \"choices\": [\"a\", \"b\"], \"label\": 1}\n");
  const std::string why = " is not a finite number: the model's outputs are not finite, although its weights are";
  for (const auto& [words, what] :
       {std::pair(std::vector<std::string>{}, "the loss"),
        {{"--data", "text.txt", "--task", "rolling"}, "the log-probability"},
        {{"--data", "choices.jsonl", "--task", "multiple_choice"}, "the log-probability of the choices"}}) {
    std::vector<std::string> all = {"evaluate", "last", "--limit", "4"};
    all.insert(all.end(), words.begin(), words.end());
    const auto result = place.run(all);
    CHECK(result.code == 0);
    CHECK_THAT(result.err, ContainsSubstring(what + why));
  }
  for (const char* temperature : {"0", "1"}) {
    const auto result = place.run({"generate", "last", "line", "--temperature", temperature});
    CHECK(result.code == 4);
    CHECK(result.out.empty());
    CHECK_THAT(result.err,
               ContainsSubstring("the next token has no probabilities: the model's outputs are not finite"));
  }
}

TEST_CASE("a folder that is no model does not hide the run of its name", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  REQUIRE(place.run({"run", "tiny.toml", "--set", "devices.cpu_processes=1", "run.name=shaded", "train.max_steps=1"})
              .code == 0);
  fs::create_directories(place.path() / "shaded");
  const auto result = place.run({"generate", "shaded", "line", "--max-new-tokens", "2"});
  INFO(result.err);
  CHECK(result.code == 0);
  fs::create_directories(place.path() / "none");
  CHECK_THAT(place.run({"generate", "none", "line"}).err, ContainsSubstring("none is neither a Hugging Face folder"));
}

TEST_CASE("texts that are not UTF-8 are refused", "[e2e]") {
  const auto& place = trained();
  const auto argument = place.run({"generate", "last", "a\xf0"});
  CHECK(argument.code == 2);
  CHECK_THAT(argument.err, ContainsSubstring("an argument on the command line is not UTF-8"));
  const auto input = piped(place, {"generate", "last"}, "a\xf0");
  CHECK(input.code == 2);
  CHECK_THAT(input.err, ContainsSubstring("standard input: byte 1 is not UTF-8"));
}

TEST_CASE("a prompt may be longer than an argument of a process", "[e2e]") {
  const auto& place = trained();
  // Each byte is six bytes of the request's JSON.
  const auto result = place.run({"generate", "last", std::string(100'000, '\x01'), "--max-new-tokens", "2", "--json"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK(result.json()["tokens"] == 2);
}

TEST_CASE("evaluate reads a run that packs its sequences, and gets its validation loss", "[e2e][rank13]") {
  Workplace place;
  std::string records;
  for (int i = 0; i < 40; ++i)
    records += fmt::format("{{\"prompt\": \"line {}\", \"completion\": \" is{}\"}}\n", i, std::string(1 + i % 9, 't'));
  place.write("t.jsonl", records);
  place.write("packed.toml",
              "[model]\nname = \"llama\"\nn_layers = 2\ndim = 32\nn_heads = 2\nmax_seq_len = 64\n[data]\nformat = "
              "\"jsonl\"\ntrain = [\"t.jsonl\"]\nvalidation = [\"t.jsonl\"]\npacking = \"best_fit\"\n[devices]\n"
              "accelerator = \"cpu\"\n[train]\nmax_steps = 4\nglobal_batch_size = 4\nval_check_interval = 4\n");
  REQUIRE(place.run({"run", "packed.toml"}).code == 0);
  const auto result = place.run({"evaluate", "last", "--json"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK_THAT(result.json()["metrics"]["loss"].get<double>(),
             WithinAbs(place.points("val_loss").back()[1].get<double>(), 1e-4));
  // The name of another file says its format.
  std::string cells = "prompt,completion\n";
  for (const auto& record : lines_of(records))
    cells += fmt::format("{},\"{}\"\n", record["prompt"].get<std::string>(), record["completion"].get<std::string>());
  place.write("t.csv", cells);
  const auto of_csv = place.run({"evaluate", "last", "--data", "t.csv", "--json"});
  INFO(of_csv.err);
  REQUIRE(of_csv.code == 0);
  CHECK(of_csv.json()["metrics"] == result.json()["metrics"]);
}

TEST_CASE("a run is used with the tokenizer that it trained with, and without its training data", "[e2e][rank13]") {
  Workplace place;
  std::string words;
  for (int i = 0; i < 3000; ++i)
    words += fmt::format("word{} and {} {}\n", i % 50, i * 7 % 90,
                         std::string(1, 'a' + i % 26) + std::string(1, 'a' + i * 3 % 25));
  place.write("train.txt", words);
  place.write("other.txt", words.substr(0, 4000));
  write_tiny_recipe(place);
  const auto run =
      place.run({"run", "tiny.toml", "--json", "--set", "devices.cpu_processes=1", "data.train=train.txt",
                 "data.validation_fraction=0.1", "data.tokenizer=sentencepiece", "data.tokenizer_vocab_size=310"});
  INFO(run.err);
  REQUIRE(run.code == 0);
  const auto loss_of = [&](const CommandResult& result) {
    INFO(result.err);
    REQUIRE(result.code == 0);
    return result.json().at("metrics").at("loss").get<double>();
  };
  const std::vector<std::string> evaluate = {"evaluate", "last", "--data", "other.txt", "--json"};
  const double loss = loss_of(place.run(evaluate));
  const auto text = place.run({"generate", "last", "word", "--max-new-tokens", "8"}).out;
  place.write("train.txt", std::string(20'000, 'x') + " other words\n");
  CHECK(loss_of(place.run(evaluate)) == loss);
  fs::remove(place.path() / "train.txt");
  fs::remove_all(place.home() / "cache");
  CHECK(loss_of(place.run(evaluate)) == loss);
  CHECK(place.run({"generate", "last", "word", "--max-new-tokens", "8"}).out == text);
  CHECK(place.run({"export", "last", "--output", "exported"}).code == 0);
  CHECK(fs::exists(place.path() / "exported/tokenizer.model"));
  CHECK(nlohmann::json::parse(slurp(place.path() / "exported/tokenizer_config.json")) ==
        nlohmann::json{{"tokenizer_class", "LlamaTokenizer"},
                       {"legacy", true},
                       {"add_prefix_space", false},
                       {"add_bos_token", false},
                       {"add_eos_token", false},
                       {"unk_token", "<unk>"},
                       {"bos_token", "<s>"},
                       {"eos_token", "</s>"},
                       {"clean_up_tokenization_spaces", false}});

  // A tokenizer that was replaced.
  const fs::path kept = fs::path(run.json().at("run_dir").get<std::string>()) / "tokenizer.model";
  place.write("train.txt", "quite other words of another text, " + words);
  const auto other =
      place.run({"run", "tiny.toml", "--json", "--set", "devices.cpu_processes=1", "data.train=train.txt",
                 "data.validation_fraction=0.1", "data.tokenizer=sentencepiece", "data.tokenizer_vocab_size=300"});
  REQUIRE(other.code == 0);
  fs::copy_file(fs::path(other.json().at("run_dir").get<std::string>()) / "tokenizer.model", kept,
                fs::copy_options::overwrite_existing);
  const auto refused = place.run({"generate", run.json().at("run"), "word"});
  CHECK(refused.code == 2);
  CHECK_THAT(refused.err, ContainsSubstring("has changed since the run trained with it"));
}

TEST_CASE("a folder without a tokenizer is refused with its path", "[e2e]") {
  const auto& place = trained();
  if (!fs::exists(place.path() / "folder")) REQUIRE(place.run({"export", "last", "--output", "folder"}).code == 0);
  const auto result = place.run({"generate", "folder", "x"});
  CHECK(result.code == 2);
  CHECK_THAT(result.err, ContainsSubstring("the model needs its tokenizer") && ContainsSubstring("folder"));
}

TEST_CASE("evaluate computes the loss of the last validation, and is recorded with its run", "[e2e][rank13]") {
  const auto& place = trained();
  const auto result = place.run({"evaluate", "last", "--json", "--limit", "24", "--threads", "1"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  const auto line = result.json();
  const auto& metrics = line["metrics"];
  const double loss = metrics["loss"];
  CHECK_THAT(loss, WithinAbs(place.points("val_loss").back()[1].get<double>(), 1e-5));  // 2 batches of 12
  CHECK_THAT(metrics["perplexity"].get<double>(), WithinAbs(std::exp(loss), 1e-6));
  CHECK(metrics["tokens"] == 24 * 32);
  CHECK(metrics["bytes"] == 24 * 32);  // a token is a byte
  CHECK_THAT(metrics["bits_per_byte"].get<double>(), WithinAbs(loss / std::log(2.0), 1e-6));
  CHECK(metrics["token_accuracy"].get<double>() > 0.1);

  const auto child = place.run({"show", line["run"], "--json"}).json();
  CHECK(child["status"] == "finished");
  CHECK(child["strategy"] == "evaluate");
  CHECK(child["parents"][0]["kind"] == "evaluated");
  CHECK(child["metrics"]["loss"]["last"] == loss);
  const auto parent = place.run({"show", "last", "--json"}).json();  // the training, not the evaluation
  CHECK(parent["id"] == line["parent"]);
  bool listed = false;
  for (const auto& run : parent["children"])
    listed |= run["id"] == line["run"] && run["metrics"]["loss"]["last"] == loss;
  CHECK(listed);
  CHECK_THAT(place.run({"show", "last"}).out, ContainsSubstring(line["run"].get<std::string>() + " (evaluated)"));
  CHECK(place.run({"show", line["run"]}).code == 0);
  CHECK_THAT(place.run({"evaluate", "last", "--limit", "8"}).out, ContainsSubstring("bits_per_byte"));
}

TEST_CASE("evaluate reads another file, and refuses bad records with their line", "[e2e][rank13]") {
  const auto& place = trained();
  place.write("other.txt", std::string(3000, 'a'));
  const auto other = place.run({"evaluate", "last", "--data", "other.txt", "--json"});
  INFO(other.err);
  REQUIRE(other.code == 0);
  CHECK(other.json()["metrics"]["samples"] == 2999 / 32);
  place.write("choices.jsonl", R"({"context": "a", "choices": ["b", "c"], "label": 2}
{"context": "a", "choices": ["b", "c"], "label": 1}
{"context": "a", "choices": ["b", "c"]})");
  const auto bad = place.run({"evaluate", "last", "--task", "multiple_choice", "--data", "choices.jsonl"});
  CHECK(bad.code == 2);
  CHECK_THAT(bad.err, ContainsSubstring("choices.jsonl:1: `label` is 2: must be the index of one of 2 choices") &&
                          ContainsSubstring(" (and 1 more row: 3)"));
}

TEST_CASE("rank 5: predict writes one line for each record, in order", "[e2e][rank5]") {
  const auto& place = trained();
  std::string records;
  for (int i = 0; i < 11; ++i)
    records += fmt::format("{{\"id\": \"r{}\", \"prompt\": \"{}\"}}\n", i, std::string(1 + i % 5, 'l'));
  place.write("records.jsonl", records);
  const auto result = place.run({"predict", "last", "records.jsonl", "--max-new-tokens", "5", "--batch-size", "4"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  const auto lines = lines_of(result.out);
  REQUIRE(lines.size() == 11);
  for (size_t i = 0; i < lines.size(); ++i) {
    CHECK(lines[i]["id"] == fmt::format("r{}", i));
    CHECK(lines[i]["prompt"] == std::string(1 + i % 5, 'l'));
    CHECK(lines[i]["prediction"].is_string());
  }
  CHECK(lines[0]["prediction"] == lines[5]["prediction"]);
  const auto written = place.run({"predict", "last", "records.jsonl", "--max-new-tokens", "5", "--output", "out.jsonl",
                                  "--json", "--batch-size", "1"});
  REQUIRE(written.code == 0);
  CHECK(written.json()["metrics"]["records"] == 11);
  const auto again = lines_of(slurp(place.path() / "out.jsonl"));
  REQUIRE(again.size() == 11);
  for (size_t i = 0; i < lines.size(); ++i) CHECK(again[i]["prediction"] == lines[i]["prediction"]);
  const auto row = place.run({"show", written.json()["run"], "--json"}).json();
  CHECK(row["artifacts"][0]["kind"] == "predictions");
  CHECK(row["parents"][0]["kind"] == "predicted");
}

TEST_CASE("rank 7: chat keeps the conversation and its cache between messages of a pipe", "[e2e]") {
  const Workplace place;
  write_tiny_recipe(place, "\n");
  const std::vector<std::string> more = {
      "run", "tiny.toml", "--set", "devices.cpu_processes=1", "model.max_seq_len=256", "train.max_steps=2"};
  REQUIRE(place.run(more).code == 0);
  const auto result =
      piped(place, {"chat", "last", "--chat-template", "chatml", "--json", "--max-new-tokens", "6", "--threads", "1"},
            "hi\nand?\n/reset\nhi\n/nothing\n/exit\nnever read\n");
  INFO(result.err);
  REQUIRE(result.code == 0);
  const auto answers = lines_of(result.out);
  REQUIRE(answers.size() == 3);
  CHECK(answers[0]["message"] == "hi");
  CHECK(answers[0]["reused_tokens"] == 0);
  CHECK(answers[1]["reused_tokens"].get<int>() >= answers[0]["prompt_tokens"].get<int>());
  CHECK(answers[2]["text"] == answers[0]["text"]);
  CHECK(answers[2]["prompt_tokens"] == answers[0]["prompt_tokens"]);
  CHECK_THAT(result.err, ContainsSubstring("/nothing is not a command"));
  const auto plain = piped(
      place, {"chat", "last", "--chat-template", "chatml", "--max-new-tokens", "6", "--system", "Be brief."}, "hi\n");
  CHECK(plain.code == 0);
  CHECK(plain.out.ends_with("\n"));
}

TEST_CASE("rank 5: SmolLM2 answers a question", "[e2e][rank5]") {
  const std::string file = RUNNER_SOURCE_DIR "/.deps/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
  if (!fs::exists(file)) SKIP("scripts/setup --smollm2 downloads the model");
  const Workplace place;
  const auto answer = place.run({"generate", file, "What is the capital of France?", "--chat", "--temperature", "0",
                                 "--max-new-tokens", "24", "--json"});
  INFO(answer.err);
  REQUIRE(answer.code == 0);
  CHECK_THAT(answer.json()["text"].get<std::string>(), ContainsSubstring("Paris"));
  const auto dialogue = piped(place, {"chat", file, "--temperature", "0", "--max-new-tokens", "24", "--json"},
                              "What is the capital of France?\nAnd of Italy?\n");
  INFO(dialogue.err);
  REQUIRE(dialogue.code == 0);
  const auto answers = lines_of(dialogue.out);
  REQUIRE(answers.size() == 2);
  CHECK(answers[0]["text"] == answer.json()["text"]);
  CHECK_THAT(answers[1]["text"].get<std::string>(), ContainsSubstring("Rome"));
  CHECK(answers[1]["reused_tokens"].get<int>() > 20);
}
