// Finds mistakes in [data] without tokenising, before a run starts.
#include <algorithm>
#include <fstream>
#include <span>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/data/data.hpp"
#include "runner/data/source_files.hpp"
#include "runner/data/tokenizers.hpp"

namespace runner {

namespace {

/// The key that a message begins with ("data.validation_fraction = 0.1 leaves ..."), or `otherwise`.
std::string key_in(const std::string& message, const std::string& otherwise) {
  if (!message.starts_with("data.")) return otherwise;
  return message.substr(0, message.find_first_of(" :"));
}

template <typename Call>
void collect(std::vector<DataProblem>& problems, const std::string& key, Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    problems.push_back({key_in(error.what(), key), error.what()});
  }
}

/// A SentencePiece model makes at most one token per byte, and one more if it adds a space in front of a text.
void check_text_size(std::vector<DataProblem>& problems, const std::string& key, const std::vector<std::string>& files,
                     int64_t seq_len) {
  auto most = std::ssize(files);
  for (const auto& file : files) most += static_cast<int64_t>(fs::file_size(file));
  if (most < seq_len + 1)
    problems.push_back(
        {key, fmt::format("{}: {} of text cannot give the {} tokens that one sample of data.seq_len = {} "
                          "needs",
                          key, format_bytes(static_cast<double>(most - std::ssize(files))), seq_len + 1, seq_len)});
}

/// Whether the text begins like a JSON object or a list of objects: {"messages": ...
bool looks_like_json(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  char c = 0;
  std::string begin;
  while (begin.size() < 3 && stream.get(c))
    if (!std::isspace(static_cast<unsigned char>(c))) begin += c;
  return begin.starts_with("{\"") || begin == "[{\"";
}

}  // namespace

bool needs_tokenizing(const Recipe::Data& data) { return data.format == "text" && data.tokenizer != "bytes"; }

std::vector<DataProblem> find_missing_data(const Recipe::Data& data) {
  std::vector<DataProblem> problems;
  for (const auto& message : source_file_problems("data.train", data.train))
    problems.push_back({"data.train", message});
  if (!data.validation.empty())
    for (const auto& message : source_file_problems("data.validation", data.validation))
      problems.push_back({"data.validation", message});
  if (needs_tokenizing(data) && data.tokenizer != "sentencepiece")
    collect(problems, "data.tokenizer", [&] { open_sentencepiece(data, ""); });
  return problems;
}

std::vector<DataProblem> find_data_problems(const Recipe::Data& data, int64_t seq_len, int64_t vocab_size,
                                            const std::string& cache_dir) {
  auto problems = find_missing_data(data);
  if (!problems.empty()) return problems;
  if (needs_tokenizing(data)) {
    check_text_size(problems, "data.train", data.train, seq_len);
    if (!data.validation.empty()) check_text_size(problems, "data.validation", data.validation, seq_len);
    return problems;
  }
  collect(problems, "data.train", [&] { open_dataset(data, Split::train, seq_len, vocab_size, cache_dir); });
  // With validation_fraction, both splits are parts of one stream and would report the same mistakes.
  if (problems.empty() || !data.validation.empty())
    collect(problems, "data.validation",
            [&] { open_dataset(data, Split::validation, seq_len, vocab_size, cache_dir); });
  return problems;
}

std::vector<std::string> data_notes(const Recipe::Data& data) {
  if (data.format != "text") return {};
  constexpr size_t looked_at = 8;  // the first files are sufficient
  for (const auto* files : {&data.train, &data.validation})
    for (const auto& file : std::span(*files).first(std::min(files->size(), looked_at)))
      if (looks_like_json(file))
        return {
            fmt::format("{} looks like JSON: format = \"text\" trains on its braces, keys and quotes, too. To train "
                        "on the text alone, extract it first",
                        file)};
  return {};
}

}  // namespace runner
