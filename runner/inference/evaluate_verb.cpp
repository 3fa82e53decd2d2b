// `runner evaluate`: the loss on validation data, as training computes it, and tasks.
#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <span>
#include <vector>

#include "runner/base/files.hpp"
#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/config/model_families.hpp"
#include "runner/data/data.hpp"
#include "runner/data/records.hpp"
#include "runner/inference/sample_batch.hpp"
#include "runner/inference/scored_text.hpp"
#include "runner/inference/text_records.hpp"
#include "runner/inference/verbs.hpp"
#include "strategies/engine/token_batch.hpp"

namespace runner {

namespace {

// Log-probabilities of continuations, in batches.

struct ContinuationScore {
  double log_probability = 0;  ///< the sum over its tokens
  bool greedy = true;          ///< every token is the most probable one
  int64_t tokens = 0;
  int64_t hits = 0;  ///< tokens that are the most probable ones

  void add(const ContinuationScore& other) {
    log_probability += other.log_probability;
    greedy = greedy && other.greedy;
    tokens += other.tokens;
    hits += other.hits;
  }
};

/// The rows, padded on the right.
HostBatch padded(const std::vector<ModelRow>& rows) {
  size_t longest = 0;
  for (const auto& row : rows) longest = std::max(longest, row.inputs.size());
  HostBatch batch(std::ssize(rows), token_fields(static_cast<int64_t>(longest)));
  std::ranges::fill(batch.values<int64_t>(token_field::targets), ignored_target);
  for (size_t r = 0; r < rows.size(); ++r) {
    std::ranges::copy(rows[r].inputs, batch.row<int64_t>(token_field::inputs, static_cast<int64_t>(r)).begin());
    std::ranges::copy(rows[r].targets, batch.row<int64_t>(token_field::targets, static_cast<int64_t>(r)).begin());
  }
  return batch;
}

/// The scores of the rows of a batch of tokens with targets.
std::vector<ContinuationScore> score_rows(const LanguageModel& model, const HostBatch& batch) {
  const auto all = model.score(batch);
  std::vector<ContinuationScore> scores(static_cast<size_t>(batch.rows));
  size_t place = 0;
  for (int64_t r = 0; r < batch.rows; ++r)
    for (const int64_t target : batch.row<int64_t>(token_field::targets, r)) {
      if (target == ignored_target) continue;
      auto& score = scores[static_cast<size_t>(r)];
      const bool hit = all.greedy[place];
      score.log_probability += all.log_probabilities[place++];
      score.greedy = score.greedy && hit;
      score.hits += hit;
      ++score.tokens;
    }
  return scores;
}

/// The scores are in the order of `texts`. The longest texts are computed first, in batches of `batch_size` that are padded on the right.
/// `progress` gets the number of texts that are done.
std::vector<ContinuationScore> score_all(const LanguageModel& model, const std::vector<ScoredTokens>& texts,
                                         int64_t batch_size, const std::function<void(int64_t)>& progress) {
  std::vector<ModelRow> rows;
  for (const auto& text : texts) rows.push_back(row_of(text, model.max_seq_len()));
  std::vector<size_t> order(texts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater<>(), [&](size_t i) { return rows[i].inputs.size(); });
  std::vector<ContinuationScore> scores(texts.size());
  const auto step = static_cast<size_t>(batch_size);
  for (size_t first = 0; first < order.size(); first += step) {
    const size_t end = std::min(first + step, order.size());
    std::vector<ModelRow> batch;
    for (size_t i = first; i < end; ++i) batch.push_back(std::move(rows[order[i]]));
    const auto of_batch = score_rows(model, padded(batch));
    for (size_t i = first; i < end; ++i) scores[order[i]] = of_batch[i - first];
    progress(static_cast<int64_t>(end));
  }
  return scores;
}

// Tasks of `runner evaluate`: multiple choice, and the perplexity of whole documents.

/// Adds the perplexity for each kind of unit that was counted, and the counts.
void add_perplexities(nlohmann::json& metrics, double log_probability, const TextSizes& sizes) {
  const auto per = [&](int64_t count) { return -log_probability / static_cast<double>(count); };
  if (sizes.tokens > 0) metrics["perplexity"] = std::exp(per(sizes.tokens));
  if (sizes.bytes == 0) return;
  metrics["word_perplexity"] = std::exp(per(sizes.words));
  metrics["byte_perplexity"] = std::exp(per(sizes.bytes));
  metrics["bits_per_byte"] = per(sizes.bytes) / std::log(2.0);
  metrics["words"] = sizes.words;
  metrics["bytes"] = sizes.bytes;
}

/// Calls body(line, "FILE:LINE", number of the record) for each line that is not empty.
template <class Body>
void for_each_record(const InferenceRequest& request, Body&& body) {
  if (request.data.empty())
    throw usage_error("--task {} needs --data FILE, with one JSON object on each line", request.task);
  int64_t line_number = 0, number = 0;
  FaultyRows faulty;
  for (const auto& line : split(read_file(request.data), '\n')) {
    ++line_number;
    if (trim(line).empty()) continue;
    if (request.limit > 0 && number == request.limit) break;
    const auto place = fmt::format("{}:{}", request.data, line_number);
    try {
      body(line, place, number++);
    } catch (const Error& error) {
      faulty.add(error, [&] { return place; });
    }
  }
  faulty.raise(/*all=*/true);
  if (number == 0) throw usage_error("{} has no record", request.data);
}

std::function<void(int64_t)> progress_of(InferenceJob& job, size_t all) {
  return [&job, all](int64_t done) { report_progress(job.events, done, static_cast<int64_t>(all)); };
}

/// How many records each rule predicts right.
struct Hits {
  int64_t sum = 0, characters = 0, bytes = 0, tokens = 0, records = 0;

