#include "runner/data/file_kind.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <set>
#include <vector>

#include "runner/base/files.hpp"
#include "runner/base/text.hpp"

namespace runner {

namespace {

using namespace std::string_view_literals;

std::string first_bytes(const std::string& file, size_t count) {
  std::ifstream stream(file, std::ios::binary);
  std::string begin(count, '\0');
  stream.read(begin.data(), static_cast<std::streamsize>(count));
  begin.resize(static_cast<size_t>(stream.gcount()));
  return begin;
}

/// Whether these are the first bytes of a text: UTF-8 without control characters except white space.
bool is_text(std::string_view begin) {
  constexpr size_t longest_character = 4;  // the last one may be cut off
  if (auto bad = first_invalid_utf8(begin); bad && *bad + longest_character <= begin.size()) return false;
  return std::none_of(begin.begin(), begin.end(), [](char c) {
    return static_cast<unsigned char>(c) < ' ' && "\t\n\v\f\r"sv.find(c) == std::string_view::npos;
  });
}

struct Kind {
  size_t offset;
  std::string_view bytes;
  const char *name, *remedy;
};

/// Files that neither format can read.
const std::vector<Kind>& packed_kinds() {
  static constexpr const char *unpack = "unpack it first", *extract = "extract its text to a text file first";
  static const std::vector<Kind> kinds = {
      {0, "\x1f\x8b"sv, "a gzip file", unpack},
      {0, "PK\x03\x04"sv, "a zip archive", unpack},
      {0, "\x28\xb5\x2f\xfd"sv, "a zstd file", unpack},
      {0, "\xfd\x37zXZ\0"sv, "an xz file", unpack},
      {0, "BZh"sv, "a bzip2 file", unpack},
      {257, "ustar"sv, "a tar archive", unpack},
      {0, "PAR1"sv, "a Parquet file", "use data.format = \"parquet\""},
      {0, "ARROW1\0\0"sv, "an Arrow file", extract},
      {0, "%PDF-"sv, "a PDF file", extract},
      {0, "\x93NUMPY"sv, "a NumPy file", "write its tokens with array.tofile(), and use data.format = \"bin\""},
      {0, "\xff\xfe"sv, "UTF-16", "convert it, for example with iconv -f UTF-16 -t UTF-8"},
      {0, "\xfe\xff"sv, "UTF-16", "convert it, for example with iconv -f UTF-16 -t UTF-8"},
  };
  return kinds;
}

std::string packed_kind(std::string_view begin) {
  for (const auto& kind : packed_kinds())
    if (begin.size() > kind.offset && begin.substr(kind.offset).starts_with(kind.bytes))
      return fmt::format("{}: {}", kind.name, kind.remedy);
  return "";
}

constexpr size_t header_bytes = 1024;

/// Whether the words of every second place have at most two values, and the others are data.
template <typename Word>
bool high_halves_are_constant(std::string_view bytes) {
  std::set<Word> low, high;
  const size_t pairs = bytes.size() / (2 * sizeof(Word));
  for (size_t i = 0; i < pairs; ++i) {
    Word pair[2];
    std::memcpy(pair, bytes.data() + i * sizeof(pair), sizeof(pair));
    low.insert(pair[0]);
    high.insert(pair[1]);
  }
  constexpr size_t enough_pairs = 64, few = 2, many = 8;
  return pairs >= enough_pairs && high.size() <= few && *high.begin() == 0 && *high.rbegin() <= 1 && low.size() >= many;
}

}  // namespace

std::string other_than_text(const std::string& file) {
  const std::string begin = first_bytes(file, header_bytes);
  // A tar archive of texts can consist of characters of a text; the header's zeros show what it is.
  return is_text(begin) && !begin.starts_with("%PDF-") ? "" : packed_kind(begin);
}

std::string doubtful_text(const std::string& file) {
  std::string begin = lower(first_bytes(file, header_bytes));
  std::erase_if(begin, [](char c) { return std::isspace(static_cast<unsigned char>(c)); });
  if (begin.starts_with("{\"") || begin.starts_with("[{\""))
    return "JSON: format = \"text\" trains on its braces, keys and quotes, too. data.format = \"jsonl\" reads its "
           "records";
  if (begin.starts_with("<!doctypehtml") || begin.starts_with("<html"))
    return "HTML: format = \"text\" trains on its tags, too. To train on the text alone, extract it first";
  const auto extension = lower(fs::path(file).extension().string());
  if (extension == ".csv" || extension == ".tsv")
    return "a table: format = \"text\" trains on its header, separators and other columns, too. To train on the text "
           "alone, extract it first";
  return "";
}

std::string other_than_tokens(const std::string& file) {
  const std::string begin = first_bytes(file, header_bytes);
  constexpr size_t enough = 64;  // a few tokens can look like anything
  if (begin.size() < enough) return "";
  if (is_text(begin)) return "text: use data.format = \"text\"";
  // Two bytes are one token, so they show nothing.
  for (const auto& kind : packed_kinds())
    if (kind.bytes.size() > 2 && begin.size() > kind.offset && begin.substr(kind.offset).starts_with(kind.bytes))
      return packed_kind(begin);
  return "";
}

std::string wider_tokens(const std::string& file, size_t item_bytes) {
  constexpr size_t looked_at = 64 * 1024;
  const std::string begin = first_bytes(file, looked_at);
  if (high_halves_are_constant<uint32_t>(begin)) return "int64";
  if (item_bytes == sizeof(uint16_t) && high_halves_are_constant<uint16_t>(begin)) return "uint32";
  return "";
}

}  // namespace runner
