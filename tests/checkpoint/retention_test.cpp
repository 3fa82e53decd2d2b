// Which checkpoints are listed, used for resuming, and kept.
#include "runner/base/clock.hpp"
#include "runner/checkpoint/manifest.hpp"
#include "support.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

std::vector<std::string> listed(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& path : list_checkpoints(folder)) names.push_back(path.filename().string());
  return names;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("checkpoints are listed by step, also beyond six digits, and other files are not listed") {
  Folder folder;
  for (int64_t step : {1000000, 50, 100}) publish_small(folder.path, step);
  fs::create_directories(folder / ".step-000200.1.tmp");
  fs::create_directories(folder / ".step-000010.removed");
  fs::create_directories(folder / "step-old");
  CHECK(listed(folder.path) == Names{"step-000050", "step-000100", "step-1000000"});
  CHECK(listed(folder / "nowhere").empty());
}

TEST_CASE("the newest good checkpoint is found behind damaged ones, and the damage is reported") {
  Folder folder;
  for (int64_t step : {50, 100, 150, 200}) publish_small(folder.path, step);
  fs::remove(folder / "step-000200/manifest.json");
  auto flipped = read_file(folder / "step-000150/rank-00000.safetensors");
  flipped.back() = static_cast<char>(flipped.back() ^ 1);
  write_text(folder / "step-000150/rank-00000.safetensors", flipped);
  Names notes;
  auto found = newest_good_checkpoint(folder.path, {}, [&](const std::string& note) { notes.push_back(note); });
  REQUIRE(found);
  CHECK(*found == folder / "step-000100");
  REQUIRE(notes.size() == 2);
  CHECK(notes[0] ==
        "skipping checkpoint step-000200: " + (folder / "step-000200/manifest.json").string() + " is missing");
  CHECK(notes[1].starts_with("skipping checkpoint step-000150: " +
                             (folder / "step-000150/rank-00000.safetensors").string() + " is corrupted: "));
  CHECK_FALSE(newest_good_checkpoint(folder / "nowhere", {}));
}

TEST_CASE("a run resumed from an earlier checkpoint continues from its newer ones, and keeps them") {
  Folder folder;
  for (int64_t step : {50, 100, 150}) publish_small(folder.path, step);
  publish_small(folder.path, 75);
  CHECK(*newest_good_checkpoint(folder.path, {}) == folder / "step-000075");
  retain(folder.path, {.keep_last = 2, .save_top_k = 0, .monitor = "", .attempts = {}});
  CHECK(listed(folder.path) == Names{"step-000075", "step-000150"});
}

TEST_CASE("the order of publication is right also if the clock was set back") {
  Folder folder;
  auto ahead = publish_small(folder.path, 50);
  auto manifest = nlohmann::json::parse(read_file(ahead / manifest_name));
  manifest["created"] = wall_seconds() + 1e6;
  seal_manifest(manifest);
  write_text(ahead / manifest_name, manifest.dump());
  for (int64_t step : {100, 75}) {
    auto path = publish_small(folder.path, step);
    CHECK(*newest_good_checkpoint(folder.path, {}) == path);
  }
  retain(folder.path, {.keep_last = 2, .save_top_k = 0, .monitor = "", .attempts = {}});
  CHECK(listed(folder.path) == Names{"step-000075", "step-000100"});
}

TEST_CASE("the last and the best checkpoints are kept") {
  Folder folder;
  const double losses[] = {0.5, 0.1, 0.3, 0.9, 0.7};
  for (int i = 0; i < 5; ++i) publish_small(folder.path, (i + 1) * 10, 0, {{"val_loss", losses[i]}});
  publish_small(folder.path, 60);                              // not validated
  publish_small(folder.path, 70, 0, {{"val_loss", nullptr}});  // the loss was NaN
  retain(folder.path, {.keep_last = 0, .save_top_k = 0, .monitor = "val_loss", .attempts = {}});
  CHECK(listed(folder.path).size() == 7);
  retain(folder.path, {.keep_last = 2, .save_top_k = 2, .monitor = "val_loss", .attempts = {}});
  CHECK(listed(folder.path) == Names{"step-000020", "step-000030", "step-000060", "step-000070"});
  retain(folder.path, {.keep_last = 1, .save_top_k = 0, .monitor = "val_loss", .attempts = {}});
  CHECK(names_in(folder.path) == Names{"step-000070"});
}

