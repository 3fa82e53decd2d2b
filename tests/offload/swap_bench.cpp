// Measures bytes per second of the swap file by depth and block size, compared with io_uring, and of a streamed pass,
// compared with a plain loop. One JSON line each.
#include <fcntl.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>

#include "runner/base/clock.hpp"
#include "strategies/offload/swapped_arrays.hpp"
#include "tests/offload/uring.hpp"

using namespace runner;

namespace {

struct Row {
  nlohmann::json what;
  double bytes;
  std::function<void()> work;
  std::vector<double> seconds = {};
};

/// Alternates the rows, so noise affects all alike. Reports the median.
void measure(std::vector<Row>& rows, int rounds) {
  for (int round = 0; round < rounds; ++round)
    for (auto& row : rows) {
      double begin = steady_seconds();
      row.work();
      row.seconds.push_back(steady_seconds() - begin);
    }
  for (auto& row : rows) {
    std::sort(row.seconds.begin(), row.seconds.end());
    double median = row.seconds[row.seconds.size() / 2];
    row.what["seconds"] = median;
    row.what["MB_per_s"] = std::round(row.bytes / median / 1e6);
    std::cout << row.what.dump() << std::endl;
  }
}

void measure_depths(const std::filesystem::path& folder, int64_t bytes, int rounds) {
  AlignedBuffer memory(bytes);
  std::memset(memory.data(), 1, static_cast<size_t>(memory.size()));
  int plain = open_nameless(folder);
  if (plain < 0) throw std::runtime_error("no nameless file in " + folder.string());
  ::fcntl(plain, F_SETFL, O_DIRECT);
  Uring(16).transfer(plain, true, memory.data(), bytes, 1 << 20);
  for (int depth : {1, 2, 4, 8, 16})
    for (int64_t block : {256 << 10, 1 << 20, 4 << 20}) {
      SwapFile file({.folder = folder, .block_size = block, .queue_depth = depth}, bytes);
      Uring ring(static_cast<unsigned>(depth));
      file.wait(file.write(0, memory.bytes()));
      std::vector<Row> rows;
      auto add = [&](const char* io, bool writes, std::function<void()> work) {
        const char* operation = writes ? "write" : "read";
        nlohmann::json what{{"io", io}, {"operation", operation}, {"depth", depth}, {"block_size", block}};
        what["direct"] = file.direct();
        rows.push_back({what, static_cast<double>(bytes), std::move(work)});
      };
      add("threads", false, [&] { file.wait(file.read(0, memory.bytes())); });
      add("threads", true, [&] { file.wait(file.write(0, memory.bytes())); });
      for (bool writes : {false, true})
        add("io_uring", writes, [&, writes] { ring.transfer(plain, writes, memory.data(), bytes, block); });
      measure(rows, rounds);
    }
  ::close(plain);
}

/// The memory traffic of Adam, then more work on the same tile until `seconds` are over.
void update(int64_t count, std::span<std::byte* const> pointers, double seconds) {
  auto* p = reinterpret_cast<float*>(pointers[0]);
  auto* m = reinterpret_cast<float*>(pointers[1]);
  auto* v = reinterpret_cast<float*>(pointers[2]);
  for (double begin = steady_seconds();;) {
    for (int64_t i = 0; i < count; ++i) {
      m[i] = 0.9F * m[i] + 0.1F * p[i];
      v[i] = 0.99F * v[i] + 0.01F * p[i] * p[i];
      p[i] -= 1e-3F * m[i] / (std::sqrt(v[i]) + 1e-8F);
    }
    if (steady_seconds() - begin >= seconds) return;
  }
}

void plain_loop(SwappedArrays& arrays, double seconds) {
  std::vector<AlignedBuffer> buffers;
  std::vector<std::byte*> pointers;
  for (int array = 0; array < 3; ++array) {
    buffers.emplace_back(arrays.tile() * 4);
    pointers.push_back(buffers.back().data());
  }
  for (int64_t begin = 0; begin < arrays.elements(); begin += arrays.tile()) {
    auto count = std::min(arrays.tile(), arrays.elements() - begin);
    SwapFile::Ticket tickets[3];
    for (size_t array = 0; array < 3; ++array) tickets[array] = arrays.start_read(array, begin, count, buffers[array]);
    for (auto ticket : tickets) arrays.wait(ticket);
    update(count, pointers, seconds);
    for (size_t array = 0; array < 3; ++array) tickets[array] = arrays.start_write(array, begin, count, buffers[array]);
    for (auto ticket : tickets) arrays.wait(ticket);
  }
}

void measure_stream(const std::filesystem::path& folder, int64_t bytes, int rounds) {
  int64_t tile = 4 << 20, elements = bytes / 12, tiles = (elements + tile - 1) / tile;
  SwappedArrays arrays({.folder = folder}, {{"parameter", 4}, {"exp_avg", 4}, {"exp_avg_sq", 4}}, elements, tile);
  arrays.stream(2, {}, {0, 1, 2}, [](int64_t, int64_t count, std::span<std::byte* const> pointers) {
    for (auto* data : pointers) std::memset(data, 0, static_cast<size_t>(count * 4));
  });
  double begin = steady_seconds();
  plain_loop(arrays, 0);
  double as_disk = (steady_seconds() - begin) / static_cast<double>(tiles);
  std::vector<Row> rows;
  for (double seconds : {0.0, as_disk}) {
    nlohmann::json what{{"elements", elements}, {"tile", tile}, {"body_seconds_a_tile_at_least", seconds}};
    auto add = [&](const std::string& pass, std::function<void()> work) {
      what["pass"] = pass;
      rows.push_back({what, 2.0 * static_cast<double>(bytes), std::move(work)});
    };
    add("plain loop", [&arrays, seconds] { plain_loop(arrays, seconds); });
    for (int buffers : {2, 3, 4})
      add("stream, " + std::to_string(buffers) + " buffers", [&arrays, seconds, buffers] {
        arrays.stream(buffers, {0, 1, 2}, {0, 1, 2}, [&](int64_t, int64_t count, std::span<std::byte* const> pointers) {
          update(count, pointers, seconds);
        });
      });
  }
  measure(rows, rounds);
}

}  // namespace

int main(int argc, char** argv) {
  std::filesystem::path folder = argc > 1 ? argv[1] : ".";
  int64_t bytes = (argc > 2 ? std::stoll(argv[2]) : 1024) << 20;
  int rounds = argc > 3 ? std::stoi(argv[3]) : 3;
  measure_stream(folder, bytes, rounds);
  measure_depths(folder, bytes, rounds);
}
