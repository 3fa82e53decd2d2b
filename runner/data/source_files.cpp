#include "runner/data/source_files.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "runner/base/error.hpp"
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

}  // namespace runner
