// Texts of files: lines, or records by the format that the name of the file says; and the places of mistakes.
#include "runner/inference/text_records.hpp"

#include <catch2/catch_test_macros.hpp>

#include "runner/base/log.hpp"
#include "runner/inference/prompts.hpp"
#include "tests/data/support.hpp"

using namespace runner;
using namespace runner::test;

namespace {

std::string texts_in(const std::string& file, bool records = false) {
  std::string all;
  for (const auto& record : read_texts(file, records, {"text", "prompt"}))
    all += record.id.dump() + "=" + record.text + "|";
  return all;
}

}  // namespace

TEST_CASE("the name of a file says whether it has lines or records", "[rank15]") {
  DataFolder folder;
  CHECK(texts_in(folder.write("a.txt", "\xEF\xBB\xBF{\"text\": 1}\r\n\nb\n")) == "0={\"text\": 1}|1=|2=b|");
  CHECK(texts_in(folder.write("a.csv", "id,text\n7,\"a, b\"\n,c\n")) == "7=a, b|1=c|");
  CHECK(texts_in(folder.write("a.tsv", "label\tprompt\nx\ta, b\n")) == "0=a, b|");
  CHECK(texts_in(folder.write("a.json", "[\n{\"text\": \"a\", \"id\": \"x\"},\n{\"text\": \"b\"}\n]\n")) ==
        "\"x\"=a|1=b|");
  CHECK(texts_in(folder.write("lines.json", "{\"text\": \"a\"}\n")) == "0=a|");
  CHECK(texts_in(folder.write("a.jsonl", "\"a\"\n\n{\"text\": \"b\"}\r\n")) == "0=a|1=b|");
  CHECK(texts_in(folder.write("a.jsonl", "{\"text\": \"a\", \"id\": null}\n{\"text\": \"b\", \"id\": \"\"}\n")) ==
        "0=a|1=b|");  // as in other formats
  CHECK(texts_in(folder.write("b.txt", "\"a\"\n"), /*records=*/true) == "0=a|");
}

TEST_CASE("mistakes in records have file, line, column and reason", "[rank15]") {
  DataFolder folder;
  const auto mistake = [&](const std::string& name, const std::string& content) {
    folder.write(name, content);
    const auto message = error_of([&] { texts_in(folder / name); });
    const auto prefix = "usage: " + (folder / "");
    return message.starts_with(prefix) ? message.substr(prefix.size()) : message;
  };
  CHECK(
      mistake("a.jsonl", "{\"text\": \"a\"}\n{\"text\" \"b\"}\n") ==
      "a.jsonl:2:11: not JSON: syntax error while parsing object separator - unexpected string literal; expected ':'");
  CHECK(mistake("a.jsonl", "{\n\"text\": \"b\"}\n") ==
        "a.jsonl:1:1: not JSON: syntax error while parsing object key - unexpected end of input; expected string "
        "literal; each record must be on one line, or all of them in one array");
  CHECK(mistake("a.jsonl", "5\n") == "a.jsonl:1: is neither a JSON object nor a JSON string");
  CHECK(mistake("a.jsonl", "1e999\n") == "a.jsonl:1: not JSON: number overflow parsing '1e999'");
  CHECK(mistake("a.json", "[{\"text\": \"a\"},\n{\"txt\": \"b\"}]\n") ==
        "a.json:2: the record has no `text` (a text); it has `txt`");
  CHECK(mistake("a.csv", "txt\nb\n") == "a.csv:2: the record has no `text` (a text); it has `txt`");
  CHECK(mistake("a.jsonl", "\n") == "a.jsonl has no record");
  CHECK(mistake("empty.csv", "") == "usage: the input: " + (folder / "empty.csv") + " is empty");
  CHECK(mistake("a.txt", "a\n\xff\n") == "a.txt:2: the line is not UTF-8");
  CHECK(mistake("a.txt", "\xff\na\n\xff\n") == "a.txt:1: the line is not UTF-8 (and 1 more row: 3)");
  CHECK(mistake("a.jsonl", "{\"text\": \"a\"}\n{\"text\": 5}\n{}\n{\"text\": \"b\"}\n5\n") ==
        "a.jsonl:2: the record has no `text` (a text) (and 2 more rows: 3, 5)");
}

TEST_CASE("a line, and a text that is one prompt, have at most 64 MiB") {
  DataFolder folder;
  const std::string long_text(size_t{64} << 20, 'a'), end = ": a record of 64.0 MiB; at most 64.0 MiB are read";
  CHECK(error_of([&] { texts_in(folder.write("a.jsonl", "\"a\"\n\"" + long_text + "\"\n")); }) ==
        "usage: " + (folder / "a.jsonl") + ":2" + end);
  CHECK(error_of([&] { texts_in(folder.write("a.txt", "a\n" + long_text + "b\n")); }) ==
        "usage: " + (folder / "a.txt") + ":2" + end);
  StoredModel model;
  model.recipe.data.chat_template = "chatml";
  const auto tokenizer = make_bytes_tokenizer();
  const auto file = folder.write("prompt.txt", long_text + "b");
  CHECK(error_of([&] { PromptReader({.file = file}, model, *tokenizer).read(); }) == "usage: " + file + end);
}

TEST_CASE("an answer at the end of a record's messages is not part of the prompt, and a note counts such records") {
  DataFolder folder;
  StoredModel model;
  model.recipe.data.chat_template = "chatml";
  const auto tokenizer = make_bytes_tokenizer();
  const auto read = [&](const std::string& content) {
    return PromptReader({.file = folder.write("chat.jsonl", content), .records = true}, model, *tokenizer).read();
  };
  const std::string question = R"({"messages": [{"role": "user", "content": "2 + 2?"})",
                    answer = R"(, {"role": "assistant", "content": "4"})";
  std::string said;
  log::set_copy([&](const std::string& line) { said += line + "\n"; });
  const auto prompts = read(question + "]}\n" + question + answer + "]}\n" + question + answer + answer + "]}\n");
  log::set_copy(nullptr);
  REQUIRE(prompts.size() == 3);
  for (const auto& prompt : prompts)
    CHECK(prompt.text == "<|im_start|>user\n2 + 2?<|im_end|>\n<|im_start|>assistant\n");
  CHECK(said.find("2 records ended with an answer of the assistant, which is not part of the prompt") !=
        std::string::npos);
  CHECK(error_of([&] {
          read(R"({"messages": [{"role": "assistant", "content": "4"}]})");
        }).ends_with("chat.jsonl:1: `messages` has only messages of the assistant, and no question"));
  CHECK(error_of([&] {
          read(R"({"instruction": "Add.", "input": "2 + 2", "output": "4"})");
        }).ends_with("the record has `instruction`, which only trainings read: write `prompt` (a text) or `messages`"));
}
