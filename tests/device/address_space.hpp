// A range of memory that is mapped twice: once for programs, with pages they may not touch, and once for the device.
#pragma once
#include <cstddef>
#include <iterator>
#include <map>

namespace runner::simulated {

class AddressSpace {
 public:
  /// What the host may do with pages of the first mapping.
  enum class Access { none, read, all };

  /// Reserves `bytes`; pages take memory when the device first writes them. All pages of the first mapping have
  /// Access::none.
  explicit AddressSpace(size_t bytes);
  AddressSpace(const AddressSpace&) = delete;

  bool contains(const void* address) const { return address >= begin_ && address < begin_ + bytes_; }
  char* begin() const { return begin_; }
  char* end() const { return begin_ + bytes_; }
  /// Where the device finds the byte that programs know by `address`.
  char* real(const char* address) const { return real_ + (address - begin_); }
  /// `begin` and `bytes` are multiples of the page size.
  void allow(char* begin, size_t bytes, Access access) const;

 private:
  char *begin_ = nullptr, *real_ = nullptr;
  size_t bytes_;
};

constexpr size_t page_bytes = 4096;

/// The block that contains an address; null if there is none. `blocks`: begin -> block, with end().
template <class Block>
Block* find_block(std::map<char*, Block>& blocks, const char* address) {
  auto after = blocks.upper_bound(const_cast<char*>(address));
  if (after == blocks.begin()) return nullptr;
  Block& block = std::prev(after)->second;
  return address < block.end() ? &block : nullptr;
}

}  // namespace runner::simulated
