#include "runner/launch/rank_logs.hpp"

#include <fstream>

#include "runner/base/log_heading.hpp"
#include "runner/base/text.hpp"

namespace runner {

namespace {

constexpr size_t partial_bytes_max = 64 << 10;

}  // namespace

nlohmann::json to_json(const RankLogLine& line) {
  return {{"schema", 1},
          {"kind", "log"},
          {"rank", line.rank < 0 ? nlohmann::json() : nlohmann::json(line.rank)},
          {"attempt", line.attempt},
          {"text", line.text}};
}

std::map<int, fs::path> rank_logs(const fs::path& run_dir) {
  std::map<int, fs::path> logs;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run_dir / "logs", error)) {
    const std::string name = entry.path().filename().string(), begin = "rank-", end = ".log";
    if (!name.starts_with(begin) || !name.ends_with(end)) continue;
    const auto digits = std::string_view(name).substr(begin.size(), name.size() - begin.size() - end.size());
    if (const auto rank = parse_number<int>(digits)) logs[*rank] = entry.path();
  }
  return logs;
}

void RankLogReader::finish(const std::function<void(const RankLogLine&)>& line) {
  if (partial_.ends_with('\r')) partial_.pop_back();
  if (const auto attempt = attempt_of_heading(partial_))
    attempt_ = *attempt;
  else
    line({rank_, attempt_, escape_invalid_utf8(partial_)});
  partial_.clear();
}

void RankLogReader::take(std::string_view bytes, const std::function<void(const RankLogLine&)>& line) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const auto part = bytes.substr(0, end);
    partial_ += part.substr(0, partial_bytes_max - std::min(partial_bytes_max, partial_.size()));
    if (end == std::string_view::npos) return;
    finish(line);
    bytes.remove_prefix(end + 1);
  }
}

void RankLogReader::read(const std::function<void(const RankLogLine&)>& line, bool to_end) {
  std::ifstream log(file_, std::ios::binary);
  if (!log) return;
  std::error_code error;
  if (const auto size = fs::file_size(file_, error); !error && size < offset_) {
    // The middle of a long log was removed: what was at its end has been read, but not all headings may have been.
    *this = RankLogReader(rank_, file_);
    skip_to_end();
  }
  log.seekg(static_cast<std::streamoff>(offset_));
  std::string buffer(size_t{1} << 18, '\0');
  while (log) {
    log.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    const auto n = static_cast<size_t>(log.gcount());
    offset_ += n;
    take(std::string_view(buffer).substr(0, n), line);
  }
  if (to_end && !partial_.empty()) finish(line);
}

}  // namespace runner
