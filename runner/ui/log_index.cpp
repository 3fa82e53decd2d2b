#include "runner/ui/log_index.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "runner/base/error.hpp"

namespace runner::ui {

namespace {

constexpr int64_t piece_bytes = 64 << 10;
constexpr int64_t fingerprint_bytes = 256;
constexpr size_t indexes_kept = 32;

/// At most `size` bytes from `begin` on; fewer only at the end of the file.
std::string read_piece(const Descriptor& file, int64_t begin, int64_t size) {
  std::string piece(static_cast<size_t>(size), '\0');
  size_t got = 0;
  while (got < piece.size()) {
    const ssize_t n = ::pread(file.get(), piece.data() + got, piece.size() - got, begin + static_cast<int64_t>(got));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw environment_error("cannot read the log: {}", std::strerror(errno));
    if (n == 0) break;
    got += static_cast<size_t>(n);
  }
  piece.resize(got);
  return piece;
}

}  // namespace

bool LogIndex::rewritten(const Descriptor& file, uint64_t inode, int64_t size) const {
  if (inode != inode_ || size < end_.byte) return inode_ != 0;
  const auto length = static_cast<int64_t>(before_end_.size());
  return read_piece(file, end_.byte - length, length) != before_end_;
}

void LogIndex::update(const Descriptor& file) {
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) throw environment_error("cannot read the log: {}", std::strerror(errno));
  if (rewritten(file, status.st_ino, status.st_size)) {
    const int64_t generation = generation_ + 1;
    *this = {};
    generation_ = generation;
  }
  inode_ = status.st_ino;
  int64_t byte = end_.byte, lines = end_.lines;
  while (true) {
    const std::string piece = read_piece(file, byte, piece_bytes);
    for (size_t at = piece.find('\n'); at != std::string::npos; at = piece.find('\n', at + 1))
      end_ = {.byte = byte + static_cast<int64_t>(at) + 1, .lines = ++lines};
    byte += static_cast<int64_t>(piece.size());
    if (byte - marks_.back().byte >= piece_bytes) marks_.push_back({.byte = byte, .lines = lines});
    if (std::ssize(piece) < piece_bytes) break;
  }
  // An unfinished line is counted again when it is longer; marks within it stay right.
  size_ = byte;
  const int64_t length = std::min(fingerprint_bytes, end_.byte);
  before_end_ = read_piece(file, end_.byte - length, length);
}

LogPlace LogIndex::after_lines(const Descriptor& file, int64_t lines) const {
  if (lines >= end_.lines) return end_;
  // The line's begin is behind the last mark with fewer lines before it.
  const auto above = std::ranges::lower_bound(marks_, lines, {}, &LogPlace::lines);
  LogPlace place = above == marks_.begin() ? LogPlace() : *std::prev(above);
  while (place.lines < lines) {
    const std::string piece = read_piece(file, place.byte, piece_bytes);
    if (piece.empty()) break;
    size_t at = 0;
    for (; place.lines < lines; ++place.lines) {
      const size_t end = piece.find('\n', at);
      if (end == std::string::npos) break;
      at = end + 1;
    }
    place.byte += place.lines < lines ? std::ssize(piece) : static_cast<int64_t>(at);
  }
  return place;
}

LogPlace LogIndex::at_byte(const Descriptor& file, int64_t byte) const {
  if (byte >= end_.byte) return end_;
  const auto above = std::ranges::upper_bound(marks_, byte, {}, &LogPlace::byte);
  const LogPlace mark = *std::prev(above);
  const std::string piece = read_piece(file, mark.byte, byte - mark.byte);
  return {.byte = byte, .lines = mark.lines + std::ranges::count(piece, '\n')};
}

LogIndexes::Locked LogIndexes::of(const std::filesystem::path& file) {
  Entry entry;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(entries_, file, &Entry::file);
    if (found != entries_.end()) {
      entry = *found;
      entries_.erase(found);
    } else {
      entry = {.file = file, .index = std::make_shared<LogIndex>(), .mutex = std::make_shared<std::mutex>()};
    }
    entries_.push_front(entry);
    if (entries_.size() > indexes_kept) entries_.pop_back();
  }
  // The index keeps its mutex alive.
  std::shared_ptr<LogIndex> index(entry.index.get(), [kept = entry](LogIndex*) {});
  return {.index = std::move(index), .lock = std::unique_lock(*entry.mutex)};
}

bool LogReader::read(std::string& line) {
  line.clear();
  unfinished_ = false;
  const auto keep = [&](std::string_view part) {
    constexpr size_t most = piece_bytes;
    if (line.size() < most) line.append(part.substr(0, most - line.size()));
  };
  if (read_ == 0) read_ = next_.byte;
  while (true) {
    const size_t end = buffer_.find('\n', at_);
    if (end != std::string::npos) {
      keep(std::string_view(buffer_).substr(at_, end - at_));
      at_ = end + 1;
      next_ = {.byte = read_ - static_cast<int64_t>(buffer_.size() - at_), .lines = next_.lines + 1};
      if (!line.empty() && line.back() == '\r') line.pop_back();
      return true;
    }
    keep(std::string_view(buffer_).substr(at_));
    at_ = 0;
    buffer_ = read_piece(file_, read_, piece_bytes);
    read_ += std::ssize(buffer_);
    if (buffer_.empty()) break;
  }
  unfinished_ = !line.empty();
  return unfinished_;
}

}  // namespace runner::ui
