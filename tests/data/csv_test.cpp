// Tables from CSV files: cells, kinds of columns, and the places of mistakes.
#include <sys/resource.h>

#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "runner/data/csv_reader.hpp"
#include "runner/data/records.hpp"
#include "runner/data/table.hpp"
#include "runner/data/table_data.hpp"
#include "tests/data/support.hpp"

using namespace runner;
using namespace runner::test;

namespace {

Table table_of(const DataFolder& folder, std::string_view content, TableReading reading = {}) {
  return read_csv({folder.write("table.csv", content)}, reading);
}

std::string csv_error(const DataFolder& folder, std::string_view content) {
  auto message = error_of([&] { table_of(folder, content); });
  const auto path = folder / "table.csv";
  for (auto at = message.find(path); at != std::string::npos; at = message.find(path))
    message.replace(at, path.size(), "FILE");
  return message;
}

}  // namespace

TEST_CASE("CSV columns have numbers or texts", "[csv][rank17]") {
  DataFolder folder;
  const auto table =
      table_of(folder, "\xEF\xBB\xBFlength, species ,code\r\n1.5,setosa,01\r\n+2,,02\r\n\r\nNA,\"vir, gin\",03\r\n",
               {.as_text = {"code"}, .missing_values = {"NA"}});
  CHECK(table.names() == std::vector<std::string>{"length", "species", "code"});
  REQUIRE(table.rows() == 3);
  CHECK(table.columns[0].numeric);
  CHECK(table.columns[0].numbers[0] == 1.5);
  CHECK(table.columns[0].numbers[1] == 2);
  CHECK(table.columns[0].missing(2));
  CHECK(table.columns[1].texts == std::vector<std::string>{"setosa", "", "vir, gin"});
  CHECK(table.columns[1].missing(1));
  CHECK(table.columns[2].texts == std::vector<std::string>{"01", "02", "03"});
  CHECK(table.place(2) == (folder / "table.csv") + ":5");
}

TEST_CASE("The classes of a table keep their text, and amounts are numbers", "[csv][rank17]") {
  DataFolder folder;
  Recipe::Data data;
  data.format = "csv";
  data.train = {folder.write("table.csv", "x,y\n1,01\n2,1\n3,02\n4,1.0\n")};
  data.validation = {folder.write("other.csv", "x,y\n1,02\n2,01\n")};
  data.target = {"y"};
  data.target_type = "class";
  CHECK(training_table(data)->schema.targets[0].classes == std::vector<std::string>{"01", "1", "02"});
  const auto rows = open_table(data, Split::validation);
  HostBatch batch(2, rows->fields());
  for (const int64_t row : {0, 1}) rows->read(row, batch, row);
  CHECK(batch.row<int64_t>(1, 0)[0] == 2);
  CHECK(batch.row<int64_t>(1, 1)[0] == 0);
  data.target_type = "number";
  CHECK(training_table(data)->schema.targets[0].mean == 1.25);
}

TEST_CASE("1 and 1.0 are one category, and a note counts the cells of validation that have none", "[csv]") {
  DataFolder folder;
  Recipe::Data data;
  data.format = "csv";
  data.delimiter = ";";
  data.decimal = ",";
  data.train = {folder.write("table.csv", "a;y\n1;0\n1,0;1\n02;0\n2;1\n")};
  data.validation = {folder.write("other.csv", "a;y\n2,0;0\n7;1\n;1\n")};
  data.target = {"y"};
  data.target_type = "class";
  data.categorical = {"a"};
  CHECK(training_table(data)->schema.features[0].categories == std::vector<std::string>{"02", "1", "2"});
  CHECK(table_notes(data) ==
        std::vector<std::string>{"data.validation: 2 cells with a category that the training data do not have"});
  CHECK(evaluation_notes(data, training_table(data)->schema.to_json()) == table_notes(data));
  const auto rows = open_table(data, Split::validation);
  HostBatch batch(1, rows->fields());
  rows->read(0, batch, 0);
  CHECK(batch.row<float>(0, 0)[2] == 1);
}

