#include "runner/report/patch_difference.hpp"

#include <fmt/format.h>

#include <map>
#include <vector>

#include "runner/base/capture.hpp"
#include "runner/base/scratch_folder.hpp"
#include "runner/base/text.hpp"

namespace runner {

namespace {

/// The parts of a patch by the first line of each, "diff --git a/x b/x"; in "" what is before the first.
std::map<std::string, std::string> by_file(const std::string& patch) {
  std::map<std::string, std::string> parts;
  std::string head;
  size_t begin = 0;
  while (begin < patch.size()) {
    const size_t end = std::min(patch.find('\n', begin), patch.size() - 1) + 1;
    const std::string line = patch.substr(begin, end - begin);
    if (line.starts_with("diff --git ")) head = trim(line);
    if (line.starts_with("# cut")) head = "";
    // The digests of the blobs say nothing that the changes do not say.
    if (!line.starts_with("index ")) parts[head] += line;
    begin = end;
  }
  return parts;
}

}  // namespace

std::string unified_diff(const std::string& a, const std::string& b, const std::string& name_a,
                         const std::string& name_b) {
  if (a == b) return "";
  const ScratchFolder folder(fs::temp_directory_path());
  write_file_atomic(folder.path() / "a", a);
  write_file_atomic(folder.path() / "b", b);
  const auto answer = capture({"diff", "-u", "--text", "--label", name_a, "--label", name_b,
                               (folder.path() / "a").string(), (folder.path() / "b").string()},
                              {.timeout = std::chrono::seconds(20), .environment = {"LC_ALL=C"}});
  constexpr int differ = 1;
  if (answer.status == differ) return answer.output;
  return fmt::format("{} and {} differ, and the program `diff` could not show how\n", name_a, name_b);
}

std::string patch_difference(const std::string& a, const std::string& b, const std::string& name_a,
                             const std::string& name_b) {
  const auto of_a = by_file(a), of_b = by_file(b);
  std::map<std::string, std::pair<std::string, std::string>> files;
  for (const auto& [head, text] : of_a) files[head].first = text;
  for (const auto& [head, text] : of_b) files[head].second = text;
  std::string out;
  for (const auto& [head, texts] : files) {
    const auto& [in_a, in_b] = texts;
    if (in_a == in_b) continue;
    if (in_a.empty() || in_b.empty())
      out += fmt::format("# only in {}\n{}", in_a.empty() ? name_b : name_a, in_a.empty() ? in_b : in_a);
    else
      out += fmt::format("# different in both\n{}\n{}", head, unified_diff(in_a, in_b, name_a, name_b));
  }
  return out;
}

}  // namespace runner
