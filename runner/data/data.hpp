// Data as the trainer sees it: tokenizers, token datasets, the order of samples, and a prefetching loader. Torch-free.
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
/// "bytes" (vocab 256), a SentencePiece model file, or "sentencepiece": trained once on data.train and cached in
/// `cache_dir` under a name that hashes its inputs. The trained one is lossless (decode(encode(text)) == text for valid
/// UTF-8) and looks at 64 MiB of data.train at most, spread evenly. Throws Error(usage/environment) with the path and
/// the reason.
std::unique_ptr<Tokenizer> make_tokenizer(const Recipe::Data& data, const std::string& cache_dir);
/// The vocabulary without loading anything heavy where that is possible; nullopt for format "bin".
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
/// Opens (memory-maps) the files of a split; several files are one stream in the order given. Throws Error(usage or
/// environment): missing, empty, a folder, too short for one sample, not UTF-8 (text; with file, byte offset and line),
/// token id >= vocab_size (bin; with file and position). The contents of the first 256 MiB of files are checked here,
/// of further ones at each read(), so that opening takes no time. With data.validation_fraction the last part of
/// data.train's tokens, rounded to the nearest token, is the validation split and the rest the training split. An
/// absent validation split gives nullptr.
std::unique_ptr<Dataset> open_dataset(const Recipe::Data& data, Split split, int64_t seq_len, int64_t vocab_size,
                                      const std::string& cache_dir);

/// A mistake in [data]: the dotted key that it belongs to, and what is wrong.
struct DataProblem {
  std::string key, message;
};
/// What shows without tokenising, for `runner check` and before a run is recorded: files that are missing, empty or
/// match no pattern; a tokenizer that cannot be read; too few tokens for one sample of each split. Text whose tokens
/// are its bytes and "bin" files are opened as open_dataset() does; of text for a SentencePiece model only its size is
/// looked at. Empty: nothing is wrong. `vocab_size`: the model's.
std::vector<DataProblem> find_data_problems(const Recipe::Data& data, int64_t seq_len, int64_t vocab_size,
                                            const std::string& cache_dir);
/// Those of find_data_problems() that need neither `seq_len` nor the vocabulary.
std::vector<DataProblem> find_missing_data(const Recipe::Data& data);
/// Whether text has to be tokenised before workers can open it.
bool needs_tokenizing(const Recipe::Data& data);
/// What is no mistake, yet probably not meant: text files that look like JSON lines. Empty: nothing.
std::vector<std::string> data_notes(const Recipe::Data& data);

/// Does once, before any worker starts, what open_dataset() would otherwise have to wait for: trains the tokenizer and
/// tokenises text into `cache_dir`. Finds the mistakes that need neither seq_len nor vocab_size. Several processes may
/// ask at once.
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

/// Where a run stands in its data: global batches already consumed.
struct DataPosition {
  int64_t epoch = 0;
  int64_t sample = 0;  ///< samples of this epoch already consumed, over all ranks
};

/// What one optimizer step reads on one rank: `micro_batches` buffers of up to micro_batch_size sequences.
struct HostBatch {
  int64_t sequences = 0;         ///< rows in this micro-batch; may be short or 0 at the end of an epoch
  std::vector<int64_t> inputs;   ///< [sequences, T]
  std::vector<int64_t> targets;  ///< [sequences, T]
};
struct StepBatch {
  std::vector<HostBatch> micro_batches;  ///< of this rank, always `accumulation` many
  int64_t first_sequence = 0;            ///< of this rank's, in the global batch
  int64_t global_sequences = 0;          ///< over all ranks and micro-batches: what the loss is divided by (x T)
  DataPosition after;                    ///< position once this step is done
  int64_t epoch = 0;
  bool epoch_end = false;  ///< this is the last step of its epoch
};

/// Batches of a split for one rank, prepared ahead on one background thread.
///
/// A global batch takes `global_batch_size` samples in SampleOrder (the last one of an epoch may be short); rank r of W
/// takes the contiguous slice [r*G/W, (r+1)*G/W) of them and cuts it into G/W/micro_batch_size micro-batches. A short
/// last batch is cut as evenly as possible, first among ranks, then into the same number of micro-batches, the first
/// ones getting one more; a rank may get empty micro-batches. Rows in order of rank and micro-batch are the global
/// batch in order, whatever W and micro_batch_size.
class Loader {
 public:
  struct Options {
    int64_t global_batch_size = 1, micro_batch_size = 1;
    int rank = 0, world_size = 1;  ///< of the data-parallel group
    bool shuffle = true;
    int64_t seed = 0;
    int64_t prefetch = 2;  ///< steps prepared ahead; 0: only when next() waits for one
    DataPosition start =
        {};  ///< batches from here on are those of a loader that came by; the end of an epoch is the next's begin
    bool repeat = true;  ///< false: stops after one epoch (validation)
  };
  /// Throws Error(usage) if `start` lies behind the data's end. Every global batch size must be a multiple of
  /// micro_batch_size * world_size. Reading begins with the first next().
  Loader(const Dataset& dataset, Options options);
  ~Loader();  ///< waits for the sample being read, at most
  /// False at the end (repeat = false). Rethrows what the background thread threw, after the steps prepared before it.
  bool next(StepBatch& out);
  /// Seconds that next() has waited for data so far.
  double waited_seconds() const;
  /// Takes the place of Options::global_batch_size: called at the beginning of each epoch (accumulation schedules
  /// change it by epoch). To be set before the first next().
  void set_batch_size_of_epoch(std::function<int64_t(int64_t epoch)> batch_size_of_epoch);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace runner
