// Runs of other programs, written by their own classes, arrive with all their counts and values, and what runner exports is read by
// theirs.
#include "foreign_support.hpp"

using namespace runner;
using namespace runner::testing;
using nlohmann::json;

TEST_CASE("expectation 34: event files of TensorBoard's own writer become runs") {
  Workplace place;
  python(place, "tensorboard", place.path() / "tb");
  auto result = place.run({"import", "tb"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK(result.err ==
        "note: TensorBoard has no status of runs: they count as finished\nread 2 runs with 200 points of 2 metrics\n2 "
        "runs: 2 added\n");
  check_values(points_of(place, "first", "loss"), 50, true);
  check_values(points_of(place, "sub/second", "accuracy"), 50, true, 2);
  const auto shown = show(place, "first");
  CHECK(shown.at("config") == json{{"lr", 0.25}, {"kind", "a"}, {"on", true}});
  CHECK(shown.at("status") == "finished");
  CHECK(shown.at("started") == 100);
  CHECK(shown.at("ended") == 149);
  CHECK(place.run({"import", "tensorboard", "tb"}).err.ends_with("2 runs: 2 already there\n"));
  CHECK(place.run({"ls", "lr:0.25", "--json"}).json().at("runs").size() == 2);
}

TEST_CASE("expectation 34: runs exported as event files are read by TensorBoard, and come back") {
  Workplace place, other;
  const auto id = add_run(place.home(), "a", 120);
  const auto exported = place.run({"export", "a", "--metrics", "tensorboard", "-o", "tb"});
  INFO(exported.err);
  REQUIRE(exported.code == 0);
  CHECK(exported.err == "240 points of 2 metrics of 1 run\n");
  CHECK(other.run({"import", (place.path() / "tb").string()}).code == 0);
  const std::string name = "a-" + id.substr(id.rfind('-') + 1);
  const auto ours = points_of(place, "a", "loss"), back = points_of(other, name, "loss");
  REQUIRE(back.size() == ours.size());
  for (size_t i = 0; i < ours.size(); ++i) CHECK(back[i][1].get<float>() == ours[i][1].get<float>());
  const auto read = json::parse(python(place, "read-tensorboard", place.path() / "tb")).at(name);
  CHECK(read.at("loss").size() == 120);
  CHECK(read.at("odd, \"name\"").size() == 120);
  for (size_t i = 0; i < ours.size(); ++i) CHECK(read.at("loss")[i][1].get<float>() == ours[i][1].get<float>());
}

TEST_CASE("a damaged or cut event file is named with its place") {
  Workplace place;
  add_run(place.home(), "a", 20);
  REQUIRE(place.run({"export", "a", "--metrics", "tensorboard", "-o", "tb"}).code == 0);
  fs::path file;
  for (const auto& entry : fs::recursive_directory_iterator(place.path() / "tb"))
    if (entry.is_regular_file()) file = entry.path();
  const std::string bytes = slurp(file);
  std::ofstream(file, std::ios::binary) << bytes.substr(0, bytes.size() - 3);
  auto result = place.run({"import", "tb"});
  CHECK(result.code == 0);
  CHECK(result.err.find("the last record is not complete; it is left out") != std::string::npos);
  std::string flipped = bytes;
  flipped[flipped.size() / 2] = static_cast<char>(flipped[flipped.size() / 2] ^ 1);
  std::ofstream(file, std::ios::binary) << flipped;
  result = place.run({"import", "tb"});
  CHECK(result.code == 0);
  CHECK(result.err.find(": it is damaged from byte ") != std::string::npos);
  CHECK(result.err.find("and the rest is left out") != std::string::npos);
}

TEST_CASE("expectation 34: an offline run of W&B, written by wandb's own record log") {
  Workplace place;
  python(place, "wandb", place.path() / "offline-run");
  const auto result = place.run({"import", "offline-run"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK(result.err ==
        "note: calm-sea: left out, because they are not numbers: text\nread 1 run with 9000 points of 3 metrics\n1 "
        "run: 1 "
        "added\n");
  check_values(points_of(place, "calm-sea", "loss"), 3000, false);
  check_values(points_of(place, "calm-sea", "nested.a"), 3000, false);
  const auto shown = show(place, "calm-sea");
  CHECK(shown.at("config") == json{{"lr", 0.25}, {"model", {{"dim", 32}}}});
  CHECK(shown.at("tags") == json{"one", "two"});
  CHECK(shown.at("notes") == "a note");
  CHECK(shown.at("group") == "night");
  CHECK(shown.at("status") == "finished");
  CHECK(shown.at("started") == 1000);
  CHECK(shown.at("ended") == 4000);
}

TEST_CASE("expectation 34: tables of metrics in the forms of other loggers") {
  Workplace place;
  place.write("lightning.csv", "epoch,step,train_loss,val_loss\n0,0,1.5,\n0,1,0.5,\n0,1,,0.25\n");
  place.write("board.csv", "Wall time,Step,Value\n1.5,0,3.0\n2.5,10,nan\n");
  place.write("other.csv", "a,b\n1,2\n");
  CHECK(place.run({"import", "lightning.csv"}).err ==
        "note: a table (CSV) has no status of runs: they count as finished\nread 1 run with 5 points of 3 metrics\n1 "
        "run: 1 added\n");
  CHECK(points_of(place, "lightning", "train_loss") == json{{0, 1.5}, {1, 0.5}});
  CHECK(points_of(place, "lightning", "val_loss") == json{{1, 0.25}});
  CHECK(place.run({"import", "board.csv"}).code == 0);
  CHECK(points_of(place, "board", "board") == json{{0, 3.0}, {10, "NaN"}});
  const auto result = place.run({"import", "other.csv"});
  CHECK(result.code == 2);
  CHECK(result.err ==
        "error: other.csv: the table has no column of steps (step, global_step, iteration or epoch); it has a, b\n");
  const auto id = show(place, "lightning").at("id").get<std::string>();
  CHECK(place.run({"resume", "lightning"}).err ==
        "error: run " + id + " cannot be resumed: it was imported from csv (" +
            (place.path() / "lightning.csv").string() +
            "), without the files of its folder. Its settings and metrics are in the ledger\n");
}

// Needs a Python with pyarrow, as above.
TEST_CASE("expectation 34: Parquet has the same rows", "[.foreign]") {
  Workplace place;
  const auto id = add_run(place.home(), "a", 30);
  const auto result = place.run({"export", "a", "--metrics", "parquet", "-o", "points.parquet"});
  if (result.err.find("scripts/setup --parquet") != std::string::npos) SKIP(result.err);
  INFO(result.err);
  REQUIRE(result.code == 0);
  const auto read = json::parse(python(place, "read-parquet", place.path() / "points.parquet"));
  CHECK(read.at("run").size() == 60);
  CHECK(read.at("run")[0] == id);
  CHECK(read.at("metric")[0] == "loss");
  for (size_t i = 0; i < 30; ++i) {
    CHECK(read.at("step")[i] == i + 1);
    CHECK(read.at("value")[i].get<double>() == 1.0 / static_cast<double>(i + 1));
  }
}
