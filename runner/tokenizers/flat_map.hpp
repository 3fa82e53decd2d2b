// Hash tables of tokenizers: open addressing in one array, built once and then only read.
#pragma once
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <algorithm>

namespace runner {

inline uint64_t hash_of(std::string_view text) { return XXH3_64bits(text.data(), text.size()); }

/// Strings to ids. A later put() of the same string replaces its id.
class StringIds {
 public:
  void reserve(size_t strings) { grow(std::bit_ceil(std::max<size_t>(16, strings * 2))); }
  void put(std::string_view text, int32_t id) {
    if ((count_ + 1) * 2 > slots_.size()) grow(std::max<size_t>(16, slots_.size() * 2));
    Slot& slot = slots_[find_slot(text, hash_of(text))];
    if (slot.id < 0) {
      slot = {static_cast<uint32_t>(hash_of(text) >> 32), static_cast<uint32_t>(text.size()), arena_.size(), id};
      arena_ += text;
      ++count_;
    }
    slot.id = id;
    longest_ = std::max(longest_, text.size());
  }
  /// -1: the string is not in the table.
  int32_t find(std::string_view text) const {
    if (text.size() > longest_ || slots_.empty()) return -1;
    return slots_[find_slot(text, hash_of(text))].id;
  }
  std::optional<int32_t> get(std::string_view text) const {
    const int32_t id = find(text);
    return id >= 0 ? std::optional(id) : std::nullopt;
  }
  size_t size() const { return count_; }
  size_t longest() const { return longest_; }  ///< bytes

 private:
  struct Slot {
    uint32_t tag = 0, size = 0;
    size_t begin = 0;
    int32_t id = -1;
  };
  size_t find_slot(std::string_view text, uint64_t hash) const {
    const size_t mask = slots_.size() - 1;
    const auto tag = static_cast<uint32_t>(hash >> 32);
    for (size_t i = hash & mask;; i = (i + 1) & mask) {
      const Slot& slot = slots_[i];
      if (slot.id < 0 || (slot.tag == tag && slot.size == text.size() &&
                          std::string_view(arena_).substr(slot.begin, slot.size) == text))
        return i;
    }
  }
  void grow(size_t size) {
    if (size <= slots_.size()) return;
    auto old = std::move(slots_);
    slots_.assign(size, {});
    for (const Slot& slot : old)
      if (slot.id >= 0) {
        const auto text = std::string_view(arena_).substr(slot.begin, slot.size);
        slots_[find_slot(text, hash_of(text))] = slot;
      }
  }
  std::vector<Slot> slots_;
  std::string arena_;
  size_t count_ = 0, longest_ = 0;
};

/// Pairs of tokens to the rank of their merge and to the token that it makes.
class Merges {
 public:
  struct Merge {
    uint32_t rank = none;
    int32_t id = 0;
  };
  static constexpr uint32_t none = ~uint32_t{0};

  void reserve(size_t pairs) { grow(std::bit_ceil(std::max<size_t>(16, pairs * 2))); }
  /// A later put() of the same pair replaces its merge.
  void put(int32_t left, int32_t right, Merge merge) {
    if ((count_ + 1) * 2 > slots_.size()) grow(std::max<size_t>(16, slots_.size() * 2));
    Slot& slot = slots_[find_slot(key(left, right))];
    if (slot.merge.rank == none) ++count_;
    slot = {key(left, right), merge};
  }
  Merge find(int32_t left, int32_t right) const {
    return slots_.empty() ? Merge{} : slots_[find_slot(key(left, right))].merge;
  }
  size_t size() const { return count_; }

 private:
  struct Slot {
    uint64_t key = 0;
    Merge merge;
  };
  static uint64_t key(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  size_t find_slot(uint64_t key) const {
    const size_t mask = slots_.size() - 1;
    for (size_t i = (key * 0x9e3779b97f4a7c15u) >> 20 & mask;; i = (i + 1) & mask)
      if (slots_[i].merge.rank == none || slots_[i].key == key) return i;
  }
  void grow(size_t size) {
    if (size <= slots_.size()) return;
    auto old = std::move(slots_);
    slots_.assign(size, {});
    for (const Slot& slot : old)
      if (slot.merge.rank != none) slots_[find_slot(slot.key)] = slot;
  }
  std::vector<Slot> slots_;
  size_t count_ = 0;
};

}  // namespace runner
