// Finds mistakes in [data] without tokenising, before a run starts.
#include "runner/data/data_check.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <set>
#include <span>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/config/config.hpp"
#include "runner/data/data.hpp"
#include "runner/data/image_data.hpp"
#include "runner/data/image_folder.hpp"
#include "runner/data/record_reader.hpp"
#include "runner/data/row_targets.hpp"
#include "runner/data/source_files.hpp"
#include "runner/data/table_data.hpp"
#include "runner/data/token_stream.hpp"
#include "runner/data/tokenizers.hpp"
#include "runner/data/utf8.hpp"

namespace runner {

namespace {

/// Files of this size together are read completely.
constexpr size_t quick_bytes = 2 << 20;

bool trains_tokenizer(const Recipe::Data& data) {
  return needs_tokenizing(data) && data.tokenizer == "sentencepiece" && data.trained_tokenizer.empty();
}

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

/// Text for a SentencePiece model must be UTF-8; the first files are read. The model makes at most one token per byte,
/// and one more if it adds a space in front of a text.
void check_text(std::vector<DataProblem>& problems, const std::string& key, const std::vector<std::string>& files,
                int64_t seq_len) {
  size_t read = 0;
  for (const auto& file : files) {
    const MappedFile map(file);
    read += map.bytes().size();
    if (read > checked_at_open_bytes_max) break;
    collect(problems, key, [&] { check_utf8(file, text_of(map), 0, map.bytes().size()); });
  }
  auto most = std::ssize(files);
  for (const auto& file : files) most += static_cast<int64_t>(fs::file_size(file));
  if (most < seq_len + 1)
    problems.push_back(
        {key, fmt::format("{}: {} of text cannot give the {} tokens that one sample of data.seq_len = {} "
                          "needs",
                          key, format_bytes(most - std::ssize(files)), seq_len + 1, seq_len)});
}

/// The first records of the first files must be as data.layout says.
void check_records(std::vector<DataProblem>& problems, const std::string& key, const Recipe::Data& data,
                   const std::vector<std::string>& files, const std::string& cache_dir) {
  constexpr size_t files_most = 8;
  constexpr int64_t first_records = 100;
  constexpr size_t mistakes_most = 10;
  collect(problems, key, [&] {
    const auto reader = make_record_reader(
        data, files, data.tokenizer == "sentencepiece" ? make_bytes_tokenizer() : open_tokenizer(data, cache_dir));
    for (const auto& file : std::span(files).first(std::min(files.size(), files_most))) {
      const auto records = open_records(data, file);
      int64_t read = 0;
      const int64_t records_most = records->bytes() <= quick_bytes ? INT64_MAX : first_records;
      struct Mistake {
        std::string reason;
        std::vector<std::string> places = {};
        int64_t count = 0;
      };
      std::vector<Mistake> mistakes;  // each reason is told once
      for (const auto& part : records->parts(size_t{1} << 20)) {
        records->for_each(part, [&](const JsonRecord& record, size_t end) {
          try {
            reader->documents(record);
          } catch (const Error& error) {
            auto same = std::ranges::find(mistakes, std::string(error.what()), &Mistake::reason);
            if (same == mistakes.end()) same = mistakes.insert(same, Mistake{.reason = error.what()});
            ++same->count;
            if (same->places.size() <= and_more_named) same->places.push_back(records->place_of(end));
          }
          return ++read < records_most && mistakes.size() < mistakes_most;
        });
        if (read >= records_most || mistakes.size() >= mistakes_most) break;
      }
      std::vector<std::string> lines;
      const bool all = read < records_most && mistakes.size() < mistakes_most;
      for (const auto& [reason, places, count] : mistakes)
        lines.push_back(fmt::format("{}: {}{}", places.front(), reason, and_more(places, count, all)));
      if (!lines.empty()) throw usage_error("{}", join(lines, "\n"));
    }
  });
}

/// All labels are read: those of validation must be among those of the training data.
void check_labels(std::vector<DataProblem>& problems, const Recipe::Data& data) {
  const bool mixed = !data.sources.empty();
  collect(problems, mixed ? "data.sources" : "data.train", [&] {
    const auto training = training_table(data);
    RowTargets(data, training->table, training->rows, training->schema);
    RowTargets(data, training->table, training->validation_rows, training->schema);
  });
  if (!problems.empty()) return;
  for (const auto& source : sources_of(data))
    if (!source.data.validation.empty())
      collect(problems, mixed ? "data.sources" : "data.validation", [&] {
        const auto& schema = training_table(data)->schema;
        const auto validation = validation_table(source.data, schema);
        RowTargets(source.data, validation.table, validation.rows, schema);
      });
}

void find_packed_files(std::vector<DataProblem>& problems, const std::string& key, const std::string& format,
                       const std::vector<std::string>& files) {
  if (format == "parquet") return;  // reading them says what is wrong
  for (const auto& file : files)
    if (auto kind = other_than_text(file); !kind.empty())
      problems.push_back({key, fmt::format("{}: {} looks like {}; format = \"{}\" reads {}", key, file, kind, format,
                                           format == "text"    ? "plain text"
                                           : format == "jsonl" ? "JSON"
                                                               : "tables of text")});
}

/// Existing files without regard to their names: two paths or links may name the same file.
class FileSet {
 public:
  /// Returns false if the file is already in the set.
  bool add(const std::string& path) {
    auto file = identity(path);
    return !file || files_.insert(*file).second;
  }
  bool contains(const std::string& path) const {
    auto file = identity(path);
    return file && files_.contains(*file);
  }
  size_t size() const { return files_.size(); }

