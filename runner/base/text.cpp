#include "runner/base/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace runner {

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (true) {
    size_t end = text.find(separator, begin);
    parts.emplace_back(text.substr(begin, end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  return fmt::format("{}", fmt::join(parts, separator));
}

std::string_view trim(std::string_view text) {
  const char* blank = " \t\r\n";
  size_t begin = text.find_first_not_of(blank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blank) - begin + 1);
}

std::string first_line(std::string_view text) { return std::string(text.substr(0, text.find('\n'))); }

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

std::string join_or(const std::vector<std::string>& parts) {
  if (parts.empty()) return "";
  if (parts.size() == 1) return parts[0];
  return join({parts.begin(), parts.end() - 1}, ", ") + " or " + parts.back();
}

namespace {

/// "node 2", "nodes 0, 1, 4-7".
std::string counted_ranges(const char* noun, const std::vector<int>& numbers) {
  std::vector<std::string> parts;
  for (size_t i = 0, last = 0; i < numbers.size(); i = last + 1) {
    last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    bool range = last > i + 1;
    if (!range) last = i;
    parts.push_back(range ? fmt::format("{}-{}", numbers[i], numbers[last]) : std::to_string(numbers[i]));
  }
  return fmt::format("{}{} {}", noun, numbers.size() == 1 ? "" : "s", join(parts, ", "));
}

/// The candidate that begins with `name`, if there is exactly one: `sharding` gives sharding_strategy.
std::optional<std::string> only_beginning_with(const std::string& name, const std::vector<std::string>& candidates) {
  std::optional<std::string> found;
  if (name.size() < 3) return found;
  for (const auto& candidate : candidates) {
    if (!lower(candidate).starts_with(name)) continue;
    if (found) return std::nullopt;
    found = candidate;
  }
  return found;
}

std::string scaled(double value, double base, const std::array<const char*, 6>& units, const char* none) {
  size_t unit = 0;
  while (std::abs(value) >= base && unit + 1 < units.size()) {
    value /= base;
    ++unit;
  }
  if (unit == 0) return fmt::format("{:.0f}{}", value, none);
  return fmt::format("{:.{}f} {}", value, std::abs(value) < 10 ? 2 : 1, units[unit]);
}

struct Unit {
  char letter;
  int64_t seconds;
};
constexpr std::array<Unit, 4> duration_units{{{'d', 86400}, {'h', 3600}, {'m', 60}, {'s', 1}}};

}  // namespace

std::string describe_ranks(const std::vector<int>& ranks) { return counted_ranges("rank", ranks); }

std::string name_ranks(const std::vector<int>& ranks, int world_size, int ranks_per_node) {
  std::string text = fmt::format("{} of {}", describe_ranks(ranks), world_size);
  if (ranks_per_node >= world_size) return text;
  std::vector<int> nodes;
  for (int rank : ranks)
    if (nodes.empty() || nodes.back() != rank / ranks_per_node) nodes.push_back(rank / ranks_per_node);
  return fmt::format("{} ({})", text, counted_ranges("node", nodes));
}

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<int>> d(a.size() + 1, std::vector<int>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = static_cast<int>(i);
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i)
    for (size_t j = 1; j <= b.size(); ++j) {
      int cost = a[i - 1] != b[j - 1];
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + cost});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  return d[a.size()][b.size()];
}

