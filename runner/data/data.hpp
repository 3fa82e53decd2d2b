// Data sets, and the tokenizers that recipes name. Independent of torch.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runner/base/text.hpp"
#include "runner/config/recipe.hpp"
#include "runner/tokenizers/tokenizer.hpp"
#include "strategies/engine/host_batch.hpp"

namespace runner {

/// "bytes" (256 tokens), the file of a tokenizer (tokenizer.json, a SentencePiece model, a tiktoken or GGUF file) or a folder with one,
/// or "sentencepiece": a model that is trained once on the texts of the training data and cached in `cache_dir` under a hash of its
/// inputs. It is lossless: decode(encode(text)) == text for valid UTF-8. It is trained on at most 64 MiB, evenly taken from larger data,
/// and each marker of data.chat_template is one token. Throws Error(usage or environment) with the path and the reason.
std::unique_ptr<Tokenizer> make_tokenizer(const Recipe::Data& data, const std::string& cache_dir);
/// Tokenizer::files() of make_tokenizer(), without reading them completely; a model may be trained first. Empty for "bytes" and for
/// format "bin".
std::vector<Tokenizer::File> tokenizer_files(const Recipe::Data& data, const std::string& cache_dir);
/// The size of the vocabulary, without loading or training a model if possible; nullopt for format "bin".
std::optional<int64_t> tokenizer_vocab_size(const Recipe::Data& data, const std::string& cache_dir);

class BackgroundTokenizing;

/// One of [[data.sources]], with all settings of [data].
struct DataSource {
  std::string name;   ///< empty: the recipe has no sources, only data.train
  Recipe::Data data;  ///< without sources
  std::optional<double> weight = {};
  int64_t epochs = 1;
  std::optional<std::string> format = {};  ///< unset: data.format
};

/// The sources of a recipe; data without sources are one.
std::vector<DataSource> sources_of(const Recipe::Data& data);

enum class Split { train, validation };

/// How an epoch orders its samples.
struct SampleOrderOptions {
  bool shuffle = true;
  int64_t seed = 0;
};

/// The numbers that determine the random draws for a sample, in addition to the sample itself.
struct SampleDraw {
  int64_t epoch = 0, seed = 0;
  // The place in the global batch, which does not depend on ranks and micro-batches:
  int64_t batch = 0;                      ///< position of the batch's first sample in the epoch
  int64_t row = 0;                        ///< of the sample in the batch
  std::optional<int64_t> neighbour = {};  ///< the sample of row ^ 1; unset: the batch has no such row
};

/// Samples, each of which becomes a row of a batch. All functions may be called from several threads.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;  ///< samples of an epoch
  /// min(wanted, size()). Data that are tokenised during the training wait for no more samples than these.
  virtual int64_t size_up_to(int64_t wanted) const { return std::min(wanted, size()); }
  /// False if size() is known only at the end of the first epoch, because the data are tokenised during the training.
  virtual bool size_known_at_start() const { return true; }
  /// The sample at a position of an epoch. Depends only on the arguments, so any rank can start anywhere.
  virtual int64_t sample_at(int64_t epoch, int64_t position, const SampleOrderOptions& options) const;
  /// "8713 samples of 128 tokens".
  virtual std::string describe() const { return counted(size(), "sample"); }
  virtual std::vector<BatchField> fields() const = 0;
  /// The sample's part of the weight of its global batch (StepInput::weight): 1 for an image with a label, for tokens
  /// the number of targets that are not ignored. Every rank calls it for all samples of a global batch, so that no
  /// exchange is needed before the step. It must be much cheaper than read().
  virtual int64_t weight(int64_t sample) const = 0;
  /// The units that the throughput counts: the tokens that the model reads of the sample, supervised or not, without padding. 1 for a
  /// sample without tokens (row_batch.hpp), and for a text with a label.
  virtual int64_t units(int64_t sample) const;
  /// The fields of a batch of these samples: fields(), or with smaller rows if none of the samples fills them.
  virtual std::vector<BatchField> fields_of(std::span<const int64_t> /*samples*/) const { return fields(); }
  /// Neighbouring rows of a global batch that one thread should read, because they need the same files.
  virtual int64_t rows_together() const { return 1; }
  /// The facts that the data set has learned from training data and needs to read others in the same way, for checkpoints. Null: none.
  virtual nlohmann::json learned() const { return nullptr; }
  /// Writes a sample to row `row` of a batch that has fields_of() its samples, in that order.
  virtual void read(int64_t sample, HostBatch& batch, int64_t row) const = 0;
  /// Writes a sample of data whose samples differ from epoch to epoch, as a function of the arguments.
  virtual void draw(int64_t sample, HostBatch& batch, int64_t row, const SampleDraw& /*draw*/) const {
    read(sample, batch, row);
  }
  /// Samples with a label whose text is too long, so that its end is left out.
  virtual int64_t cut_texts() const { return 0; }
};
/// The fields of the data sets that open_dataset() opens for these settings.
std::vector<BatchField> data_fields(const Recipe::Data& data, int64_t seq_len);
/// Memory-maps the files of a split. Several files form one stream, in the given order. Sample k is tokens [k*T, k*T + T]
/// of the stream: token_fields(T). Throws Error(usage or environment) if a file is missing, empty, a folder, too short
/// for one sample, not UTF-8 (text; with file, byte offset and line), or has a token id >= vocab_size (bin; with file
/// and position). The contents of up to 256 MiB of files are checked here; other contents are checked at each read(), so
/// that opening is fast. With data.validation_fraction, the validation split is the last part of data.train, rounded to
/// the nearest token, and the training split is the rest. Returns nullptr without a validation split.
/// For tables, `seq_len`, `vocab_size` and `cache_dir` are not used; `learned` is Dataset::learned() of a checkpoint, and replaces
/// what data.train teaches.
std::unique_ptr<Dataset> open_dataset(const Recipe::Data& data, Split split, int64_t seq_len, int64_t vocab_size,
                                      const std::string& cache_dir, const nlohmann::json& learned = nullptr);