 private:
  using Identity = std::pair<dev_t, ino_t>;
  static std::optional<Identity> identity(const std::string& path) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) return {};
    return Identity{status.st_dev, status.st_ino};
  }
  std::set<Identity> files_;
};

/// Adds notes about files that are in a list twice, or in both lists.
void note_repeated_files(const Recipe::Data& data, std::vector<std::string>& notes) {
  FileSet train;
  for (const auto& file : data.train)
    if (!train.add(file)) {
      notes.push_back(fmt::format("{} is in data.train twice: each epoch trains on it twice{}", file,
                                  data.validation_fraction ? ", and val_loss may not show overfitting" : ""));
      break;
    }
  for (const auto& file : data.validation)
    if (train.contains(file)) {
      notes.push_back(fmt::format("{} is training and validation data: val_loss does not show overfitting", file));
      break;
    }
}

/// A note if the tokenizer's model does not know much of the text. Looks at the beginning of the first files.
std::string unknown_text_note(const Recipe::Data& data) {
  if (data.format != "text" || !needs_tokenizing(data) || data.tokenizer == "sentencepiece") return "";
  constexpr size_t files = 8, bytes = 64 * 1024;
  constexpr double tolerated = 0.01;
  size_t tokens = 0, unknown = 0;
  try {
    const auto tokenizer = open_tokenizer(data, "");
    const auto unknown_token = tokenizer->special_tokens().unk;
    if (!unknown_token) return "";
    for (const auto& file : std::span(data.train).first(std::min(data.train.size(), files))) {
      const MappedFile map(file);
      const auto encoded = tokenizer->encode(first_chunk(text_of(map), bytes));
      tokens += encoded.size();
      unknown += static_cast<size_t>(std::ranges::count(encoded, *unknown_token));
    }
  } catch (const Error&) {
    return "";  // find_data_problems() reports it
  }
  const double share = tokens == 0 ? 0 : static_cast<double>(unknown) / static_cast<double>(tokens);
  if (share <= tolerated) return "";
  return fmt::format(
      "{:.0f} % of the tokens at the beginning of data.train are <unk>: the tokenizer {} has no tokens for "
      "these characters, and the model learns nothing about them",
      100 * share, data.tokenizer);
}

/// A note if the tokenizer has no tokens for the markers of the template, such as <|im_start|>.
std::string unknown_markers_note(const Recipe::Data& data) {
  if (data.tokenizer == "sentencepiece") return "";  // is trained with them
  std::vector<std::string> unknown;
  try {
    const auto markers = markers_of_template(data);
    if (markers.empty()) return "";
    const auto tokenizer = open_tokenizer(data, "");
    for (const auto& text : markers)
      if (tokenizer->encode(text).size() != 1) unknown.push_back(text);
  } catch (const Error&) {
    return "";  // find_data_problems() reports it
  }
  if (unknown.empty()) return "";
  return fmt::format(
      "data.chat_template = {}: the tokenizer {} has no tokens for {}, so each of them becomes several tokens of text",
      toml_value(*data.chat_template), data.tokenizer, join(unknown, ", "));
}

