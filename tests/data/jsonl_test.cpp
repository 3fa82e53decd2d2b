// The data format "jsonl": documents, how they become samples, what is left out, and interrupted tokenising.
#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstring>

#include "runner/data/data_check.hpp"
#include "runner/data/document_dataset.hpp"
#include "runner/data/record_reader.hpp"
#include "tests/data/support.hpp"

using namespace runner;
using namespace runner::test;

namespace {

Recipe::Data jsonl_data(std::vector<std::string> train, const std::string& packing = "none") {
  Recipe::Data data;
  data.format = "jsonl";
  data.train = std::move(train);
  data.packing = packing;
  return data;
}

std::string line_of(std::string_view text) { return nlohmann::json{{"text", text}}.dump() + "\n"; }

/// Inputs and targets of a batch of samples, a row on each line: characters, "_" for an ignored target, "." for a padded input.
std::string show(const Dataset& dataset, const std::vector<int64_t>& samples) {
  HostBatch batch(std::ssize(samples), dataset.fields_of(samples));
  std::string text;
  for (int64_t row = 0; row < batch.rows; ++row) {
    dataset.read(samples[static_cast<size_t>(row)], batch, row);
    for (int64_t id : batch.row<int64_t>(token_field::inputs, row)) text += id == 0 ? '.' : static_cast<char>(id);
    text += '|';
    for (int64_t id : batch.row<int64_t>(token_field::targets, row))
      text += id == ignored_target ? '_' : static_cast<char>(id);
    text += '\n';
  }
  std::ranges::replace(text, '\n', '$');
  return text;
}

/// Each record is one token per character; capital letters are supervised.
class LetterReader final : public RecordReader {
 public:
  Document read(const JsonRecord& record) const override {
    if (before_read) before_read();
    Document document;
    for (char c : record.at("text").get<std::string>()) {
      document.tokens.push_back(c);
      document.supervised.push_back(c >= 'A' && c <= 'Z');
    }
    return document;
  }
  std::vector<std::string> texts(const JsonRecord& record) const override {
    return {record.at("text").get<std::string>()};
  }
  nlohmann::json settings() const override { return {{"data.layout", "letters"}}; }
  const std::string& tokenizer_hash() const override { return hash_; }
  int64_t vocab_size() const override { return 256; }
  std::string packing() const override { return "none"; }
  std::function<void()> before_read;

 private:
  std::string hash_ = "letters";
};

std::vector<fs::path> letter_files(const std::string& path, const std::shared_ptr<const LetterReader>& reader,
                                   const std::string& cache) {
  return make_parts(*record_parts(jsonl_data({}), {path}, reader, cache, cached_part_bytes));
}

OpenData letters(const DataFolder& folder, const std::vector<std::string>& texts) {
  std::string lines;
  for (const auto& text : texts) lines += line_of(text);
  OpenData opened{.stream = {}, .documents = DocumentIndex{}};
  std::vector<std::unique_ptr<TokenFile>> files;
  for (const auto& path :
       letter_files(folder.write("letters.jsonl", lines), std::make_shared<LetterReader>(), folder / "cache")) {
    auto file = std::make_unique<DocumentFile>(path);
    opened.documents->ends.assign(file->ends().begin(), file->ends().end());
    opened.documents->targets.assign(file->targets().begin(), file->targets().end());
    files.push_back(std::move(file));
  }
  opened.stream = std::make_shared<TokenStream>(std::move(files));
  return opened;
}

std::string letters_error(const DataFolder& folder, const std::vector<std::string>& texts, int64_t seq_len,
                          const std::string& too_long = "truncate") {
  auto data = jsonl_data({"letters.jsonl"});
  data.too_long = too_long;
  return error_of([&] { document_dataset(data, Split::train, letters(folder, texts), seq_len); });
}

}  // namespace

TEST_CASE("records of text are joined and cut into samples of equal length") {
  DataFolder folder;
  const auto path = folder.write("a.jsonl", line_of("abc") + line_of("d") + line_of("efgh"));
  auto data = jsonl_data({path}, "wrapped");
  auto dataset = open_dataset(data, Split::train, 4, 256, folder / "cache");
  CHECK(dataset->describe() == "3 samples of 4 tokens");
  CHECK(show(*dataset, {0, 1, 2}) == "abc$|bc$$$$d$$|d$$e$efgh|fgh$$");
  CHECK(dataset->weight(0) == 4);
  data.packing.reset();  // the default for text
  CHECK(open_dataset(data, Split::train, 4, 256, folder / "cache")->size() == 3);
}

