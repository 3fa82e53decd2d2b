#include "runner/data/order.hpp"

#include <algorithm>
#include <bit>
#include <mutex>

#include "runner/base/error.hpp"
#include "runner/base/hash.hpp"
#include "runner/lua/script_file.hpp"

namespace runner {

namespace {

constexpr int rounds = 6;  // of the network of SampleOrder

class ScriptedOrder final : public Dataset {
 public:
  ScriptedOrder(std::unique_ptr<Dataset> data, const Recipe& recipe)
      : data_(std::move(data)), state_(lua::script_state_options(recipe)) {
    std::vector<Diagnostic> diagnostics;
    auto file = lua::load_order_file(state_, recipe, diagnostics);
    if (!file) throw RecipeError(diagnostics);
    sample_ = file->functions.at("sample");
    name_ = file->shown;
  }

  int64_t sample_at(int64_t epoch, int64_t position, const SampleOrderOptions& options) const override {
    const auto usual = data_->sample_at(epoch, position, options);
    const std::lock_guard lock(mutex_);
    const auto sample = state_.call(sample_, {nlohmann::json(position + 1), nlohmann::json(epoch + 1),
                                              nlohmann::json(size()), nlohmann::json(usual + 1)});
    if (!sample.plain.is_number_integer() || sample.plain < 1 || sample.plain > size())
      throw usage_error("{}: sample({}, {}, {}, {}) must return a sample from 1 to {}, not {}", name_, position + 1,
                        epoch + 1, size(), usual + 1, size(),
                        sample.plain.is_null() ? lua::kind_of(sample) : sample.plain.dump());
    return sample.plain.get<int64_t>() - 1;
  }

  int64_t size() const override { return data_->size(); }
  std::string describe() const override { return data_->describe() + ", in the order of " + name_; }
  std::vector<BatchField> fields() const override { return data_->fields(); }
  int64_t weight(int64_t sample) const override { return data_->weight(sample); }
  int64_t units(int64_t sample) const override { return data_->units(sample); }
  std::vector<BatchField> fields_of(std::span<const int64_t> samples) const override {
    return data_->fields_of(samples);
  }
  void read(int64_t sample, HostBatch& batch, int64_t row) const override { data_->read(sample, batch, row); }
  void draw(int64_t sample, HostBatch& batch, int64_t row, const SampleDraw& draw) const override {
    data_->draw(sample, batch, row, draw);
  }
  int64_t rows_together() const override { return data_->rows_together(); }
  nlohmann::json learned() const override { return data_->learned(); }

 private:
  std::unique_ptr<Dataset> data_;
  mutable std::mutex mutex_;  ///< guards the state
  mutable lua::State state_;
  lua::Reference sample_;
  std::string name_;
};

}  // namespace

SampleOrder::SampleOrder(int64_t size, bool shuffle, int64_t seed, int64_t epoch)
    : size_(size),
      shuffle_(shuffle),
      key_(mix64(mix64(static_cast<uint64_t>(seed)) ^ static_cast<uint64_t>(epoch))),
      half_bits_(std::max(
          1, (static_cast<int>(std::bit_width(static_cast<uint64_t>(std::max<int64_t>(size, 1) - 1))) + 1) / 2)) {
  RUNNER_CHECK(size >= 0);
}

int64_t SampleOrder::operator[](int64_t position) const {
  RUNNER_CHECK(position >= 0 && position < size_);
  if (!shuffle_) return position;
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  auto value = static_cast<uint64_t>(position);
  // Cycle walking: the network permutes [0, 4^half_bits), which is less than four times the size (or four). Applied
  // repeatedly until the result is below the size, it permutes [0, size).
  do {
    uint64_t left = value >> half_bits_, right = value & mask;
    for (int round = 0; round < rounds; ++round) {
      uint64_t next = left ^ (mix64(key_ ^ mix64(right << 3 | static_cast<uint64_t>(round))) & mask);
      left = right;
      right = next;
    }
    value = left << half_bits_ | right;
  } while (value >= static_cast<uint64_t>(size_));
  return static_cast<int64_t>(value);
}

int64_t LengthBuckets::at(int64_t epoch, int64_t position, int64_t seed) const {
  RUNNER_CHECK(position >= 0 && position < size_);
  const int64_t first = position / window * window;
  std::lock_guard lock(mutex_);
  if (epoch != epoch_ || first != first_ || seed != seed_) {
    samples_ = window_at(epoch, first, seed);
    epoch_ = epoch;
    first_ = first;
    seed_ = seed;
  }
  return samples_[static_cast<size_t>(position - first)];
}

std::vector<int64_t> LengthBuckets::window_at(int64_t epoch, int64_t first, int64_t seed) const {
  struct Member {
    int64_t length, sample;
  };
  const SampleOrder order(size_, true, seed, epoch);
  std::vector<Member> members;
  for (int64_t position = first; position < std::min(size_, first + window); ++position)
    members.push_back({length_(order[position]), order[position]});
  std::ranges::stable_sort(members, std::greater{}, &Member::length);

  // The last run of the epoch may be shorter than the others, so it stays at the end.
  const int64_t whole_runs = std::ssize(members) / run;
  const auto shuffled =
      SampleOrder(whole_runs, true, static_cast<int64_t>(mix64(static_cast<uint64_t>(seed)) ^ first), epoch);
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < whole_runs; ++i)
    for (int64_t k = 0; k < run; ++k) samples.push_back(members[static_cast<size_t>(shuffled[i] * run + k)].sample);
  for (auto k = static_cast<size_t>(whole_runs * run); k < members.size(); ++k) samples.push_back(members[k].sample);
  return samples;
}

std::unique_ptr<Dataset> with_scripted_order(std::unique_ptr<Dataset> data, const Recipe& recipe) {
  if (!recipe.data.order) return data;
  return std::make_unique<ScriptedOrder>(std::move(data), recipe);
}

}  // namespace runner
