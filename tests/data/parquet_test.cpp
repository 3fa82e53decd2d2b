// The data format "parquet": files that pyarrow wrote (reference/parquet/make.py) have the same records as JSON lines.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "runner/data/data_check.hpp"
#include "runner/data/json_records.hpp"
#include "runner/data/parquet_records.hpp"
#include "runner/data/table.hpp"
#include "runner/data/table_data.hpp"
#include "tests/data/support.hpp"

using namespace runner;
using namespace runner::test;
using Catch::Matchers::ContainsSubstring;

namespace {

std::string reference(const std::string& name) {
  return (fs::path(RUNNER_SOURCE_DIR) / "tests/data/reference/parquet" / name).string();
}

std::vector<JsonRecord> all_records(const Records& file, size_t part_bytes) {
  std::vector<JsonRecord> list;
  size_t last = 0;
  for (const auto& part : file.parts(part_bytes)) {
    CHECK(part.begin >= last);
    file.for_each(part, [&](const JsonRecord& record, size_t end) {
      CHECK(end > last);
      last = end;
      list.push_back(record);
      return true;
    });
    CHECK(last <= part.end);
  }
  return list;
}

Recipe::Data data_of(const std::string& format, const std::string& name) {
  Recipe::Data data;
  data.format = format;
  data.train = {reference(name + "." + format)};
  data.packing = "none";
  data.chat_template = "chatml";
  return data;
}

/// Inputs and targets of all samples.
std::vector<std::vector<int64_t>> samples_of(const Recipe::Data& data, const std::string& cache) {
  const auto dataset = open_dataset(data, Split::train, 64, 256, cache);
  std::vector<std::vector<int64_t>> samples;
  for (int64_t sample = 0; sample < dataset->size(); ++sample) {
    HostBatch batch(1, dataset->fields());
    dataset->read(sample, batch, 0);
    for (const size_t field : {token_field::inputs, token_field::targets}) {
      const auto row = batch.row<int64_t>(field, 0);
      samples.emplace_back(row.begin(), row.end());
    }
  }
  return samples;
}

std::string problem(const Recipe::Data& data) {
  const DataFolder cache;
  const auto problems = find_data_problems(data, 64, 256, cache / "cache");
  return problems.empty() ? "" : problems.front().message;
}

}  // namespace

TEST_CASE("rank 12: the records of Parquet files are those of JSON lines", "[rank12]") {
  for (const std::string name : {"texts", "chats", "alpaca", "types", "table", "null_text", "numbers", "units"}) {
    INFO(name);
    const auto expected = all_records(JsonRecords(reference(name + ".jsonl")), SIZE_MAX);
    const ParquetRecords file(reference(name + ".parquet"));
    CHECK(file.size() == expected.size());
    for (const size_t part_bytes : {size_t{1}, size_t{500}, SIZE_MAX}) {
      const auto records = all_records(file, part_bytes);
      REQUIRE(records.size() == expected.size());
      for (size_t i = 0; i < records.size(); ++i) CHECK(records[i] == expected[i]);
    }
  }
}

TEST_CASE("rank 12: parts of a Parquet file are row groups", "[rank12]") {
  const ParquetRecords file(reference("texts.parquet"));
  CHECK(file.parts(1).size() == 7);  // 50 rows in groups of 8
  CHECK(file.parts(1)[1].begin == 8);
  CHECK(file.parts(SIZE_MAX).size() == 1);
  int rows = 0;
  file.for_each(file.parts(SIZE_MAX)[0], [&](const JsonRecord&, size_t) { return ++rows < 11; });
  CHECK(rows == 11);
  const auto refuse = [](const JsonRecord&, size_t end) -> bool {
    return end % 20 != 3 ? true : throw usage_error("it is wrong");
  };
  CHECK(error_of([&] { file.for_each(file.parts(SIZE_MAX)[0], refuse); }) ==
        "usage: " + reference("texts.parquet") + ", row 3: it is wrong (and 2 more rows: 23, 43)");
}

TEST_CASE("rank 12: samples of Parquet and of JSON lines are equal in every layout", "[rank12]") {
  DataFolder folder;
  for (const std::string name : {"texts", "chats", "alpaca"}) {
    INFO(name);
    const auto samples = samples_of(data_of("parquet", name), folder / "cache");
    CHECK(samples.size() > 20);
    CHECK(samples == samples_of(data_of("jsonl", name), folder / "cache"));
    CHECK(samples == samples_of(data_of("parquet", name), folder / "cache"));  // from the cache
  }
}

