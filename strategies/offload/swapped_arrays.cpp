#include "strategies/offload/swapped_arrays.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "runner/base/error.hpp"
#include "runner/base/round_up.hpp"

namespace runner {

namespace {

constexpr int64_t page = SwapFile::alignment;
constexpr int64_t bounce_bytes = 8 << 20;  // size of each of the two buffers of a blocking call

int64_t divide_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

/// Requests that must end before this object does, because the memory that they use ends with it.
class InFlight {
 public:
  InFlight(SwapFile& file, size_t most) : file_(file) { tickets_.reserve(most); }
  InFlight(InFlight&&) = default;
  ~InFlight() {
    for (auto ticket : tickets_) try {
        file_.wait(ticket);
      } catch (const std::exception&) {  // another error is already being reported
      }
  }
  void add(SwapFile::Ticket ticket) { tickets_.push_back(ticket); }
  void wait() {
    while (!tickets_.empty()) {
      auto ticket = tickets_.front();
      tickets_.erase(tickets_.begin());
      file_.wait(ticket);
    }
  }

 private:
  SwapFile& file_;
  std::vector<SwapFile::Ticket> tickets_;
};

/// Moves whole pages [begin, end) of the file in chunks, alternating between two buffers.
struct Bounce {
  Bounce(SwapFile& file, int64_t first, int64_t last)
      : begin(first / page * page),
        end(round_up(last, page)),
        buffers{AlignedBuffer(std::min(bounce_bytes, end - begin)), AlignedBuffer(std::min(bounce_bytes, end - begin))},
        in_flight{InFlight(file, 1), InFlight(file, 1)} {}
  int64_t chunks() const { return divide_up(end - begin, bounce_bytes); }
  int64_t chunk_begin(int64_t chunk) const { return begin + chunk * bounce_bytes; }
  std::span<std::byte> bytes(int64_t chunk) {
    auto size = std::min(bounce_bytes, end - chunk_begin(chunk));
    return buffers[static_cast<size_t>(chunk % 2)].bytes().first(static_cast<size_t>(size));
  }
  InFlight& requests(int64_t chunk) { return in_flight[static_cast<size_t>(chunk % 2)]; }

  int64_t begin, end;
  std::array<AlignedBuffer, 2> buffers;
  std::array<InFlight, 2> in_flight;
};

}  // namespace

SwappedArrays::SwappedArrays(SwapOptions options, std::vector<Array> arrays, int64_t elements, int64_t tile)
    : arrays_(std::move(arrays)),
      elements_(elements),
      tile_(round_up(tile, tile_unit)),
      file_(std::move(options), swap_file_bytes(arrays_, elements)) {
  RUNNER_CHECK(tile > 0 && elements >= 0, "{} elements in tiles of {}", elements, tile);
  int64_t offset = 0;
  for (const auto& array : arrays_) {
    offsets_.push_back(offset);
    offset += swap_file_bytes({array}, elements);
  }
}

int64_t SwappedArrays::file_offset(size_t array, int64_t begin) const {
  return offsets_.at(array) + begin * arrays_[array].element_bytes;
}

void SwappedArrays::read(size_t array, int64_t begin, int64_t count, void* out) {
  RUNNER_CHECK(begin >= 0 && count >= 0 && begin + count <= elements_, "[{}, +{}) of {}", begin, count, elements_);
  if (count == 0) return;
  read_bytes(file_offset(array, begin), file_offset(array, begin + count), static_cast<std::byte*>(out));
}

void SwappedArrays::write(size_t array, int64_t begin, int64_t count, const void* in) {
  RUNNER_CHECK(begin >= 0 && count >= 0 && begin + count <= elements_, "[{}, +{}) of {}", begin, count, elements_);
  if (count == 0) return;
  write_bytes(file_offset(array, begin), file_offset(array, begin + count), static_cast<const std::byte*>(in));
}

void SwappedArrays::read_bytes(int64_t first, int64_t last, std::byte* out) {
  Bounce bounce(file_, first, last);
  auto start = [&](int64_t chunk) {
    if (chunk < bounce.chunks()) bounce.requests(chunk).add(file_.read(bounce.chunk_begin(chunk), bounce.bytes(chunk)));
  };
  start(0);
  for (int64_t chunk = 0; chunk < bounce.chunks(); ++chunk) {
    start(chunk + 1);
    bounce.requests(chunk).wait();
    auto bytes = bounce.bytes(chunk);
    auto at = bounce.chunk_begin(chunk);
    auto from = std::max(at, first), to = std::min(at + std::ssize(bytes), last);
    std::memcpy(out + (from - first), bytes.data() + (from - at), static_cast<size_t>(to - from));
  }
}

void SwappedArrays::write_bytes(int64_t first, int64_t last, const std::byte* in) {
  Bounce bounce(file_, first, last);
  for (int64_t chunk = 0; chunk < bounce.chunks(); ++chunk) {
    bounce.requests(chunk).wait();
    auto bytes = bounce.bytes(chunk);
    auto at = bounce.chunk_begin(chunk), end = at + std::ssize(bytes);
    auto read_page = [&](int64_t offset) {
      file_.wait(file_.read(offset, bytes.subspan(static_cast<size_t>(offset - at), static_cast<size_t>(page))));
    };
    bool whole_begin = at >= first, whole_end = end <= last;
    if (!whole_begin) read_page(at);
    if (!whole_end && (whole_begin || end - at > page)) read_page(end - page);
    auto from = std::max(at, first), to = std::min(end, last);
    std::memcpy(bytes.data() + (from - at), in + (from - first), static_cast<size_t>(to - from));
    bounce.requests(chunk).add(file_.write(at, bytes));
  }
  for (auto& requests : bounce.in_flight) requests.wait();
}

std::span<std::byte> SwappedArrays::span_of_units(size_t array, int64_t begin, int64_t count,
                                                  const AlignedBuffer& buffer) const {
  auto whole = round_up(count, tile_unit);
  RUNNER_CHECK(begin >= 0 && begin % tile_unit == 0 && count > 0 && begin + count <= elements_,
               "[{}, +{}) of {} elements", begin, count, elements_);
  auto bytes = whole * arrays_.at(array).element_bytes;
  RUNNER_CHECK(buffer.size() >= bytes, "{} elements of {} take {} bytes, the buffer has {}", whole, arrays_[array].name,
               bytes, buffer.size());
  return {const_cast<std::byte*>(buffer.data()), static_cast<size_t>(bytes)};
}

SwapFile::Ticket SwappedArrays::start_read(size_t array, int64_t begin, int64_t count, AlignedBuffer& buffer,
                                           SwapFile::Ticket after) {
  auto bytes = span_of_units(array, begin, count, buffer);
  return file_.read(file_offset(array, begin), bytes, after);
}

SwapFile::Ticket SwappedArrays::start_write(size_t array, int64_t begin, int64_t count, const AlignedBuffer& buffer,
                                            SwapFile::Ticket after) {
  auto bytes = span_of_units(array, begin, count, buffer);
  return file_.write(file_offset(array, begin), bytes, after);
}

namespace {

/// The state of one stream(): tiles use sets of buffers in turn. The next tile of a set is read as soon as the previous one is
/// written, without help from the body's thread.
class Pass {
 public:
  Pass(SwappedArrays& arrays, SwapFile& file, int buffers, const std::vector<size_t>& in,
       const std::vector<size_t>& out)
      : arrays_(arrays),
        tiles_(divide_up(arrays.elements(), arrays.tile())),
        reads_(arrays.arrays().size()),
        writes_(arrays.arrays().size()) {
    for (auto array : in) reads_.at(array) = true;
    for (auto array : out) writes_.at(array) = true;
    for (int64_t i = 0; i < std::min<int64_t>(buffers, tiles_); ++i) add_set(file);
  }

