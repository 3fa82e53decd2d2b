// The cache of files that are made once from data: trained tokenizers, tokenised text, digests. It may be deleted.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "runner/base/files.hpp"

namespace runner {

/// A file being written, buffered. Every failure throws Error(environment) with path and reason.
class CacheWriter {
 public:
  CacheWriter(int descriptor, fs::path path) : descriptor_(descriptor), path_(std::move(path)) {}
  void append(std::span<const std::byte> bytes);
  void flush();  ///< writes the buffer and fsyncs

 private:
  void write_buffer();
  int descriptor_;
  fs::path path_;
  std::string buffer_;
};

/// Returns the path `cache_dir/name`. If the file does not exist, `fill` writes it under a lock, and it is published atomically.
/// If several processes call this at once, one writes and the others wait. A process that dies or throws leaves at most
/// `name.tmp`, which is never read; the next process overwrites it. Prints that it waits for another process, unless `quiet`.
fs::path make_once(const fs::path& cache_dir, const std::string& name, const std::function<void(CacheWriter&)>& fill,
                   bool quiet = false);

}  // namespace runner
