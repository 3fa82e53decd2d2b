// Arrays in a swap file compared with arrays in memory: any range, any order of calls.
#include "strategies/offload/swapped_arrays.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstring>
#include <random>

#include "runner/base/error.hpp"
#include "tests/offload/swap_folder.hpp"

using namespace runner;

namespace {

using Arrays = std::vector<SwappedArrays::Array>;

/// Keeps the same arrays in memory and runs random operations on both.
class Twin {
 public:
  Twin(SwappedArrays& swapped, unsigned seed) : swapped_(swapped), random_(seed) {
    for (const auto& array : swapped.arrays())
      model_.emplace_back(static_cast<size_t>(swapped.elements() * array.element_bytes));
  }
  int64_t draw(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }

  void write(size_t array, int64_t begin, int64_t count) {
    auto bytes = noise(array, begin, count);
    swapped_.write(array, begin, count, bytes.data());
  }
  void check(size_t array, int64_t begin, int64_t count) {
    auto size = bytes_of(array, count);
    std::vector<std::byte> back(size + 1, std::byte{0x5a});
    swapped_.read(array, begin, count, back.data());
    INFO("array " << array << ", [" << begin << ", +" << count << ")");
    REQUIRE(std::memcmp(back.data(), model_[array].data() + bytes_of(array, begin), size) == 0);
    REQUIRE(back.back() == std::byte{0x5a});
  }
  void check_all() {
    for (size_t array = 0; array < model_.size(); ++array) check(array, 0, swapped_.elements());
  }
  void write_units(size_t array, int64_t begin, int64_t count) {
    auto bytes = noise(array, begin, count);
    AlignedBuffer buffer(static_cast<int64_t>(bytes_of(array, count + SwappedArrays::tile_unit)));
    std::memset(buffer.data(), 0x77, static_cast<size_t>(buffer.size()));
    std::memcpy(buffer.data(), bytes.data(), bytes.size());
    swapped_.wait(swapped_.start_write(array, begin, count, buffer));
  }
  void check_units(size_t array, int64_t begin, int64_t count) {
    AlignedBuffer buffer(static_cast<int64_t>(bytes_of(array, count + SwappedArrays::tile_unit)));
    swapped_.wait(swapped_.start_read(array, begin, count, buffer));
    REQUIRE(std::memcmp(buffer.data(), model_[array].data() + bytes_of(array, begin), bytes_of(array, count)) == 0);
  }

 private:
  size_t bytes_of(size_t array, int64_t count) const {
    return static_cast<size_t>(count * swapped_.arrays()[array].element_bytes);
  }
  std::vector<std::byte> noise(size_t array, int64_t begin, int64_t count) {
    std::vector<std::byte> bytes(bytes_of(array, count));
    for (auto& byte : bytes) byte = static_cast<std::byte>(random_());
    std::copy(bytes.begin(), bytes.end(), model_[array].begin() + static_cast<int64_t>(bytes_of(array, begin)));
    return bytes;
  }

  SwappedArrays& swapped_;
  std::mt19937 random_;
  std::vector<std::vector<std::byte>> model_;
};

const Arrays adam{{"parameter", 4}, {"exp_avg", 4}, {"copy", 2}, {"wide", 8}};

}  // namespace

TEST_CASE("ranges around borders of pages, blocks and tiles are read as written") {
  SwapFolder folder("/dev/shm");
  SwappedArrays swapped({.folder = folder.path, .block_size = 8192}, adam, 6 * 2048 + 777, 4096);
  Twin twin(swapped, 1);
  twin.check_all();
  std::vector<int64_t> borders;
  for (int64_t border : {0, 1024, 2048, 4096, 8192, 12288, 6 * 2048 + 777})
    for (int64_t near : {border - 1, border, border + 1})
      if (near >= 0 && near <= swapped.elements()) borders.push_back(near);
  for (size_t array : {size_t{0}, size_t{2}})
    for (auto begin : borders)
      for (auto end : borders) {
        if (begin > end) continue;
        twin.write(array, begin, end - begin);
        twin.check(array, std::max<int64_t>(begin - 3, 0),
                   std::min(end + 3, swapped.elements()) - std::max<int64_t>(begin - 3, 0));
      }
  twin.check_all();
}

TEST_CASE("random operations, with direct I/O and through the page cache") {
  bool direct = GENERATE(true, false);
  SwapFolder folder;
  SwappedArrays swapped({.folder = folder.path, .block_size = 4096, .direct = direct}, adam, 5 * 2048 + 31, 2048);
  Twin twin(swapped, direct);
  for (int i = 0; i < 300; ++i) {
    auto array = static_cast<size_t>(twin.draw(0, 3));
    auto begin = twin.draw(0, swapped.elements()), count = twin.draw(0, swapped.elements() - begin);
    // Ranges in units extend to the end. The rounded-up part is padding, which `twin` does not have.
    auto unit = twin.draw(0, 5) * SwappedArrays::tile_unit, rest = swapped.elements() - unit;
    switch (twin.draw(0, 3)) {
      case 0:
        twin.write(array, begin, count);
        break;
      case 1:
        twin.check(array, begin, count);
        break;
      case 2:
        twin.write_units(array, unit, rest);
        break;
      default:
        twin.check_units(array, unit, twin.draw(1, rest));
        break;
    }
  }
  twin.check_all();
}

