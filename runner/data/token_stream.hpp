// Memory-mapped token files, and streams of several files.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runner/base/files.hpp"

namespace runner {

/// Files of a stream are checked completely when they are opened, up to this total size. In other files, each sample is checked
/// when it is read, so that opening 100 GB is fast.
constexpr size_t checked_at_open_bytes_max = size_t{256} << 20;

/// A file with a header and little-endian unsigned tokens of 1, 2 or 4 bytes. A data format derives its check.
class TokenFile {
 public:
  virtual ~TokenFile() = default;
  int64_t size() const { return size_; }
  const fs::path& path() const { return map_.path(); }
  /// Checks all tokens now. Without this call, read() checks the tokens that it reads.
  void check_all();
  size_t bytes() const { return map_.bytes().size(); }
  /// Tokens [first, first + out.size()), checked.
  void read(int64_t first, std::span<int64_t> out) const;
  /// Whether ignore_unsupervised() never does anything.
  virtual bool all_supervised() const { return true; }
  /// Replaces those of the tokens [first, first + targets.size()) that are not supervised by ignored_target.
  virtual void ignore_unsupervised(int64_t /*first*/, std::span<int64_t> /*targets*/) const {}

 protected:
  /// The size without the header must be a multiple of `item_bytes`.
  TokenFile(const fs::path& path, size_t header_bytes, size_t item_bytes);
  /// A file that begins with tokens and contains other data after them.
  struct Begin {
    size_t item_bytes;
    int64_t tokens;
  };
  TokenFile(const fs::path& path, Begin begin)
      : map_(path), header_bytes_(0), item_bytes_(begin.item_bytes), size_(begin.tokens) {}
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

/// Several token files as one stream, in the given order, without separators.
class TokenStream {
 public:
  explicit TokenStream(std::vector<std::unique_ptr<TokenFile>> files);
  int64_t size() const { return ends_.back(); }
  /// A token's file, and its number there. Of size(): the number of files, and 0.
  struct Place {
    size_t file;
    int64_t token;
  };
  Place place_of(int64_t position) const;
  /// "a.txt", or "3 files".
  std::string describe() const;
  /// Tokens [first, first + out.size()). Safe to call from several threads.
  void read(int64_t first, std::span<int64_t> out) const;
  bool all_supervised() const;
  /// Replaces those of the tokens [first, first + targets.size()) that are not supervised by ignored_target.
  void ignore_unsupervised(int64_t first, std::span<int64_t> targets) const;

 private:
  /// Calls use(file, first token in the file, its part of `out`) for each file that has some of the tokens.
  template <typename Use>
  void for_each_file(int64_t first, std::span<int64_t> out, Use&& use) const;
  std::vector<std::unique_ptr<TokenFile>> files_;
  std::vector<int64_t> ends_;  ///< stream position after the last token of each file
};

}  // namespace runner
