// Mixup and CutMix: boxes and shares are timm's (make_mixing.py), lambda has the moments of Beta(a, a), and rows do not depend on ranks,
// micro-batches and threads.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <map>

#include "runner/data/image_augment.hpp"
#include "runner/data/image_data.hpp"
#include "runner/data/loader.hpp"
#include "strategies/engine/row_batch.hpp"
#include "tests/data/support.hpp"

using namespace runner;
using namespace runner::test;
using Catch::Matchers::WithinAbs;

namespace {

/// Seven images of three classes.
struct MixedFolder {
  MixedFolder() {
    const fs::path images = fs::path(RUNNER_SOURCE_DIR) / "tests/data/reference/images";
    const std::pair<const char*, const char*> files[] = {
        {"colour.png", "0/a"}, {"grey.png", "0/b"}, {"bits.png", "0/c"},      {"palette.png", "1/d"},
        {"colour.png", "1/e"}, {"grey.png", "2/f"}, {"grey_alpha.png", "2/g"}};
    for (const auto& [name, to] : files) {
      const auto path = folder / (std::string("data/") + to + ".png");
      fs::create_directories(fs::path(path).parent_path());
      fs::copy_file(images / name, path);
    }
    data.format = "images";
    data.train = {folder / "data"};
    data.image_size = 16;
  }

  std::unique_ptr<Dataset> open(Split split = Split::train) const { return open_images(data, split, folder / "cache"); }

  DataFolder folder;
  Recipe::Data data;
};

/// The rows of a step: pixels, class, class of the neighbour and share of the first class.
struct Row {
  std::vector<float> pixels;
  int64_t label, partner;
  float share;
  bool operator==(const Row&) const = default;
};

void add_rows(const StepBatch& step, std::vector<Row>& rows) {
  for (const auto& micro : step.micro_batches)
    for (int64_t row = 0; row < micro.rows; ++row) {
      const auto pixels = micro.row<float>(0, row);
      rows.push_back({.pixels = {pixels.begin(), pixels.end()},
                      .label = micro.row<int64_t>(1, row)[0],
                      .partner = micro.row<int64_t>(2, row)[0],
                      .share = micro.row<float>(3, row)[0]});
    }
}

/// The rows of the first steps in order of the global batch, read as these options say.
std::vector<Row> rows_of(const Dataset& data, int64_t steps, int ranks, int64_t micro, int64_t workers,
                         const DataPosition& start = {}) {
  std::vector<std::vector<Row>> by_step(static_cast<size_t>(steps));
  for (int rank = 0; rank < ranks; ++rank) {
    Loader loader(data, {.global_batch_size = 4,
                         .micro_batch_size = micro,
                         .data_rank = rank,
                         .data_ranks = ranks,
                         .seed = 3,
                         .workers = workers,
                         .start = start});
    for (auto& rows : by_step) {
      StepBatch step;
      loader.next(step);
      add_rows(step, rows);
    }
  }
  std::vector<Row> all;
  for (const auto& rows : by_step) all.insert(all.end(), rows.begin(), rows.end());
  return all;
}

/// How a row came from two images.
std::string origin_of(const Row& mixed, std::span<const float> own, std::span<const float> other) {
  size_t blended = 0, of_own = 0, of_other = 0;
  for (size_t i = 0; i < own.size(); ++i) {
    blended += std::abs(mixed.pixels[i] - (mixed.share * own[i] + (1 - mixed.share) * other[i])) < 1e-5;
    if (mixed.pixels[i] == own[i])
      ++of_own;
    else
      of_other += mixed.pixels[i] == other[i];
  }
  if (mixed.share == 1) return of_own == own.size() ? "alone" : "wrong";
  if (blended == own.size()) return "blended";
  const auto replaced = static_cast<size_t>(std::lround((1 - mixed.share) * static_cast<float>(own.size())));
  return of_own + of_other == own.size() && of_other <= replaced ? "cut" : "wrong";
}

}  // namespace

TEST_CASE("rank 11: boxes and shares of CutMix are timm's", "[rank11][mixing]") {
  const auto table = nlohmann::json::parse(read_file(RUNNER_SOURCE_DIR "/tests/data/reference/mixing.json"));
  for (const auto& row : table.at("boxes")) {
    const auto mixing = cut_mixing(row.at("size"), row.at("lambda"), row.at("x"), row.at("y"));
    INFO(row.dump());
    REQUIRE(mixing.box);
    CHECK(mixing.box->left == row.at("left"));
    CHECK(mixing.box->top == row.at("top"));
    CHECK(mixing.box->width == row.at("width"));
    CHECK(mixing.box->height == row.at("height"));
    CHECK(mixing.share == row.at("share").get<double>());
  }
}

TEST_CASE("rank 11: lambda has the moments of Beta(a, a)", "[rank11][mixing]") {
  for (const double alpha : {0.001, 0.2, 0.8, 1.0, 4.0}) {
    double sum = 0, squares = 0, fourth = 0;
    constexpr int64_t count = 40000;
    for (int64_t i = 0; i < count; ++i) {
      SampleRandom random(1, 2, i);
      const double centred = draw_beta(alpha, random) - 0.5;
      REQUIRE(std::abs(centred) <= 0.5);
      sum += centred;
      squares += centred * centred;
      fourth += centred * centred * centred * centred;
    }
    INFO("alpha " << alpha);
    const double variance = 1 / (4 * (2 * alpha + 1));
    CHECK_THAT(sum / count, WithinAbs(0, 0.01));
    CHECK_THAT(squares / count, WithinAbs(variance, 0.004));
    CHECK_THAT(fourth / count, WithinAbs(3 * variance / (4 * (2 * alpha + 3)), 0.002));
  }
}

