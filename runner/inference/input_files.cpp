#include "runner/inference/input_files.hpp"

#include "runner/inference/text_records.hpp"

namespace runner {

InputFiles::InputFiles(std::vector<std::string> files) : paths_(std::move(files)) {
  for (auto& path : paths_)
    if (path == "-") keep_standard_input(path);
}

void InputFiles::keep_standard_input(std::string& path) {
  if (folder_) throw usage_error("`-` (standard input) is there twice");
  folder_ = std::make_unique<ScratchFolder>(fs::temp_directory_path());
  const auto content = content_of("-");
  const auto begin = content.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) throw usage_error("standard input is empty");
  const char* kind = content[begin] == '{' ? ".jsonl" : content[begin] == '[' ? ".json" : ".csv";
  kept_ = (folder_->path() / "rows").string() + kind;
  write_file_atomic(kept_, content);
  path = kept_;
}

std::string InputFiles::shown(std::string message) const {
  if (kept_.empty()) return message;
  for (size_t at = message.find(kept_); at != std::string::npos; at = message.find(kept_, at))
    message.replace(at, kept_.size(), "standard input");
  return message;
}

}  // namespace runner
