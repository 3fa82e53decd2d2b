#include "runner/report/profile_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "runner/base/text.hpp"
#include "runner/report/table.hpp"

namespace runner {

namespace {

using nlohmann::json;

/// The order of the phases in a step, and their names for readers.
constexpr std::pair<const char*, const char*> phases[] = {
    {"data", "data wait"},    {"forward", "forward"},
    {"backward", "backward"}, {"collective", "collectives"},
    {"update", "update"},     {"program", "program (forward, backward, sums, update)"},
    {"hooks", "hooks"},       {"other", "other"}};

class Table {
 public:
  explicit Table(double step_seconds) : step_seconds_(step_seconds) {}
  std::string milliseconds(double seconds) const { return fmt::format("{:.3f}", seconds * 1e3); }
  std::string share(double seconds) const {
    return step_seconds_ > 0 ? fmt::format("{:.1f} %", 100 * seconds / step_seconds_) : "";
  }

 private:
  double step_seconds_;
};

std::string range_text(const json& profile) {
  const int64_t first = profile.at("first_step"), last = profile.at("last_step");
  return first == last ? fmt::format("step {}", first) : fmt::format("steps {} to {}", first, last);
}

}  // namespace

std::string profile_text(const json& profile) {
  using Rows = std::vector<std::vector<std::string>>;
  const double step_seconds = profile.at("step_seconds");
  const Table table(step_seconds);
  Rows rows{{"  step", table.milliseconds(step_seconds), table.share(step_seconds)}};
  for (const auto& [key, title] : phases)
    if (const auto found = profile.at("phases").find(key); found != profile.at("phases").end())
      rows.push_back({fmt::format("    {}", title), table.milliseconds(*found), table.share(*found)});
  std::string text = fmt::format("profile of rank 0, {}\n", range_text(profile));
  text += format_table({{""}, {"ms a step", true}, {"share", true}}, rows);

  Rows blocks;
  for (const auto& block : profile.at("blocks")) {
    const double forward = block.at("forward_seconds"), backward = block.at("backward_seconds");
    blocks.push_back({"  " + block.at("name").get<std::string>(), table.milliseconds(forward),
                      table.milliseconds(backward), table.share(forward + backward)});
  }
  if (!blocks.empty())
    text += "\n" + format_table({{"  block"}, {"forward ms", true}, {"backward ms", true}, {"share", true}}, blocks);

  Rows collectives;
  for (const auto& call : profile.at("collectives")) {
    const double bytes = call.at("bytes"), seconds = call.at("seconds");
    collectives.push_back(
        {fmt::format("  {}", trim(call.at("name").get<std::string>() + " " + call.at("of").get<std::string>())),
         bytes > 0 ? format_bytes(bytes) : "", table.milliseconds(seconds), table.share(seconds)});
  }
  if (!collectives.empty())
    text += "\n" +
            format_table({{"  collective"}, {"bytes a step", true}, {"ms a step", true}, {"share", true}}, collectives);

  Rows outside;
  for (const auto& [name, item] : profile.at("outside").items())
    outside.push_back({"  " + name, item.at("times").dump(), format_duration(item.at("seconds").get<double>())});
  if (!outside.empty())
    text += "\n" + format_table({{"  outside of steps"}, {"times", true}, {"total", true}}, outside);
  return text;
}

namespace fs = std::filesystem;

fs::path join_traces(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const auto name = entry.path().filename().string();
    if (name.starts_with("trace-rank-") && name.ends_with(".json")) files.push_back(entry.path());
  }
  if (files.empty()) return {};
  std::ranges::sort(files);
  const fs::path joined = folder / "trace.json", temporary = folder / "trace.json.tmp";
  std::ofstream out(temporary);
  std::string line, before;
  for (const auto& file : files) {
    std::ifstream in(file);
    while (std::getline(in, line)) {
      const bool edge = line.find("\"traceEvents\"") != std::string::npos || line == "]}";
      if (edge && before.empty()) out << (before = line) << "\n";
      if (edge) continue;
      if (line.ends_with(',')) line.pop_back();
      if (before.ends_with('}')) out << ",\n";
      out << line;
      before = line;
    }
  }
  out << "\n]}\n";
  out.close();
  fs::rename(temporary, joined);
  return joined;
}

}  // namespace runner