/// data.format of a file of records, by its name: csv, parquet or jsonl. `otherwise`: for names that do not say it.
std::string record_format_of(const std::string& file, const std::string& otherwise = "jsonl");

/// The settings of the training for a file of texts or records. The name of the file decides its format, if it ends in a known one. With
/// several sources, the settings are those of the first source that can read the file's first record. Texts with labels have the columns
/// of the training. Only where a Hugging Face folder names no columns, the first record decides whether there are pairs of texts.
/// Throws Error(usage) that begins with "data.validation: " if there is no such file; and Error(usage) if the file has pairs of texts and
/// the training had single texts.
Recipe::Data settings_for_file(const Recipe::Data& training, const std::string& file);

/// Samples whose targets are not known, for predictions: their targets do not count.
struct InputData {
  std::unique_ptr<Dataset> samples = {};
  std::vector<nlohmann::ordered_json> names = {};  ///< of each sample, {"id": ..., ...}
  std::vector<std::string> notes = {};             ///< for the user
};
/// Opens files as the training data of the model were read: tables, texts, or images and folders of images. `seq_len`
/// and `cache_dir` are for texts; `learned`: Dataset::learned() of the training data. Throws Error(usage) with the file
/// and the row or column that does not fit.
InputData open_inputs(const Recipe::Data& data, const std::vector<std::string>& files, int64_t seq_len,
                      const std::string& cache_dir, const nlohmann::json& learned);

/// Fills in what the data determine: of plug-ins what they give and the sizes that follow from it; of tables model.num_features,
/// model.num_labels, data.target_type and train.loss; of texts with labels model.labels instead of the features. `known_labels`: the
/// labels of the model that training starts from; if the data have the same ones, they keep this order. Origins name the data. Throws
/// Error(usage) as open_dataset().
void take_data_facts(Recipe& recipe, const std::vector<std::string>& known_labels = {});

/// Whether text has to be tokenised before workers can open it.
bool needs_tokenizing(const Recipe::Data& data);
/// Fills `cache_dir` for open_dataset() before any worker starts: trains the tokenizer and tokenises text. Throws Error
/// for the mistakes that can be found without seq_len and vocab_size. Several processes may call it at once.
void prepare_data(const Recipe::Data& data, const std::string& cache_dir);
/// Prepares data as prepare_data() does, but with data.streaming only the first part of the training data. The other parts are tokenised
/// as long as the returned object lives; nullptr without streaming.
std::unique_ptr<BackgroundTokenizing> begin_preparing(const Recipe::Data& data, const std::string& cache_dir);

}  // namespace runner