TEST_CASE("blocking calls may be longer than their bounce buffers") {
  SwapFolder folder;
  int64_t chunk = (8 << 20) / 4;
  // One small block at a time reveals a buffer that is filled again before it has been written.
  SwappedArrays swapped({.folder = folder.path, .block_size = 65536, .queue_depth = 1}, {{"a", 4}, {"b", 4}},
                        3 * chunk + 5, 1 << 20);
  Twin twin(swapped, 3);
  twin.write(0, 0, swapped.elements());
  twin.check(0, 0, swapped.elements());
  twin.write(1, 1, 2 * chunk + 1);
  twin.write(1, chunk - 1, chunk + 2);
  twin.write(0, 1023, 2 * chunk + 2);
  for (int64_t begin : {int64_t{0}, int64_t{1}, chunk - 1, chunk, chunk + 1025})
    for (int64_t count : {chunk - 1, chunk, chunk + 1, 2 * chunk - 2000}) twin.check(0, begin, count);
  twin.check_all();
}

TEST_CASE("arrays without elements need no space") {
  SwapFolder folder;
  SwappedArrays swapped({.folder = folder.path}, adam, 0, 2048);
  CHECK(swapped.file().bytes() == 0);
  swapped.read(0, 0, 0, nullptr);
  swapped.write(0, 0, 0, nullptr);
  swapped.stream(2, {0}, {1}, [](int64_t, int64_t, std::span<std::byte* const>) { FAIL("there is no tile"); });
}

TEST_CASE("bytes on the disk and in memory are known without a file") {
  Arrays arrays{{"parameter", 4}, {"exp_avg", 4}, {"exp_avg_sq", 4}, {"copy", 2}};
  CHECK(swap_file_bytes(arrays, 2048) == 14 * 2048);
  CHECK(swap_file_bytes(arrays, 2049) == 14 * 4096);
  CHECK(stream_buffer_bytes(4000, arrays, 3) == 3 * 14 * 4096);
  CHECK(stream_buffer_bytes(1 << 20, arrays, 4, 2049) == 14 * 4096);
  CHECK(stream_buffer_bytes(4096, arrays, 4, 4097) == 2 * 14 * 4096);
  CHECK(stream_buffer_bytes(4096, arrays, 4, 0) == 0);
  SwapFolder folder;
  SwappedArrays swapped({.folder = folder.path}, arrays, 5000, 2048);
  CHECK(swapped.file().bytes() == swap_file_bytes(arrays, 5000));
  CHECK(stream_buffer_bytes(2048, arrays, 2, 5000) == 2 * 14 * 2048);
  CHECK(stream_buffer_bytes(2048, {arrays[3]}, 4, 5000) == 3 * 2 * 2048);
}

TEST_CASE("requests that are not multiples of a unit are internal errors") {
  SwapFolder folder;
  SwappedArrays swapped({.folder = folder.path}, adam, 5000, 2048);
  AlignedBuffer unit(2048 * 4);
  CHECK_THROWS_AS(swapped.start_read(0, 1, 2048, unit), std::logic_error);
  CHECK_THROWS_AS(swapped.start_read(0, 0, 2049, unit), std::logic_error);
  CHECK_THROWS_AS(swapped.start_read(3, 0, 2048, unit), std::logic_error);
  CHECK_THROWS_AS(swapped.start_read(0, 4096, 905, unit), std::logic_error);
  CHECK_THROWS_AS(swapped.write(0, 4999, 2, unit.data()), std::logic_error);
  CHECK_THROWS_AS(swapped.read(0, -1, 2, unit.data()), std::logic_error);
  CHECK_THROWS_AS(SwappedArrays({.folder = folder.path}, {{"odd", 3}}, 10, 2048), std::logic_error);
  swapped.wait(swapped.start_read(0, 4096, 904, unit));
}

TEST_CASE("a read without a wait ends before its memory and the file are released") {
  SwapFolder folder;
  constexpr int64_t elements = 4 << 20;
  for (int times = 0; times < 10; ++times) {
    auto swapped =
        std::make_shared<SwappedArrays>(SwapOptions{.folder = folder.path, .block_size = 4096}, adam, elements, 2048);
    const SwapFile& file = swapped->file();
    { SwappedRead read(swapped, 0, 0, elements); }
    CHECK(file.bytes_read() == elements * adam[0].element_bytes);
    auto last = std::make_unique<SwappedRead>(std::move(swapped), 1, 2048, 2048);
    last.reset();
  }
}

TEST_CASE("a read gives the written values, and reports an error once") {
  SwapFolder folder;
  auto swapped = std::make_shared<SwappedArrays>(SwapOptions{.folder = folder.path}, adam, 5000, 2048);
  std::vector<float> values(900, 1.5f);
  swapped->write(1, 4096, 900, values.data());
  SwappedRead read(swapped, 1, 4096, 904);
  CHECK(std::memcmp(read.wait(), values.data(), 3600) == 0);
  folder.truncate_file(0);
  SwappedRead gone(swapped, 1, 0, 5000);
  CHECK_THROWS_AS(gone.wait(), Error);
  CHECK_NOTHROW(gone.wait());
  SwappedRead unread(swapped, 1, 0, 5000);
}
