// Files of other programs that are incomplete, damaged, ambiguous or unusual: what is right in them is read, and the rest is named.
#include <algorithm>
#include <cmath>

#include "runner/exchange/export_metrics.hpp"
#include "runner/exchange/import_runs.hpp"
#include "runner/exchange/source_files.hpp"
#include "runner/logging/crc32.hpp"
#include "runner/logging/protobuf.hpp"
#include "runner/logging/tensorboard_log.hpp"
#include "support.hpp"

using namespace runner;
using namespace runner::testing;
using namespace runner::protobuf;
using nlohmann::json;

namespace {

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// {"run/metric": {step: value}}
using Values = std::map<std::string, std::map<int64_t, double>>;

Values values_of(const ForeignRuns& found) {
  Values values;
  for (const auto& run : found.runs)
    for (const auto& point : run.points) values[run.name + "/" + point.name][point.step] = point.value;
  return values;
}

/// An offline run of W&B; each record fits into the first block.
class WandbFile {
 public:
  WandbFile() { bytes_ = ":W&B" + bytes_of(uint16_t{0xBEE1}) + '\0'; }
  WandbFile& add(const std::string& record) {
    const std::string checked = '\1' + record;
    bytes_ += bytes_of(crc32<zlib_polynomial>(checked)) + bytes_of(static_cast<uint16_t>(record.size())) + checked;
    return *this;
  }
  WandbFile& run(const std::string& id, const std::string& project, const std::string& config = "") {
    return add(message_field(17, message_field(1, id) + message_field(3, project) + message_field(8, "name of " + id) +
                                     message_field(17, number_field(1, 1000)) +
                                     (config.empty() ? "" : message_field(4, item("c", config)))));
  }
  static std::string item(const std::string& name, const std::string& value) {
    return message_field(1, message_field(1, name) + message_field(16, value));
  }
  WandbFile& history(int64_t step, const std::string& name, const std::string& value) {
    return add(message_field(2, item(name, value) + message_field(2, number_field(1, step))));
  }
  WandbFile& summary(const std::string& name, const std::string& value) {
    return add(message_field(3, item(name, value)));
  }
  WandbFile& exit() { return add(message_field(18, number_field(1, 0) + number_field(2, 60))); }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

std::string event(double time, int64_t step, const std::string& tag, float value) {
  const std::string event = double_field(1, time) + number_field(2, step) +
                            message_field(5, message_field(1, message_field(1, tag) + float_field(2, value)));
  const auto length = bytes_of(static_cast<uint64_t>(event.size()));
  return length + bytes_of(masked_checksum(length)) + event + bytes_of(masked_checksum(event));
}

}  // namespace

TEST_CASE("rows of a table belong to the run that `run` or else `name` says") {
  Workplace place;
  place.write("named.csv", "name,step,loss\nA,1,10\nA,2,9\nB,1,5\nB,2,4\n");
  CHECK(values_of(read_csv_runs(place.path() / "named.csv")) ==
        Values{{"A/loss", {{1, 10}, {2, 9}}}, {"B/loss", {{1, 5}, {2, 4}}}});
  place.write("long.csv", "name,metric,step,value\nA,loss,1,10\nB,loss,1,5\n");
  CHECK(values_of(read_csv_runs(place.path() / "long.csv")) == Values{{"A/loss", {{1, 10}}}, {"B/loss", {{1, 5}}}});
  place.write("twice.csv", "step,loss,loss\n1,2,3\n");
  CHECK(error_of([&] { read_csv_runs(place.path() / "twice.csv"); }).ends_with("the table has two columns \"loss\""));
}

TEST_CASE("headers of a table have no spaces around them, and a column without a name is left out with a note") {
  Workplace place;
  const fs::path file = place.path() / "t.csv";
  place.write("t.csv", ",step, loss ,\n0,1,10,\n1,2,9,\n");  // pandas writes its index; the last comma is one too many
  const auto found = read_csv_runs(file);
  CHECK(values_of(found) == Values{{"t/loss", {{1, 10}, {2, 9}}}});
  CHECK(found.notes == std::vector<std::string>{file.string() + ": column 1 has no name, and is left out"});
  place.write("t.csv", "metric,step,value\n ,1,10\n");
  CHECK(error_of([&] { read_csv_runs(file); }) == file.string() + ", row 2: the metric has no name");
}

TEST_CASE("steps of a table are whole numbers, and cells that are no numbers are counted") {
  Workplace place;
  const fs::path file = place.path() / "t.csv";
  place.write("t.csv",
              "step,loss\n9007199254740993,1\n1e3,2\n-5,1e400\n6,-1e-400\n7,oops\n8,N/A\n8,0.5\n8,0.25\n9,--3\n");
  const auto found = read_csv_runs(file);
  CHECK(values_of(found) == Values{{"t/loss", {{9007199254740993, 1}, {1000, 2}, {-5, INFINITY}, {6, 0}, {8, 0.25}}}});
  CHECK(found.notes ==
        std::vector<std::string>{
            file.string() + ": 3 cells of the column loss are not numbers, and are left out",
            file.string() + ": 1 value left out, because a later row has the same step and another value"});
  for (const char* step : {"inf", "1e300", "9223372036854775808", "--3", "1.5", "nan", ""}) {
    place.write("t.csv", fmt::format("step,loss\n{},1\n", step));
    CHECK(error_of([&] { read_csv_runs(file); }) ==
          fmt::format("{}, row 2: the step \"{}\" is not a whole number of 64 bits", file.string(), step));
  }
}

TEST_CASE("the times of a table's points are those of its run, and without them they are not known") {
  Workplace place;
  place.write("bare.csv", "step,loss,seconds,step_seconds\n1,2,1.5,1.5\n2,1,3.25,1.75\n");
  place.write("timed.csv", "Wall time,Step,Value\n1000.5,1,2\n1060.5,2,1\n");
  REQUIRE(place.run({"import", "bare.csv"}).code == 0);
  REQUIRE(place.run({"import", "timed.csv"}).code == 0);
  const auto bare = place.run({"ls", "name:bare", "--columns", "name,started,ended,took"});
  CHECK(bare.out.ends_with("bare  -        -      -\n"));
  CHECK(place.run({"ls", "name:bare"}).out.find("finished  csv       -           -") != std::string::npos);
  CHECK(place.run({"ls", "name:bare", "--json"}).json().at("runs").at(0).at("started").is_null());
  CHECK(place.run({"ls", "since:1d", "--json"}).json().at("runs").empty());
  CHECK(place.run({"show", "bare"}).out.find("finished, start and duration not known\n") != std::string::npos);
  CHECK(place.run({"export", "bare", "--metrics", "mlflow", "-o", "mlruns"}).code == 0);
  const auto timed = place.run({"ls", "name:timed", "--json"}).json().at("runs").at(0);
  CHECK((timed.at("started") == 1000.5 && timed.at("ended") == 1060.5));
  CHECK(place.run({"show", "timed"}).out.find("took 1m 00s, started ") != std::string::npos);
  CHECK(place.run({"show", "timed"}).out.find(" (times of its first and last points)\n") != std::string::npos);
}

TEST_CASE("a table that was touched has not changed") {
  Workplace place;
  place.write("t.csv", "step,loss\n1,2\n");
  REQUIRE(place.run({"import", "t.csv"}).err.ends_with("1 run: 1 added\n"));
  const auto started = raw(place.home()).text("SELECT started FROM run");
  fs::last_write_time(place.path() / "t.csv", fs::file_time_type::clock::now() - std::chrono::hours(30));
  CHECK(place.run({"import", "t.csv"}).err.ends_with("1 run: 1 already there\n"));
  place.write("t.csv", "step,loss\n1,2\n2,1\n");
  CHECK(place.run({"import", "t.csv"}).err.ends_with("1 run: 1 updated\n"));
  CHECK(raw(place.home()).text("SELECT started FROM run") == started);
}

TEST_CASE("the files of a W&B run that was resumed are joined, and runs of two projects stay apart") {
  Workplace place;
  WandbFile first, second, other;
  first.run("base", "p1", "{\"a\": 1}").history(1, "loss", "5").history(2, "loss", "4").exit();
  second.run("base", "p1", "{\"b\": 2, \"none\": null}").history(2, "loss", "3").history(3, "loss", "2").exit();
  other.run("base", "p2").history(1, "loss", "50").exit();
  place.write("wandb/offline-run-20250101_000000-base/run-base.wandb", first.bytes());
  place.write("wandb/offline-run-20250102_000000-base/run-base.wandb", second.bytes());
  place.write("other/run-base.wandb", other.bytes());
  const auto found = read_wandb_runs(place.path() / "wandb");
  REQUIRE(found.runs.size() == 1);
  CHECK(values_of(found) == Values{{"name of base/loss", {{1, 5}, {2, 3}, {3, 2}}}});
  CHECK(found.runs[0].config.at("c") == json{{"a", 1}, {"b", 2}, {"none", nullptr}});
  CHECK(found.runs[0].origin == "p1/base");
  CHECK(read_wandb_runs(place.path() / "other").runs[0].origin == "p2/base");
  // One after the other: the second part adds to the first, and a part that is there changes nothing.
  const std::string a = "wandb/offline-run-20250101_000000-base", b = "wandb/offline-run-20250102_000000-base";
  CHECK(place.run({"import", a}).err.ends_with("1 run: 1 added\n"));
  CHECK(place.run({"import", b}).err.ends_with("1 run: 1 updated\n"));
  for (const auto& again : {a, b, a}) CHECK(place.run({"import", again}).err.ends_with("1 run: 1 already there\n"));
  CHECK(place.run({"metrics", "last", "--name", "loss", "--json"}).json().at("points") ==
        json{{1, 5.0}, {2, 3.0}, {3, 2.0}});
  CHECK(place.run({"show", "last", "--json"}).json().at("config").at("c").at("none").is_null());
  CHECK(place.run({"import", "other"}).err.ends_with("1 run: 1 added\n"));
}

TEST_CASE("values of W&B that JSON does not have, values of the summary alone, and what is no number") {
  Workplace place;
  WandbFile file;
  file.run("r", "p", R"({"max_norm": Infinity, "list": [NaN, -Infinity, "a NaN"]})")
      .history(3, "loss", "NaN")
      .history(4, "nested", R"({"a": -Infinity, "b": 2, "text": "x"})")
      .history(4, "image", R"({"_type": "image-file"})")
      .history(5, "broken", "{\"a\": ")
      .summary("loss", "1")
      .summary("test_acc", "0.93")
      .summary("_step", "5");
  place.write("run-r.wandb", file.bytes());
  const auto found = read_wandb_runs(place.path() / "run-r.wandb");
  CHECK(found.runs[0].config.at("c") == json{{"max_norm", "Infinity"}, {"list", {"NaN", "-Infinity", "a NaN"}}});
  const auto values = values_of(found);
  CHECK(std::isnan(values.at("name of r/loss").at(3)));
  CHECK(values.at("name of r/nested.a").at(4) == -INFINITY);
  CHECK(values.at("name of r/test_acc") == std::map<int64_t, double>{{5, 0.93}});
  CHECK(found.notes ==
        std::vector<std::string>{"name of r: left out, because they are not numbers: broken, image, nested.text"});
}

TEST_CASE("times and tags of other programs are checked, and the greatest step is one") {
  Workplace place;
  const auto times = [&](uint64_t started, const std::string& tags) {
    WandbFile file;
    file.add(message_field(17, message_field(1, "r") + message_field(3, "p") + message_field(8, "r") + tags +
                                   message_field(17, number_field(1, started))))
        .history(9223372036854775807, "loss", "1")
        .add(message_field(2, WandbFile::item("loss", "2")));
    place.write("wandb/run-r.wandb", file.bytes());
    return read_foreign_runs(foreign_sources()[1], place.path() / "wandb");
  };
  std::string tags;
  for (const char* tag : {"x", "x", "", "none"}) tags += message_field(10, tag);
  auto found = times(999999999999999, tags);
  CHECK(found.runs.at(0).tags == std::vector<std::string>{"x"});
  CHECK(found.runs.at(0).started == 0);
  CHECK(found.runs.at(0).points.at(0).step == std::numeric_limits<int64_t>::max());
  CHECK(found.notes == std::vector<std::string>{
                           "r: its start, 1e+15 s after 1970, is in no year up to 9999, and is left out",
                           "r: its end, 1e+15 s after 1970, is in no year up to 9999, and is left out",
                           "r: a tag is left out: the tag cannot be empty",
                           "r: a tag is left out: a tag cannot be \"none\": the filter tag:none finds runs without "
                           "tags"});
  // A run that has not ended there.
  found = times(1000, "");
  CHECK(found.notes.empty());
  REQUIRE(place.run({"import", "wandb"}).code == 0);
  CHECK(place.run({"ls", "--json"}).json().at("runs")[0].at("why") == "not finished when it was imported");
}

TEST_CASE("a file of W&B that is damaged is read up to the damage, and does not stop the others") {
  Workplace place;
  WandbFile good;
  good.run("good", "p").history(1, "loss", "5");
  WandbFile cut;
  cut.run("cut", "p").history(1, "loss", "5");
  place.write("w/a/run-good.wandb", good.bytes());
  place.write("w/b/run-empty.wandb", "");
  place.write("w/c/run-foreign.wandb", "what");
  place.write("w/d/run-cut.wandb", cut.bytes() + std::string(500, '\0'));
  const auto found = read_wandb_runs(place.path() / "w");
  CHECK(found.runs.size() == 2);
  REQUIRE(found.notes.size() == 3);
  CHECK(found.notes[0].ends_with(
      "run-empty.wandb is not an offline run of Weights & Biases: it is empty; it is left out"));
  CHECK(found.notes[1].ends_with("it does not begin with :W&B; it is left out"));
  CHECK(found.notes[2].find(fmt::format("it is damaged from byte {} on", cut.bytes().size())) != std::string::npos);
  CHECK(error_of([&] { read_wandb_runs(place.path() / "w/b"); }).ends_with("it is empty"));
}

TEST_CASE("event files: single files, links, damage, and times that are no numbers") {
  Workplace place;
  const std::string one = event(100, 1, "loss", 5) + event(NAN, 2, "loss", 4), two = event(102, 3, "loss", 3);
  place.write("a/events.out.tfevents.10.h.999.0", one);
  place.write("a/events.out.tfevents.10.h.1000.0", two + std::string(100, '\0'));
  place.write("a/events.out.tfevents.11.h.1.0", "broken");
  fs::create_directories(place.path() / "logdir");
  fs::create_directory_symlink(place.path() / "a", place.path() / "logdir" / "linked");
  fs::create_symlink("self", place.path() / "logdir" / "self");
  auto found = read_tensorboard_runs(place.path() / "logdir");
  CHECK(values_of(found) == Values{{"linked/loss", {{1, 5}, {2, 4}, {3, 3}}}});
  CHECK(found.runs[0].started == 100);
  CHECK(found.runs[0].ended == 102);
  REQUIRE(found.notes.size() == 2);
  CHECK(found.notes[0].find(fmt::format("events.out.tfevents.10.h.1000.0: it is damaged from byte {} on",
                                        two.size())) != std::string::npos);
  CHECK(found.notes[1].ends_with("events.out.tfevents.11.h.1.0: the last record is not complete; it is left out"));
  // Two files of one folder, by their names, are two runs.
  const std::string first = "a/events.out.tfevents.10.h.999.0", second = "a/events.out.tfevents.10.h.1000.0";
  CHECK(place.run({"import", first}).err.ends_with("1 run: 1 added\n"));
  CHECK(place.run({"import", second}).err.ends_with("1 run: 1 added\n"));
  fs::current_path(place.path() / "a");
  CHECK(read_tensorboard_runs("events.out.tfevents.10.h.999.0").runs[0].name == "a");
  CHECK(read_tensorboard_runs(".").runs[0].name == "a");
  CHECK(read_tensorboard_runs(".").runs[0].origin == read_tensorboard_runs(place.path() / "a/").runs[0].origin);
  fs::current_path("/");
  place.write("logs/caf\xe9/events.out.tfevents.1", one);
  REQUIRE(place.run({"import", "tensorboard", "logs"}).code == 0);
  const auto rows = place.run({"query",
                               "SELECT hex(origin) LIKE '%E9%' OR hex(source) LIKE '%E9%' FROM imported "
                               "ORDER BY imported DESC LIMIT 1",
                               "--json"});
  CHECK(rows.json().at("rows") == json{{0}});
}

TEST_CASE("tensors of TensorFlow: all types of numbers, as bytes and in their fields, in any order") {
  const auto tensor = [](int dtype, const std::string& rest) { return number_field(1, dtype) + rest; };
  const auto content = [](const auto& value) { return message_field(4, bytes_of(value)); };
  struct Row {
    int dtype;
    std::string bytes, field;
    double value;
  };
  const auto varint = [](int field, int64_t value) { return number_field(field, value); };
  for (const auto& [dtype, bytes, field, value] :
       std::vector<Row>{{1, content(1.5f), float_field(5, 1.5f), 1.5},
                        {2, content(2.5), double_field(6, 2.5), 2.5},
                        {3, content(int32_t{-7}), varint(7, -7), -7},
                        {4, content(uint8_t{200}), varint(7, 200), 200},
                        {5, content(int16_t{-300}), varint(7, -300), -300},
                        {6, content(int8_t{-3}), varint(7, -3), -3},
                        {9, content(int64_t{7}), varint(10, 7), 7},
                        {10, content(uint8_t{1}), varint(11, 1), 1},
                        {14, content(uint16_t{0x3fc0}), varint(13, 0x3fc0), 1.5},
                        {17, content(uint16_t{60000}), varint(7, 60000), 60000},
                        {19, content(uint16_t{0x3e00}), varint(13, 0x3e00), 1.5},
                        {22, content(uint32_t{4000000000}), varint(16, 4000000000), 4e9},
                        {23, content(uint64_t{1} << 40), varint(17, int64_t{1} << 40), 1099511627776}}) {
    INFO(dtype);
    CHECK(scalar_in_tensor(tensor(dtype, bytes)) == value);
    CHECK(scalar_in_tensor(tensor(dtype, field)) == value);
    CHECK(scalar_in_tensor(bytes + number_field(1, dtype)) == value);
  }
  // Packed fields, as proto3 writes them: 300 is the varint AC 02.
  CHECK(scalar_in_tensor(tensor(9, message_field(10, "\xac\x02\x05"))) == 300);
  CHECK(scalar_in_tensor(tensor(2, message_field(6, bytes_of(2.5) + bytes_of(3.5)))) == 2.5);
  CHECK_FALSE(scalar_in_tensor(tensor(7, message_field(8, "text"))));
  CHECK_FALSE(scalar_in_tensor(tensor(9, message_field(4, "1234"))));
}

TEST_CASE("tables of this program's loggers that have times took the time of training") {
  Workplace place;
  place.write("own.csv", "step,loss,seconds,step_seconds,_timestamp\n1,2,1.5,1.5,90\n2,1,3.25,1.75,100\n");
  place.write("other.csv", "step,loss,seconds,_timestamp\n1,2,1.5,90\n2,1,3.25,100\n");
  const auto took = [&](const std::string& file) {
    const auto run = read_csv_runs(place.path() / file);
    auto found = read_foreign_runs(foreign_sources().at(3), place.path() / file).runs.at(0);
    CHECK(found.ended == run.runs.at(0).ended);
    return *found.ended - found.started;
  };
  CHECK(took("own.csv") == 3.25);
  CHECK(took("other.csv") == 10);
  // Event files have the start of the run.
  place.write("own/events.out.tfevents.1.h", event(980, 0, "step_seconds", 1) + event(1000, 1, "seconds", 10));
  CHECK(read_foreign_runs(foreign_sources().at(2), place.path() / "own").runs.at(0).started == 980);
}

TEST_CASE("files are sorted by the numbers in their names") {
  CHECK(before_by_number("e.999.0", "e.1000.0"));
  CHECK_FALSE(before_by_number("e.1000.0", "e.999.0"));
  CHECK(before_by_number("e.9", "e.9.1"));
  CHECK(before_by_number("a", "b"));
  CHECK_FALSE(before_by_number("a.7", "a.7"));
}

TEST_CASE("what a folder is of, where several programs have written") {
  Workplace place;
  WandbFile file;
  place.write("wandb/offline-run-1/run-r.wandb", file.run("r", "p").history(1, "loss", "5").bytes());
  place.write("wandb/offline-run-1/files/events.out.tfevents.1.h", event(1, 1, "loss", 5));
  CHECK(kind_of_source(place.path() / "wandb") == "wandb");
  place.write("runs/a/events.out.tfevents.1.h", event(1, 1, "loss", 5));
  CHECK(kind_of_source(place.path() / "runs") == "tensorboard");
  CHECK(error_of([&] { kind_of_source(place.path()); }).find("has files of Weights & Biases (") != std::string::npos);
  CHECK(kind_of_source(place.path() / "nothing").empty());
  add_run(place.home(), "a", 3);
  for (const auto& path : {place.home(), place.home() / "ledger.db"})
    CHECK(error_of([&] { kind_of_source(path); }).find("is a ledger of runner: RUNNER_HOME=") != std::string::npos);
  CHECK(place.run({"import", "mlflow", (place.home() / "ledger.db").string()}).err.find("is a ledger of runner") !=
        std::string::npos);
  CHECK(place.run({"export", "--bundle", "archived:any", "-o", "all.bundle"}).code == 0);
}

TEST_CASE("errors name the source and not the ledger") {
  Workplace place;
  place.write("t.toml", "a = 1\n" + std::string(2000, '#'));
  CHECK(place.run({"import", "mlflow", "t.toml"}).err ==
        "error: t.toml is not a store of MLflow (mlflow.db): it is not an SQLite database\n");
  CHECK(place.run({"import", "bundle", "t.toml"}).err ==
        "error: t.toml is not a bundle of runner: it is not an SQLite database\n");
  fs::create_directories(place.path() / "folder");
  CHECK(place.run({"import", "mlflow", "folder"}).err ==
        "error: folder has no store of MLflow (mlflow.db or mlruns)\n");
  place.write("wandb/run-x.wandb", WandbFile().add("\x0b").bytes());
  CHECK(place.run({"import", "wandb"}).err.find("a record is damaged (a message has a field of wire type 3)") !=
        std::string::npos);
  add_run(place.home(), "a", 200);
  REQUIRE(place.run({"export", "--bundle", "a", "-o", "b.bundle"}).code == 0);
  fs::resize_file(place.path() / "b.bundle", fs::file_size(place.path() / "b.bundle") / 2);
  for (const auto& command : {std::vector<std::string>{"import", "bundle", "b.bundle"}, {"import", "b.bundle"}}) {
    const auto result = place.run(command);
    CHECK(result.code == 2);
    CHECK(result.err.find("b.bundle") != std::string::npos);
    CHECK(result.err.find("Move it away") == std::string::npos);
  }
}

TEST_CASE("parameters: names below a value, and texts of digits that are no numbers") {
  json config = json::object();
  const std::string text[][2] = {{"a", "1"}, {"a.b", "2"}, {"x.y.z", "3"}, {"x.y", "4"}};
  for (const auto& [name, value] : text) set_parameter(config, name, value);
  CHECK(config == json{{"a", 1}, {"a.b", 2}, {"x", {{"y", 4}, {"y.z", 3}}}});
  const auto typed = [](const std::string& value) {
    json one;
    set_parameter(one, "k", value);
    return one.at("k");
  };
  for (const char* word :
       {"12345e7", "123456789012345678901234567890", "007", "+5", "0x10", "1.2.3", "", "-", "1e", "."})
    CHECK(typed(word) == word);
  const std::vector<std::pair<std::string, json>> values = {
      {"0.25", 0.25}, {"1.0", 1.0},  {"1e-05", 1e-5}, {"1e-3", 1e-3}, {"0.30000000000000004", 0.30000000000000004},
      {"-12", -12},   {"True", true}};
  for (const auto& [word, value] : values) CHECK(typed(word) == value);
}
