// Text: splitting, joining, nearest names, and numbers as people write them.
#pragma once
#include <charconv>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace runner {

std::vector<std::string> split(std::string_view text, char separator);
std::string join(const std::vector<std::string>& parts, std::string_view separator);
std::string_view trim(std::string_view text);
std::string first_line(std::string_view text);
std::string lower(std::string_view text);
/// "a", "a or b", "a, b or c".
std::string join_or(const std::vector<std::string>& parts);

/// Damerau-Levenshtein distance (optimal string alignment).
int edit_distance(std::string_view a, std::string_view b);
/// The candidate nearest to `name` if a typing error is likely (distance <= max(1, length / 3)), otherwise the only
/// candidate that begins with `name`.
std::optional<std::string> nearest(std::string_view name, const std::vector<std::string>& candidates);

/// "1.5 GiB", "512 B". Binary units.
std::string format_bytes(double bytes);
std::string format_bytes(std::integral auto bytes) { return format_bytes(static_cast<double>(bytes)); }
/// "17.0 M", "1.2 k", "999". Decimal units.
std::string format_count(double count);
/// "7.62 B", "124.4 M". Decimal units with B for 10^9, as is usual for model sizes.
std::string format_parameters(int64_t count);
/// "1 step", "2 steps".
std::string counted(int64_t count, std::string_view noun);
/// "2nd", "3rd", "11th".
std::string ordinal(int64_t number);
/// "1d 2h", "3m 20s", "0.42 s", "1.5 ms"; "-" for NaN, which is not known.
std::string format_duration(double seconds);

/// The one duration type of recipes: "30m", "1d12h", "90s", "1h30m". Units d, h, m, s, in that order, each once. Also
/// Lightning's "DD:HH:MM:SS".
std::optional<std::chrono::seconds> parse_duration(std::string_view text);
/// The inverse of parse_duration: 90 s -> "1m30s".
std::string write_duration(std::chrono::seconds duration);
/// "22GiB", "512 MB", "1e9" -> bytes.
std::optional<int64_t> parse_bytes(std::string_view text);

/// "rank 2", "ranks 0, 1, 4-7": three or more consecutive ranks become a range. `ranks` must be ascending.
std::string describe_ranks(const std::vector<int>& ranks);
/// "rank 2 of 4 (node 1)", "ranks 0, 4-7 of 8 (nodes 0, 1)". Nodes are omitted if there is only one. `ranks` must be
/// ascending.
std::string name_ranks(const std::vector<int>& ranks, int world_size, int ranks_per_node);

/// "nan", "inf" or "-inf", for a number that is not finite.
std::string nonfinite_word(double number);

/// The number that the whole text is, without a "+". Nothing if it is something else, or does not fit.
template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number{};
  const auto* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end ? std::optional(number) : std::nullopt;
}

/// The offset of the first byte that is not valid UTF-8, if there is one.
std::optional<size_t> first_invalid_utf8(std::string_view bytes);
/// UTF-8 text: each byte that is not part of valid UTF-8 is written as "\xE9".
std::string escape_invalid_utf8(std::string_view bytes);
/// "e9", two hexadecimal digits for each byte, and its inverse; nothing if the text is something else.
std::string to_hex(std::string_view bytes);
std::optional<std::string> from_hex(std::string_view text);

}  // namespace runner