/// The problems of all sources. Those in keys of [[data.sources]] belong to this key, and name the source.
template <typename Find>
std::vector<DataProblem> of_all_sources(const Recipe::Data& data, Find&& find) {
  static const std::set<std::string> own = {"data.train", "data.validation", "data.format", "data.layout",
                                            "data.columns"};
  std::vector<DataProblem> problems;
  for (const auto& source : sources_of(data))
    for (auto& problem : find(source.data)) {
      if (!source.name.empty() && own.contains(problem.key))
        problem = {"data.sources", fmt::format("source \"{}\": {}", source.name, problem.message)};
      const auto same = [&](const DataProblem& other) {
        return other.key == problem.key && other.message == problem.message;
      };
      if (std::ranges::none_of(problems, same)) problems.push_back(std::move(problem));
    }
  return problems;
}

std::vector<DataProblem> find_missing_files(const Recipe::Data& data) {
  std::vector<DataProblem> problems;
  if (data.is_images()) return problems;  // find_problems() lists the folders
  const auto look = [&](const std::string& key, const std::vector<std::string>& files) {
    for (const auto& message : data.is_plugin() ? source_path_problems(key, files) : source_file_problems(key, files))
      problems.push_back({key, message});
  };
  look("data.train", data.train);
  if (!data.validation.empty()) look("data.validation", data.validation);
  if (problems.empty() && data.format != "bin" && !data.is_plugin()) {
    find_packed_files(problems, "data.train", data.format, data.train);
    find_packed_files(problems, "data.validation", data.format, data.validation);
  }
  return problems;
}

/// Whether all of the data are read and tokenised in well under a second.
bool quickly_read(const Recipe::Data& data) {
  uintmax_t bytes = 0;
  for (const auto& source : sources_of(data))
    for (const auto* list : {&source.data.train, &source.data.validation})
      for (const auto& file : data.is_plugin() ? files_of(*list) : *list) bytes += fs::file_size(file);
  return bytes <= quick_bytes;
}

/// A tokenizer that is trained takes longer.
bool quickly_tokenized(const Recipe::Data& data) { return data.tokenizer != "sentencepiece" && quickly_read(data); }

/// Whose key says the files of a split.
std::string key_of(const Recipe::Data& data, Split split) {
  if (!data.sources.empty()) return "data.sources";
  return split == Split::train || data.validation.empty() ? "data.train" : "data.validation";
}

/// The problems at the beginning of data that are tokenized.
std::vector<DataProblem> find_untokenized_problems(const Recipe::Data& data, int64_t seq_len,
                                                   const std::string& cache_dir) {
  std::vector<DataProblem> problems;
  const auto look = [&](const char* key, const std::vector<std::string>& files) {
    if (files.empty()) return;
    if (data.has_records())
      check_records(problems, key, data, files, cache_dir);
    else
      check_text(problems, key, files, seq_len);
  };
  look("data.train", data.train);
  look("data.validation", data.validation);
  return problems;
}

void open_splits(std::vector<DataProblem>& problems, const Recipe::Data& data, int64_t seq_len, int64_t vocab_size,
                 const std::string& cache_dir) {
  collect(problems, key_of(data, Split::train),
          [&] { open_dataset(data, Split::train, seq_len, vocab_size, cache_dir); });
  // With validation_fraction, both splits are parts of one stream and would report the same mistakes.
  if (problems.empty() || !data.validation.empty())
    collect(problems, key_of(data, Split::validation),
            [&] { open_dataset(data, Split::validation, seq_len, vocab_size, cache_dir); });
}

std::vector<DataProblem> find_problems(const Recipe::Data& data, int64_t seq_len, int64_t vocab_size,
                                       const std::string& cache_dir) {
  std::vector<DataProblem> problems;
  if (needs_tokenizing(data)) {
    problems = find_untokenized_problems(data, seq_len, cache_dir);
    if (!problems.empty() || !quickly_tokenized(data)) return problems;
  }
  open_splits(problems, data, seq_len, vocab_size, cache_dir);
  if (data.is_images() && !data.skip_corrupt && problems.empty())
    for (const auto split : {Split::train, Split::validation})
      collect(problems, key_of(data, split), [&] {
        if (const auto damage = damaged_sample(data, split); !damage.empty()) throw usage_error("{}", damage);
      });
  return problems;
}

