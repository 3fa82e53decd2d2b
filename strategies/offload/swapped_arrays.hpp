// Flat arrays of equal length in one swap file: the state of a rank's shards, streamed tile by tile.
#pragma once
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runner/base/round_up.hpp"
#include "strategies/offload/swap_file.hpp"

namespace runner {

/// Any thread may call, but the same tile_unit elements of an array may be in one call at a time only, unless all calls
/// read.
class SwappedArrays {
 public:
  /// A range that begins and ends at multiples of this number of elements covers whole pages of the file, for any
  /// element size.
  static constexpr int64_t tile_unit = 2048;
  /// `elements` rounded up to a multiple of tile_unit.
  static int64_t whole_units(int64_t elements) { return round_up(elements, tile_unit); }

  struct Array {
    std::string name;
    int element_bytes;  ///< even
  };

  /// Each array has `elements` elements, zero at first. stream() moves `tile` elements at a time, rounded up to
  /// tile_unit.
  SwappedArrays(SwapOptions options, std::vector<Array> arrays, int64_t elements, int64_t tile);

  /// Blocking, for any range. Whole pages move through a bounce buffer. Pages at the edges are read before they are
  /// written.
  void read(size_t array, int64_t begin, int64_t count, void* out);
  void write(size_t array, int64_t begin, int64_t count, const void* in);

  /// Asynchronous. `begin` is a multiple of tile_unit. `count` is rounded up to one, and `buffer` must have room for
  /// that. Elements after the last one are padding, never another array.
  SwapFile::Ticket start_read(size_t array, int64_t begin, int64_t count, AlignedBuffer& buffer,
                              SwapFile::Ticket after = 0);
  SwapFile::Ticket start_write(size_t array, int64_t begin, int64_t count, const AlignedBuffer& buffer,
                               SwapFile::Ticket after = 0);
  void wait(SwapFile::Ticket ticket) { file_.wait(ticket); }

  /// `pointers[a]` is the tile of array a, or nullptr for arrays that the pass does not use.
  using Body = std::function<void(int64_t begin, int64_t count, std::span<std::byte* const> pointers)>;
  /// One pass over all elements. The arrays of `in` are read in advance, and those of `out` are written afterwards,
  /// through `buffers` >= 2 tiles of memory, so that I/O overlaps with `body`. An array that is only in `out` has
  /// arbitrary contents. After an exception from the body or from I/O no request is in flight, and the tiles before it
  /// are written.
  void stream(int buffers, const std::vector<size_t>& in, const std::vector<size_t>& out, const Body& body);

  const std::vector<Array>& arrays() const { return arrays_; }
  int64_t elements() const { return elements_; }
  int64_t tile() const { return tile_; }
  const SwapFile& file() const { return file_; }

 private:
  int64_t file_offset(size_t array, int64_t begin) const;
  std::span<std::byte> span_of_units(size_t array, int64_t begin, int64_t count, const AlignedBuffer& buffer) const;
  /// Bytes [first, last) of the file.
  void read_bytes(int64_t first, int64_t last, std::byte* out);
  void write_bytes(int64_t first, int64_t last, const std::byte* in);

  std::vector<Array> arrays_;
  int64_t elements_, tile_;
  std::vector<int64_t> offsets_;  ///< of the arrays in the file
  SwapFile file_;
};

/// A read of a part of an array in advance, into a new buffer. Keeps memory and file until it has ended, even if nothing waits for it.
class SwappedRead {
 public:
  /// Elements [begin, begin + count), where `begin` is a multiple of SwappedArrays::tile_unit.
  SwappedRead(std::shared_ptr<SwappedArrays> arrays, size_t array, int64_t begin, int64_t count)
      : arrays_(std::move(arrays)),
        buffer_(SwappedArrays::whole_units(count) * arrays_->arrays().at(array).element_bytes),
        ticket_(arrays_->start_read(array, begin, count, buffer_)) {}
  ~SwappedRead() {
    try {
      wait();
    } catch (const std::exception&) {  // another error is already being reported
    }
  }
  SwappedRead(const SwappedRead&) = delete;
  SwappedRead& operator=(const SwappedRead&) = delete;

  /// The elements. Throws the read's Error(run_failed), once.
  std::byte* wait() {
    if (auto ticket = std::exchange(ticket_, 0)) arrays_->wait(ticket);
    return buffer_.data();
  }

 private:
  std::shared_ptr<SwappedArrays> arrays_;
  AlignedBuffer buffer_;
  SwapFile::Ticket ticket_;
};

/// Size of the file, in bytes, for `elements` elements of each array.
int64_t swap_file_bytes(const std::vector<SwappedArrays::Array>& arrays, int64_t elements);
/// Bytes of memory that a stream() over the arrays `touched` uses: `buffers` tiles, or fewer if the arrays have fewer.
int64_t stream_buffer_bytes(int64_t tile, const std::vector<SwappedArrays::Array>& touched, int buffers,
                            int64_t elements = std::numeric_limits<int64_t>::max() / 2);

}  // namespace runner