TEST_CASE("numbers near the ends of their range are standardized, and those beyond fp32 are refused by their column") {
  DataFolder folder;
  Recipe::Data data;
  data.format = "csv";
  data.target = {"y"};
  data.target_type = "number";
  for (const auto& [great, small] : {std::pair("1e308", "-1e308"), {"1e-200", "-1e-200"}}) {
    data.train = {folder.write("table.csv", fmt::format("x,y\n{0},{1}\n{1},{0}\n", great, small))};
    const auto rows = open_table(data, Split::train);
    HostBatch batch(2, rows->fields());
    for (const int64_t row : {0, 1}) rows->read(row, batch, row);
    INFO(great);
    CHECK(batch.row<float>(0, 0)[0] == 1);
    CHECK(batch.row<float>(0, 1)[0] == -1);
    CHECK(batch.row<float>(1, 0)[0] == -1);
    CHECK(table_summary(data)[0].mean == 0);
    CHECK(table_summary(data)[0].std == std::stod(great));
  }
  std::string skewed = "x,y\n1.5e308,0\n";
  for (int i = 1; i < 100; ++i) skewed += fmt::format("-1.5e308,{}\n", i);
  data.train = {folder.write("skewed.csv", skewed)};
  const auto rows = open_table(data, Split::train);
  HostBatch batch(1, rows->fields());
  rows->read(0, batch, 0);
  CHECK(std::abs(batch.row<float>(0, 0)[0] - std::sqrt(99.0f)) < 1e-3f);
  data.train = {folder.write("table.csv", "x,y\n1,1\n-1e308,2\n")};
  data.standardize = false;
  CHECK(error_of([&] { open_table(data, Split::train); }) ==
        "usage: " + data.train[0] +
            ":3: `x` is -1e+308, and the model computes with numbers of at most 3.4e38: divide the column, standardize "
            "it (data.standardize), or add it to data.drop");
}

TEST_CASE("The files of one table have one format", "[csv][rank17]") {
  DataFolder folder;
  Recipe::Data data;
  data.format = "csv";
  data.train = {folder.write("table.csv", "x,y\n1,a\n2,b\n")};
  data.target = {"y"};
  const auto learned = training_table(data)->schema.to_json();
  const auto other = folder.write("rows.parquet", "PAR1");
  CHECK(error_of([&] {
          open_table_inputs(data, {data.train[0], other}, learned);
        }) == "usage: " + data.train[0] + " is read as csv, and " + other +
                  " as parquet: the rows of one table need files of one format");
}

TEST_CASE("A column of numbers with one text has categories, and a note says which cell is the cause",
          "[csv][rank17]") {
  DataFolder folder;
  Recipe::Data data;
  data.format = "csv";
  data.train = {folder.write("table.csv", "a,b,y\n1,u,0\n2,v,1\noops,u,0\n4,v,1\n")};
  data.target = {"y"};
  data.target_type = "class";
  CHECK(table_notes(data) ==
        std::vector<std::string>{"the column `a` becomes 4 categories: `oops` is not a number (" + data.train[0] +
                                 ":4); if it stands for a missing cell, add it to data.missing_values"});
}

