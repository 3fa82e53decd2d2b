// `runner embed`, and outputs that cannot be written.
#include <fcntl.h>
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>

#include "fine_tune_support.hpp"
#include "word_tokenizer.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinAbs;
using nlohmann::json;

namespace {

const std::string minilm = RUNNER_SOURCE_DIR "/.deps/minilm";

std::vector<json> embeddings(const CommandResult& result) {
  INFO(result.err);
  REQUIRE(result.code == 0);
  std::vector<json> lines;
  std::istringstream stream(result.out);
  for (std::string line; std::getline(stream, line);) lines.push_back(json::parse(line));
  return lines;
}

}  // namespace

// make_minilm.py made the table: every fourth number of the embeddings that transformers computes.
TEST_CASE("rank 15: embeddings of MiniLM are those of transformers", "[e2e][rank15]") {
  if (!fs::exists(minilm + "/config.json")) SKIP("scripts/setup --minilm has not downloaded the model");
  const auto table = json::parse(slurp(RUNNER_SOURCE_DIR "/tests/pretrained/reference/minilm.json"));
  const auto& texts = table.at("texts");
  Workplace place;
  std::string records, lines;
  for (const auto& text : texts) {
    records += json{{"text", text.at("text")}, {"id", "t" + std::to_string(text.at("ids").size())}}.dump() + "\n";
    lines += (lines.empty() ? "" : "\n") + text.at("text").get<std::string>();
  }
  place.write("texts.jsonl", records);
  place.write("texts.txt", lines);
  for (const std::string pooling : {"mean", "cls"}) {
    for (const char* batch : {"1", "3"}) {
      CAPTURE(pooling, batch);
      const auto found = embeddings(
          place.run({"embed", minilm, "texts.jsonl", "--pooling", pooling, "--no-normalize", "--batch-size", batch}));
      REQUIRE(found.size() == texts.size());
      for (size_t i = 0; i < found.size(); ++i) {
        CHECK(found[i].at("id") == "t" + std::to_string(texts[i].at("ids").size()));
        const auto vector = found[i].at("embedding").get<std::vector<double>>();
        REQUIRE(vector.size() == 384);
        const auto& expected = texts[i].at(pooling);
        for (size_t k = 0; k < expected.size(); ++k)
          CHECK_THAT(vector[4 * k], WithinAbs(expected[k].get<double>(), 1e-5));
      }
    }
  }
  // Its modules.json asks for the mean and for length 1.
  const auto plain = embeddings(place.run({"embed", minilm, "texts.txt"}));
  const auto mean = embeddings(place.run({"embed", minilm, "texts.txt", "--no-normalize"}));
  REQUIRE(plain.size() == texts.size());
  for (size_t i = 0; i < plain.size(); ++i) {
    CHECK(plain[i].at("id") == i);
    const auto vector = plain[i].at("embedding").get<std::vector<double>>(),
               whole = mean[i].at("embedding").get<std::vector<double>>();
    double squares = 0, of_whole = 0;
    for (const double value : vector) squares += value * value;
    for (const double value : whole) of_whole += value * value;
    CHECK_THAT(squares, WithinAbs(1, 1e-5));
    CHECK_THAT(vector[7], WithinAbs(whole[7] / std::sqrt(of_whole), 1e-6));
  }
}

