// Conversations and instructions: which tokens are supervised, for each layout, and with a tokenizer whose tokens cross messages.
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "runner/data/loader.hpp"
#include "runner/data/record_reader.hpp"
#include "tests/data/support.hpp"
#include "tests/support/trained_bpe.hpp"

using namespace runner;
using namespace runner::test;

namespace {

Recipe::Data records_data(const std::string& file) {
  Recipe::Data data;
  data.format = "jsonl";
  data.train = {file};
  return data;
}

/// The document of a record of bytes; supervised parts are between "[" and "]".
std::string marked(const DataFolder& folder, Recipe::Data data, const JsonRecord& record) {
  data.train = {folder.write("one.jsonl", record.dump() + "\n")};
  const auto reader = make_record_reader(data, data.train, folder / "cache");
  const auto document = reader->read(record);
  REQUIRE(document.tokens.size() == document.supervised.size());
  std::string text;
  bool inside = false;
  for (size_t i = 0; i < document.tokens.size(); ++i) {
    if (document.supervised[i] != inside) text += inside ? "]" : "[";
    inside = document.supervised[i];
    text += static_cast<char>(document.tokens[i]);
  }
  return inside ? text + "]" : text;
}

const JsonRecord chat = JsonRecord::parse(R"({"messages": [
  {"role": "system", "content": "S"}, {"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"},
  {"role": "user", "content": "R"}, {"role": "assistant", "content": "B"}]})");

}  // namespace

TEST_CASE("of a conversation, what the assistant says and the end of its turn are supervised") {
  DataFolder folder;
  auto data = records_data("");
  data.chat_template = "chatml";
  const std::string begin = "<|im_start|>", end = "<|im_end|>";
  const auto turn = [&](const std::string& role, const std::string& content) {
    return begin + role + "\n" + content + end + "\n";
  };
  const auto reply = [&](const std::string& content) { return begin + "assistant\n[" + content + end + "]\n"; };
  const std::string opening = turn("system", "S") + turn("user", "Q");
  CHECK(marked(folder, data, chat) == opening + reply("A") + turn("user", "R") + reply("B"));
  data.train_on = {"last"};
  CHECK(marked(folder, data, chat) == opening + turn("assistant", "A") + turn("user", "R") + reply("B"));
  data.train_on = {"all"};
  CHECK(marked(folder, data, chat) ==
        "[" + opening + turn("assistant", "A") + turn("user", "R") + turn("assistant", "B") + "]");
}

TEST_CASE("prompts are not supervised, completions and their end are") {
  DataFolder folder;
  const JsonRecord pair = {{"prompt", "2+2="}, {"completion", "4"}};
  auto data = records_data("");
  CHECK(marked(folder, data, pair) == "2+2=[4\n\n]");
  data.train_on_input = true;
  CHECK(marked(folder, data, pair) == "[2+2=4\n\n]");
}

TEST_CASE("tokens of white space are supervised also if the tokenizer trims their offsets, and added tokens are not") {
  DataFolder folder;
  folder.write("tokenizer_config.json", R"({"eos_token": "</s>"})");
  const auto read = [&](const char* post_processor, const JsonRecord& record, const std::string& objective = "") {
    auto tokenizer = nlohmann::json::parse(trained_bpe("", 258, {"<s>", "</s>"}));  // then the bytes
    tokenizer["post_processor"] = nlohmann::json::parse(post_processor);
    auto data = records_data(folder.write("a.jsonl", record.dump() + "\n"));
    data.tokenizer = folder.write("tokenizer.json", tokenizer.dump());
    data.chat_template = folder.write("own.jinja", "{% for m in messages %}{{ m.content }}{% endfor %}");
    if (!objective.empty()) data.objective = objective;
    const auto document = make_record_reader(data, data.train, folder / "cache")->read(record);
    std::vector<std::pair<int32_t, bool>> tokens;
    for (size_t i = 0; i < document.tokens.size(); ++i) tokens.emplace_back(document.tokens[i], document.supervised[i]);
    return tokens;
  };
  using Tokens = std::vector<std::pair<int32_t, bool>>;
  const JsonRecord text = {{"text", "a  b"}}, pair = {{"prompt", "f:\n"}, {"completion", "  x "}},
                   messages = JsonRecord::parse(R"({"messages": [{"role": "user", "content": "f "},
                                                    {"role": "assistant", "content": "  x "}]})");
  for (const char* trimming :
       {R"({"type": "ByteLevel"})", R"({"type": "ByteLevel", "trim_offsets": true, "add_prefix_space": false})",
        R"({"type": "ByteLevel", "trim_offsets": false})",
        R"({"type": "Sequence", "processors": [{"type": "ByteLevel", "trim_offsets": true}]})"}) {
    INFO(trimming);
    CHECK(read(trimming, text) == Tokens{{99, true}, {34, true}, {34, true}, {100, true}, {1, true}});
    CHECK(read(trimming, pair) ==
          Tokens{{104, false}, {60, false}, {12, false}, {34, true}, {34, true}, {122, true}, {34, true}, {1, true}});
    CHECK(read(trimming, messages) ==
          Tokens{{104, false}, {34, false}, {34, true}, {34, true}, {122, true}, {34, true}});
  }
  const char* roberta = R"({"type": "RobertaProcessing", "sep": ["</s>", 1], "cls": ["<s>", 0]})";
  CHECK(read(roberta, text) == Tokens{{0, false}, {99, true}, {34, true}, {34, true}, {100, true}, {1, true}});
  CHECK(read(roberta, text, "masked_lm") ==
        Tokens{{0, false}, {99, true}, {34, true}, {34, true}, {100, true}, {1, false}});
}

