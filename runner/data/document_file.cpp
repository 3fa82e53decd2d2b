#include "runner/data/document_file.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "runner/base/error.hpp"
#include "runner/base/round_up.hpp"
#include "strategies/engine/token_batch.hpp"

namespace runner {

/// At the end of the file. Before it: tokens, marks, ends, targets; each section is filled up to a multiple of 8 bytes.
struct DocumentFile::Footer {
  std::array<char, 8> magic;
  uint64_t item_bytes, tokens, documents, mark_bytes, file_bytes;
};

namespace {

constexpr std::array<char, 8> magic = {'R', 'U', 'N', 'D', 'O', 'C', '0', '1'};

size_t padded(size_t bytes) { return static_cast<size_t>(round_up(static_cast<int64_t>(bytes), int64_t{8})); }

/// Appends a section; returns its size with padding.
template <typename Item>
size_t append_section(CacheWriter& out, std::span<const Item> items) {
  static constexpr std::array<std::byte, 8> zeros{};
  out.append(std::as_bytes(items));
  out.append(std::span(zeros).first(padded(items.size_bytes()) - items.size_bytes()));
  return padded(items.size_bytes());
}

/// Takes sections from the beginning of a mapped file.
class Sections {
 public:
  explicit Sections(std::span<const std::byte> bytes) : rest_(bytes) {}
  template <typename Item>
  std::span<const Item> take(size_t count) {
    std::span items(reinterpret_cast<const Item*>(rest_.data()), count);
    rest_ = rest_.subspan(padded(items.size_bytes()));
    return items;
  }

 private:
  std::span<const std::byte> rest_;
};

}  // namespace

void DocumentWriter::add(const Document& document) {
  const auto& [tokens, supervised] = document;
  RUNNER_CHECK(supervised.empty() || supervised.size() == tokens.size());
  if (item_bytes_ == 2) {
    const std::vector<uint16_t> narrow(tokens.begin(), tokens.end());
    out_.append(std::as_bytes(std::span(narrow)));
  } else {
    out_.append(std::as_bytes(std::span(tokens)));
  }
  int32_t targets = 0;
  marks_.resize(static_cast<size_t>(tokens_ + std::ssize(tokens) + 7) / 8);
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool marked = supervised.empty() || supervised[i];
    all_supervised_ &= marked;
    targets += marked && i > 0;
    if (marked) marks_[static_cast<size_t>(tokens_) / 8] |= static_cast<uint8_t>(1 << tokens_ % 8);
    ++tokens_;
  }
  ends_.push_back(tokens_);
  targets_.push_back(targets);
}

void DocumentWriter::finish() {
  if (all_supervised_) marks_.clear();
  const size_t token_bytes = static_cast<size_t>(tokens_) * item_bytes_;
  out_.append(std::vector<std::byte>(padded(token_bytes) - token_bytes));
  size_t bytes = padded(token_bytes);
  bytes += append_section(out_, std::span<const uint8_t>(marks_));
  bytes += append_section(out_, std::span<const int64_t>(ends_));
  bytes += append_section(out_, std::span<const int32_t>(targets_));
  const DocumentFile::Footer footer{.magic = magic,
                                    .item_bytes = item_bytes_,
                                    .tokens = static_cast<uint64_t>(tokens_),
                                    .documents = ends_.size(),
                                    .mark_bytes = marks_.size(),
                                    .file_bytes = bytes + sizeof(DocumentFile::Footer)};
  out_.append(std::as_bytes(std::span(&footer, 1)));
}

DocumentFile::Footer DocumentFile::read_footer(const fs::path& path) {
  const MappedFile map(path);
  const auto bytes = map.bytes();
  Footer footer{};
  if (bytes.size() >= sizeof(footer)) std::memcpy(&footer, bytes.last(sizeof(footer)).data(), sizeof(footer));
  const auto [file_magic, item_bytes, tokens, documents, mark_bytes, file_bytes] = footer;
  // Each count fits the file, so that the sum of the sections does not overflow.
  const bool bounded = std::max({tokens, documents, mark_bytes}) <= bytes.size();
  const bool sound = file_magic == magic && file_bytes == bytes.size() && (item_bytes == 2 || item_bytes == 4) &&
                     bounded && (mark_bytes == 0 || mark_bytes == (tokens + 7) / 8) &&
                     padded(tokens * item_bytes) + padded(mark_bytes) + padded(documents * sizeof(int64_t)) +
                             padded(documents * sizeof(int32_t)) + sizeof(footer) ==
                         file_bytes;
  if (!sound) throw environment_error("{} is damaged: delete it, and it will be made again", path.string());
  return footer;
}

DocumentFile::DocumentFile(const fs::path& path) : DocumentFile(path, read_footer(path)) {}

DocumentFile::DocumentFile(const fs::path& path, const Footer& footer)
    : TokenFile(path, Begin{footer.item_bytes, static_cast<int64_t>(footer.tokens)}) {
  Sections sections(map().bytes());
  sections.take<std::byte>(footer.tokens * footer.item_bytes);
  marks_ = sections.take<uint8_t>(footer.mark_bytes);
  ends_ = sections.take<int64_t>(footer.documents);
  targets_ = sections.take<int32_t>(footer.documents);
  const auto last = ends_.empty() ? int64_t{0} : ends_.back();
  if (!std::ranges::is_sorted(ends_) || (!ends_.empty() && ends_.front() < 0) || last != size())
    throw environment_error("{} is damaged: delete it, and it will be made again", path.string());
}

void DocumentFile::ignore_unsupervised(int64_t first, std::span<int64_t> targets) const {
  if (marks_.empty()) return;
  for (size_t i = 0; i < targets.size(); ++i) {
    const auto token = static_cast<size_t>(first) + i;
    if ((marks_[token / 8] >> token % 8 & 1) == 0) targets[i] = ignored_target;
  }
}

}  // namespace runner
