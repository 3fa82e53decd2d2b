#include "runner/exchange/exported_run.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "runner/base/error.hpp"
#include "runner/base/files.hpp"
#include "runner/base/metric_names.hpp"
#include "runner/base/text.hpp"
#include "runner/base/utf8.hpp"
#include "runner/ledger/run_id.hpp"

namespace runner {

namespace {

/// A name for a folder: "/" and control characters as _, and not longer than filesystems allow.
std::string folder_name(const std::string& name, const std::string& end) {
  constexpr size_t longest = 200;
  std::string folder = escape_invalid_utf8(name);
  size_t size = std::min(folder.size(), longest - end.size());
  while (size > 0 && size < folder.size() && unicode::continues(folder[size])) --size;  // not inside a character
  folder.resize(size);
  std::ranges::replace_if(
      folder, [](unsigned char c) { return c == '/' || c < 0x20 || c == 0x7f; }, '_');
  if (folder.starts_with('.')) folder.front() = '_';
  return folder + end;
}

}  // namespace

double ExportedRun::time_of(int64_t step) const {
  const double started = shown.at("started").get<double>();
  const auto seconds = metrics.find(metric::seconds);
  if (seconds == metrics.end() || seconds->second.empty()) return started;
  const auto& points = seconds->second;
  auto next = std::ranges::upper_bound(points, step, {}, [](const auto& point) { return point.first; });
  if (next == points.begin()) return started;
  const double passed = std::prev(next)->second;
  return std::isfinite(passed) ? started + passed : started;
}

ExportedRun exported_run(const Ledger& ledger, const std::string& run) {
  ExportedRun exported{.id = run, .folder = "", .shown = ledger.show(run), .metrics = {}};
  exported.folder = folder_name(exported.shown.at("name"), "-" + id_end(run));
  for (const auto& name : ledger.metric_names(run)) exported.metrics[name] = ledger.points(run, name);
  return exported;
}

void publish_folder(const std::string& output, const std::function<void(const std::string& temporary)>& fill) {
  const std::string temporary = fmt::format("{}.{}.tmp", output, ::getpid());
  std::error_code error;
  if (!fs::create_directory(temporary, error))
    throw environment_error("cannot make the folder {}: {}", temporary, error ? error.message() : "it exists");
  try {
    fill(temporary);
    publish_directory(temporary, output);
  } catch (...) {
    fs::remove_all(temporary, error);
    throw;
  }
}

}  // namespace runner
