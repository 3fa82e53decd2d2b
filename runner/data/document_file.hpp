// A file of the cache with tokenised documents: their tokens, which of them are supervised, and where each document ends.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "runner/base/files.hpp"
#include "runner/data/cache.hpp"
#include "runner/data/token_stream.hpp"

namespace runner {

/// The tokens of one record, and which of them are targets of the loss.
struct Document {
  std::vector<int32_t> tokens;
  std::vector<bool> supervised;  ///< one for each token; empty: all are
};

/// Writes documents to a file of the cache. Only the marks and the ends of documents are in memory until finish().
class DocumentWriter {
 public:
  /// `item_bytes` of a token: 2 or 4.
  DocumentWriter(CacheWriter& out, size_t item_bytes) : out_(out), item_bytes_(item_bytes) {}
  void add(const Document& document);
  void finish();
  int64_t tokens() const { return tokens_; }

 private:
  CacheWriter& out_;
  size_t item_bytes_;
  int64_t tokens_ = 0;
  bool all_supervised_ = true;
  std::vector<uint8_t> marks_;    ///< one bit per token
  std::vector<int64_t> ends_;     ///< the number of tokens up to the end of each document
  std::vector<int32_t> targets_;  ///< supervised tokens of each document that have a token before them
};

/// A file that DocumentWriter has written. All functions may be called from several threads.
class DocumentFile final : public TokenFile {
 public:
  /// Throws Error(environment) if the file is not complete.
  explicit DocumentFile(const fs::path& path);
  /// The position behind the last token of each document.
  std::span<const int64_t> ends() const { return ends_; }
  /// The number of each document's supervised tokens that have a token before them, from which they can be predicted.
  std::span<const int32_t> targets() const { return targets_; }
  bool all_supervised() const override { return marks_.empty(); }
  void ignore_unsupervised(int64_t first, std::span<int64_t> targets) const override;

 private:
  friend class DocumentWriter;
  struct Footer;
  static Footer read_footer(const fs::path& path);
  DocumentFile(const fs::path& path, const Footer& footer);
  void check(int64_t, int64_t) const override {}  // this program has written the tokens

  std::span<const uint8_t> marks_;
  std::span<const int64_t> ends_;
  std::span<const int32_t> targets_;
};

}  // namespace runner