TEST_CASE("A note says which columns of texts are numbers, times or names of rows", "[csv]") {
  DataFolder folder;
  Recipe::Data data;
  data.format = "csv";
  std::string rows = "price;sum;share;day;at;id;kind;some;below;hex;wide;end;y\n";
  for (int i = 0; i < 30; ++i)
    rows += fmt::format(
        "{0},5;\"1,{1}.25\";{0}.5 %;2024-09-{1:.2};12:{0:02}:00;K{0};{2};{3};{4}{0};0x1{0};1\u00a00{0};{5};{6}\n", i,
        std::to_string(100 + i), i % 2 ? "a" : "b", i % 3 ? "-" : std::to_string(i), i % 3 ? "" : "\u2212",
        i % 2 ? "-inf" : "inf", i % 3 ? "a" : "b");
  data.train = {folder.write("table.csv", rows)};
  data.target = {"y"};
  data.target_type = "class";
  CHECK(
      table_notes(data) ==
      std::vector<std::string>{
          "the column `price` becomes 30 categories: it has numbers with a comma, such as `0,5`; if it is a decimal "
          "comma, set data.decimal = \",\"; commas between groups of digits must be removed",
          "the column `sum` becomes 30 categories: it has numbers with marks between groups of digits, such as "
          "`1,100.25`; remove the marks",
          "the column `share` becomes 30 categories: it has numbers with a percent sign, such as `0.5 %`; remove the "
          "sign",
          "the column `day` becomes 3 categories: it has dates or times, such as `2024-09-10`; make numbers of them, "
          "or add the column to data.drop",
          "the column `at` becomes 30 categories: it has dates or times, such as `12:00:00`; make numbers of them, or "
          "add the column to data.drop",
          "the column `id` becomes 30 categories: it has another text in nearly each row, such as `K0`; add it to "
          "data.drop",
          "the column `some` becomes 11 categories: `-` is not a number (" + data.train[0] +
              ":3) (and 19 more rows: 4, 6, 7, 9, 10, 12, 13, 15, 16, 18 ...); if it stands for a missing cell, add it "
              "to "
              "data.missing_values",
          "the column `below` becomes 30 categories: it has numbers with the sign U+2212 for minus, such as `\u22120`; "
          "write - instead",
          "the column `hex` becomes 30 categories: it has hexadecimal numbers, such as `0x10`; write decimal numbers",
          "the column `wide` becomes 30 categories: it has numbers with no-break spaces, such as `1\u00a000`; remove "
          "the spaces",
          "the column `end` becomes 2 categories: it has infinite numbers, such as `inf`; write finite numbers, or add "
          "the word to data.missing_values"});
  data.decimal = ",";
  data.drop = {"sum", "share", "day", "at", "id", "some", "below", "hex", "wide", "end"};
  CHECK(table_notes(data).empty());
  CHECK(training_table(data)->schema.inputs() == 3);
  CHECK(training_table(data)->table.find("price")->numbers[29] == 29.5);
  data.target = {"price"};
  data.target_type = "number";
  CHECK(training_table(data)->schema.targets[0].mean == 15);
  data.decimal = ".";
  CHECK(error_of([&] { training_table(data); }) ==
        "usage: data.target: the column `price` has texts, and this loss needs numbers: it has numbers with a comma, "
        "such as `0,5`; if it is a decimal comma, set data.decimal = \",\"; commas between groups of digits must be "
        "removed");
}

TEST_CASE("A note says which columns of numbers look like ids, codes or the target", "[csv]") {
  DataFolder folder;
  Recipe::Data data;
  data.format = "csv";
  std::string rows = "customer;number;plz;phone;copy;day;rooms;flag;size;below;y\n";
  for (int i = 0; i < 60; ++i)
    rows += fmt::format("{};{};{};+4930123{};{};{};{};{};{};{};{}\n", 100000 + i, i * i * 7, i % 2 ? "01067" : "80331",
                        4000 + i, i * 2.5, i % 28, i % 5, i % 2, i + 0.25, -i, i * 2.5);
  data.train = {folder.write("table.csv", rows)};
  data.target = {"y"};
  data.target_type = "number";
  const std::string id =
      "another consecutive number in each row, such as 100000, as an id has; if it is one, add it to "
      "data.drop";
  CHECK(table_notes(data) ==
        std::vector<std::string>{
            "the column `customer` becomes a number: it has " + id,
            "the column `number` becomes a number: it has another whole number in each row, such as 0, as an id has; "
            "if it is one, add it to data.drop",
            "the column `plz` becomes a number: `01067` is written as codes are, and not as amounts; if it is one, add "
            "the column to data.categorical",
            "the column `phone` becomes a number: `+49301234000` is written as codes are, and not as amounts; if it is "
            "one, add the column to data.drop",
            "the column `copy` equals the target `y` in all training rows, so the model finds the answer there; if "
            "rows to predict do not have it, add it to data.drop"});
  data.categorical = {"plz"};
  data.drop = {"customer", "number", "phone", "copy"};
  CHECK(table_notes(data).empty());
  data.validation_fraction = 0.2;
  data.drop = {"number", "phone", "copy"};
  CHECK(table_notes(data).size() == 1);
}