std::optional<std::string> nearest(std::string_view name, const std::vector<std::string>& candidates) {
  std::optional<std::string> best;
  int best_distance = std::max<int>(1, static_cast<int>(name.size()) / 3);
  constexpr size_t longest = 64;  // the distance of longer texts takes long, and tells nothing
  if (name.size() > longest) return std::nullopt;
  for (const auto& candidate : candidates) {
    if (std::abs(std::ssize(name) - std::ssize(candidate)) > best_distance) continue;
    int distance = edit_distance(lower(name), lower(candidate));
    if (distance < best_distance || (distance == best_distance && !best)) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best ? best : only_beginning_with(lower(name), candidates);
}

std::string format_bytes(double bytes) { return scaled(bytes, 1024, {"B", "KiB", "MiB", "GiB", "TiB", "PiB"}, " B"); }
std::string format_count(double count) { return scaled(count, 1000, {"", "k", "M", "G", "T", "P"}, ""); }

std::string format_parameters(int64_t count) {
  std::string text = format_count(static_cast<double>(count));
  if (text.ends_with('G')) text.back() = 'B';
  return text;
}

std::string counted(int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string ordinal(int64_t number) {
  int64_t last = number % 10;
  bool teen = number % 100 / 10 == 1;
  const char* ending = teen || last == 0 || last > 3 ? "th" : last == 1 ? "st" : last == 2 ? "nd" : "rd";
  return std::to_string(number) + ending;
}

std::string format_duration(double seconds) {
  if (std::isnan(seconds)) return "-";
  if (seconds > 0 && seconds < 0.1) return fmt::format("{:.{}f} ms", 1000 * seconds, seconds < 0.01 ? 1 : 0);
  if (seconds < 60) return fmt::format("{:.{}f} s", seconds, seconds < 10 ? 2 : 1);
  auto whole = static_cast<int64_t>(seconds + 0.5);
  if (whole < 3600) return fmt::format("{}m {:02}s", whole / 60, whole % 60);
  if (whole < 86400) return fmt::format("{}h {:02}m", whole / 3600, whole / 60 % 60);
  return fmt::format("{}d {:02}h", whole / 86400, whole / 3600 % 24);
}

std::optional<std::chrono::seconds> parse_duration(std::string_view text) {
  if (const auto parts = split(text, ':'); parts.size() == duration_units.size()) {
    std::string with_units;
    for (size_t i = 0; i < parts.size(); ++i) with_units += parts[i] + duration_units[i].letter;
    return parse_duration(with_units);
  }
  int64_t total = 0;
  size_t unit = 0;
  if (text.empty()) return std::nullopt;
  while (!text.empty()) {
    int64_t value = 0;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || value < 0 || end == text.data() + text.size()) return std::nullopt;
    while (unit < duration_units.size() && duration_units[unit].letter != *end) ++unit;
    if (unit == duration_units.size() || value > 1'000'000'000) return std::nullopt;
    total += value * duration_units[unit++].seconds;
    text.remove_prefix(end + 1 - text.data());
  }
  return std::chrono::seconds(total);
}

std::string write_duration(std::chrono::seconds duration) {
  int64_t rest = duration.count();
  std::string out;
  for (const auto& unit : duration_units)
    if (int64_t n = rest / unit.seconds) {
      out += fmt::format("{}{}", n, unit.letter);
      rest %= unit.seconds;
    }
  return out.empty() ? "0s" : out;
}

std::optional<int64_t> parse_bytes(std::string_view text) {
  text = trim(text);
  double value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || !(value >= 0)) return std::nullopt;
  auto unit = lower(trim(text.substr(end - text.data())));
  static constexpr std::array<std::pair<const char*, double>, 13> units{{{"", 1},
                                                                         {"b", 1},
                                                                         {"kb", 1e3},
                                                                         {"mb", 1e6},
                                                                         {"gb", 1e9},
                                                                         {"tb", 1e12},
                                                                         {"kib", 1024.0},
                                                                         {"mib", 1048576.0},
                                                                         {"gib", 1073741824.0},
                                                                         {"tib", 1099511627776.0},
                                                                         {"k", 1024.0},
                                                                         {"m", 1048576.0},
                                                                         {"g", 1073741824.0}}};
  for (const auto& [name, factor] : units)
    if (unit == name && value * factor < 9e18) return static_cast<int64_t>(value * factor);
  return std::nullopt;
}

std::string nonfinite_word(double number) { return std::isnan(number) ? "nan" : number > 0 ? "inf" : "-inf"; }

std::optional<size_t> first_invalid_utf8(std::string_view bytes) {
  size_t i = 0;
  auto byte = [&](size_t k) { return static_cast<unsigned char>(bytes[k]); };
  while (i < bytes.size()) {
    for (uint64_t eight = 0; i + sizeof eight <= bytes.size(); i += sizeof eight) {  // most text is mostly ASCII
      std::memcpy(&eight, bytes.data() + i, sizeof eight);
      if (eight & 0x8080808080808080) break;
    }
    if (i == bytes.size()) break;
    unsigned char lead = byte(i);
    size_t length = lead < 0x80                   ? 1
                    : lead >= 0xc2 && lead < 0xe0 ? 2
                    : lead >= 0xe0 && lead < 0xf0 ? 3
                    : lead >= 0xf0 && lead < 0xf5 ? 4
                                                  : 0;
    if (length == 0 || i + length > bytes.size()) return i;
    for (size_t k = 1; k < length; ++k)
      if ((byte(i + k) & 0xc0) != 0x80) return i;
    if (length == 3 && ((lead == 0xe0 && byte(i + 1) < 0xa0) || (lead == 0xed && byte(i + 1) >= 0xa0))) return i;
    if (length == 4 && ((lead == 0xf0 && byte(i + 1) < 0x90) || (lead == 0xf4 && byte(i + 1) >= 0x90))) return i;
    i += length;
  }
  return std::nullopt;
}

std::string escape_invalid_utf8(std::string_view bytes) {
  std::string text;
  while (auto bad = first_invalid_utf8(bytes)) {
    text += bytes.substr(0, *bad);
    text += fmt::format("\\x{:02X}", static_cast<unsigned char>(bytes[*bad]));
    bytes.remove_prefix(*bad + 1);
  }
  return text.append(bytes);
}

std::string to_hex(std::string_view bytes) {
  std::string text;
  for (char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

std::optional<std::string> from_hex(std::string_view text) {
  std::string bytes;
  for (; text.size() >= 2; text.remove_prefix(2)) {
    unsigned value = 0;
    auto [end, error] = std::from_chars(text.data(), text.data() + 2, value, 16);
    if (error != std::errc() || end != text.data() + 2) return std::nullopt;
    bytes += static_cast<char>(value);
  }
  return text.empty() ? std::optional(bytes) : std::nullopt;
}

}  // namespace runner
