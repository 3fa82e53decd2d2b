#include "runner/inference/task_evaluation.hpp"

#include <cmath>

#include "runner/base/files.hpp"
#include "runner/base/text.hpp"
#include "runner/inference/multiple_choice.hpp"
#include "runner/inference/scorer.hpp"
#include "runner/inference/text_records.hpp"

namespace runner {

namespace {

/// Calls body(line, "FILE:LINE", number of the record) for each line that is not empty.
template <class Body>
void for_each_record(const InferenceRequest& request, Body&& body) {
  if (request.data.empty())
    throw usage_error("--task {} needs --data FILE, with one JSON object on each line", request.task);
  int64_t line_number = 0, number = 0;
  for (const auto& line : split(read_file(request.data), '\n')) {
    ++line_number;
    if (trim(line).empty()) continue;
    if (request.limit > 0 && number == request.limit) break;
    body(line, fmt::format("{}:{}", request.data, line_number), number++);
  }
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

}  // namespace

ExitCode evaluate_choices(InferenceJob& job) {
  const auto& request = job.request;
  std::vector<ChoiceRecord> records;
  std::vector<ScoredTokens> texts;
  for_each_record(request, [&](const std::string& line, const std::string& place, int64_t number) {
    records.push_back(choice_record(line, place, number));
    for (const auto& choice : records.back().choices)
      texts.push_back(encode_pair(*job.tokenizer, records.back().context, " " + choice));
  });
  LineOutput lines(request.output);
  const auto scores = score_all(job.model, texts, request.batch_size, progress_of(job, texts.size()));
  Hits hits;
  size_t next = 0;
  for (const auto& record : records) {
    std::vector<double> sums;
    std::vector<int64_t> counts;
    for (size_t i = 0; i < record.choices.size(); ++i, ++next) {
      sums.push_back(scores[next].log_probability);
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
  job.events.emit("result", {{"metrics", hits.metrics()}});
  return ExitCode::done;
}

namespace {

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

}  // namespace

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
    for (auto& window : rolling_windows(tokens, first_token(*job.tokenizer), length, context))
      windows.push_back(std::move(window));
  }
  double sum = 0;
  for (const auto& score : score_all(job.model, windows, request.batch_size, progress_of(job, windows.size()))) {
    sum += score.log_probability;
    sizes.tokens += score.tokens;
  }
  nlohmann::json metrics{{"log_probability", sum}, {"tokens", sizes.tokens}, {"documents", documents.size()}};
  add_perplexities(metrics, sum, sizes);
  job.events.emit("result", {{"metrics", metrics}});
  return ExitCode::done;
}

}  // namespace runner
