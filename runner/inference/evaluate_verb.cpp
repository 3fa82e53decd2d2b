// `runner evaluate` without a task: the loss on validation data, as training computes it.
#include <algorithm>
#include <cmath>
#include <span>

#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/config/model_families.hpp"
#include "runner/data/data.hpp"
#include "runner/inference/evaluated_data.hpp"
#include "runner/inference/sample_batch.hpp"
#include "runner/inference/scorer.hpp"
#include "runner/inference/task_evaluation.hpp"
#include "runner/inference/verbs.hpp"
#include "strategies/engine/token_batch.hpp"

namespace runner {

namespace {

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
  job.events.emit("result", {{"metrics", metrics}, {"data", data->describe()}});
  return ExitCode::done;
}

}  // namespace runner
