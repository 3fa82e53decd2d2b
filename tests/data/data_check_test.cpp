// Problems in [data] are found before tokenising and before workers start.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "runner/config/config.hpp"
#include "runner/data/data_check.hpp"
#include "support.hpp"

using namespace runner;
using namespace runner::test;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;

namespace {

/// "KEY: message" of each problem.
std::vector<std::string> problems_of(const Recipe::Data& data, int64_t seq_len = 4, int64_t vocab_size = 256) {
  std::vector<std::string> list;
  for (const auto& problem : find_data_problems(data, seq_len, vocab_size, "unused"))
    list.push_back(problem.key + " | " + problem.message);
  return list;
}

using Lines = std::vector<std::string>;

}  // namespace

TEST_CASE("every missing, empty or impossible data file is named, each under its key") {
  DataFolder folder;
  auto data = text_data({folder / "a.txt", folder.write("empty.txt", ""), folder.path.string()});
  folder.write("b.txt", "some text");
  data.validation = {folder / "none"};
  CHECK(problems_of(data) ==
        Lines{"data.train | data.train: there is no file " + folder / "a.txt" + "; did you mean b.txt?",
              "data.train | data.train: " + folder / "empty.txt" + " is empty",
              "data.train | data.train: " + folder.path.string() + " is a folder; name the files in it",
              "data.validation | data.validation: there is no file " + folder / "none"});
}

TEST_CASE("data that are too short, not UTF-8 or outside the vocabulary are found without a run") {
  DataFolder folder;
  auto text = text_data({folder.write("a.txt", "abcd")});
  CHECK(problems_of(text, 3).empty());
  CHECK(problems_of(text, 4) == Lines{"data.train | data.train: " + folder / "a.txt" +
                                      " has 4 tokens; one sample of data.seq_len = 4 needs 5"});
  text.validation_fraction = 0.5;
  CHECK_THAT(problems_of(text, 3).at(0),
             ContainsSubstring("data.validation_fraction | data.validation_fraction = 0.5"));
  CHECK(problems_of(text, 3).size() == 1);
  CHECK_THAT(problems_of(text_data({folder.write("bad", "abc\xff")}), 2).at(0), ContainsSubstring("is not UTF-8"));
  auto bin = bin_data({folder.write_tokens<uint16_t>("a.bin", {1, 2, 700, 4})});
  CHECK_THAT(problems_of(bin, 2, 600).at(0), ContainsSubstring("token 700 at position 2 is not in the vocabulary"));
  CHECK(problems_of(bin, 2, 701).empty());
}

TEST_CASE("text that needs tokenising is checked only for its size and its tokenizer") {
  DataFolder folder;
  auto data = text_data({folder.write("a.txt", "abcd")});
  data.tokenizer = "sentencepiece";
  data.tokenizer_vocab_size = 300;
  CHECK(problems_of(data, 4).empty());
  CHECK_THAT(problems_of(data, 5).at(0),
             ContainsSubstring("data.train | data.train: 4 B of text cannot give the 6 tokens"));
  CHECK(data_summary(data, 4, 300, "unused", false) ==
        "1 file with 4 B of text; a run first trains the tokenizer on them, and then finds whether they suffice for "
        "data.tokenizer_vocab_size");
  CHECK_FALSE(fs::exists("unused"));
  data.tokenizer = folder.write("tokenizer.json", "{}");
  CHECK(problems_of(data, 4) == Lines{"data.tokenizer | data.tokenizer: " + folder / "tokenizer.json" +
                                      ": /: this is not a tokenizer.json: it has no `model`"});
}

TEST_CASE("a text file that looks like JSON gives a note, other files do not") {
  DataFolder folder;
  auto lines = folder.write("chat.jsonl", "{\"messages\": []}\n{\"messages\": []}\n");
  auto list = folder.write("chat.json", " [\n {\"a\": 1}]");
  auto text = folder.write("a.txt", "{ a set } and [b]");
  CHECK(data_notes(text_data({text})).empty());
  for (const auto& file : {lines, list}) {
    auto notes = data_notes(text_data({text, file}));
    REQUIRE(notes.size() == 1);
    CHECK_THAT(notes[0], ContainsSubstring(file + " looks like JSON: format = \"text\" trains on its braces"));
  }
  auto data = text_data({text});
  data.validation = {lines};
  CHECK(data_notes(data).size() == 1);
  CHECK(data_notes(bin_data({lines})).empty());
}

TEST_CASE("compressed and binary files are named as what they are") {
  DataFolder folder;
  const std::vector<std::pair<std::string, std::string>> files = {
      {"\x1f\x8b\x08 some bytes", "a gzip file: unpack"},
      {std::string("PK\x03\x04\0\xff", 6), "a zip archive"},
      {"\x28\xb5\x2f\xfd....", "a zstd file: unpack"},
      {"PAR1\x15\x04\xff..", "a Parquet file: use data.format = \"parquet\""}};
  for (const auto& [bytes, kind] : files) {
    auto found = problems_of(text_data({folder.write("packed", bytes)}), 2);
    REQUIRE(found.size() == 1);
    CHECK_THAT(found[0], ContainsSubstring("data.train | data.train: " + folder / "packed" + " looks like " + kind));
  }
  CHECK(problems_of(text_data({folder.write("a.txt", "PAR1 is text, and so is BZh9")}), 2).empty());
  std::string tar(600, '\0');
  tar.replace(0, 5, "a.txt").replace(257, 5, "ustar");
  CHECK_THAT(problems_of(text_data({folder.write("a", tar)}), 2).at(0), ContainsSubstring("a tar archive: unpack"));
  const std::string utf16("\xff\xfeh\0i\0", 6);
  CHECK_THAT(problems_of(text_data({folder.write("a", utf16)}), 2).at(0),
             ContainsSubstring("iconv -f UTF-16 -t UTF-8"));
  CHECK_THAT(problems_of(text_data({folder.write("a", "%PDF-1.4 text")}), 2).at(0), ContainsSubstring("a PDF file"));
  CHECK_THAT(data_notes(text_data({folder.write("a", " <!DOCTYPE html>\n<html>")})).at(0),
             ContainsSubstring("looks like HTML"));
}

