#include "runner/base/process_stat.hpp"

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "runner/base/text.hpp"

namespace runner {

std::string read_proc(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();  // a failure of reading ends it, and is no exception
  return content.str();
}

std::optional<ProcessStat> read_process_stat(int64_t pid) {
  const auto text = read_proc("/proc/" + std::to_string(pid) + "/stat");
  // The second field is the command in parentheses and may contain any character. The others follow the last ')'.
  const size_t command_end = text.rfind(')');
  if (command_end == std::string::npos) return std::nullopt;
  const auto fields = split(std::string_view(text).substr(command_end + 1), ' ');
  constexpr size_t state = 1, parent = 2, start_time = 20;  // fields 3, 4 and 22 of proc(5)
  if (fields.size() <= start_time) return std::nullopt;
  return ProcessStat{.state = fields[state].front(),
                     .parent = std::atoi(fields[parent].c_str()),
                     .start_time = std::strtoll(fields[start_time].c_str(), nullptr, 10)};
}

}  // namespace runner