TEST_CASE("embed cuts long texts, keeps empty lines, and says what is wrong", "[e2e][rank15]") {
  if (!fs::exists(minilm + "/config.json")) SKIP("scripts/setup --minilm has not downloaded the model");
  Workplace place;
  std::string words = "lamp";
  for (int i = 0; i < 400; ++i) words += " lamp";
  place.write("long.txt", "\xEF\xBB\xBF" + words + "\r\n\nlamp lamp\n");
  const auto result = place.run({"embed", minilm, "long.txt", "--output", "out.jsonl", "--json"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK(result.json().at("metrics").at("records") == 3);
  CHECK(result.json().at("metrics").at("tokens") == 256 + 2 + 4);
  CHECK_THAT(result.err, ContainsSubstring("1 text is longer than 256 tokens"));
  const auto row = place.run({"show", result.json().at("run"), "--json"}).json();
  CHECK(row.at("artifacts")[0].at("kind") == "embeddings");
  const auto cut = embeddings(place.run({"embed", minilm, "long.txt", "--max-seq-length", "4"}));
  double difference = 0;  // [CLS] lamp lamp [SEP]
  for (size_t i = 0; i < 384; ++i)
    difference =
        std::max(difference, std::abs(cut[0]["embedding"][i].get<double>() - cut[2]["embedding"][i].get<double>()));
  CHECK(difference < 1e-6);

  CHECK_THAT(place.run({"embed", minilm, "long.txt", "--max-seq-length", "1000"}).err,
             ContainsSubstring("--max-seq-length 1000: the model reads at most 512 tokens"));
  place.write("bad.jsonl", "{\"text\": \"a\"}\n\n{\"txt\": \"b\"}\n");
  const auto bad = place.run({"embed", minilm, "bad.jsonl"});
  CHECK(bad.code == 2);
  CHECK_THAT(bad.err, ContainsSubstring("bad.jsonl:3: the record has no `text` (a text); it has `txt`"));
  place.write("bad.jsonl", "{\"text\": \"a\"}\n{\"text\" \"b\"}\n");
  CHECK_THAT(place.run({"embed", minilm, "bad.jsonl"}).err, ContainsSubstring("bad.jsonl:2:11: not JSON: "));
  // The name of the file says what it is.
  place.write("table.csv", "id,text\n7,lamp lamp\n8,\"lamp, lamp\"\n");
  place.write("array.json", "[{\"text\": \"lamp lamp\", \"id\": 7},\n {\"text\": \"lamp, lamp\", \"id\": 8}]\n");
  const auto table = embeddings(place.run({"embed", minilm, "table.csv"}));
  REQUIRE(table.size() == 2);
  CHECK(table[0].at("id") == 7);
  CHECK(table == embeddings(place.run({"embed", minilm, "array.json"})));
  place.write("empty.txt", "");
  CHECK_THAT(place.run({"embed", minilm, "empty.txt"}).err, ContainsSubstring("empty.txt has no text"));
  // A folder without a head cannot do anything else.
  for (const std::string verb : {"generate", "evaluate"}) {
    const auto headless =
        verb == "generate" ? place.run({verb, minilm, "x"}) : place.run({verb, minilm, "--data", "long.txt"});
    CHECK(headless.code == 2);
    CHECK_THAT(headless.err, ContainsSubstring("has no head") && ContainsSubstring("`runner embed`"));
  }
}

TEST_CASE("rank 15: a run of an encoder is evaluated as its validation was, and embeds texts", "[e2e][rank15]") {
  if (!fs::exists(minilm + "/tokenizer.json")) SKIP("scripts/setup --minilm has not downloaded the tokenizer");
  Workplace place;
  std::string records;
  for (int i = 0; i < 30; ++i)
    records += fmt::format("{{\"text\": \"the lamp of tower {} shows the way{}\"}}\n", i, i % 3 ? " home" : "");
  place.write("t.jsonl", records);
  const auto packing = GENERATE(as<std::string>(), "none", "best_fit");
  place.write("bert.toml",
              "[model]\nname = \"bert\"\nn_layers = 1\ndim = 16\nn_heads = 2\nmax_seq_len = 64\n[data]\nformat = "
              "\"jsonl\"\ntrain = [\"t.jsonl\"]\nvalidation = [\"t.jsonl\"]\npacking = \"" +
                  packing + "\"\ntokenizer = \"" + minilm +
                  "\"\n[devices]\naccelerator = \"cpu\"\n[train]\nmax_steps = 3\nglobal_batch_size = "
                  "4\nval_check_interval = 3\n");
  const auto trained = place.run({"run", "bert.toml"});
  INFO(trained.err);
  REQUIRE(trained.code == 0);
  const auto result = place.run({"evaluate", "last", "--json", "--batch-size", "3"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK_THAT(result.json().at("metrics").at("loss").get<double>(),
             WithinAbs(place.points("val_loss").back()[1].get<double>(), 1e-4));
  CHECK_FALSE(result.json().at("metrics").contains("word_perplexity"));
  const auto vectors = embeddings(place.run({"embed", "last", "t.jsonl", "--normalize"}));
  REQUIRE(vectors.size() == 30);
  CHECK(vectors[3].at("embedding").size() == 16);
  const auto refused = place.run({"generate", "last", "x"});
  CHECK(refused.code == 2);
  CHECK_THAT(refused.err, ContainsSubstring("predicts hidden tokens, not the next one"));
}

TEST_CASE("rank 15: embeddings of decoders are transformers' states of the last token, or their mean",
          "[e2e][rank15]") {
  const auto python = python_with_peft();
  Workplace place;
  const auto family = GENERATE(as<std::string>(), "llama", "gpt", "gemma2");
  CAPTURE(family);
  std::string text;
  for (int i = 0; i < 200; ++i) text += fmt::format("line {} of {}\n", i * i % 97, i % 13);
  place.write("text.txt", text);
  write_word_tokenizer(place, {"a", "lamp", "the", "keeper", "of", "lighthouse", "fog", "line", "3", "7"});
  place.write("texts.txt", "a lamp\nthe keeper of the lighthouse\n7\nfog\n");
  place.write(
      "lm.toml",
      "[model]\nname = \"" + family +
          "\"\nn_layers = 2\ndim = 32\nn_heads = 4\nmax_seq_len = 40\n[data]\nformat = \"text\"\n"
          "train = [\"text.txt\"]\ntokenizer = \"words\"\nseq_len = 16\n[devices]\naccelerator = \"cpu\"\n[train]\n"
          "max_steps = 4\nglobal_batch_size = 4\n");
  const auto trained = place.run({"run", "lm.toml"});
  INFO(trained.err);
  REQUIRE(trained.code == 0);
  REQUIRE(place.run({"export", "last", "--output", "exported"}).code == 0);
  const auto command = fmt::format("cd {} && {} {}/tests/commands/text_embeddings.py texts.txt exported >vectors",
                                   place.path().string(), python, RUNNER_SOURCE_DIR);
  REQUIRE(std::system(command.c_str()) == 0);
  std::vector<json> theirs;
  std::istringstream lines(slurp(place.path() / "vectors"));
  for (std::string line; std::getline(lines, line);) theirs.push_back(json::parse(line));
  REQUIRE(theirs.size() == 8);
  const auto check = [&](const std::vector<json>& found, size_t which) {
    REQUIRE(found.size() == 4);
    for (size_t i = 0; i < found.size(); ++i)
      for (size_t k = 0; k < 32; ++k)
        CHECK_THAT(found[i].at("embedding")[k].get<double>(), WithinAbs(theirs[2 * i + which][k].get<double>(), 1e-5));
  };
  check(embeddings(place.run({"embed", "last", "texts.txt"})), 0);
  check(embeddings(place.run({"embed", "exported", "texts.txt", "--batch-size", "1"})), 0);
  check(embeddings(place.run({"embed", "exported", "texts.txt", "--pooling", "mean"})), 1);
  // A folder of sentence-transformers names the pooling and a prompt; the class of the model has no head.
  auto config = json::parse(slurp(place.path() / "exported/config.json"));
  config["architectures"] = {"AnyModel"};
  place.write("exported/config.json", config.dump());
  fs::create_directories(place.path() / "exported/1_Pooling");
  place.write("exported/modules.json", R"([{"type": "sentence_transformers.models.Transformer", "path": ""},
    {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}])");
  place.write("exported/1_Pooling/config.json",
              R"({"pooling_mode_mean_tokens": false, "pooling_mode_lasttoken": true})");
  place.write("exported/config_sentence_transformers.json",
              R"({"prompts": {"query": "a "}, "default_prompt_name": "query"})");
  place.write("rest.txt", "lamp\n");
  const auto prompted = embeddings(place.run({"embed", "exported", "rest.txt"}));
  for (size_t k = 0; k < 32; ++k)
    CHECK_THAT(prompted.at(0).at("embedding")[k].get<double>(), WithinAbs(theirs[0][k].get<double>(), 1e-5));
}

TEST_CASE("a full disk leaves no output, and the reason is printed", "[e2e][rank5]") {
  Workplace place;
  write_tiny_recipe(place);
  REQUIRE(place.run({"run", "tiny.toml", "--set", "devices.cpu_processes=1"}).code == 0);
  place.write("records.jsonl", "{\"prompt\": \"l\"}\n");
  const std::vector<std::string> words = {"predict", "last", "records.jsonl", "--max-new-tokens", "2", "--output"};
  const auto to = [&](const std::string& file) {
    auto all = words;
    all.push_back(file);
    return place.run(all);
  };
  const auto full = to("/dev/full");
  CHECK(full.code == 4);
  CHECK_THAT(full.err, ContainsSubstring("cannot write /dev/full: No space left on device"));
  CHECK(fs::is_character_file("/dev/full"));
  CHECK(to("/dev/null").code == 0);
  CHECK(fs::is_character_file("/dev/null"));
  const auto missing = to("nowhere/out.jsonl");
  CHECK(missing.code == 4);
  CHECK_THAT(missing.err, ContainsSubstring("nowhere/out.jsonl: No such file or directory"));
  const auto folder = to("home");
  CHECK_THAT(folder.err, ContainsSubstring("it is a folder"));
  // An output that exists is replaced only by a complete one.
  place.write("out.jsonl", "before\n");
  place.write("bad.jsonl", "{\"prompt\": \"l\"}\n{\"promt\": \"l\"}\n");
  CHECK(place.run({"predict", "last", "bad.jsonl", "--output", "out.jsonl"}).code == 2);
  CHECK(slurp(place.path() / "out.jsonl") == "before\n");
  CHECK(to("out.jsonl").code == 0);
  CHECK(slurp(place.path() / "out.jsonl") != "before\n");
  for (const auto& entry : fs::directory_iterator(place.path())) CHECK(entry.path().extension() != ".tmp");
}
