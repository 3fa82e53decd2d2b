#include "runner/inference/generator.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "runner/base/clock.hpp"
#include "runner/base/error.hpp"

namespace runner {

namespace {

/// All columns of a batch, as they are read. Reads again from the first column where rotations of earlier keys change.
class Columns {
 public:
  Columns(const LanguageModel& model, const std::vector<GenerationStart>& starts)
      : model_(model), changes_after_(rotations_change_after(model.settings())), rows_(starts.size()) {
    size_t longest = 0;
    for (const auto& start : starts) longest = std::max(longest, start.tokens.size());
    std::vector<int64_t> padding;
    for (size_t row = 0; row < starts.size(); ++row) {
      const auto& tokens = starts[row].tokens;
      padding.push_back(static_cast<int64_t>(longest - tokens.size()));
      rows_[row].assign(longest - tokens.size(), 0);
      rows_[row].insert(rows_[row].end(), tokens.begin(), tokens.end());
    }
    cache_.emplace(model.new_cache(std::move(padding)));
  }

  /// Continues with the cache of a sequence that has the same first tokens. Returns the number of these.
  int64_t reuse(ReadSequence& read) {
    if (!read.cache) return 0;
    const auto& tokens = rows_.front();
    const auto differs = std::ranges::mismatch(read.tokens, tokens).in1 - read.tokens.begin();
    const int64_t same = std::min<int64_t>(differs, std::ssize(tokens) - 1);  // the last one is read for its logits
    cache_ = std::move(read.cache);
    cache_->keep(same);
    return cache_->length();
  }
  void keep(ReadSequence& read) {
    read.tokens.assign(rows_.front().begin(), rows_.front().begin() + cache_->length());
    read.cache = std::move(cache_);
  }

  /// Reads the columns that were not read.
  torch::Tensor read() {
    const auto columns = std::ssize(rows_.front());
    if (cache_->length() <= changes_after_ && columns > changes_after_) cache_->keep(0);
    std::vector<int64_t> tokens;
    for (const auto& row : rows_) tokens.insert(tokens.end(), row.begin() + cache_->length(), row.end());
    return model_.next_logits(tokens, *cache_);
  }
  void append(size_t row, int32_t token) { rows_[row].push_back(token); }
  void keep_rows(const std::vector<int64_t>& rows) {
    std::vector<std::vector<int64_t>> kept;
    for (const int64_t row : rows) kept.push_back(std::move(rows_[static_cast<size_t>(row)]));
    rows_ = std::move(kept);
    cache_->keep_rows(rows);
  }

 private:
  const LanguageModel& model_;
  int64_t changes_after_;
  std::vector<std::vector<int64_t>> rows_;
  std::optional<KeyValueCache> cache_;
};

/// One sequence while it is generated.
struct GrowingText {
  std::vector<int32_t> seen;  ///< prompt and new tokens
  TextStream stream;
  GeneratedText result = {};
  bool done() const { return !result.finish.empty(); }
};

/// Drops finished sequences when they are at least half of all. Returns false if all are finished.
bool drop_finished(Columns& columns, const std::vector<GrowingText>& sequences, std::vector<size_t>& live) {
  std::vector<int64_t> rows;
  std::vector<size_t> kept;
  for (size_t row = 0; row < live.size(); ++row)
    if (!sequences[live[row]].done()) {
      rows.push_back(static_cast<int64_t>(row));
      kept.push_back(live[row]);
    }
  if (rows.empty()) return false;
  if (2 * rows.size() > live.size()) return true;
  columns.keep_rows(rows);
  live = std::move(kept);
  return true;
}

/// Throws Error(environment). A logit of -inf only forbids its token.
void refuse_not_finite(const LanguageModel& model, std::span<const float> logits) {
  if (std::ranges::none_of(logits, [](float logit) { return std::isnan(logit) || logit == INFINITY; }) &&
      std::ranges::any_of(logits, [](float logit) { return std::isfinite(logit); }))
    return;
  throw environment_error("the next token has no probabilities: {}", model.not_finite());
}

}  // namespace

std::vector<GeneratedText> Generator::run(const std::vector<GenerationStart>& starts, const OnText& on_text,
                                          ReadSequence* read) {
  RUNNER_CHECK(!starts.empty() && (!read || starts.size() == 1));
  std::vector<GrowingText> sequences;
  for (const auto& start : starts)
    sequences.push_back({.seen = start.tokens, .stream = TextStream(tokenizer_, start.tokens, settings_.stop)});
  Columns columns(model_, starts);
  const int64_t reused = read ? columns.reuse(*read) : 0;
  Sampler sampler(settings_.sampling);
  const int64_t vocabulary = std::min(model_.vocab_size(), tokenizer_.vocab_size());

  const auto finish = [&](size_t row, const char* why) {
    auto& sequence = sequences[row];
    sequence.result.finish = why;
    if (auto rest = sequence.stream.finish(); !rest.empty()) on_text(row, rest);
    sequence.result.text = sequence.stream.text();
  };
  // Returns the token to read next; a finished sequence reads any.
  const auto advance = [&](size_t row, float* logits, int64_t made) -> int32_t {
    auto& sequence = sequences[row];
    if (sequence.done()) return 0;
    refuse_not_finite(model_, {logits, static_cast<size_t>(vocabulary)});
    const int32_t token = sampler.draw({logits, static_cast<size_t>(vocabulary)}, sequence.seen,
                                       uniform_draw(seed_, starts[row].sample, static_cast<uint64_t>(made)));
    if (std::ranges::find(settings_.eos, token) != settings_.eos.end()) return finish(row, "eos"), token;
    sequence.seen.push_back(token);
    sequence.result.tokens.push_back(token);
    if (auto text = sequence.stream.push(token); !text.empty()) on_text(row, text);
    if (sequence.stream.stopped())
      finish(row, "stop");
    else if (made + 1 == settings_.max_new_tokens)
      finish(row, "length");
    else if (std::ssize(sequence.seen) >= model_.max_seq_len())
      finish(row, "max_seq_len");
    else if (interrupted_ && *interrupted_)
      finish(row, "interrupted");
    return token;
  };

  std::vector<size_t> live(starts.size());  // the sequences of the columns' rows
  std::iota(live.begin(), live.end(), size_t{0});
  for (const auto& start : starts) times_.prompt_tokens += std::ssize(start.tokens);
  times_.reused_tokens += reused;
  double before = steady_seconds();
  for (int64_t made = 0;; ++made) {
    auto logits = columns.read();
    const double now = steady_seconds();
    (made == 0 ? times_.prompt_seconds : times_.token_seconds) += now - before;
    before = now;
    for (size_t row = 0; row < live.size(); ++row) {
      if (made > 0 && !sequences[live[row]].done()) ++times_.tokens;
      float* of_row = logits.data_ptr<float>() + static_cast<int64_t>(row) * logits.size(1);
      columns.append(row, advance(live[row], of_row, made));
    }
    if (!drop_finished(columns, sequences, live)) break;
  }
  times_.token_seconds += steady_seconds() - before;
  if (read) columns.keep(*read);
  std::vector<GeneratedText> results;
  for (auto& sequence : sequences) results.push_back(std::move(sequence.result));
  return results;
}

}  // namespace runner
