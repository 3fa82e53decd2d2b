#include "runner/report/joined_traces.hpp"

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

namespace runner {

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
