// Mixtures of data sets: shares at every position, epochs, shuffling, and resuming with other numbers of ranks.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <map>
#include <random>

#include "runner/data/loader.hpp"
#include "runner/data/mixture.hpp"
#include "tests/data/support.hpp"

using namespace runner;
using namespace runner::test;

namespace {

/// Sample k of a source is the number first + k.
class Numbers final : public Dataset {
 public:
  Numbers(int64_t first, int64_t size) : first_(first), size_(size) {}
  int64_t size() const override { return size_; }
  std::vector<BatchField> fields() const override { return {{.name = "number"}}; }
  int64_t weight(int64_t sample) const override { return 1 + (first_ + sample) % 3; }
  void read(int64_t sample, HostBatch& batch, int64_t row) const override {
    batch.row<int64_t>(0, row)[0] = first_ + sample;
  }

 private:
  int64_t first_, size_;
};

constexpr int64_t source_range = 100'000;

std::vector<MixtureSource> sources(const std::vector<int64_t>& sizes, const std::vector<double>& weights = {},
                                   const std::vector<int64_t>& epochs = {}) {
  std::vector<MixtureSource> list;
  for (size_t i = 0; i < sizes.size(); ++i)
    list.push_back({.name = fmt::format("s{}", i),
                    .data = std::make_unique<Numbers>(static_cast<int64_t>(i) * source_range, sizes[i]),
                    .weight = weights.empty() ? std::optional<double>() : weights[i],
                    .epochs = epochs.empty() ? 1 : epochs[i]});
  return list;
}

std::unique_ptr<Dataset> mixture(const std::vector<int64_t>& sizes, std::vector<MixtureSource> list,
                                 double temperature = 1, MixtureEnd end = MixtureEnd::first_exhausted) {
  auto counts = mixture_counts(sizes, list, temperature, end);
  return mixture_dataset(std::move(list), std::move(counts));
}

/// The numbers of the samples of an epoch, in order.
std::vector<int64_t> epoch_of(const Dataset& data, int64_t epoch, bool shuffle = true) {
  std::vector<int64_t> numbers;
  for (int64_t position = 0; position < data.size(); ++position) {
    HostBatch batch(1, data.fields());
    data.read(data.sample_at(epoch, position, {.shuffle = shuffle, .seed = 4}), batch, 0);
    numbers.push_back(batch.row<int64_t>(0, 0)[0]);
  }
  return numbers;
}

std::vector<int64_t> counts_by_source(const std::vector<int64_t>& numbers, size_t sources) {
  std::vector<int64_t> counts(sources, 0);
  for (int64_t number : numbers) ++counts[static_cast<size_t>(number / source_range)];
  return counts;
}

}  // namespace

TEST_CASE("at every position, each source is within two samples of its share") {
  std::mt19937 random(11);
  std::vector<std::vector<int64_t>> cases = {
      {1}, {1, 1}, {999, 1}, {1, 1, 1, 1, 1, 1}, {1, 1, 2, 3, 5, 8, 13, 21, 34, 55}};
  std::vector<int64_t> skewed(100, 20);
  skewed[37] = 5000;
  cases.push_back(skewed);
  for (int i = 0; i < 60; ++i) {
    cases.emplace_back();
    for (size_t sources = 1 + random() % 12; sources > 0; --sources)
      cases.back().push_back(1 + static_cast<int64_t>(std::exp(std::uniform_real_distribution<>(0, 7)(random))));
  }
  for (const auto& counts : cases) {
    const Interleaving interleaving(counts);
    std::vector<int64_t> taken(counts.size(), 0);
    double worst = 0;
    for (int64_t position = 0; position < interleaving.size(); ++position) {
      const auto [source, index] = interleaving[position];
      REQUIRE(index == taken[source]++);
      for (size_t i = 0; i < counts.size(); ++i) {
        const double share = static_cast<double>(counts[i]) / static_cast<double>(interleaving.size());
        worst = std::max(worst, std::abs(static_cast<double>(taken[i]) - share * static_cast<double>(position + 1)));
      }
    }
    CHECK(taken == counts);
    CHECK(worst < 2);
  }
}

TEST_CASE("without weights, an epoch takes each source as often as its epochs say") {
  const std::vector<int64_t> sizes{30, 7, 11};
  auto data = mixture(sizes, sources(sizes, {}, {1, 3, 2}));
  CHECK(data->size() == 30 + 21 + 22);
  const auto numbers = epoch_of(*data, 0);
  CHECK(counts_by_source(numbers, 3) == std::vector<int64_t>{30, 21, 22});
  std::map<int64_t, int> times;
  for (int64_t number : numbers) ++times[number];
  for (const auto& [number, count] : times)
    CHECK(count == (number < source_range ? 1 : number < 2 * source_range ? 3 : 2));
  CHECK(epoch_of(*data, 0) == numbers);
  CHECK(epoch_of(*data, 1) != numbers);
  const auto in_order = epoch_of(*data, 0, false);
  CHECK(std::ranges::count(in_order, source_range + 6) == 3);
}

