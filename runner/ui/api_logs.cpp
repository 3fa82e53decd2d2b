// The logs of a run: pages of lines, and search.
#include <algorithm>
#include <fstream>

#include "runner/base/files.hpp"
#include "runner/base/text.hpp"
#include "runner/ui/api.hpp"

namespace runner::ui {

using nlohmann::json;

namespace {

constexpr int64_t lines_max = 2000;
constexpr size_t line_bytes_max = 4000;

/// A file directly in the run's folder of logs. Throws ApiError(404) for anything else, also for links to other places.
fs::path log_file(const fs::path& folder, const std::string& name) {
  const bool plain =
      !name.empty() && name.find('/') == std::string::npos && name.find('\0') == std::string::npos && name[0] != '.';
  const fs::path file = folder / "logs" / name;
  std::error_code error;
  if (!plain || fs::is_symlink(file, error) || !fs::is_regular_file(file, error))
    throw ApiError(404, fmt::format("the run has no log \"{}\"", name));
  const auto real = fs::canonical(file, error), base = fs::canonical(folder, error);
  if (error || !real.string().starts_with(base.string() + "/"))
    throw ApiError(404, fmt::format("the run has no log \"{}\"", name));
  return file;
}

bool contains(const std::string& line, const std::string& lower_words) {
  return lower(line).find(lower_words) != std::string::npos;
}

}  // namespace

Response get_logs(const Api& api, const Request& request, const Captures& captures) {
  const std::string id = run_id(api, captures[0]);
  const fs::path folder = Ledger(api.readers.home().string(), Ledger::Mode::read).run_dir(id);
  const std::string name = request.parameter("file", "rank-0.log"), search = lower(request.parameter("search"));
  const int64_t count = integer_parameter(request, "lines", 500, 1, lines_max);
  // A negative `from` counts from the end: -500 is the last 500 lines.
  const int64_t from = integer_parameter(request, "from", 0, -lines_max, 1'000'000'000);
  std::ifstream in(log_file(folder, name), std::ios::binary);
  std::vector<json> found;
  std::string line;
  int64_t number = 0, matching = 0;
  while (std::getline(in, line)) {
    ++number;
    if (!search.empty() && !contains(line, search)) continue;
    ++matching;
    const bool wanted = from < 0 || (search.empty() ? number > from : matching > from);
    if (!wanted || (from >= 0 && std::ssize(found) >= count)) continue;
    if (line.size() > line_bytes_max) line = line.substr(0, line_bytes_max) + " ...";
    if (!line.empty() && line.back() == '\r') line.pop_back();
    found.push_back({{"line", number}, {"text", escape_invalid_utf8(line)}});
    if (from < 0 && std::ssize(found) > 2 * lines_max) found.erase(found.begin(), found.end() + from);
  }
  if (from < 0 && std::ssize(found) > -from) found.erase(found.begin(), found.end() + from);
  return json_response({{"run", id}, {"file", name}, {"total", number}, {"matching", matching}, {"lines", found}});
}

}  // namespace runner::ui