TEST_CASE("expectation 33: checkpoints of every K-th step are kept beside the last and the best ones") {
  Folder folder;
  for (int i = 1; i <= 9; ++i) publish_small(folder.path, i * 10, 0, {{"val_loss", i == 5 ? 0.1 : 1.0}});
  const Retention rule{.keep_last = 1, .save_top_k = 1, .keep_every = 40, .monitor = "val_loss", .attempts = {}};
  Names surplus;
  for (const auto& path : surplus_checkpoints(folder.path, rule)) surplus.push_back(path.filename().string());
  CHECK(surplus == Names{"step-000010", "step-000020", "step-000030", "step-000060", "step-000070"});
  CHECK(listed(folder.path).size() == 9);
  retain(folder.path, rule);
  CHECK(listed(folder.path) == Names{"step-000040", "step-000050", "step-000080", "step-000090"});
  CHECK(surplus_checkpoints(folder.path, rule).empty());
}

TEST_CASE("checkpoints that are given up neither count nor stay, once the attempt that went back has one") {
  Folder folder;
  const Attempts attempts{{1, 0}, {4, 10}};  // attempt 4 went back to step 10
  const auto publish = [&](int64_t step, int64_t attempt, double loss) {
    publish_small(folder.path, step, 0, {{"attempt", attempt}, {"val_loss", loss}});
  };
  for (int64_t step : {10, 20, 30}) publish(step, 1, 1.0 / static_cast<double>(step));
  const Retention two{.keep_last = 2, .save_top_k = 1, .monitor = "val_loss", .attempts = attempts};
  CHECK(*newest_good_checkpoint(folder.path, attempts) == folder / "step-000010");
  retain(folder.path, two);
  CHECK(listed(folder.path) == Names{"step-000010", "step-000020", "step-000030"});
  publish(15, 4, 0.2);
  retain(folder.path, two);
  CHECK(listed(folder.path) == Names{"step-000010", "step-000015"});
  CHECK(*newest_good_checkpoint(folder.path, attempts) == folder / "step-000015");
}

TEST_CASE("a damaged checkpoint does not count as kept and is not removed") {
  Folder folder;
  for (int64_t step : {10, 20, 30}) publish_small(folder.path, step);
  fs::remove(folder / "step-000030/rank-00000.safetensors");
  retain(folder.path, {.keep_last = 1, .save_top_k = 0, .monitor = "", .attempts = {}});
  CHECK(listed(folder.path) == Names{"step-000020", "step-000030"});
}

TEST_CASE("leftovers of killed runs are removed, a temporary folder that another rank writes stays") {
  Folder folder;
  publish_small(folder.path, 100);
  std::vector<float> values(3);
  CheckpointWriter ahead(folder.path, 150, 1, 2);
  auto entry = ahead.write_rank({{"param/w", "F32", {6}, 3, bytes_of(values)}});
  for (const char* left : {".step-000050.tmp", ".step-000050.2.tmp", ".step-000100.1.tmp", ".step-000020.removed"}) {
    fs::create_directories(folder / left);
    write_text(folder / (left + std::string("/rank-00000.safetensors")), "half");
  }
  retain(folder.path, {.keep_last = 0, .save_top_k = 0, .monitor = "", .attempts = {}});
  CHECK(names_in(folder.path) == Names{".step-000150.1.tmp", "step-000100"});
  CheckpointWriter writer(folder.path, 150, 0, 2);
  auto first = writer.write_rank({{"param/w", "F32", {6}, 0, bytes_of(values)}});
  CHECK(writer.publish({first, entry}, {}) == folder / "step-000150");
}
