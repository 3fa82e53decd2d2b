// Reads part of an array from a swap file in advance, into a new buffer.
#pragma once
#include <memory>
#include <utility>

#include "strategies/offload/swapped_arrays.hpp"

namespace runner {

/// Keeps memory and file until the read has ended, even if nothing waits for it.
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

}  // namespace runner