  void add(const ChoicePrediction& predicted, int64_t label) {
    sum += predicted.sum == label;
    characters += predicted.characters == label;
    bytes += predicted.bytes == label;
    tokens += predicted.tokens == label;
    ++records;
  }
  nlohmann::json metrics() const {
    nlohmann::json metrics{{"records", records}};
    for (const auto& [name, hits] : {std::pair("acc", sum), std::pair("acc_norm", characters),
                                     std::pair("acc_bytes", bytes), std::pair("acc_tokens", tokens)}) {
      const auto share = share_of(hits, records);
      metrics[name] = share.mean;
      if (share.standard_error) metrics[std::string(name) + "_stderr"] = *share.standard_error;
    }
    return metrics;
  }
};

/// Sends acc, acc_norm, acc_bytes and acc_tokens with standard errors. Writes a line for each record to request.output.
ExitCode evaluate_choices(InferenceJob& job) {
  const auto& request = job.request;
  std::vector<ChoiceRecord> records;
  std::vector<ScoredTokens> texts;
  for_each_record(request, [&](const std::string& line, const std::string& place, int64_t number) {
    records.push_back(choice_record(line, place, number));
    for (const auto& choice : records.back().choices)
      texts.push_back(encode_pair(*job.tokenizer, records.back().context, " " + choice, job.model.stored().folder));
  });
  LineOutput lines(request.output);
  const auto scores = score_all(job.model, texts, request.batch_size, progress_of(job, texts.size()));
  Hits hits;
  double all = 0;
  size_t next = 0;
  for (const auto& record : records) {
    std::vector<double> sums;
    std::vector<int64_t> counts;
    for (size_t i = 0; i < record.choices.size(); ++i, ++next) {
      sums.push_back(scores[next].log_probability);
      all += sums.back();
      counts.push_back(scores[next].tokens);
    }
    const auto predicted = predict_choice(record, sums, counts);
    hits.add(predicted, record.label);
    if (!request.output.empty())
      lines.add({{"id", record.id},
                 {"context", record.context},
                 {"choices", record.choices},
                 {"label", record.label},
                 {"prediction", predicted.sum},
                 {"prediction_norm", predicted.characters},
                 {"log_probabilities", sums},
                 {"tokens", counts}});
  }
  lines.finish();
  job.model.warn_not_finite("the log-probability of the choices", all);
  job.events.emit("result", {{"metrics", hits.metrics()}});
  return ExitCode::done;
}

std::vector<std::string> documents_of(const InferenceRequest& request) {
  if (request.data.empty()) throw usage_error("--task {} needs --data FILE", request.task);
  std::vector<std::string> documents;
  if (has_records(request.data)) {
    for (auto& record : read_texts(request.data, /*records=*/true, {"text", "page"}))
      documents.push_back(std::move(record.text));
  } else {
    documents.push_back(content_of(request.data));
    if (documents.front().empty()) throw usage_error("{} is empty", request.data);
    if (const auto bad = first_invalid_utf8(documents.front()))
      throw usage_error("{}: byte {} is not UTF-8", request.data, *bad);
  }
  const auto limit = static_cast<size_t>(request.limit);
  if (limit > 0 && documents.size() > limit) documents.resize(limit);
  return documents;
}

/// Sends word_perplexity, byte_perplexity and bits_per_byte of documents. A file *.jsonl has a document in `text` (or `page`) of each
/// line; any other file is one document.
ExitCode evaluate_rolling(InferenceJob& job) {
  const auto& request = job.request;
  const int64_t length = job.model.max_seq_len(), context = std::max<int64_t>(1, request.context);
  if (context >= length)
    throw usage_error("--context {}: must be below the model's max_seq_len of {}", context, length);
  const auto documents = documents_of(request);
  TextSizes sizes;
  std::vector<ScoredTokens> windows;
  for (const auto& document : documents) {
    const auto tokens = job.tokenizer->encode(document);
    sizes.add(document);
    for (auto& window :
         rolling_windows(tokens, first_token(*job.tokenizer, job.model.stored().folder), length, context))
      windows.push_back(std::move(window));
  }
  double sum = 0;
  for (const auto& score : score_all(job.model, windows, request.batch_size, progress_of(job, windows.size()))) {
    sum += score.log_probability;
    sizes.tokens += score.tokens;
  }
  nlohmann::json metrics{{"log_probability", sum}, {"tokens", sizes.tokens}, {"documents", documents.size()}};
  add_perplexities(metrics, sum, sizes);
  job.model.warn_not_finite("the log-probability", sum);
  job.events.emit("result", {{"metrics", metrics}});
  return ExitCode::done;
}

/// The text of the targets. The rows of a text follow each other, so a character may be in two of them.
class TargetText {
 public:
  TargetText(const Tokenizer* tokenizer, bool continuous) : tokenizer_(tokenizer), continuous_(continuous) {}
  void add(std::span<const int64_t> targets) {
    for (const int64_t target : targets)
      if (target != ignored_target) tokens_.push_back(static_cast<int32_t>(target));
    constexpr size_t many = 1 << 20;
    if (!continuous_ || tokens_.size() > many) take();
  }
  TextSizes sizes() {
    take();
    return sizes_;
  }