TEST_CASE("A table with many columns is read in linear time, and a note names some of those with one value", "[csv]") {
  DataFolder folder;
  constexpr int columns = 50'000;  // a minute by quadratic loops
  std::string names = "y", cells;
  for (int i = 0; i < columns; ++i) {
    names += fmt::format(",c{}", i);
    cells += ",1";
  }
  Recipe::Data data;
  data.format = "csv";
  data.train = {folder.write("wide.csv", names + "\n0.5" + cells + "\n1.5" + cells + "\n")};
  data.target = {"y"};
  CHECK(table_notes(data) ==
        std::vector<std::string>{"columns with the same value in all training rows teach nothing: c0, c1, c2, c3, c4, "
                                 "c5, c6, c7, c8, c9 and 49990 more"});
}

TEST_CASE("Years, months, days and Unix times look like no ids or codes, unless their column is named so", "[csv]") {
  DataFolder folder;
  Recipe::Data data;
  data.format = "csv";
  std::string rows = "Year of Birth,built,created,ms,month,mm,day_no,row,order_no,depot_code,day_id,y\n";
  for (int i = 0; i < 60; ++i)
    rows += fmt::format("{},{},{},{},{:02},{:02},{:02},{},{},{:02},{},{}\n", 1750 + i, 2040 - i, 1700000000 + 86400 * i,
                        1700000000123 + 3600000 * i, i % 12 + 1, i % 12 + 1, i % 31 + 1, 1 + i, 1950 + i, i % 12 + 1,
                        5 + i, i * 2.5);
  data.train = {folder.write("table.csv", rows)};
  data.target = {"y"};
  data.target_type = "number";
  std::vector<std::string> columns;
  for (const auto& note : table_notes(data)) columns.push_back(note.substr(0, note.find(" becomes")));
  CHECK(columns == std::vector<std::string>{"the column `row`", "the column `order_no`", "the column `depot_code`",
                                            "the column `day_id`"});
}

TEST_CASE("A target with amounts, not all of which are numbers, is refused with the cells", "[csv]") {
  DataFolder folder;
  Recipe::Data data;
  data.format = "csv";
  data.delimiter = ";";
  data.target = {"price"};
  const auto refused = [&](const char* number, const char* bad) {
    std::string rows = "area;price\n";
    for (int i = 0; i < 40; ++i) rows += fmt::format("{};{}\n", i, i % 20 == 3 ? bad : fmt::format("{}{}", i, number));
    data.train = {folder.write("table.csv", rows)};
    const auto message = error_of([&] { training_table(data); });
    const auto at = message.find(": ", 30);
    return at == std::string::npos ? message : message.substr(at + 2);
  };
  const std::string end = ". For classes, set train.loss = \"cross_entropy\"";
  const auto cells = folder / "table.csv" + ":5) (and 1 more row: 25)";
  CHECK(refused(".5", "viel") ==
        "`viel` is not a number (" + cells + "; if it stands for a missing cell, add it to data.missing_values" + end);
  CHECK(refused(".5", "3,5") ==
        "`3,5` is not a number (" + cells + "; the decimal sign of the other cells is `.`: write `3.5`" + end);
  CHECK(refused(".5", "1,250").starts_with("it has numbers with a comma, such as `1,250`; "));  // perhaps 1250
  CHECK(refused(",5", "3,5")
            .starts_with("it has numbers with a comma, such as `0,5`; if it is a decimal comma, set "
                         "data.decimal = \",\""));
  data.decimal = ",";
  CHECK(refused(",5", "3,5").empty());
  CHECK(refused(".5", "3.5") ==
        "it has numbers with a point, such as `0.5`; if it is a decimal point, set data.decimal = \".\"" + end);
  data.decimal = ".";
  data.target_type = "class";
  CHECK(refused(".5", "viel").empty());
  // Few different numbers may be classes.
  data.target_type = "auto";
  data.train = {folder.write("table.csv", "area;price\n1;1\n2;2\n3;1\n4;2\n5;1\n6;2\n7;1\n8;2\n9;none\n")};
  CHECK(training_table(data)->schema.target_type == "class");
}