TEST_CASE("files that are not tokens, and tokens of a wider type, are not read as tokens") {
  DataFolder folder;
  const auto problem = [&](const std::string& bytes, const std::string& dtype = "uint16") {
    auto data = bin_data({folder.write("a.bin", bytes)});
    data.token_dtype = dtype;
    auto found = problems_of(data, 2, 100'000);
    return found.empty() ? std::string() : found[0];
  };
  std::string text;
  while (text.size() < 200) text += "some text, ";
  CHECK_THAT(problem(text), ContainsSubstring("a.bin looks like text: use data.format = \"text\""));
  CHECK_THAT(problem("\x93NUMPY" + std::string(200, '\1')), ContainsSubstring("looks like a NumPy file"));
  std::string narrow, wide, widest;
  const auto append = [](std::string& bytes, auto value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  for (int i = 0; i < 300; ++i) {
    append(narrow, static_cast<uint16_t>(i * 37 % 1000));
    append(wide, static_cast<uint32_t>(i * 237 % 70'000));
    append(widest, static_cast<int64_t>(i * 237 % 70'000));
  }
  CHECK(problem(narrow).empty());
  CHECK(problem(wide, "uint32").empty());
  CHECK_THAT(problem(wide),
             ContainsSubstring("looks like uint32 tokens") &&
                 ContainsSubstring("Set data.token_dtype = \"uint32\". If the file really contains such uint16 ids"));
  CHECK_THAT(problem(widest), ContainsSubstring("looks like int64 tokens"));
  CHECK_THAT(problem(widest, "uint32"), ContainsSubstring("astype(\"uint32\")"));
}

TEST_CASE("the amount of data is described") {
  DataFolder folder;
  auto data = text_data({folder.write("a.txt", std::string(101, 'a'))});
  CHECK(data_summary(data, 10, 256, "unused", true) == "1 file with 10 samples of 10 tokens");
  data.validation = {folder.write("b.txt", std::string(31, 'b'))};
  CHECK(data_summary(data, 10, 256, "unused", true) == "2 files with 10 samples of 10 tokens, and 3 to validate");
  data.tokenizer = "sentencepiece";
  CHECK(data_summary(data, 10, 256, "unused", false) ==
        "2 files with 132 B of text; a run first trains the tokenizer on them, and then finds whether they suffice for "
        "data.tokenizer_vocab_size");
}

TEST_CASE("a table and data that are used twice give notes") {
  DataFolder folder;
  auto table = folder.write("a.csv", "id,text\n1,hello\n"), text = folder.write("a.txt", "hello");
  CHECK_THAT(data_notes(text_data({text, table})).at(0), ContainsSubstring(table + " looks like a table"));
  auto data = text_data({text});
  data.validation = {text};
  CHECK(data_notes(data) == Lines{text + " is training and validation data: val_loss does not show overfitting"});
  CHECK(data_summary(data, 2, 256, "unused", true).starts_with("1 file with "));
  data.validation.clear();
  data.train.push_back((folder.path / "." / "a.txt").string());
  CHECK(data_notes(data) == Lines{data.train[1] + " is in data.train twice: each epoch trains on it twice"});
  data.validation_fraction = 0.2;
  CHECK(data_notes(data) ==
        Lines{data.train[1] + " is in data.train twice: each epoch trains on it twice, and val_loss may not show "
                              "overfitting"});
}

TEST_CASE("a pattern in a recipe matches files in sorted order; the name of an existing file is not a pattern") {
  DataFolder folder;
  for (const char* name : {"shard_2.txt", "shard_10.txt", "other.md", "odd[1].txt"}) folder.write(name, "text");
  auto train = [&](const std::string& patterns) {
    folder.write(
        "r.toml",
        "[model]\nname = \"gpt\"\nn_layers = 1\ndim = 8\nn_heads = 1\nmax_seq_len = 2\n[train]\nmax_steps = 1\n"
        "[data]\nformat = \"text\"\ntrain = " +
            patterns + "\n");
    return load_recipe(folder / "r.toml").data;
  };
  CHECK(train("[\"shard_*.txt\"]").train == Lines{folder / "shard_10.txt", folder / "shard_2.txt"});
  CHECK(train("[\"other.md\", \"shard_?.txt\"]").train == Lines{folder / "other.md", folder / "shard_2.txt"});
  CHECK(train("\"odd[1].txt\"").train == Lines{folder / "odd[1].txt"});
  CHECK(problems_of(train("\"shard_*.tx\"")) ==
        Lines{"data.train | data.train: no file matches " + folder / "shard_*.tx" + "; did you mean shard_2.txt?"});
  CHECK_THAT(problems_of(train("\"*.bin\"")).at(0), EndsWith("*.bin; the folder has odd[1].txt, other.md, r.toml ..."));
  CHECK_THAT(problems_of(train("\"none/*.txt\"")).at(0), EndsWith("there is no folder " + folder / "none"));
}