/// The problems of texts with labels, of all sources: their labels belong together.
std::vector<DataProblem> find_label_problems(const Recipe::Data& data, int64_t seq_len, int64_t vocab_size,
                                             const std::string& cache_dir) {
  auto problems = of_all_sources(
      data, [&](const Recipe::Data& source) { return find_untokenized_problems(source, seq_len, cache_dir); });
  if (problems.empty()) check_labels(problems, data);
  if (problems.empty() && quickly_tokenized(data)) open_splits(problems, data, seq_len, vocab_size, cache_dir);
  return problems;
}

}  // namespace

std::vector<DataProblem> find_missing_data(const Recipe::Data& data) {
  auto problems = of_all_sources(data, find_missing_files);
  if (needs_tokenizing(data) && data.tokenizer != "sentencepiece")
    collect(problems, "data.tokenizer", [&] { open_tokenizer(data, ""); });
  return problems;
}

std::vector<DataProblem> find_data_problems(const Recipe::Data& data, int64_t seq_len, int64_t vocab_size,
                                            const std::string& cache_dir) {
  auto problems = find_missing_data(data);
  if (!problems.empty()) return problems;
  if (data.labels_texts())
    problems = find_label_problems(data, seq_len, vocab_size, cache_dir);
  else
    problems = of_all_sources(
        data, [&](const Recipe::Data& source) { return find_problems(source, seq_len, vocab_size, cache_dir); });
  if (problems.empty() && trains_tokenizer(data) && quickly_read(data))
    collect(problems, key_of(data, Split::train), [&] { check_trained_vocabulary(data); });
  return problems;
}

std::string data_summary(const Recipe::Data& data, int64_t seq_len, int64_t vocab_size, const std::string& cache_dir,
                         bool tokenized) {
  FileSet all;
  uintmax_t bytes = 0;
  if (data.is_images()) {
    const auto images = open_dataset(data, Split::train, 1, 1, cache_dir);
    const auto validated = open_dataset(data, Split::validation, 1, 1, cache_dir);
    return images->describe() + (validated ? fmt::format(", and {} to validate", validated->size()) : "");
  }
  for (const auto& source : sources_of(data))
    for (const auto* list : {&source.data.train, &source.data.validation})
      for (const auto& file : data.is_plugin() ? files_of(*list) : *list) {
        all.add(file);
        bytes += fs::file_size(file);
      }
  const std::string files = counted(static_cast<int64_t>(all.size()), "file");
  if (needs_tokenizing(data) && !tokenized)
    return fmt::format("{} with {} of {}{}", files, format_bytes(static_cast<double>(bytes)),
                       data.format == "text" ? "text" : "records",
                       trains_tokenizer(data) ? "; a run first trains the tokenizer on them, and then finds whether "
                                                "they suffice for data.tokenizer_vocab_size"
                                              : "");
  const auto training = open_dataset(data, Split::train, seq_len, vocab_size, cache_dir);
  training->size_up_to(1);  // data without a sample are refused here
  const auto validation = open_dataset(data, Split::validation, seq_len, vocab_size, cache_dir);
  return fmt::format("{} with {}{}", files, training->describe(),
                     validation ? fmt::format(", and {} to validate", validation->size()) : "");
}

namespace {

std::vector<std::string> notes_of_source(const Recipe::Data& data) {
  std::vector<std::string> notes;
  if (data.is_images()) return list_images(data, data.validation.empty() ? Split::train : Split::validation).notes;
  note_repeated_files(data, notes);
  if (data.is_table())
    for (auto& note : table_notes(data)) notes.push_back(std::move(note));
  if (auto note = unknown_markers_note(data); !note.empty()) notes.push_back(note);
  if (data.format != "text") return notes;
  if (auto note = unknown_text_note(data); !note.empty()) notes.push_back(note);
  constexpr size_t looked_at = 8;  // the first files are sufficient
  for (const auto* files : {&data.train, &data.validation})
    for (const auto& file : std::span(*files).first(std::min(files->size(), looked_at)))
      if (auto kind = doubtful_text(file); !kind.empty()) {
        notes.push_back(fmt::format("{} looks like {}", file, kind));
        return notes;
      }
  return notes;
}

}  // namespace

std::vector<std::string> data_notes(const Recipe::Data& data) {
  std::vector<std::string> notes;
  for (const auto& source : sources_of(data))
    for (auto& note : notes_of_source(source.data)) notes.push_back(std::move(note));
  return notes;
}

}  // namespace runner
