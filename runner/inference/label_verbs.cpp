// `runner predict` and `runner evaluate` with models that predict labels or numbers of rows.
#include <algorithm>

#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/data/data.hpp"
#include "runner/data/table_schema.hpp"
#include "runner/inference/evaluated_data.hpp"
#include "runner/inference/input_files.hpp"
#include "runner/inference/label_answers.hpp"
#include "runner/inference/model_tokenizer.hpp"
#include "runner/inference/sample_batch.hpp"
#include "runner/inference/verbs.hpp"
#include "runner/models/task_metrics.hpp"

namespace runner {

namespace {

/// Throws Error(usage) for options that only a language model can follow.
void refuse_text_options(const InferenceRequest& request) {
  const auto refuse = [&](const std::string& option) {
    throw usage_error("{} is for language models, and {} predicts labels or numbers", option, request.load.name);
  };
  const nlohmann::json given = request.generation, unset = GenerationRequest();
  for (const auto& [key, value] : given.items())
    if (key != "top_k" && (!unset.contains(key) || unset.at(key) != value)) {
      auto option = "--" + key;
      std::ranges::replace(option, '_', '-');
      refuse(option);
    }
  if (request.generation.top_k.value_or(0) < 0)
    throw usage_error("--top-k {}: must be 0 (all classes) or more", *request.generation.top_k);
  if (request.prompts.chat) refuse("--chat");
  if (!request.prompts.system.empty()) refuse("--system");
  if (!request.prompts.chat_template.empty()) refuse("--chat-template");
  if (!request.task.empty()) refuse("--task");
}

/// Throws Error(usage) if texts are not tokenised as in the training.
void check_tokenizer(const InferenceRequest& request, const StoredModel& stored) {
  if (stored.recipe.data.labels_texts()) open_model_tokenizer(stored, request.load.cache_dir);
}

/// Says how many texts the model does not see to their end.
void note_cut_texts(const Dataset& data, const StoredModel& stored) {
  const auto count = data.cut_texts();
  const bool pairs = stored.recipe.data.has_text_pairs();
  if (count == 1)
    log::warning("1 {} is longer than {} tokens: the end is left out", pairs ? "pair of texts" : "text",
                 stored.spec.seq_len);
  if (count > 1)
    log::warning("{} {} are longer than {} tokens: the ends are left out", count, pairs ? "pairs of texts" : "texts",
                 stored.spec.seq_len);
}

ExitCode predict_files(const InferenceRequest& request, StoredModel stored, const InputFiles& files,
                       EventSink& events) {
  const torch::InferenceMode inference;
  const auto inputs =
      open_inputs(stored.recipe.data, files.paths(), stored.spec.seq_len, request.load.cache_dir, stored.learned);
  for (const auto& note : inputs.notes) log::warning("{}", files.shown(note));
  note_cut_texts(*inputs.samples, stored);
  const LoadedModel model(request.load, std::move(stored));
  const LabelAnswers answers(*model.stored().spec.task, model.stored().learned, request.generation.top_k);
  LineOutput lines(request.output);
  const int64_t all = std::ssize(inputs.names);
  const auto answer = [&](const HostBatch& batch, int64_t first) {
    const auto outputs =
        model.run(model.micro_batch(batch), {.logits_of = 0}).to(torch::kCPU, torch::kFloat32).contiguous();
    const auto width = static_cast<size_t>(outputs.size(1));
    for (int64_t row = 0; row < batch.rows; ++row) {
      auto line = inputs.names.at(static_cast<size_t>(first + row));
      answers.add(line, {outputs.data_ptr<float>() + row * outputs.size(1), width});
      lines.add(line);
    }
  };
  for_each_batch(*inputs.samples, all, request.batch_size, answer,
                 [&](int64_t done) { report_progress(events, done, all); });
  lines.finish();
  events.emit("result", {{"metrics", {{"records", all}}}});
  return ExitCode::done;
}

}  // namespace

ExitCode predict_labels(const InferenceRequest& request, StoredModel stored, EventSink& events) {
  refuse_text_options(request);
  check_tokenizer(request, stored);
  if (stored.recipe.data.is_images() && std::ranges::find(request.files, "-") != request.files.end())
    throw usage_error("`-` (standard input) is for texts and tables, and {} reads images", request.load.name);
  const InputFiles files(request.files, request.scratch);
  return files.read([&] { return predict_files(request, std::move(stored), files, events); });
}

ExitCode evaluate_labels(const InferenceRequest& request, StoredModel stored, EventSink& events) {
  refuse_text_options(request);
  if (!request.output.empty())
    throw usage_error("--output is for --task multiple_choice; `runner predict` writes answers");
  check_tokenizer(request, stored);
  const torch::InferenceMode inference;
  const auto settings = evaluated_data(request, stored);
  const auto data = open_dataset(settings, Split::validation, stored.spec.seq_len, stored.spec.vocab_size,
                                 request.load.cache_dir, stored.learned);
  note_cut_texts(*data, stored);
  const LoadedModel model(request.load, std::move(stored));
  const auto& task = *model.stored().spec.task;
  const int64_t wanted = request.limit > 0 ? std::min(request.limit, data->size()) : data->size();
  std::vector<double> sums(static_cast<size_t>(metric_sums(task)));
  const auto measure = [&](const HostBatch& batch, int64_t) {
    const auto more = model.run(model.micro_batch(batch), {}).to(torch::kCPU, torch::kFloat64).contiguous();
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += more.data_ptr<double>()[i];
  };
  for_each_batch(*data, wanted, request.batch_size, measure,
                 [&](int64_t done) { report_progress(events, done, wanted); });
  const double rows = sums[1];
  if (rows == 0) throw usage_error("the data have no row that counts in the loss");
  nlohmann::json metrics{{"loss", sums[0] / rows}, {"samples", wanted}};
  constexpr size_t prefix = std::string_view("val_").size();  // of the same metrics in a training
  for (const auto& [name, value] : metrics_of(task, sums, target_scales(model.stored().learned))) {
    if (std::isfinite(value))
      metrics[name.substr(prefix)] = value;
    else
      log::info("note: {} is not defined for these data", name.substr(prefix));
  }
  events.emit("result", {{"metrics", metrics}, {"data", data->describe()}});
  return ExitCode::done;
}

}  // namespace runner
