// The cache of things made once from data (trained tokenizers, tokenised text): locked, published atomically,
// deletable.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "runner/base/files.hpp"

namespace runner {

/// XXH3-128 as 32 hexadecimal digits: what the cache calls things by.
std::string cache_hash(std::string_view content);

/// A file being written, buffered. Every failure throws Error(environment) with path and reason.
class CacheWriter {
 public:
  CacheWriter(int descriptor, fs::path path) : descriptor_(descriptor), path_(std::move(path)) {}
  void append(std::span<const std::byte> bytes);
  void flush();  ///< to the disk

 private:
  void write_buffer();
  int descriptor_;
  fs::path path_;
  std::string buffer_;
};

/// The path of `cache_dir/name`, filled by `fill` if it is not there yet. Of several processes that ask at once one
/// fills, the others wait for it. A process that dies or throws while filling leaves at most `name.tmp`, which nobody
/// reads and the next one starts afresh.
fs::path make_once(const fs::path& cache_dir, const std::string& name, const std::function<void(CacheWriter&)>& fill);

}  // namespace runner