TEST_CASE("layouts are found by their columns") {
  DataFolder folder;
  const auto layout = [&](const JsonRecord& record, const char* chat_template = "chatml") {
    auto data = records_data(folder.write("a.jsonl", record.dump() + "\n"));
    data.chat_template = chat_template;
    return make_record_reader(data, data.train, folder / "cache")->settings().at("data.layout").get<std::string>();
  };
  CHECK(layout({{"text", "a"}}) == "text");
  CHECK(layout(chat) == "messages");
  CHECK(layout({{"prompt", "a"}, {"completion", "b"}}) == "prompt_completion");
  CHECK(layout({{"instruction", "a"}, {"input", ""}, {"output", "b"}}) == "alpaca");
  CHECK(layout({{"conversations", JsonRecord::array({{{"from", "human"}, {"value", "a"}}})}}) == "sharegpt");
}

TEST_CASE("a tokenizer without a chat template needs data.chat_template for conversations") {
  DataFolder folder;
  auto data = records_data(folder.write("a.jsonl", chat.dump() + "\n"));
  const auto open = [&] { return error_of([&] { make_record_reader(data, data.train, folder / "cache"); }); };
  CHECK(open() ==
        "usage: data.chat_template: the tokenizer \"bytes\" has no chat template: name one of alpaca, chatml, gemma, "
        "llama2, "
        "llama3, mistral, phi3, vicuna, zephyr, or a file");
  data.chat_template = "zephir";
  CHECK(open() ==
        "usage: data.chat_template: there is no file \"zephir\"; the built-in templates are alpaca, chatml, gemma, "
        "llama2, "
        "llama3, mistral, phi3, vicuna, zephyr; did you mean zephyr?");
  data.chat_template = folder.write("own.jinja", "{% for m in messages %}{{ m.content }}!{% endfor %}");
  CHECK(open().empty());
  CHECK(marked(folder, data, chat) == "S!Q![A!]R![B!]");
}

TEST_CASE("changed settings of records give other documents in the cache") {
  DataFolder folder;
  auto data = records_data(folder.write("a.jsonl", chat.dump() + "\n"));
  data.chat_template = "chatml";
  const auto weight = [&] { return open_dataset(data, Split::train, 256, 256, folder / "cache")->weight(0); };
  const int64_t assistant = weight();
  data.train_on = {"last"};
  CHECK(2 * weight() == assistant);
  data.chat_template = "zephyr";
  CHECK(weight() != assistant / 2);
}

TEST_CASE("the units of a sample are all of its tokens, and those of a batch are without padding") {
  DataFolder folder;
  auto data = records_data(folder.write("pairs.jsonl",
                                        "{\"prompt\": \"question \", \"completion\": \"a\"}\n"
                                        "{\"prompt\": \"q\", \"completion\": \"b\"}\n"));
  const auto pairs = open_dataset(data, Split::train, 32, 256, folder / "cache");
  CHECK(pairs->weight(0) == 3);  // the completion and its end
  CHECK(pairs->units(0) == std::ssize(std::string("question a\n")));
  CHECK(pairs->units(1) == 3);
  Loader loader(*pairs, {.global_batch_size = 2, .micro_batch_size = 2, .shuffle = false});
  StepBatch batch;
  REQUIRE(loader.next(batch));
  CHECK(batch.weight == 6);
  CHECK(batch.units == 11 + 3);
  CHECK(batch.micro_batches[0].fields[0].spec.row == std::vector<int64_t>{16});  // of each row, with padding

  data.packing = "wrapped";
  const auto wrapped = open_dataset(data, Split::train, 12, 256, folder / "cache");
  CHECK(wrapped->weight(0) < 12);
  CHECK(wrapped->units(0) == 12);
}