TEST_CASE("Rows to predict with another decimal sign are refused with the sign of the training", "[csv]") {
  DataFolder folder;
  Recipe::Data data;
  data.format = "csv";
  data.delimiter = ";";
  data.decimal = ",";
  data.train = {folder.write("table.csv", "x;y\n1,5;a\n2,5;b\n3,5;a\n")};
  data.target = {"y"};
  data.target_type = "class";
  const auto learned = training_table(data)->schema.to_json();
  const auto rows = folder.write("rows.csv", "x\n50.5\n2,5\n51.5\n");
  CHECK(error_of([&] { open_table_inputs(data, {rows}, learned); }) ==
        "usage: " + rows +
            ":2: `x` is `50.5`, and the training data have numbers in this column (and 1 more row: 4); the decimal "
            "sign is `,` here, because the training has data.decimal = \",\": if this cell has another one, write "
            "`50,5`");
}

TEST_CASE("A number that is too small for a double is 0, and one that is too large is a text", "[csv]") {
  DataFolder folder;
  const auto table = table_of(folder, "x,y\n1e-400,1e400\n-1e-400,1\n2,2\n");
  CHECK(table.columns[0].numbers == std::vector<double>{0, 0, 2});
  CHECK_FALSE(table.columns[1].numeric);
}

TEST_CASE("The delimiter is that of the text outside of quotes, and lines may end with CR", "[csv]") {
  DataFolder folder;
  CHECK(table_of(folder, "x;\"a, b, c\";y\n1;2;3\n").names() == std::vector<std::string>{"x", "a, b, c", "y"});
  CHECK(table_of(folder, "\"x,1\";\"x,2\";y\n1;2;3\n").names() == std::vector<std::string>{"x,1", "x,2", "y"});
  const auto old = table_of(folder, "x,y\r1,\"a\"\r\r2,\"b\rc\"\r");
  CHECK(old.columns[0].numbers == std::vector<double>{1, 2});
  CHECK(old.columns[1].texts == std::vector<std::string>{"a", "b\rc"});
  CHECK(old.place(1) == (folder / "table.csv") + ":4");
}

TEST_CASE("Records of a CSV file are read without keeping their cells", "[csv]") {
  DataFolder folder;
  std::string rows = "text\n";
  while (rows.size() < 64 << 20) rows += "\"a text with \"\"quotes\"\" and some more words\"\n";
  CsvReader reader("rows.csv", rows, "auto", /*keeps_cells=*/false);
  reader.header();
  struct rusage before {
  }, after{};
  ::getrusage(RUSAGE_SELF, &before);
  int64_t lines = 0;
  for (CsvLine line; reader.next(line);) lines += line.cells[0] == "a text with \"quotes\" and some more words";
  ::getrusage(RUSAGE_SELF, &after);
  CHECK(lines > 1'000'000);
  CHECK(after.ru_maxrss - before.ru_maxrss < 8 << 10);  // KiB
}

TEST_CASE("Rows to predict may be JSON lines", "[csv]") {
  DataFolder folder;
  Recipe::Data data;
  data.format = "csv";
  data.train = {folder.write("table.csv", "x,kind,y\n1,a,no\n2,b,yes\n3,a,no\n")};
  data.target = {"y"};
  data.target_type = "class";
  const auto learned = training_table(data)->schema.to_json();
  const auto rows = folder.write("rows.jsonl", "{\"id\": 7, \"kind\": \"b\", \"x\": 2}\n{\"x\": 3, \"kind\": \"a\"}\n");
  const auto lines = open_table_inputs(data, {rows}, learned);
  const auto cells = open_table_inputs(data, {folder.write("rows.csv", "id,x,kind\n7,2,b\n,3,a\n")}, learned);
  CHECK(lines.names == cells.names);
  for (const int64_t row : {0, 1}) {
    HostBatch a(1, lines.samples->fields()), b(1, cells.samples->fields());
    lines.samples->read(row, a, 0);
    cells.samples->read(row, b, 0);
    CHECK(a.fields[0].bytes == b.fields[0].bytes);
  }
}

