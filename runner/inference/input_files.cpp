#include "runner/inference/input_files.hpp"

#include "runner/inference/text_records.hpp"

namespace runner {

InputFiles::InputFiles(std::vector<std::string> files, const fs::path& scratch) : paths_(std::move(files)) {
  for (auto& path : paths_)
    if (path == "-") keep_standard_input(path, scratch);
}

void InputFiles::keep_standard_input(std::string& path, const fs::path& scratch) {
  if (!kept_.empty()) throw usage_error("`-` (standard input) is there twice");
  const auto content = content_of("-");
  const auto begin = content.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) throw usage_error("standard input is empty");
  const char* kind = content[begin] == '{' ? ".jsonl" : content[begin] == '[' ? ".json" : ".csv";
  kept_ = (scratch / "rows").string() + kind;
  write_file_atomic(kept_, content);
  path = kept_;
}

std::string InputFiles::shown(std::string text) const {
  if (kept_.empty()) return text;
  for (size_t at = text.find(kept_); at != std::string::npos; at = text.find(kept_, at))
    text.replace(at, kept_.size(), "standard input");
  return text;
}

}  // namespace runner