TEST_CASE("with weights, an epoch ends when the first or when each source is used up") {
  const std::vector<int64_t> sizes{1000, 100}, small_first{1000, 300};
  auto first = mixture(sizes, sources(sizes, {3, 1}));
  CHECK(counts_by_source(epoch_of(*first, 0), 2) == std::vector<int64_t>{300, 100});
  auto all = mixture(sizes, sources(sizes, {3, 1}), 1, MixtureEnd::all_exhausted);
  CHECK(counts_by_source(epoch_of(*all, 0), 2) == std::vector<int64_t>{1000, 333});
  // The large source continues in the next epoch with samples that it has not given yet.
  std::vector<int64_t> seen;
  for (int64_t epoch = 0; epoch < 3; ++epoch)
    for (int64_t number : epoch_of(*first, epoch))
      if (number < source_range) seen.push_back(number);
  std::ranges::sort(seen);
  CHECK(std::ranges::adjacent_find(seen) == seen.end());
  CHECK(seen.size() == 900);
}

TEST_CASE("a temperature takes small sources more often") {
  const std::vector<int64_t> sizes{1600, 100};
  CHECK(mixture_counts(sizes, sources(sizes), 2, MixtureEnd::first_exhausted) == std::vector<int64_t>{400, 100});
  CHECK(mixture_counts(sizes, sources(sizes), 2, MixtureEnd::all_exhausted) == std::vector<int64_t>{1600, 400});
  CHECK(mixture_counts(sizes, sources(sizes), 1, MixtureEnd::first_exhausted) == sizes);
}

TEST_CASE("a mixture continues identically from every position, with any number of ranks") {
  const std::vector<int64_t> sizes{37, 5, 12};
  auto data = mixture(sizes, sources(sizes, {0.5, 0.2, 0.3}));
  /// The samples of each global batch from `start` on, and the positions after them.
  auto batches = [&](DataPosition start, int ranks, int steps, std::vector<DataPosition>& after) {
    std::vector<std::vector<int64_t>> all(static_cast<size_t>(steps));
    for (int rank = 0; rank < ranks; ++rank) {
      Loader loader(*data, {.global_batch_size = 6,
                            .micro_batch_size = 1,
                            .data_rank = rank,
                            .data_ranks = ranks,
                            .seed = 3,
                            .start = start});
      for (auto& batch : all) {
        StepBatch step;
        REQUIRE(loader.next(step));
        for (const auto& micro : step.micro_batches)
          for (int64_t number : micro.values<int64_t>(0)) batch.push_back(number);
        if (rank == 0) after.push_back(step.after);
      }
    }
    return all;
  };
  std::vector<DataPosition> positions, ignored;
  const auto whole = batches({}, 1, 20, positions);
  for (int ranks : {1, 2, 3, 6})
    for (size_t killed : {1, 4, 7, 13}) {
      const auto rest = batches(positions[killed - 1], ranks, static_cast<int>(20 - killed), ignored);
      CHECK(std::vector(whole.begin() + static_cast<ptrdiff_t>(killed), whole.end()) == rest);
    }
}

TEST_CASE("sources of a recipe are mixed, named in the summary, and validated together") {
  DataFolder folder;
  auto write = [&](const std::string& name, int lines) {
    std::string text;
    for (int i = 0; i < lines; ++i) text += fmt::format("{{\"text\": \"{} {}\"}}\n", name, i);
    return folder.write(name, text);
  };
  Recipe::Data data;
  data.format = "jsonl";
  data.packing = "none";
  data.sources = {{.name = "many", .train = {write("a", 30)}, .validation = {write("c", 4)}, .weight = 2.0},
                  {.name = "few", .train = {write("b", 5)}, .validation = {}, .weight = 1.0}};
  auto training = open_dataset(data, Split::train, 16, 256, folder / "cache");
  CHECK(
      training->describe() ==
      "15 samples an epoch from 2 sources\n"
      "  many: 66.7 % of the samples, 0.33 times 30 samples of at most 16 tokens (100 % of the tokens are supervised)\n"
      "  few: 33.3 % of the samples, 1.00 times 5 samples of at most 16 tokens (100 % of the tokens are supervised)");
  auto validation = open_dataset(data, Split::validation, 16, 256, folder / "cache");
  CHECK(validation->size() == 4);
  for (auto& source : data.sources) source.validation.clear();
  CHECK(open_dataset(data, Split::validation, 16, 256, folder / "cache") == nullptr);
}
