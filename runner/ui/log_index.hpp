// Where the lines of a log begin, so that a page of a large log is read without what is before it.
#pragma once
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runner/base/descriptor.hpp"

namespace runner::ui {

/// A byte of a log, and how many lines end before it.
struct LogPlace {
  int64_t byte = 0, lines = 0;
};

/// The index of one log file. A log only grows, except when its middle is removed (ChildLog::bound) or when it is replaced; then all is
/// counted anew.
class LogIndex {
 public:
  /// Counts the lines that were appended to the open file since the last call.
  void update(const Descriptor& file);
  /// Where the last whole line ends.
  LogPlace end() const { return end_; }
  /// The bytes of the file, with an unfinished line.
  int64_t size() const { return size_; }
  int64_t lines() const { return end_.lines + (size_ > end_.byte ? 1 : 0); }
  /// Another number after the file was rewritten: bytes of earlier answers mean nothing then.
  int64_t generation() const { return generation_; }
  /// The begin of the line after the first `lines` ones. Reads at most 128 KiB, unless a line is longer.
  LogPlace after_lines(const Descriptor& file, int64_t lines) const;
  /// The byte, which is the begin of a line, with its number of lines. Reads at most 128 KiB.
  LogPlace at_byte(const Descriptor& file, int64_t byte) const;

 private:
  bool rewritten(const Descriptor& file, uint64_t inode, int64_t size) const;

  std::vector<LogPlace> marks_ = {{}};  ///< one for each 64 to 128 KiB; a mark may be within a line
  LogPlace end_;
  std::string before_end_;  ///< the last bytes that were counted: they tell whether the file was rewritten
  int64_t size_ = 0, generation_ = 0;
  uint64_t inode_ = 0;
};

/// The indexes of the logs that were read last.
class LogIndexes {
 public:
  struct Locked {
    std::shared_ptr<LogIndex> index;
    std::unique_lock<std::mutex> lock;  ///< one request at a time counts and reads
  };
  Locked of(const std::filesystem::path& file);

 private:
  struct Entry {
    std::filesystem::path file;
    std::shared_ptr<LogIndex> index;
    std::shared_ptr<std::mutex> mutex;
  };
  std::mutex mutex_;
  std::deque<Entry> entries_;  ///< the last used one first
};

/// Reads lines one after another.
class LogReader {
 public:
  LogReader(const Descriptor& file, LogPlace begin) : file_(file), next_(begin) {}
  /// False at the end of the file. The line is without its end, and without what exceeds 64 KiB.
  bool read(std::string& line);
  /// Behind the last line that was read; if that is unfinished, its begin.
  LogPlace next() const { return next_; }
  /// Whether the last line that was read has no end yet.
  bool unfinished() const { return unfinished_; }

 private:
  const Descriptor& file_;
  LogPlace next_;
  std::string buffer_;
  size_t at_ = 0;
  int64_t read_ = 0;  ///< bytes that were taken from the file
  bool unfinished_ = false;
};

}  // namespace runner::ui