TEST_CASE("rank 11: probabilities, modes and the last epoch of mixing", "[rank11][mixing]") {
  Recipe::Data data;
  data.format = "images";
  data.image_size = 32;
  data.mixup = 0.8;
  data.cutmix = 1;
  data.mixup_prob = 0.6;
  data.mixup_switch_prob = 0.25;
  const auto counts = [&] {
    std::map<std::string, int> found;
    for (int64_t batch = 0; batch < 4000; ++batch) {
      const auto mixing = draw_mixing(data, {.seed = 5, .batch = batch * 8});
      ++found[mixing.box ? "cut" : mixing.share == 1 ? "none" : "mixed"];
    }
    return found;
  };
  auto found = counts();
  CHECK(std::abs(found["none"] - 1600) < 100);
  CHECK(std::abs(found["cut"] - 600) < 80);
  data.cutmix = 0;
  found = counts();
  CHECK(found["cut"] == 0);
  CHECK(std::abs(found["mixed"] - 2400) < 100);
  data.mixup_prob = 1;
  const auto share = [&](int64_t row) { return draw_mixing(data, {.seed = 5, .batch = 8, .row = row}).share; };
  CHECK((share(0) == share(1) && share(0) == share(5)));
  data.mixup_mode = "pair";
  CHECK((share(0) == share(1) && share(0) != share(2)));
  data.mixup_mode = "elem";
  CHECK((share(0) != share(1) && share(0) != share(2)));
  data.mixup_off_epoch = 2;
  CHECK(draw_mixing(data, {.epoch = 1, .seed = 5}).share != 1);
  CHECK(draw_mixing(data, {.epoch = 2, .seed = 5}).share == 1);
  data.mixup_off_epoch = 0;
  CHECK(draw_mixing(data, {.epoch = 2, .seed = 5}).share != draw_mixing(data, {.epoch = 2, .seed = 6}).share);
}

TEST_CASE("rank 11: mixed rows consist of the neighbours in the global batch, for any ranks, micro-batches and threads",
          "[rank11][mixing]") {
  MixedFolder folder;
  const auto plain_set = folder.open();
  Loader plain(*plain_set, {.global_batch_size = 4, .micro_batch_size = 4, .seed = 3});
  folder.data.mixup = 0.8;
  folder.data.cutmix = 1;
  folder.data.mixup_mode = "elem";
  const auto data = folder.open();
  constexpr int64_t steps = 6;  // of 4 and 3 rows in turn
  const auto whole = rows_of(*data, steps, 1, 4, 0);
  REQUIRE(whole.size() == 21);
  size_t at = 0;
  std::map<std::string, int> found;
  for (int64_t n = 0; n < steps; ++n) {
    StepBatch step;
    plain.next(step);
    const auto& images = step.micro_batches[0];
    for (int64_t row = 0; row < images.rows; ++row, ++at) {
      const int64_t beside = (row ^ 1) < images.rows ? row ^ 1 : row;
      CHECK(whole[at].label == images.row<int64_t>(1, row)[0]);
      CHECK(whole[at].partner == images.row<int64_t>(1, beside)[0]);
      ++found[origin_of(whole[at], images.row<float>(0, row), images.row<float>(0, beside))];
    }
  }
  CHECK(found["alone"] == 3);
  CHECK(found["blended"] > 3);
  CHECK(found["cut"] > 3);
  CHECK(found["wrong"] == 0);
  for (const int ranks : {1, 2, 4})
    for (const int64_t micro : {1, 2})
      if (ranks * micro <= 4) CHECK(rows_of(*data, steps, ranks, micro, 3) == whole);
  // From the middle of an epoch on, the same rows again.
  const auto rest = rows_of(*data, 3, 2, 2, 1, {.epoch = 1, .sample = 4});
  CHECK(std::equal(rest.begin(), rest.end(), whole.begin() + 11, whole.begin() + 21));
}

TEST_CASE("rank 11: validation and samples that are read singly are not mixed", "[rank11][mixing]") {
  MixedFolder folder;
  folder.data.validation_fraction = 0.4;
  const auto plain = folder.open(Split::validation);
  folder.data.mixup = 1;
  const auto data = folder.open(Split::validation);
  for (int64_t sample = 0; sample < data->size(); ++sample) {
    HostBatch batch(1, data->fields()), expected(1, plain->fields());
    data->draw(sample, batch, 0, {.neighbour = sample == 0 ? 1 : 0});
    plain->read(sample, expected, 0);
    CHECK(std::ranges::equal(batch.row<float>(0, 0), expected.row<float>(0, 0)));
    CHECK(batch.row<int64_t>(2, 0)[0] == expected.row<int64_t>(1, 0)[0]);
    CHECK(batch.row<float>(3, 0)[0] == 1);
  }
  const auto training = folder.open();
  HostBatch batch(1, training->fields());
  training->read(0, batch, 0);
  CHECK(batch.row<float>(3, 0)[0] == 1);
}
