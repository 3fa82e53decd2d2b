#include "runner/data/source_files.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <set>
#include <vector>

#include "runner/base/error.hpp"
#include "runner/base/files.hpp"
#include "runner/base/text.hpp"

namespace runner {

namespace {

fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

/// For a pattern without matches: which files the folder has.
std::string instead_of(const fs::path& pattern) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder_of(pattern), ignored))
    if (entry.is_regular_file(ignored)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  if (auto near = nearest(pattern.filename().string(), names)) return "; did you mean " + *near + "?";
  if (names.empty()) return "";
  constexpr size_t shown = 3;
  bool more = names.size() > shown;
  names.resize(std::min(names.size(), shown));
  return fmt::format("; the folder has {}{}", join(names, ", "), more ? " ..." : "");
}

/// "https:/host/file" in "/folder/https:/host/file", which is what remains of an address; empty if there is none.
std::string address_in(const std::string& path) {
  const auto end = path.find(":/");
  if (end == std::string::npos) return "";
  const auto begin = path.rfind('/', end);
  return path.substr(begin == std::string::npos ? 0 : begin + 1);
}

/// Why a file cannot be data; empty: it can.
std::string problem_of(const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    int reason = errno;
    if (reason != ENOENT && reason != ENOTDIR)
      return fmt::format("cannot open {}: {}", path.string(), std::strerror(reason));
    if (auto address = address_in(path.string()); !address.empty())
      return fmt::format("{} is an address; download the file, and name the copy", address);
    if (is_pattern(folder_of(path))) return fmt::format("no file matches {}", path.string());
    auto what = is_pattern(path) ? fmt::format("no file matches {}", path.string())
                                 : fmt::format("there is no file {}", path.string());
    if (!fs::is_directory(folder_of(path)))
      return fmt::format("{}: there is no folder {}", what, folder_of(path).string());
    if (is_pattern(path)) return what + instead_of(path);
    auto near = nearest_file(path);
    return what + (near ? "; did you mean " + *near + "?" : "");
  }
  if (S_ISDIR(status.st_mode)) return fmt::format("{} is a folder; name the files in it", path.string());
  if (!S_ISREG(status.st_mode)) return fmt::format("{} is not a regular file, so it cannot be mapped", path.string());
  if (status.st_size == 0) return fmt::format("{} is empty", path.string());
  return "";
}

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

constexpr size_t looked_at_bytes = 1024;

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

std::optional<std::string> nearest_file(const fs::path& path) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder_of(path), ignored))
    if (entry.is_regular_file(ignored)) names.push_back(entry.path().filename().string());
  return nearest(path.filename().string(), names);
}

std::vector<std::string> source_file_problems(const std::string& key, const std::vector<std::string>& files) {
  if (files.empty()) return {key + " names no file"};
  std::vector<std::string> problems;
  for (const auto& file : files)
    if (auto problem = problem_of(file); !problem.empty()) problems.push_back(key + ": " + problem);
  return problems;
}

void check_source_files(const std::string& key, const std::vector<std::string>& files) {
  auto problems = source_file_problems(key, files);
  if (!problems.empty()) throw usage_error("{}", join(problems, "\n"));
}

std::vector<std::string> source_path_problems(const std::string& key, const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const auto& path : paths)
    if (!fs::is_directory(path)) files.push_back(path);
  if (files.empty() && !paths.empty()) return {};
  return source_file_problems(key, files);
}

void check_source_paths(const std::string& key, const std::vector<std::string>& paths) {
  const auto problems = source_path_problems(key, paths);
  if (!problems.empty()) throw usage_error("{}", join(problems, "\n"));
}

std::vector<std::string> files_of(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const auto& path : paths) {
    if (!fs::is_directory(path)) {
      files.push_back(path);
      continue;
    }
    std::vector<std::string> below;
    for (const auto& entry : fs::recursive_directory_iterator(path))
      if (entry.is_regular_file()) below.push_back(entry.path().string());
    std::ranges::sort(below);
    files.insert(files.end(), below.begin(), below.end());
  }
  return files;
}

std::string fingerprint(const std::vector<std::string>& paths) {
  std::string text;
  for (const auto& file : files_of(paths)) {
    struct stat status {};
    if (::stat(file.c_str(), &status) != 0) throw environment_error("cannot open {}: {}", file, std::strerror(errno));
    text += fmt::format("{}\n{} {}.{:09}\n", fs::absolute(file).lexically_normal().string(), status.st_size,
                        status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
  }
  return text;
}

std::string other_than_text(const std::string& file) {
  const std::string begin = first_bytes(file, looked_at_bytes);
  // A tar archive of texts can consist of characters of a text; the header's zeros show what it is.
  return is_text(begin) && !begin.starts_with("%PDF-") ? "" : packed_kind(begin);
}

std::string doubtful_text(const std::string& file) {
  std::string begin = lower(first_bytes(file, looked_at_bytes));
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
  const std::string begin = first_bytes(file, looked_at_bytes);
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