  void run(const SwappedArrays::Body& body) {
    for (int64_t tile = 0; tile < std::ssize(sets_); ++tile) move_on(no_tile, tile);
    for (int64_t tile = 0; tile < tiles_; ++tile) {
      set(tile).requests.wait();
      body(begin(tile), count(tile), set(tile).pointers);
      move_on(tile, tile + std::ssize(sets_));
    }
    for (auto& set : sets_) set.requests.wait();
  }

 private:
  static constexpr int64_t no_tile = -1;
  struct Set {
    std::vector<AlignedBuffer> buffers;
    std::vector<std::byte*> pointers;
    InFlight requests;
  };

  int64_t begin(int64_t tile) const { return tile * arrays_.tile(); }
  int64_t count(int64_t tile) const { return std::min(arrays_.tile(), arrays_.elements() - begin(tile)); }
  Set& set(int64_t tile) { return sets_[static_cast<size_t>(tile) % sets_.size()]; }

  void add_set(SwapFile& file) {
    Set set{{}, {}, InFlight(file, 2 * reads_.size())};
    for (size_t array = 0; array < reads_.size(); ++array) {
      bool touched = reads_[array] || writes_[array];
      set.buffers.emplace_back(
          touched ? round_up(count(0), SwappedArrays::tile_unit) * arrays_.arrays()[array].element_bytes : 0);
      set.pointers.push_back(set.buffers.back().data());
    }
    sets_.push_back(std::move(set));
  }

  /// Starts to write the tile that the body has finished, and to read the next tile into its buffers.
  void move_on(int64_t left, int64_t coming) {
    auto& here = set(coming);
    for (size_t array = 0; array < reads_.size(); ++array) {
      SwapFile::Ticket written = 0;
      if (left != no_tile && writes_[array]) {
        written = arrays_.start_write(array, begin(left), count(left), here.buffers[array]);
        here.requests.add(written);
      }
      if (coming < tiles_ && reads_[array])
        here.requests.add(arrays_.start_read(array, begin(coming), count(coming), here.buffers[array], written));
    }
  }

  SwappedArrays& arrays_;
  int64_t tiles_;
  std::vector<bool> reads_, writes_;
  std::vector<Set> sets_;
};

}  // namespace

void SwappedArrays::stream(int buffers, const std::vector<size_t>& in, const std::vector<size_t>& out,
                           const Body& body) {
  RUNNER_CHECK(buffers >= 2, "{} buffers", buffers);
  Pass(*this, file_, buffers, in, out).run(body);
}

int64_t swap_file_bytes(const std::vector<SwappedArrays::Array>& arrays, int64_t elements) {
  int64_t bytes = 0;
  for (const auto& array : arrays) {
    RUNNER_CHECK(array.element_bytes > 0 && array.element_bytes % 2 == 0, "{}: elements of {} bytes", array.name,
                 array.element_bytes);
    bytes += round_up(elements, SwappedArrays::tile_unit) * array.element_bytes;
  }
  return bytes;
}

int64_t stream_buffer_bytes(int64_t tile, const std::vector<SwappedArrays::Array>& touched, int buffers,
                            int64_t elements) {
  tile = round_up(tile, SwappedArrays::tile_unit);
  auto sets = std::min<int64_t>(buffers, divide_up(elements, tile));
  return sets * swap_file_bytes(touched, std::min(tile, elements));
}

}  // namespace runner
