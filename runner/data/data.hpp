// Data for the trainer: tokenizers, token datasets, the order of samples, and a prefetching loader. Independent of
// torch.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runner/config/recipe.hpp"

namespace runner {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual int64_t vocab_size() const = 0;
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  virtual std::string decode(std::span<const int32_t> tokens) const = 0;
};
/// "bytes" (256 tokens), a SentencePiece model file, or "sentencepiece": trained once on data.train and cached in
/// `cache_dir` under a hash of its inputs. The trained one is lossless: decode(encode(text)) == text for valid UTF-8.
/// It is trained on at most 64 MiB: of larger data, on every k-th line. Throws Error(usage or environment) with the
/// path and the reason.
std::unique_ptr<Tokenizer> make_tokenizer(const Recipe::Data& data, const std::string& cache_dir);
/// The SentencePiece model of make_tokenizer(), which may be trained first. Empty for "bytes" and for format "bin".
std::string tokenizer_file(const Recipe::Data& data, const std::string& cache_dir);
/// The size of the vocabulary, without loading or training a model if possible; nullopt for format "bin".
std::optional<int64_t> tokenizer_vocab_size(const Recipe::Data& data, const std::string& cache_dir);

enum class Split { train, validation };

/// Samples of T inputs and T targets; sample k is tokens [k*T, k*T + T] of the stream (target = next token).
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;  ///< samples
  virtual int64_t seq_len() const = 0;
  /// Writes seq_len ids to each span. Safe to call from several threads.
  virtual void read(int64_t sample, std::span<int64_t> inputs, std::span<int64_t> targets) const = 0;
};
/// Memory-maps the files of a split. Several files form one stream, in the given order. Throws Error(usage or
/// environment) if a file is missing, empty, a folder, too short for one sample, not UTF-8 (text; with file, byte
/// offset and line), or has a token id >= vocab_size (bin; with file and position). The contents of up to 256 MiB of
/// files are checked here; other contents are checked at each read(), so that opening is fast. With
/// data.validation_fraction, the validation split is the last part of data.train, rounded to the nearest token, and the
/// training split is the rest. Returns nullptr without a validation split.
std::unique_ptr<Dataset> open_dataset(const Recipe::Data& data, Split split, int64_t seq_len, int64_t vocab_size,
                                      const std::string& cache_dir);

/// A mistake in [data]: the dotted key that it belongs to, and what is wrong.
struct DataProblem {
  std::string key, message;
};
/// Finds mistakes without tokenising, for `runner check` and before a run is recorded: missing or empty files, patterns
/// without matches, a tokenizer that cannot be read, too few tokens for one sample of each split. "bin" files, and text
/// with the tokenizer "bytes", are opened as by open_dataset(). Of text for a SentencePiece model, only the size is
/// checked. Empty: no mistakes. `vocab_size`: the model's.
std::vector<DataProblem> find_data_problems(const Recipe::Data& data, int64_t seq_len, int64_t vocab_size,
                                            const std::string& cache_dir);
/// The mistakes that find_data_problems() finds without `seq_len` and the vocabulary.
std::vector<DataProblem> find_missing_data(const Recipe::Data& data);
/// Whether text has to be tokenised before workers can open it.
bool needs_tokenizing(const Recipe::Data& data);
/// Notes about data that are valid, but probably not intended: text files that look like JSON lines, or for whose
/// characters the tokenizer has no tokens.
std::vector<std::string> data_notes(const Recipe::Data& data);
/// The amount of data, e.g. "3 files with 8713 samples of 128 tokens, and 968 to validate". Of text that is not
/// tokenised yet, the size in bytes. `tokenized`: prepare_data() has run.
std::string data_summary(const Recipe::Data& data, int64_t seq_len, int64_t vocab_size, const std::string& cache_dir,
                         bool tokenized);

/// Fills `cache_dir` for open_dataset() before any worker starts: trains the tokenizer and tokenises text. Throws Error
/// for the mistakes that can be found without seq_len and vocab_size. Several processes may call it at once.
void prepare_data(const Recipe::Data& data, const std::string& cache_dir);

/// The order of samples in an epoch: a permutation that depends on (seed, epoch) only; the identity without shuffle.
/// Needs no memory per sample (a keyed Feistel network with cycle walking).
class SampleOrder {
 public:
  SampleOrder(int64_t size, bool shuffle, int64_t seed, int64_t epoch);
  int64_t operator[](int64_t position) const;
  int64_t size() const { return size_; }

 private:
  int64_t size_;
  bool shuffle_;
  uint64_t key_;
  int half_bits_;  ///< of each half of the network: it permutes [0, 4^half_bits_)
};

/// The position of a run in its data: after the global batches that are already consumed.
struct DataPosition {
  int64_t epoch = 0;
  int64_t sample = 0;  ///< samples of this epoch already consumed, over all ranks
};

/// One micro-batch of one rank.
struct HostBatch {
  int64_t sequences = 0;         ///< rows, at most micro_batch_size; fewer, or 0, at the end of an epoch
  std::vector<int64_t> inputs;   ///< [sequences, T]
  std::vector<int64_t> targets;  ///< [sequences, T]
};
/// The data of one optimizer step on one rank.
struct StepBatch {
  std::vector<HostBatch> micro_batches;  ///< of this rank; always as many as the accumulation factor
  int64_t first_sequence = 0;            ///< index of this rank's first sequence in the global batch
  int64_t global_sequences = 0;          ///< over all ranks and micro-batches; the loss is divided by this x T
  DataPosition after;                    ///< position after this step
  int64_t epoch = 0;
  bool epoch_end = false;  ///< this is the last step of its epoch
};

/// Batches of a split for one rank. One background thread prepares them in advance.
///
/// A global batch takes `global_batch_size` samples in SampleOrder (the last one of an epoch may be short); rank r of W
/// takes the contiguous slice [r*G/W, (r+1)*G/W) of them and cuts it into G/W/micro_batch_size micro-batches. A short
/// last batch is divided as evenly as possible, first among ranks, then into the same number of micro-batches. The
/// first parts get one more row; a rank may get empty micro-batches. For any W and micro_batch_size, the rows in order
/// of rank and micro-batch are the global batch in order.
class Loader {
 public:
  struct Options {
    int64_t global_batch_size = 1, micro_batch_size = 1;
    int rank = 0, world_size = 1;  ///< of the data-parallel group
    bool shuffle = true;
    int64_t seed = 0;
    int64_t prefetch = 2;  ///< steps prepared in advance; 0: a step is prepared while next() waits
    DataPosition start =
        {};  ///< first batch; a loader that starts here returns the same batches as one that reached this position
    bool repeat = true;  ///< false: stops after one epoch (validation)
  };
  /// Throws Error(usage) if `start` is beyond the end of the data. Every global batch size must be a multiple of
  /// micro_batch_size * world_size. Reading begins with the first next().
  Loader(const Dataset& dataset, Options options);
  ~Loader();  ///< waits at most until the current sample is read
  /// False at the end (repeat = false). Rethrows an exception of the background thread, after the steps prepared before
  /// it.
  bool next(StepBatch& out);
  /// Seconds that next() has waited for data so far.
  double waited_seconds() const;
  /// Replaces Options::global_batch_size by a function, which is called at the start of each epoch (for accumulation
  /// schedules). Must be set before the first next().
  void set_batch_size_of_epoch(std::function<int64_t(int64_t epoch)> batch_size_of_epoch);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace runner
