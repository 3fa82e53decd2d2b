#include "runner/data/length_buckets.hpp"

#include <algorithm>

#include "runner/base/error.hpp"
#include "runner/base/hash.hpp"
#include "runner/data/order.hpp"

namespace runner {

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

}  // namespace runner