TEST_CASE("each record is a sample, and the rows of a batch are as long as its longest record needs") {
  DataFolder folder;
  const auto opened = letters(folder, {"abC", "DEFGHIJKLMN", "xxxxY", "none"});
  auto data = jsonl_data({"letters.jsonl"});
  auto dataset = document_dataset(data, Split::train, opened, 16);
  CHECK(dataset->describe() ==
        "3 samples of at most 16 tokens (63 % of the tokens are supervised; 1 left out without a supervised token)");
  CHECK(dataset->fields().at(0).row == std::vector<int64_t>{16});
  CHECK(show(*dataset, {0}) == "ab......|_C______$");
  CHECK(show(*dataset, {0, 2}) == "ab......|_C______$xxxx....|___Y____$");
  CHECK(show(*dataset, {2, 1}) == "xxxx............|___Y____________$DEFGHIJKLM......|EFGHIJKLMN______$");
  CHECK(dataset->weight(0) == 1);
  CHECK(dataset->weight(1) == 10);
}

TEST_CASE("records are packed into rows, with their positions and the share that they fill") {
  DataFolder folder;
  const auto opened = letters(folder, {"abC", "DEFGHIJ", "xxxxY", "pQ", "kL"});
  auto data = jsonl_data({"letters.jsonl"}, "best_fit");
  auto dataset = document_dataset(data, Split::train, opened, 8);
  CHECK(dataset->describe() ==
        "2 samples of at most 8 tokens (5 sequences packed, which fill 87.5 %; 71 % of the tokens are supervised)");
  CHECK(show(*dataset, {0, 1}) == "abDEFGHI|_CEFGHIJ$xxxxpk..|___YQL__$");
  CHECK(dataset->weight(0) == 7);
  CHECK(describe(dataset->fields()) == describe(data_fields(data, 8)));
  HostBatch batch(2, dataset->fields_of(std::vector<int64_t>{0, 1}));
  for (int64_t row = 0; row < 2; ++row) dataset->read(row, batch, row);
  const auto positions = batch.values<int64_t>(token_field::positions);
  CHECK(std::vector(positions.begin(), positions.end()) ==
        std::vector<int64_t>{0, 1, 0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 0, 0, 0, 1});
}

TEST_CASE("a record that is too long is truncated, left out, split or refused") {
  DataFolder folder;
  auto data = jsonl_data({"letters.jsonl"});
  const std::vector<std::string> texts{"abcdefghijKLMNOPQRS", "aB", "abcdefghijklM"};
  auto with = [&](const char* too_long) {
    data.too_long = too_long;
    return document_dataset(data, Split::train, letters(folder, texts), 12);
  };
  auto truncated = with("truncate");
  CHECK(show(*truncated, {0}) == "abcdefghijKL|_________KLM$");
  CHECK(truncated->describe() ==
        "3 samples of at most 12 tokens (35 % of the tokens are supervised; 1 too long and cut)");
  auto dropped = with("drop");
  CHECK(show(*dropped, {0, 1}) == "a...........|B___________$abcdefghijkl|___________M$");
  auto split = with("split");
  CHECK(show(*split, {0, 1}) == "abcdefghijKL|_________KLM$MNOPQR......|NOPQRS______$");
  CHECK(split->size() == 4);
  CHECK(letters_error(folder, texts, 12, "error") ==
        "usage: data.too_long = \"error\": document 1 of 3 has 19 tokens, and data.seq_len = 12 allows 13");
  CHECK(letters_error(folder, {"abcdE", "abcdF"}, 2, "drop") ==
        "usage: data.too_long = \"drop\" leaves no sample: all 2 documents have more than data.seq_len = 2 allows (3 "
        "tokens)");
}

TEST_CASE("data without a supervised token are refused") {
  DataFolder folder;
  CHECK(letters_error(folder, {"abc", "Def"}, 8) ==
        "usage: data.train: no document of 2 has a supervised token, so there is nothing to learn; data.train_on names "
        "the messages whose tokens are supervised");
  CHECK(
      letters_error(folder, {"abcdE", "Def"}, 3) ==
      "usage: data.train: no document of 2 has a supervised token among its first 4 (data.seq_len, data.too_long), so "
      "there is nothing to learn; data.train_on names the messages whose tokens are supervised");
}

