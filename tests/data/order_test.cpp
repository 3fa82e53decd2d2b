// The order of samples is a permutation that depends only on seed and epoch.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <map>
#include <set>

#include "runner/data/order.hpp"

using namespace runner;

namespace {
std::vector<int64_t> positions(const SampleOrder& order) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < order.size(); ++i) all.push_back(order[i]);
  return all;
}

bool is_permutation_of_all(std::vector<int64_t> samples) {
  std::ranges::sort(samples);
  for (size_t i = 0; i < samples.size(); ++i)
    if (samples[i] != static_cast<int64_t>(i)) return false;
  return true;
}
}  // namespace

TEST_CASE("every size from 0 to 1100, and sizes around powers of two, give a permutation") {
  for (int64_t size = 0; size <= 1100; ++size) {
    INFO("size " << size);
    REQUIRE(is_permutation_of_all(positions({size, true, 7, size % 5})));
  }
  for (int64_t size : {4095, 4096, 4097, 16383, 16384, 16385, 65535, 65536, 65537, 100003}) {
    INFO("size " << size);
    REQUIRE(is_permutation_of_all(positions({size, true, -3, 1})));
  }
}

TEST_CASE("huge data sets need no memory, and their indices are in range and unique") {
  SampleOrder order(int64_t{1} << 40, true, 1, 0);
  std::set<int64_t> seen;
  for (int64_t i = 0; i < 20000; ++i) seen.insert(order[i * 50'000'000]);
  CHECK(seen.size() == 20000);
  CHECK(*seen.begin() >= 0);
  CHECK(*seen.rbegin() < order.size());
}

TEST_CASE("the order is equal for equal seed and epoch, and differs otherwise") {
  auto base = positions({1000, true, 1234, 0});
  CHECK(base == positions({1000, true, 1234, 0}));
  CHECK(base != positions({1000, true, 1234, 1}));
  CHECK(base != positions({1000, true, 1235, 0}));
  CHECK(positions({1000, true, 0, 1}) != positions({1000, true, 1, 0}));
}

TEST_CASE("the order of a seed does not change between versions, so a resumed run continues its epoch") {
  SampleOrder order(1000, true, 1234, 2);
  CHECK(std::vector<int64_t>{order[0], order[1], order[2], order[999]} == std::vector<int64_t>{634, 535, 956, 465});
}

TEST_CASE("without shuffle the order is the identity") {
  SampleOrder order(10, false, 5, 3);
  for (int64_t i = 0; i < 10; ++i) CHECK(order[i] == i);
}

TEST_CASE("over many epochs each sample comes first about equally often, and neighbours are separated") {
  for (int64_t size : {5, 24, 100}) {
    std::map<int64_t, int> first;
    const int epochs = 200 * static_cast<int>(size);
    int neighbours = 0;
    for (int epoch = 0; epoch < epochs; ++epoch) {
      SampleOrder order(size, true, 42, epoch);
      ++first[order[0]];
      neighbours += order[1] == order[0] + 1;
    }
    INFO("size " << size);
    REQUIRE(first.size() == static_cast<size_t>(size));
    for (auto [sample, count] : first) {  // 200 expected, standard deviation 14
      INFO("sample " << sample);
      CHECK((count > 130 && count < 270));
    }
    const double expected =
        static_cast<double>(epochs) / static_cast<double>(size);  // (size - 1) of size * (size - 1) pairs
    CHECK((neighbours > 0.6 * expected && neighbours < 1.4 * expected));
  }
}
