// Reads variables, Slurm's bracket notation in them, and derives the rendezvous port of a job.
#include "runner/launch/variables.hpp"

#include <unistd.h>

#include "runner/base/error.hpp"
#include "runner/base/hash.hpp"
#include "runner/base/text.hpp"

namespace runner {

namespace {

constexpr int hosts_max = 1 << 20;  ///< a larger range is an error; the limit bounds the memory used

bool read_count(std::string_view text, int& number) {
  number = parse_number<int>(text).value_or(-1);
  return number >= 0;
}

/// "host[5-9,12],other" -> "host[5-9,12]" and "other": commas inside brackets do not separate.
std::vector<std::string_view> split_outside_brackets(std::string_view text) {
  std::vector<std::string_view> parts;
  size_t begin = 0;
  bool inside = false;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || (text[i] == ',' && !inside)) {
      parts.push_back(text.substr(begin, i - begin));
      begin = i + 1;
    } else if (text[i] == '[' || text[i] == ']') {
      inside = text[i] == '[';
    }
  }
  return parts;
}

/// Expands one bracket, e.g. "5-9,12" or "001-010". The numbers keep the width of the range's first number.
bool expand_ranges(std::string_view ranges, std::vector<std::string>& numbers) {
  for (const std::string& range : split(ranges, ',')) {
    size_t dash = range.find('-');
    std::string first = range.substr(0, dash), last = dash == std::string::npos ? first : range.substr(dash + 1);
    int from = 0, to = 0;
    if (!read_count(first, from) || !read_count(last, to) || to < from || to - from >= hosts_max) return false;
    for (int i = from; i <= to; ++i) numbers.push_back(fmt::format("{:0{}}", i, first.size()));
  }
  return true;
}

/// Expands one name with any number of brackets. The first bracket varies slowest, as in Slurm's output.
bool expand_name(std::string_view name, const std::string& prefix, std::vector<std::string>& hosts) {
  size_t open = name.find('[');
  if (open == std::string_view::npos) {
    hosts.push_back(prefix + std::string(name));
    return !hosts.back().empty() && name.find(']') == std::string_view::npos && hosts.size() <= hosts_max;
  }
  size_t close = name.find(']', open);
  std::vector<std::string> numbers;
  if (close == std::string_view::npos || !expand_ranges(name.substr(open + 1, close - open - 1), numbers)) return false;
  for (const std::string& number : numbers)
    if (!expand_name(name.substr(close + 1), prefix + std::string(name.substr(0, open)) + number, hosts)) return false;
  return true;
}

}  // namespace

std::optional<std::string> Variables::text(std::initializer_list<const char*> names) const {
  for (const char* name : names)
    if (auto value = environment_(name); value && !value->empty()) return value;
  return std::nullopt;
}

std::optional<int> Variables::optional_number(std::initializer_list<const char*> names) const {
  for (const char* name : names) {
    auto value = environment_(name);
    if (!value || value->empty()) continue;
    const auto number = parse_number<int>(*value);
    if (!number || *number < 0)
      throw environment_error("{}=\"{}\" is not a whole number >= 0 ({} sets it)", name, *value, title_);
    return number;
  }
  return std::nullopt;
}

int Variables::number(std::initializer_list<const char*> names) const {
  if (auto value = optional_number(names)) return *value;
  throw environment_error("{} is not set; {} sets it for every rank: is this process started by it?",
                          join_or({names.begin(), names.end()}), title_);
}

void Variables::set_meeting_point(Placement& placement, const std::optional<std::string>& default_addr,
                                  const std::string& job_key) const {
  if (auto addr = text({"MASTER_ADDR"}))
    placement.master_addr = *addr;
  else if (placement.num_nodes == 1)
    placement.master_addr = "127.0.0.1";
  else if (default_addr)
    placement.master_addr = *default_addr;
  else
    throw usage_error(
        "{} started {} ranks on {} nodes but gives no rendezvous address: set MASTER_ADDR to the host of rank 0 for "
        "every rank",
        title_, placement.world_size, placement.num_nodes);
  placement.master_port = optional_number({"MASTER_PORT"}).value_or(derived_port(job_key));
  if (placement.master_port < 1 || placement.master_port > 65535)
    throw environment_error("MASTER_PORT={} is not a port: 1 to 65535", placement.master_port);
}

int derived_port(const std::string& job_key) {
  return 20000 + static_cast<int>(fnv1a(job_key + "/" + std::to_string(::getuid())) % 12768);
}

std::vector<std::string> expand_hostlist(std::string_view text) {
  std::vector<std::string> hosts;
  for (std::string_view name : split_outside_brackets(trim(text)))
    if (!expand_name(name, "", hosts))
      throw environment_error("cannot read the host list \"{}\": expected names such as host[5-9,12],other", text);
  return hosts;
}

std::vector<int> expand_counts(std::string_view text) {
  std::vector<int> counts;
  for (const std::string& part : split(text, ',')) {
    size_t open = part.find("(x");
    int count = 0, times = 1;
    bool ok = read_count(std::string_view(part).substr(0, open), count);
    if (ok && open != std::string::npos)
      ok = part.back() == ')' && read_count(std::string_view(part).substr(open + 2, part.size() - open - 3), times);
    if (!ok || times > hosts_max)
      throw environment_error("cannot read the counts \"{}\": expected numbers such as 2(x3),1", text);
    counts.insert(counts.end(), static_cast<size_t>(times), count);
  }
  return counts;
}

}  // namespace runner
