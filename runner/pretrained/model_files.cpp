#include "runner/pretrained/model_files.hpp"

#include "runner/base/error.hpp"
#include "runner/pretrained/gguf_model.hpp"
#include "runner/pretrained/gguf_vocabulary.hpp"

namespace runner {

namespace {

bool inside_gguf(const fs::path& path) { return path.has_parent_path() && is_gguf(path.parent_path()); }

/// Empty if the metadata have no such file.
std::string gguf_text(const fs::path& path) {
  const GgufFile file(path.parent_path());
  const auto name = path.filename();
  if (name == "tokenizer.json") return gguf_tokenizer_json(file);
  if (name == "config.json") return gguf_config(file).dump(2) + "\n";
  if (name == "tokenizer_config.json") return gguf_tokenizer_config(file).dump(2) + "\n";
  return "";
}

}  // namespace

bool is_model_folder(const fs::path& path) { return fs::is_directory(path) || is_gguf(path); }

bool has_model_file(const fs::path& path) {
  return inside_gguf(path) ? !gguf_text(path).empty() : fs::is_regular_file(path);
}

std::string read_model_file(const fs::path& path) {
  if (!inside_gguf(path)) return read_file(path);
  auto text = gguf_text(path);
  if (text.empty()) throw usage_error("{} has no {}", path.parent_path().string(), path.filename().string());
  return text;
}

std::string setup_hint(const fs::path& path) {
  return path.parent_path().filename() == "smollm2" ? "; `scripts/setup --smollm2` downloads it" : "";
}

fs::path file_on_disk(const fs::path& path) { return inside_gguf(path) ? path.parent_path() : path; }

}  // namespace runner
