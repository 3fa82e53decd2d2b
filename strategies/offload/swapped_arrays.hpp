// Flat arrays of equal length in one swap file: the state of the parameters that a rank owns, streamed tile by tile.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "strategies/offload/aligned_buffer.hpp"
#include "strategies/offload/swap_file.hpp"

namespace runner {

/// One call at a time to the same tile_unit elements of an array, unless all of them read; otherwise any thread.
class SwappedArrays {
 public:
  /// Ranges that begin and end at multiples of this lie on whole pages of the file, whatever the element.
  static constexpr int64_t tile_unit = 2048;
  /// Elements of the ranges that hold so many.
  static int64_t whole_units(int64_t elements) { return (elements + tile_unit - 1) / tile_unit * tile_unit; }

  struct Array {
    std::string name;
    int element_bytes;  ///< even
  };

  /// `elements` of each array, all zero. `tile` elements, rounded up to tile_unit, are what stream() moves at a time.
  SwappedArrays(SwapOptions options, std::vector<Array> arrays, int64_t elements, int64_t tile);

  /// Blocking, any range: whole pages through a bounce buffer, and those at the edges are read before they are written.
  void read(size_t array, int64_t begin, int64_t count, void* out);
  void write(size_t array, int64_t begin, int64_t count, const void* in);

  /// Asynchronous: `begin` is a multiple of tile_unit, `count` is rounded up to it and `buffer` has room for that;
  /// all of it moves. What lies behind the last element is padding, never a neighbour.
  SwapFile::Ticket start_read(size_t array, int64_t begin, int64_t count, AlignedBuffer& buffer,
                              SwapFile::Ticket after = 0);
  SwapFile::Ticket start_write(size_t array, int64_t begin, int64_t count, const AlignedBuffer& buffer,
                               SwapFile::Ticket after = 0);
  void wait(SwapFile::Ticket ticket) { file_.wait(ticket); }

  /// `pointers[a]` is the tile's piece of array a; nullptr for arrays that the pass does not touch.
  using Body = std::function<void(int64_t begin, int64_t count, std::span<std::byte* const> pointers)>;
  /// One pass over all elements. The arrays of `in` are read ahead and those of `out` are written behind, through
  /// `buffers` >= 2 tiles of memory, so that the disk works while `body` does. An array of `out` alone comes with
  /// arbitrary contents. An exception of the body or of I/O leaves nothing in flight; the tiles before it are written.
  void stream(int buffers, const std::vector<size_t>& in, const std::vector<size_t>& out, const Body& body);
  /// What such a pass holds in memory.
  int64_t buffer_bytes(int buffers, const std::vector<size_t>& in, const std::vector<size_t>& out) const;

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

/// Bytes of the file that keeps `elements` of each array.
int64_t swap_file_bytes(const std::vector<SwappedArrays::Array>& arrays, int64_t elements);
/// Bytes that a stream() over the arrays `touched` holds in memory: `buffers` tiles, or fewer if there are no more.
int64_t stream_buffer_bytes(int64_t tile, const std::vector<SwappedArrays::Array>& touched, int buffers,
                            int64_t elements = std::numeric_limits<int64_t>::max() / 2);

}  // namespace runner
