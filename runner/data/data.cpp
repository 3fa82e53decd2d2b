// Selects the data format and the tokenizer, and opens the samples of a split.
#include "runner/data/data.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/chat/layouts.hpp"
#include "runner/data/document_dataset.hpp"
#include "runner/data/formats.hpp"
#include "runner/data/image_data.hpp"
#include "runner/data/labelled_texts.hpp"
#include "runner/data/mixture.hpp"
#include "runner/data/order.hpp"
#include "runner/data/plugin/source.hpp"
#include "runner/data/records.hpp"
#include "runner/data/source_files.hpp"
#include "runner/data/stream_dataset.hpp"
#include "runner/data/table_data.hpp"
#include "runner/data/token_parts.hpp"
#include "runner/data/tokenizers.hpp"
#include "strategies/engine/row_batch.hpp"
#include "strategies/engine/token_batch.hpp"

namespace runner {

namespace {

constexpr int64_t any_vocabulary = std::numeric_limits<int64_t>::max();

struct Format {
  const char* name;
  OpenData (*open)(const Source& source);
  DataParts (*parts)(const Source& source, PartBytes part_bytes);
};
constexpr std::array<Format, 6> formats{{{.name = "text", .open = open_text, .parts = parts_of_text},
                                         {.name = "bin", .open = open_bin, .parts = nullptr},
                                         {.name = "jsonl", .open = open_record_files, .parts = parts_of_records},
                                         {.name = "parquet", .open = open_record_files, .parts = parts_of_records},
                                         {.name = "csv", .open = open_record_files, .parts = parts_of_records},
                                         {.name = "plugin", .open = open_record_files, .parts = parts_of_records}}};

const Format& find_format(const std::string& name) {
  auto found = std::ranges::find(formats, name, &Format::name);
  if (found != formats.end()) return *found;
  std::vector<std::string> names;
  for (const auto& format : formats) names.emplace_back(format.name);
  names.emplace_back("images");
  auto near = nearest(name, names);
  throw usage_error("data.format = \"{}\": it can be {}{}", name, join_or(names),
                    near ? "; did you mean " + *near + "?" : "");
}

/// The files of a split, which exist.
const std::vector<std::string>& checked_files(const Recipe::Data& data, Split split) {
  const bool own_files = split == Split::validation && !data.validation.empty();
  const auto& files = own_files ? data.validation : data.train;
  const std::string key = own_files ? "data.validation" : "data.train";
  data.is_plugin() ? check_source_paths(key, files) : check_source_files(key, files);
  return files;
}

OpenData open_files(const Recipe::Data& data, Split split, int64_t vocab_size, const std::string& cache_dir) {
  return find_format(data.format).open({data, checked_files(data, split), vocab_size, cache_dir});
}

/// The parts of the training data (data.streaming).
DataParts parts_of_training(const Recipe::Data& data, int64_t vocab_size, const std::string& cache_dir) {
  const Format& format = find_format(data.format);
  RUNNER_CHECK(format.parts && needs_tokenizing(data));
  return format.parts({data, checked_files(data, Split::train), vocab_size, cache_dir}, streamed_part_bytes);
}

/// The tokenizer that the samples of masked language modelling need; of others null.
std::shared_ptr<const Tokenizer> masking_tokenizer(const Recipe::Data& data, const std::string& cache_dir) {
  if (!data.masks_tokens()) return nullptr;
  if (data.format == "bin")
    throw usage_error("data.objective = \"masked_lm\": format \"bin\" has no tokenizer, so there is no mask token");
  return open_tokenizer(data, cache_dir);
}

/// The samples of a language model. `tokenizer`: masking_tokenizer(). With `part`: nullptr if it has none.
std::unique_ptr<Dataset> token_samples(const Recipe::Data& data, Split split, OpenData opened, int64_t seq_len,
                                       const Tokenizer* tokenizer, StreamedPart* part = nullptr) {
  if (tokenizer) return masked_dataset(data, split, std::move(opened), seq_len, *tokenizer, part);
  return opened.documents ? document_dataset(data, split, std::move(opened), seq_len, part)
                          : stream_dataset(data, split, std::move(opened.stream), seq_len, part);
}

std::unique_ptr<Dataset> open_streamed(const Recipe::Data& data, int64_t seq_len, int64_t vocab_size,
                                       const std::string& cache_dir) {
  auto samples_of = [data, seq_len, tokenizer = masking_tokenizer(data, cache_dir)](OpenData opened,
                                                                                    StreamedPart* part) {
    return token_samples(data, Split::train, std::move(opened), seq_len, tokenizer.get(), part);
  };
  return streamed_dataset(parts_of_training(data, vocab_size, cache_dir), samples_of, data_fields(data, seq_len));
}

bool has_split(const Recipe::Data& data, Split split) {
  return split == Split::train || !data.validation.empty() || data.validation_fraction;
}

/// The texts with labels of one of the sources_of(data). The labels are those of all sources.
std::unique_ptr<Dataset> open_labelled(const Recipe::Data& data, size_t index, Split split, int64_t seq_len,
                                       int64_t vocab_size, const std::string& cache_dir,
                                       const nlohmann::json& learned) {
  const auto source = sources_of(data).at(index).data;
  if (!has_split(source, split)) return nullptr;
  return labelled_texts(data, index, split, open_files(source, split, vocab_size, cache_dir), seq_len,
                        *open_tokenizer(data, cache_dir), learned);
}

/// With Data::trained_tokenizer: the sources of `data` train one model together.
Recipe::Data with_trained_tokenizer(Recipe::Data data, const std::string& cache_dir) {
  if (data.tokenizer == "sentencepiece" && data.trained_tokenizer.empty())
    data.trained_tokenizer = trained_sentencepiece(data, cache_dir).string();
  return data;
}

/// The mixture of data.sources. For validation, each sample once.
std::unique_ptr<Dataset> open_sources(const Recipe::Data& data, Split split, int64_t seq_len, int64_t vocab_size,
                                      const std::string& cache_dir, const nlohmann::json& learned) {
  std::vector<MixtureSource> sources;
  std::vector<int64_t> sizes;
  size_t index = 0;
  for (const auto& [name, source, weight, epochs, format] : sources_of(data)) {
    auto opened = data.labels_texts() ? open_labelled(data, index++, split, seq_len, vocab_size, cache_dir, learned)
                                      : open_dataset(source, split, seq_len, vocab_size, cache_dir);
    if (!opened) continue;
    sizes.push_back(opened->size());
    sources.push_back({.name = name, .data = std::move(opened), .weight = weight, .epochs = epochs});
  }
  if (sources.empty()) return nullptr;
  auto counts = split == Split::validation
                    ? sizes
                    : mixture_counts(sizes, sources, data.temperature,
                                     data.mixture_end == "all_exhausted" ? MixtureEnd::all_exhausted
                                                                         : MixtureEnd::first_exhausted);
  return mixture_dataset(std::move(sources), std::move(counts));
}

}  // namespace

std::vector<DataSource> sources_of(const Recipe::Data& data) {
  if (data.sources.empty()) return {{.name = "", .data = data, .weight = {}}};
  std::vector<DataSource> sources;
  for (const auto& source : data.sources) {
    auto own = data;
    own.sources.clear();
    own.train = source.train;
    own.validation = source.validation;
    if (source.format) own.format = *source.format;
    if (source.layout) own.layout = *source.layout;
    if (source.columns) own.columns = source.columns;
    sources.push_back({.name = source.name,
                       .data = std::move(own),
                       .weight = source.weight,
                       .epochs = source.epochs.value_or(1),
                       .format = source.format});
  }
  return sources;
}

int64_t Dataset::units(int64_t /*sample*/) const {
  for (const auto& field : fields())
    if (field.name == token_field::inputs_name) return field.row_elements();
  return 1;
}

int64_t Dataset::sample_at(int64_t epoch, int64_t position, const SampleOrderOptions& options) const {
  return SampleOrder(size(), options.shuffle, options.seed, epoch)[position];
}

std::unique_ptr<Dataset> open_dataset(const Recipe::Data& data, Split split, int64_t seq_len, int64_t vocab_size,
                                      const std::string& cache_dir, const nlohmann::json& learned) {
  if (!data.validation.empty() && data.validation_fraction)
    throw usage_error("data.validation and data.validation_fraction exclude each other");
  if (data.is_table()) return open_table(data, split, learned);
  if (data.is_images()) return open_images(data, split, cache_dir, learned);
  RUNNER_CHECK(seq_len > 0 && vocab_size > 0);
  if (!data.sources.empty())
    return open_sources(with_trained_tokenizer(data, cache_dir), split, seq_len, vocab_size, cache_dir, learned);
  if (data.gives_samples()) return open_plugin_samples(data, split, seq_len, vocab_size);
  if (data.labels_texts()) return open_labelled(data, 0, split, seq_len, vocab_size, cache_dir, learned);
  if (!has_split(data, split)) return nullptr;
  if (data.streaming && split == Split::train) return open_streamed(data, seq_len, vocab_size, cache_dir);
  const auto tokenizer = masking_tokenizer(data, cache_dir);
  return token_samples(data, split, open_files(data, split, vocab_size, cache_dir), seq_len, tokenizer.get());
}

std::string record_format_of(const std::string& file, const std::string& otherwise) {
  const auto kind = fs::path(file).extension();
  if (kind == ".csv" || kind == ".tsv") return "csv";
  if (kind == ".parquet") return "parquet";
  return kind == ".jsonl" || kind == ".json" || kind == ".ndjson" ? "jsonl" : otherwise;
}

namespace {

/// Whether the record has the texts that `data` reads.
bool fits(const Recipe::Data& data, const JsonRecord& record) {
  const auto columns = data.columns.value_or(Recipe::Data::Columns());
  if (data.labels_texts()) {
    const auto there = [&](const std::string& field) {
      const auto other = columns.find(field);
      return record.contains(other == columns.end() ? field : other->second);
    };
    return there("text") && (!data.has_text_pairs() || there("text_pair"));
  }
  try {
    const auto reader = data.layout == "auto" ? chat::RecordReader::detect(record, columns)
                                              : chat::RecordReader(chat::layout_of_name(data.layout), columns);
    reader.read(record);
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// The columns of texts with labels if the settings name none.
std::optional<Recipe::Data::Columns> unnamed_columns(Recipe::Data data, const std::string& file) {
  const bool known = !data.train.empty() || data.columns;  // false: a folder that does not say its columns
  data.columns.reset();
  auto columns = text_columns(data, file);
  if (known && columns)
    throw usage_error("{} has pairs of texts (text_pair), and the model was trained on single texts", file);
  return columns;
}

}  // namespace

Recipe::Data settings_for_file(const Recipe::Data& training, const std::string& file) {
  training.is_plugin() ? check_source_paths("data.validation", {file}) : check_source_files("data.validation", {file});
  std::vector<Recipe::Data> all;
  for (auto& source : sources_of(training)) {
    auto& data = all.emplace_back(std::move(source.data));
    if (!data.is_plugin() && !data.has_token_ids()) data.format = record_format_of(file, data.format);
  }
  auto chosen = all.begin();
  if (all.size() > 1 && chosen->has_records()) {
    const auto record = first_record(*chosen, file);
    const auto found = std::ranges::find_if(all, [&](const auto& data) { return fits(data, record); });
    if (found != all.end()) chosen = found;
  }
  auto& data = *chosen;
  if (data.labels_texts() && (!data.columns || data.columns->empty())) data.columns = unnamed_columns(data, file);
  return data;
}

namespace {

InputData open_text_inputs(const Recipe::Data& training, const std::vector<std::string>& files, int64_t seq_len,
                           const std::string& cache_dir, const nlohmann::json& learned) {
  std::vector<Recipe::Data> settings;
  for (const auto& file : files) {
    settings.push_back(settings_for_file(training, file));
    if (settings.back().has_text_pairs() == settings.front().has_text_pairs()) continue;
    const bool pairs = settings.back().has_text_pairs();
    throw usage_error("{} has pairs of texts (text_pair), and {} has single texts", pairs ? file : files.front(),
                      pairs ? files.front() : file);
  }
  const auto tokenizer = open_tokenizer(settings.front(), cache_dir);
  InputData inputs;
  std::vector<MixtureSource> parts;
  std::vector<int64_t> sizes;
  for (size_t file = 0; file < files.size();) {  // neighbours with the same settings are read together
    auto& data = settings[file];
    data.train.clear();
    for (; file < files.size() && settings[file].format == data.format && settings[file].columns == data.columns;
         ++file)
      data.train.push_back(files[file]);
    data.validation = data.train;
    data.validation_fraction.reset();
    auto opened = open_files(data, Split::validation, any_vocabulary, cache_dir);
    auto names = record_ids(data, data.train, inputs.names.size());
    std::ranges::move(names, std::back_inserter(inputs.names));
    parts.push_back({.data = unlabelled_texts(data, std::move(opened), seq_len, *tokenizer, learned)});
    sizes.push_back(parts.back().data->size());
  }
  inputs.samples = mixture_dataset(std::move(parts), std::move(sizes));
  RUNNER_CHECK(inputs.samples->size() == std::ssize(inputs.names));
  return inputs;
}

}  // namespace

InputData open_inputs(const Recipe::Data& data, const std::vector<std::string>& files, int64_t seq_len,
                      const std::string& cache_dir, const nlohmann::json& learned) {
  if (data.labels_texts()) return open_text_inputs(data, files, seq_len, cache_dir, learned);
  if (data.is_table()) return open_table_inputs(data, files, learned);
  if (data.is_images()) return open_image_inputs(data, files, learned);
  throw usage_error("data.format = \"{}\": the model has no labels", data.format);
}

std::vector<BatchField> data_fields(const Recipe::Data& data, int64_t seq_len) {
  if (data.is_table()) return open_table(data, Split::train)->fields();
  if (data.is_images()) return image_fields(data);
  if (data.gives_samples()) return plugin_content(data, seq_len).fields;
  find_format(data.format);
  if (data.labels_texts()) {
    auto fields = text_fields(seq_len, data.has_text_pairs());
    fields.push_back(data.target_type == "class" ? labels_field() : targets_field(std::ssize(data.target)));
    return fields;
  }
  return data.packs_sequences() ? packed_fields(seq_len) : token_fields(seq_len);
}

bool needs_tokenizing(const Recipe::Data& data) {
  return data.has_records() || (data.format == "text" && data.tokenizer != "bytes");
}

void prepare_data(const Recipe::Data& data, const std::string& cache_dir) {
  for (const auto& source : sources_of(needs_tokenizing(data) ? with_trained_tokenizer(data, cache_dir) : data)) {
    if (source.data.streaming)
      make_parts(*parts_of_training(source.data, any_vocabulary, cache_dir).files);
    else
      open_files(source.data, Split::train, any_vocabulary, cache_dir);
    if (!source.data.validation.empty()) open_files(source.data, Split::validation, any_vocabulary, cache_dir);
  }
}

std::unique_ptr<BackgroundTokenizing> begin_preparing(const Recipe::Data& data, const std::string& cache_dir) {
  if (!data.streaming) {
    prepare_data(data, cache_dir);
    return nullptr;
  }
  auto parts = parts_of_training(data, any_vocabulary, cache_dir);
  if (parts.files->count() == 0) throw usage_error("data.train: the files have no records");
  const auto first = ranges_of(*parts.files, streamed_part_bytes(0)).front();
  TokenizingProgress progress(bytes_of(*parts.files, first));
  make_range(*parts.files, first, &progress);
  if (!data.validation.empty()) open_files(data, Split::validation, any_vocabulary, cache_dir);
  return std::make_unique<BackgroundTokenizing>(std::move(parts.files));
}

std::unique_ptr<Tokenizer> make_tokenizer(const Recipe::Data& data, const std::string& cache_dir) {
  if (data.has_rows()) throw usage_error("data.format = \"{}\" has no tokenizer", data.format);
  if (data.has_token_ids())
    throw usage_error("data.format = \"{}\" contains tokens already and has no tokenizer", data.format);
  return open_tokenizer(data, cache_dir);
}

std::optional<int64_t> tokenizer_vocab_size(const Recipe::Data& data, const std::string& cache_dir) {
  if (data.has_token_ids() || data.has_rows()) return std::nullopt;
  if (data.tokenizer == "bytes") return bytes_vocab_size;
  if (data.tokenizer == "sentencepiece" && data.tokenizer_vocab_size) return data.tokenizer_vocab_size;
  return open_tokenizer(data, cache_dir)->vocab_size();
}

}  // namespace runner