TEST_CASE("a fraction for validation takes the last documents, and none is in both splits") {
  DataFolder folder;
  const auto opened = letters(folder, {"aB", "cDE", "fG", "hIJKL", "mN"});
  auto data = jsonl_data({"letters.jsonl"});
  for (const auto& [fraction, training, validation] : {std::tuple{0.1, 4, 1}, {0.15, 4, 1}, {0.5, 3, 2}, {0.8, 1, 4}}) {
    INFO(fraction);
    data.validation_fraction = fraction;
    CHECK(document_dataset(data, Split::train, opened, 8)->size() == training);
    CHECK(document_dataset(data, Split::validation, opened, 8)->size() == validation);
  }
  data.validation_fraction = 0.01;
  CHECK(error_of([&] { document_dataset(data, Split::validation, opened, 8); }) ==
        "usage: data.validation_fraction = 0.01 leaves no document for validation");
}

TEST_CASE("tokenising that was interrupted keeps its finished parts") {
  DataFolder folder;
  const std::string line = line_of(std::string(1 << 16, 'A'));
  std::string lines;
  while (lines.size() < 40 << 20) lines += line;
  const auto path = folder.write("long.jsonl", lines);
  std::atomic<int64_t> reads = 0;
  const auto reader = std::make_shared<LetterReader>();
  const int64_t records = std::ssize(lines) / std::ssize(line);
  reader->before_read = [&] {
    if (++reads == records / 2) throw environment_error("stopped");
  };
  CHECK(error_of([&] { letter_files(path, reader, folder / "cache"); }).find("stopped") != std::string::npos);
  reads = 0;
  reader->before_read = [&] { ++reads; };
  const auto files = letter_files(path, reader, folder / "cache");
  CHECK(files.size() == 5);
  CHECK(reads < records);
  int64_t documents = 0;
  for (const auto& file : files) documents += std::ssize(DocumentFile(file).ends());
  CHECK(documents == records);
  fs::resize_file(files[1], fs::file_size(files[1]) - 1);
  CHECK(error_of([&] { DocumentFile{files[1]}; }) ==
        "environment: " + files[1].string() + " is damaged: delete it, and it will be made again");
}

TEST_CASE("a file of the cache whose numbers do not fit its size is damaged") {
  DataFolder folder;
  const auto path = folder.write("a.jsonl", line_of("AbC") + line_of("de"));
  const auto file = letter_files(path, std::make_shared<LetterReader>(), folder / "cache").at(0);
  const auto whole = read_file(file);
  CHECK(DocumentFile(file).ends().size() == 2);
  // The footer: magic, item_bytes, tokens, documents, mark_bytes, file_bytes. Before it: tokens, marks, ends, targets.
  const auto place = [&](size_t from_end) { return whole.size() - from_end; };
  for (const auto& [at, value] : {std::pair{place(40), int64_t{0}},
                                  {place(40), int64_t{8}},
                                  {place(32), int64_t{1} << 62},
                                  {place(32), int64_t{9}},
                                  {place(24), int64_t{1} << 61},
                                  {place(16), int64_t{3}},
                                  {place(72), int64_t{-1}},
                                  {place(64), int64_t{1} << 40}}) {
    auto changed = whole;
    std::memcpy(changed.data() + at, &value, sizeof value);
    const auto damaged = folder.write("damaged.bin", changed);
    INFO(at << " " << value);
    CHECK(error_of([&] { DocumentFile{damaged}; }) ==
          "environment: " + damaged + " is damaged: delete it, and it will be made again");
  }
}

TEST_CASE("check names the records with different mistakes, and each mistake once") {
  DataFolder folder;
  const auto path = folder.write("a.jsonl", "{\"text\": 1}\n{\"text\": \"b\"}\n{\"text\": null}\n{\"text\": 3}\n");
  auto data = jsonl_data({path});
  data.layout = "text";
  const auto problems = find_data_problems(data, 4, 256, folder / "cache");
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].message == path + ":1: /text: must be a text, not a number (and 1 more row: 4)\n" + path +
                                   ":3: /text: is missing; the layout text needs it. Is it text?");
}

TEST_CASE("a record without the column of its text names the columns that it has") {
  DataFolder folder;
  const auto path = folder.write("a.jsonl", "{\"text\": \"a\"}\n{\"txt\": \"b\", \"n\": 1}\n");
  const auto open = [&](const Recipe::Data& data) {
    return error_of([&] { open_dataset(data, Split::train, 4, 256, folder / "cache"); });
  };
  CHECK(open(jsonl_data({path})) == "usage: " + path + ":2: /text: is missing; the layout text needs it. Is it txt?");
  auto renamed = jsonl_data({path});
  renamed.columns = Recipe::Data::Columns{{"text", "n"}};
  renamed.layout = "text";
  CHECK(open(renamed) == "usage: " + path + ":1: /n: is missing; the layout text needs it (and 1 more row: 2)");
}