 private:
  void take() {
    if (tokenizer_ && !tokens_.empty()) sizes_.add(tokenizer_->decode(tokens_, /*skip_special_tokens=*/true));
    tokens_.clear();
  }
  const Tokenizer* tokenizer_;
  bool continuous_;
  std::vector<int32_t> tokens_;
  TextSizes sizes_;
};

/// Whether the last block of a model computes its loss only as one sum.
bool sums_its_loss(const LanguageModel& model) { return model.settings().name == "plugin"; }

/// The sums over the tokens of a batch that count in the loss.
ContinuationScore score_of(const LanguageModel& model, const HostBatch& batch) {
  ContinuationScore sum;
  if (sums_its_loss(model)) {
    const torch::InferenceMode inference;
    sum.log_probability = -model.run(model.micro_batch(batch), {}).to(torch::kCPU, torch::kFloat64).item<double>();
    for (int64_t row = 0; row < batch.rows; ++row)
      sum.tokens += std::ranges::count_if(batch.row<int64_t>(token_field::targets, row),
                                          [](int64_t target) { return target != ignored_target; });
    return sum;
  }
  for (const auto& score : score_rows(model, batch)) sum.add(score);
  return sum;
}

}  // namespace

ExitCode evaluate_model(InferenceJob& job) {
  const auto& request = job.request;
  if (!request.task.empty() && sums_its_loss(job.model))
    throw usage_error(
        "--task {} needs the probability of each token, and the model of a plug-in computes only the sum "
        "of a batch",
        request.task);
  if (!request.task.empty() && family_kind(job.model.settings().name) == "encoder")
    throw usage_error("--task {} needs a model of the next token, and {} predicts hidden tokens", request.task,
                      job.model.settings().name);
  if (request.task == "multiple_choice") return evaluate_choices(job);
  if (request.task == "rolling") return evaluate_rolling(job);
  const auto& recipe = job.model.stored().recipe;
  auto settings = evaluated_data(request, job.model.stored());
  // The loss per token is the same, unless the place of a sequence decides which of its tokens are hidden.
  if (settings.packs_sequences() && !settings.masks_tokens()) settings.packing = "none";
  const auto data = open_dataset(settings, Split::validation, recipe.data.seq_len.value_or(recipe.model.max_seq_len),
                                 job.model.vocab_size(), request.load.cache_dir);
  const int64_t all = data->size(), wanted = request.limit > 0 ? std::min(request.limit, all) : all;
  // Words and bytes of hidden tokens, which are not neighbours, mean nothing.
  TargetText text(settings.masks_tokens() ? nullptr : job.tokenizer.get(), settings.format == "text");
  ContinuationScore total;
  const auto score = [&](const HostBatch& batch, int64_t) {
    total.add(score_of(job.model, batch));
    for (int64_t row = 0; row < batch.rows; ++row) text.add(batch.row<int64_t>(token_field::targets, row));
  };
  for_each_batch(*data, wanted, request.batch_size, score,
                 [&](int64_t done) { report_progress(job.events, done, wanted); });
  if (total.tokens == 0) throw usage_error("the data have no token that counts in the loss");
  auto sizes = text.sizes();
  sizes.tokens = total.tokens;
  const auto tokens = static_cast<double>(total.tokens);
  nlohmann::json metrics{{"loss", -total.log_probability / tokens}, {"tokens", total.tokens}, {"samples", wanted}};
  if (!sums_its_loss(job.model)) metrics["token_accuracy"] = static_cast<double>(total.hits) / tokens;
  add_perplexities(metrics, total.log_probability, sizes);
  job.model.warn_not_finite("the loss", total.log_probability);
  job.events.emit("result", {{"metrics", metrics}, {"data", data->describe()}});
  return ExitCode::done;
}

}  // namespace runner
