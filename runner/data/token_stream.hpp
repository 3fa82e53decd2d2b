// Token files, memory-mapped, and several of them as one stream.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runner/base/files.hpp"

namespace runner {

/// As many files of a stream as have this size together are checked whole when they are opened; of the others each
/// sample is checked when it is read, so that opening 100 GB costs nothing.
constexpr size_t checked_at_open_bytes_max = size_t{256} << 20;

/// One file of little-endian unsigned tokens of 1, 2 or 4 bytes behind a header. A kind of data derives its check.
class TokenFile {
 public:
  virtual ~TokenFile() = default;
  int64_t size() const { return size_; }
  const fs::path& path() const { return map_.path(); }
  /// Checks the whole file now; otherwise read() checks what it reads.
  void check_all();
  size_t bytes() const { return map_.bytes().size(); }
  /// Tokens [first, first + out.size()), checked.
  void read(int64_t first, std::span<int64_t> out) const;

 protected:
  /// `map_` behind the header must be a multiple of `item_bytes`.
  TokenFile(const fs::path& path, size_t header_bytes, size_t item_bytes);
  /// Throws Error(usage) with file and position if one of tokens [first, first + count) must not be used.
  virtual void check(int64_t first, int64_t count) const = 0;
  template <typename Item>
  std::span<const Item> items() const {
    return {reinterpret_cast<const Item*>(map_.bytes().data() + header_bytes_), static_cast<size_t>(size_)};
  }
  size_t item_bytes() const { return item_bytes_; }
  const MappedFile& map() const { return map_; }

 private:
  MappedFile map_;
  size_t header_bytes_, item_bytes_;
  int64_t size_;
  bool checked_ = false;
};

/// Several token files as one stream, in the order given, with nothing between them.
class TokenStream {
 public:
  explicit TokenStream(std::vector<std::unique_ptr<TokenFile>> files);
  int64_t size() const { return ends_.back(); }
  /// "a.txt", or "3 files".
  std::string describe() const;
  /// Tokens [first, first + out.size()). Safe to call from several threads.
  void read(int64_t first, std::span<int64_t> out) const;

 private:
  std::vector<std::unique_ptr<TokenFile>> files_;
  std::vector<int64_t> ends_;  ///< position behind the last token of each file
};

}  // namespace runner