TEST_CASE("Quoted CSV cells contain quotes and line breaks", "[csv][rank17]") {
  DataFolder folder;
  const auto table = table_of(folder, "a;b\n\"say \"\"hi\"\"\nthere\";\"\"\"\"\n x ;\"2\"\n");
  CHECK(table.columns[0].texts == std::vector<std::string>{"say \"hi\"\nthere", "x"});
  CHECK(table.columns[1].texts == std::vector<std::string>{"\"", "2"});
  CHECK(table.place(1) == (folder / "table.csv") + ":4");
}

TEST_CASE("The ids of records are those that the file has, in full, or numbers of records", "[csv][rank17]") {
  DataFolder folder;
  Recipe::Data data;
  const auto ids = [&](const std::string& format, const std::string& path) {
    data.format = format;
    std::string text;
    for (const auto& name : record_ids(data, {path})) text += name.at("id").dump() + " ";
    return text;
  };
  CHECK(ids("csv", folder.write("a.csv", "id,x\n1234567890123456789,1\n007,2\n,3\nnine,4\n1e3,5\n-5,6\n")) ==
        R"(1234567890123456789 "007" 2 "nine" "1e3" -5 )");
  CHECK(ids("csv", folder.write("b.csv", "x\n1\n2\n")) == "0 1 ");
  CHECK(ids("jsonl", folder.write("a.jsonl", "{\"id\": 9007199254740993}\n{\"id\": \"7\"}\n{}\n{\"id\": null}\n")) ==
        R"(9007199254740993 "7" 2 3 )");
}

TEST_CASE("Several CSV files form one table", "[csv][rank17]") {
  DataFolder folder;
  const auto table = read_csv({folder.write("a.csv", "x,y\n1,2\n"), folder.write("b.csv", "y\tx\n4\t3\n")}, {});
  CHECK(table.columns[0].numbers == std::vector<double>{1, 3});
  CHECK(table.columns[1].numbers == std::vector<double>{2, 4});
  CHECK(table.place(1) == (folder / "b.csv") + ":2");
  CHECK(error_of([&] {
          read_csv({folder / "a.csv", folder.write("c.csv", "x,z\n1,2\n")}, {});
        }) == "usage: " + (folder / "c.csv") + " has no column `y`, which " + (folder / "a.csv") + " has");
}

TEST_CASE("Mistakes in CSV files have a place", "[csv][rank17]") {
  DataFolder folder;
  const std::string hint = ", as the first line has; cells end at `,`, and data.delimiter sets another character";
  CHECK(csv_error(folder, "a,b\n1,2\n1,2,3\n3,4\n5\n") ==
        "usage: FILE:3: 3 cells instead of 2" + hint + "\nFILE:5: 1 cell instead of 2" + hint);
  std::string ragged = "a,b\n";
  for (int i = 0; i < 13; ++i) ragged += "1\n";
  CHECK(csv_error(folder, ragged).ends_with("FILE:11: 1 cell instead of 2" + hint + "\nand 3 more lines"));
  CHECK(csv_error(folder, "a,b\n1,\"2\n3\n") == "usage: FILE:2: a quoted cell has no end");
  CHECK(csv_error(folder, "a,a\n") ==
        "usage: FILE:1: two columns are called `a`: give one another name; data.drop "
        "leaves columns of a table out");
  CHECK(csv_error(folder, "a,,b\n") ==
        "usage: FILE:1: column 2 has no name: give it one; data.drop leaves columns of "
        "a table out");
  CHECK(csv_error(folder, "1,2\n3,4\n") ==
        "usage: FILE:1: the first line must name the columns, and here it has only numbers: add a line of names");
  CHECK(csv_error(folder, "a\n\xE9\n") == "usage: FILE:2: the file is not UTF-8; convert it, for example with iconv");
  CHECK(csv_error(folder, "a\n\"x\"y\n") ==
        "usage: FILE:2: the quoted cell `x` is followed by `y`; a quote inside a quoted cell is written \"\"");
}
