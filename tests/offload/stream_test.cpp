// A pass over swapped arrays gives the results of a plain loop, overlaps disk and computation, and leaves no request in
// flight after an error.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <chrono>
#include <set>
#include <thread>

#include "runner/base/error.hpp"
#include "strategies/offload/swapped_arrays.hpp"
#include "tests/offload/swap_folder.hpp"

using namespace runner;
using Catch::Matchers::Message;

namespace {

using Pointers = std::span<std::byte* const>;

const std::vector<SwappedArrays::Array> four{{"a", 4}, {"b", 4}, {"c", 4}, {"d", 4}};

float* floats(Pointers pointers, size_t array) { return reinterpret_cast<float*>(pointers[array]); }

void set_all(SwappedArrays& arrays, size_t array, float scale) {
  std::vector<float> values(static_cast<size_t>(arrays.elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = scale * static_cast<float>(i % 10007);
  arrays.write(array, 0, arrays.elements(), values.data());
}

std::vector<float> get_all(SwappedArrays& arrays, size_t array) {
  std::vector<float> values(static_cast<size_t>(arrays.elements()));
  arrays.read(array, 0, arrays.elements(), values.data());
  return values;
}

/// Waits until `came()` is true. Returns false after a minute, which is enough on a loaded machine.
bool comes(const std::function<bool()>& came) {
  for (auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1); !came();) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace

TEST_CASE("a pass gives the results of a plain loop over all elements") {
  int buffers = GENERATE(2, 3, 4);
  auto [tile, elements] = GENERATE(table<int64_t, int64_t>(
      {{2048, 7 * 2048 + 5}, {2048, 8 * 2048}, {6000, 20000}, {8192, 3}, {1 << 20, 2048}, {2048, 2049}}));
  bool direct = GENERATE(true, false);
  SwapFolder folder;
  SwappedArrays arrays({.folder = folder.path, .block_size = 4096, .direct = direct}, four, elements, tile);
  CHECK(arrays.tile() % SwappedArrays::tile_unit == 0);
  for (size_t array = 0; array < 4; ++array) set_all(arrays, array, static_cast<float>(array + 1));
  auto a = get_all(arrays, 0), b = get_all(arrays, 1), d = get_all(arrays, 3);

  // a is read, b is read and written, c is only written, d is not used. Two passes, like two steps.
  std::set<std::byte*> places;
  for (int step = 0; step < 2; ++step) {
    int64_t next = 0;
    arrays.stream(buffers, {0, 1}, {2, 1}, [&](int64_t begin, int64_t count, Pointers pointers) {
      REQUIRE(begin == next);
      REQUIRE(count == std::min(arrays.tile(), elements - begin));
      REQUIRE(pointers.size() == 4);
      REQUIRE(pointers[3] == nullptr);
      if (step == 0) places.insert(pointers[1]);
      for (int64_t i = 0; i < count; ++i) {
        floats(pointers, 1)[i] += 3 * floats(pointers, 0)[i];
        floats(pointers, 2)[i] = floats(pointers, 1)[i] + static_cast<float>(begin + i);
      }
      floats(pointers, 0)[0] = -1;  // is not written to the file: a is not in `out`
      next += count;
    });
    REQUIRE(next == elements);
    for (size_t i = 0; i < b.size(); ++i) b[i] += 3 * a[i];
  }
  std::vector<float> c(b.size());
  for (size_t i = 0; i < c.size(); ++i) c[i] = b[i] + static_cast<float>(i);
  CHECK(get_all(arrays, 0) == a);
  CHECK(get_all(arrays, 1) == b);
  CHECK(get_all(arrays, 2) == c);
  CHECK(get_all(arrays, 3) == d);
  // The number of distinct tile addresses matches the predicted buffer memory.
  CHECK(static_cast<int64_t>(places.size()) * 3 * 4 * std::min(arrays.tile(), (elements + 2047) / 2048 * 2048) ==
        stream_buffer_bytes(arrays.tile(), {four[0], four[1], four[2]}, buffers, elements));
}

TEST_CASE("a pass may only read, only write, or do neither") {
  SwapFolder folder;
  SwappedArrays arrays({.folder = folder.path}, four, 10000, 2048);
  set_all(arrays, 0, 2);
  arrays.stream(3, {}, {3}, [](int64_t begin, int64_t count, Pointers pointers) {
    CHECK(pointers[0] == nullptr);
    for (int64_t i = 0; i < count; ++i) floats(pointers, 3)[i] = static_cast<float>(begin + i);
  });
  auto written = arrays.file().bytes_written();
  double sum = 0;
  arrays.stream(2, {0, 3}, {}, [&](int64_t begin, int64_t count, Pointers pointers) {
    for (int64_t i = 0; i < count; ++i) {
      REQUIRE(floats(pointers, 3)[i] == static_cast<float>(begin + i));
      sum += floats(pointers, 0)[i];
    }
  });
  CHECK(sum == 9999.0 * 10000);
  CHECK(arrays.file().bytes_written() == written);
  auto read = arrays.file().bytes_read();
  int tiles = 0;
  arrays.stream(2, {}, {}, [&](int64_t, int64_t, Pointers) { ++tiles; });
  CHECK(tiles == 5);
  CHECK(arrays.file().bytes_read() == read);
  CHECK_THROWS_AS(arrays.stream(1, {}, {}, [](int64_t, int64_t, Pointers) {}), std::logic_error);
}

TEST_CASE("the disk reads ahead and writes behind during the body, within its buffers") {
  int buffers = GENERATE(2, 3);
  SwapFolder folder;
  int64_t tile = 4096, tiles = 8, tile_bytes = tile * 4;
  SwappedArrays arrays({.folder = folder.path, .block_size = 4096}, four, tiles * tile, tile);
  const auto& file = arrays.file();
  arrays.stream(buffers, {0}, {0, 1}, [&](int64_t begin, int64_t, Pointers) {
    auto at = begin / tile;
    // The buffers of the previous tile are written and filled again without this thread.
    auto read_ahead = std::min(at + buffers, tiles) * tile_bytes, written_behind = at * 2 * tile_bytes;
    REQUIRE(comes([&] { return file.bytes_read() >= read_ahead && file.bytes_written() >= written_behind; }));
    CHECK(file.bytes_read() == read_ahead);
    CHECK(file.bytes_written() == written_behind);
  });
  CHECK(file.bytes_written() == tiles * 2 * tile_bytes);
}

TEST_CASE("an error of the body ends the pass, and the tiles before it are written") {
  SwapFolder folder;
  SwappedArrays arrays({.folder = folder.path}, four, 5 * 2048, 2048);
  auto add_one = [&](int64_t until) {
    arrays.stream(3, {0}, {0}, [&](int64_t begin, int64_t count, Pointers pointers) {
      for (int64_t i = 0; i < count; ++i) floats(pointers, 0)[i] += 1;
      if (begin == until) throw std::runtime_error("the body's own trouble");
    });
  };
  CHECK_THROWS_MATCHES(add_one(2 * 2048), std::runtime_error, Message("the body's own trouble"));
  std::vector<float> expected(5 * 2048, 0);
  std::fill_n(expected.begin(), 2 * 2048, 1.F);
  CHECK(get_all(arrays, 0) == expected);
  add_one(-1);
  for (auto& value : expected) value += 1;
  CHECK(get_all(arrays, 0) == expected);
}

TEST_CASE("an error of the disk ends the pass, and the next pass works") {
  SwapFolder folder;
  SwappedArrays arrays({.folder = folder.path, .label = "rank 1"}, four, 8 * 2048, 2048);
  auto whole = arrays.file().bytes();
  const auto& file = arrays.file();
  int64_t seen = 0;
  auto pass = [&](bool cut) {
    seen = 0;
    arrays.stream(2, {1}, {2}, [&](int64_t begin, int64_t count, Pointers) {
      seen += count;
      if (!cut || begin != 2048) return;
      REQUIRE(comes([&] { return file.bytes_read() == 3 * 8192 && file.bytes_written() == 8192; }));
      folder.truncate_file(0);
    });
  };
  CHECK_THROWS_MATCHES(
      pass(true), Error,
      Message("read 0 of 8192 bytes at offset 90112 of the swap file of rank 1 in " + folder.path.string() +
              ": the file has 0 bytes and should have " + std::to_string(whole)));
  CHECK(seen == 3 * 2048);
  folder.reserve_file(whole);
  pass(false);
  CHECK(seen == 8 * 2048);
}

TEST_CASE("an error in writing the last tile is reported") {
  SwapFolder folder;
  SwappedArrays arrays({.folder = folder.path}, four, 4 * 2048, 2048);
  auto whole = std::to_string(arrays.file().bytes());
  auto pass = [&] {
    arrays.stream(2, {0}, {1}, [&](int64_t begin, int64_t, Pointers) {
      if (begin != 3 * 2048) return;
      REQUIRE(comes([&] { return arrays.file().bytes_written() == 3 * 8192; }));
      folder.truncate_file(4096);
    });
  };
  CHECK_THROWS_MATCHES(pass(), Error,
                       Message("did not write 8192 bytes at offset 57344 of the swap file of rank 0 in " +
                               folder.path.string() + ": the file has 4096 bytes and should have " + whole));
}
