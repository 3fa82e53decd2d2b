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

/// The kind of a compressed or binary file, by its first bytes, and what to do with it; empty for other files.
std::string packed_kind(const std::string& file) {
  struct Kind {
    std::string_view begin;
    const char *name, *remedy;
  };
  using namespace std::string_view_literals;
  static constexpr const char *unpack = "unpack it first", *extract = "extract its text to a text file first";
  static const std::vector<Kind> kinds = {
      {"\x1f\x8b"sv, "a gzip file", unpack},
      {"PK\x03\x04"sv, "a zip archive", unpack},
      {"\x28\xb5\x2f\xfd"sv, "a zstd file", unpack},
      {"\xfd\x37zXZ\0"sv, "an xz file", unpack},
      {"BZh"sv, "a bzip2 file", unpack},
      {"PAR1"sv, "a Parquet file", extract},
      {"ARROW1\0\0"sv, "an Arrow file", extract},
      {"%PDF-"sv, "a PDF file", extract},
  };
  std::ifstream stream(file, std::ios::binary);
  std::string begin(1024, '\0');
  stream.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  begin.resize(static_cast<size_t>(stream.gcount()));
  const bool binary = first_invalid_utf8(begin).has_value() || begin.find('\0') != std::string::npos;
  for (const auto& [magic, kind, remedy] : kinds)
    if (binary && begin.starts_with(magic)) return fmt::format("{}: {}", kind, remedy);
  return "";
}

void find_packed_files(std::vector<DataProblem>& problems, const std::string& key,
                       const std::vector<std::string>& files) {
  for (const auto& file : files)
    if (auto kind = packed_kind(file); !kind.empty())
      problems.push_back(
          {key, fmt::format("{}: {} looks like {}; format = \"text\" reads plain text", key, file, kind)});
}

/// A file that is in both lists; empty: there is none.
std::string shared_file(const std::vector<std::string>& train, const std::vector<std::string>& validation) {
  std::error_code ignored;
  for (const auto& file : validation)
    for (const auto& other : train)
      if (file == other || fs::equivalent(file, other, ignored)) return file;
  return "";
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

/// What the file seems to be instead of text, and which of its characters are not text; empty for text.
std::string other_than_text(const std::string& file) {
  if (looks_like_json(file)) return "JSON: format = \"text\" trains on its braces, keys and quotes, too";
  const auto kind = lower(fs::path(file).extension().string());
  if (kind == ".csv" || kind == ".tsv")
    return "a table: format = \"text\" trains on its header, separators and other columns, too";
  return "";
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
  if (problems.empty() && data.format == "text") {
    find_packed_files(problems, "data.train", data.train);
    find_packed_files(problems, "data.validation", data.validation);
  }
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
  std::vector<std::string> notes;
  if (auto file = shared_file(data.train, data.validation); !file.empty())
    notes.push_back(fmt::format("{} is training and validation data: val_loss does not show overfitting", file));
  if (data.format != "text") return notes;
  constexpr size_t looked_at = 8;  // the first files are sufficient
  for (const auto* files : {&data.train, &data.validation})
    for (const auto& file : std::span(*files).first(std::min(files->size(), looked_at)))
      if (auto kind = other_than_text(file); !kind.empty()) {
        notes.push_back(fmt::format("{} looks like {}. To train on the text alone, extract it first", file, kind));
        return notes;
      }
  return notes;
}

}  // namespace runner