TEST_CASE("rank 12: columns of Parquet files become a table with the types of the file", "[rank12]") {
  const auto table =
      read_parquet({reference("table.parquet"), reference("table.parquet")}, {.missing_values = {"blue"}});
  CHECK(table.rows() == 12);
  CHECK(table.names() == std::vector<std::string>{"size", "weight", "old", "color"});
  CHECK(table.find("size")->numbers == std::vector<double>{0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5});
  CHECK(table.find("old")->numbers[0] == 1);
  CHECK(table.find("weight")->numbers[3] == 0.75);
  CHECK(table.find("weight")->missing(2));
  CHECK_FALSE(table.find("color")->numeric);
  CHECK(table.find("color")->texts[4] == "red");
  CHECK(table.find("color")->missing(3));  // null
  CHECK(table.find("color")->missing(1));  // "blue"
  CHECK(table.place(7) == reference("table.parquet") + ", row 2");
  CHECK(read_parquet({reference("table.parquet")}, {.as_text = {"size"}}).find("size")->texts[5] == "5");
  CHECK_THAT(
      error_of([] { read_parquet({reference("types.parquet")}, {}); }),
      ContainsSubstring(
          reference("types.parquet") +
          ", row 1, column `list`: a cell of a table must be a number or a text, not array (and 1 more row: 3)"));
  CHECK_THAT(error_of([] {
               read_parquet({reference("table.parquet"), reference("texts.parquet")}, {});
             }),
             ContainsSubstring("texts.parquet: there is no column `size`"));
}

TEST_CASE("Whole numbers of Parquet files keep their digits, and half floats, decimals and durations are numbers",
          "[rank12]") {
  const auto table = read_parquet({reference("numbers.parquet")}, {.as_text = {"id"}});
  const auto texts = [&](const char* name) { return table.find(name)->texts; };
  CHECK(texts("id") == std::vector<std::string>{"9007199254740992", "9007199254740993", "9007199254740992"});
  CHECK(texts("label") == std::vector<std::string>{"9007199254740992", "9007199254740993", "9007199254740994"});
  CHECK(table.find("label")->numbers[2] == 9007199254740994);
  CHECK(table.find("half")->numbers == std::vector<double>{0.5, -1.5, 2});
  CHECK(table.find("price")->numbers == std::vector<double>{0.5, 7.25, 12});
  CHECK(table.find("lasted")->numbers == std::vector<double>{0, 60, 120});
  CHECK(texts("price").empty());
  CHECK(table.find("key")->numeric);
  CHECK(texts("key")[1] == "10000000000000000000001");
  CHECK(texts("day")[1] == "2024-09-11");
  Recipe::Data data;
  data.format = "parquet";
  data.train = {reference("numbers.parquet")};
  data.target = {"label"};
  data.target_type = "class";
  CHECK(training_table(data)->schema.targets[0].classes == texts("label"));
}

TEST_CASE("A note says which columns an older runner has read in another way in the training", "[rank12]") {
  Recipe::Data data;
  data.format = "parquet";
  data.target = {"half"};
  TableSchema schema;
  schema.target_type = "number";
  for (const char* number : {"lasted_s", "lasted_us", "short_ms", "float"})
    schema.features.push_back({.column = number});
  schema.targets.push_back({.column = "half"});
  for (const char* text : {"at_us", "clock_ms"})
    schema.features.push_back({.column = text, .categories = {"a"}, .categorical = true});
  auto learned = schema.to_json();
  CHECK(older_reading_note(data, learned, {reference("units.parquet")}).empty());
  learned.erase("version");
  CHECK(TableSchema::from_json(learned).to_json().at("version") == 1);
  CHECK(older_reading_note(data, learned, {reference("numbers.parquet")}).empty());
  CHECK_THAT(older_reading_note(data, learned, {reference("units.parquet")}),
             ContainsSubstring("an older runner trained this model and read lasted_us, clock_ms, at_us, short_ms of "));
}

TEST_CASE("rank 12: mistakes in Parquet files are reported with file, row and column", "[rank12]") {
  DataFolder folder;
  CHECK(problem(data_of("parquet", "texts")).empty());
  CHECK_THAT(problem(data_of("parquet", "null_text")),
             ContainsSubstring(reference("null_text.parquet") + ", row 3: /text: is missing"));
  CHECK_THAT(problem(data_of("parquet", "bytes")), ContainsSubstring(reference("bytes.parquet") + ", row 2: /text: "));
  CHECK_THAT(problem(data_of("parquet", "bad_key")),
             ContainsSubstring(reference("bad_key.parquet") + ", row 1, column `map`: a key of a map is not UTF-8"));
  auto renamed = data_of("parquet", "alpaca");
  renamed.layout = "text";
  CHECK_THAT(problem(renamed), ContainsSubstring(reference("alpaca.parquet") + ", row 1: /text: is missing"));
  auto other = data_of("parquet", "texts");
  other.train = {folder.write("a.parquet", "{\"text\": \"JSON\"}\n")};
  CHECK_THAT(problem(other), ContainsSubstring(folder / "a.parquet") && ContainsSubstring("Parquet"));
  const std::string whole = read_file(reference("chats.parquet"));
  other.train = {folder.write("cut.parquet", whole.substr(0, whole.size() - 100))};
  CHECK_THAT(problem(other), ContainsSubstring(folder / "cut.parquet"));
  CHECK_THAT(error_of([&] { ParquetRecords(folder / "cut.parquet"); }), ContainsSubstring("usage: "));
  std::string damaged = whole;
  for (size_t i = 4; i < 400; ++i) damaged[i] = static_cast<char>(~damaged[i]);
  other.train = {folder.write("damaged.parquet", damaged)};
  CHECK_THAT(problem(other), ContainsSubstring(folder / "damaged.parquet") && ContainsSubstring("row 1"));
}
