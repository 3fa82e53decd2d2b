// `runner predict` and `runner evaluate` with models that predict labels or numbers of rows.
#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "runner/base/error.hpp"
#include "runner/base/files.hpp"
#include "runner/base/log.hpp"
#include "runner/data/data.hpp"
#include "runner/data/image.hpp"
#include "runner/data/image_data.hpp"
#include "runner/data/table_data.hpp"
#include "runner/inference/loaded_model.hpp"
#include "runner/inference/sample_batch.hpp"
#include "runner/inference/text_records.hpp"
#include "runner/inference/verbs.hpp"
#include "runner/models/task_metrics.hpp"

namespace runner {

namespace {

/// The files of rows that a model of labels or numbers answers. Rows are read more than once, so standard input ("-") becomes a file in the
/// folder `scratch`: JSON if it begins with { or [, otherwise CSV.
class InputFiles {
 public:
  /// Throws Error(usage) if "-" is there twice, and Error(environment).
  InputFiles(std::vector<std::string> files, const fs::path& scratch) : paths_(std::move(files)) {
    for (auto& path : paths_)
      if (path == "-") keep_standard_input(path, scratch);
  }
  const std::vector<std::string>& paths() const { return paths_; }

  /// The text with "standard input" where it names the temporary file.
  std::string shown(std::string text) const {
    if (kept_.empty()) return text;
    for (size_t at = text.find(kept_); at != std::string::npos; at = text.find(kept_, at))
      text.replace(at, kept_.size(), "standard input");
    return text;
  }

 private:
  void keep_standard_input(std::string& path, const fs::path& scratch) {
    if (!kept_.empty()) throw usage_error("`-` (standard input) is there twice");
    const auto content = content_of("-");
    const auto begin = content.find_first_not_of(" \t\r\n");
    if (begin == std::string::npos) throw usage_error("standard input is empty");
    const char* kind = content[begin] == '{' ? ".jsonl" : content[begin] == '[' ? ".json" : ".csv";
    kept_ = (scratch / "rows").string() + kind;
    write_file_atomic(kept_, content);
    path = kept_;
  }

  std::vector<std::string> paths_;
  std::string kept_ = {};  ///< the temporary file
};

/// The meaning of the outputs of a model of labels or numbers for one row, as JSON.
class LabelAnswers {
 public:
  /// `learned`: Dataset::learned() of the training data, which names classes and target columns. `listed`: how many of the most
  /// probable classes are listed; 0: all; unset: all classes of tables and texts, 5 of images.
  LabelAnswers(const TaskSpec& task, const nlohmann::json& learned, std::optional<int64_t> listed);

  /// Adds to `line`:
  ///   classes          {"label", "probabilities": {class: number}}: all in the order of the classes, or the most probable ones first
  ///   one label        the same with the two values of its column
  ///   several labels   {"labels": {column: value}, "probabilities": {column: that of the second value}}
  ///   numbers          {"value"}, of several {"values": {column: number}}, in their own units
  /// `outputs`: of the model, one for each of TaskSpec::outputs. Throws Error(environment) if one is not finite.
  void add(nlohmann::ordered_json& line, std::span<const float> outputs) const;

 private:
  struct Column {
    std::string name = {};
    std::vector<std::string> values = {"0", "1"};  ///< of a label
    double mean = 0, scale = 1;                    ///< of a number
  };
  void add_class(nlohmann::ordered_json& line, std::span<const float> outputs) const;
  void add_labels(nlohmann::ordered_json& line, std::span<const float> outputs) const;
  void add_numbers(nlohmann::ordered_json& line, std::span<const float> outputs) const;

  TaskSpec task_;
  std::vector<std::string> classes_ = {};
  std::vector<Column> columns_ = {};
  size_t listed_;
};

using nlohmann::json, nlohmann::ordered_json;

std::vector<double> softmax(std::span<const float> logits) {
  const double most = *std::ranges::max_element(logits);
  std::vector<double> shares;
  double sum = 0;
  for (const double logit : logits) sum += shares.emplace_back(std::exp(logit - most));
  for (auto& share : shares) share /= sum;
  return shares;
}

/// "LABEL_3", as transformers calls a class without a name.
std::string numbered(size_t index) { return fmt::format("LABEL_{}", index); }

LabelAnswers::LabelAnswers(const TaskSpec& task, const json& learned, std::optional<int64_t> listed) : task_(task) {
  const auto count = static_cast<size_t>(task.outputs);
  const bool of_table = learned.is_object() && learned.contains("targets");
  if (task.classifies()) {
    if (of_table) classes_ = learned.at("targets").at(0).value("classes", std::vector<std::string>());
    for (size_t c = classes_.size(); c < count; ++c) {
      const auto name =
          learned.is_object() ? learned.value("id2label", json::object()).value(std::to_string(c), "") : "";
      classes_.push_back(name.empty() ? numbered(c) : name);
    }
  } else {
    for (size_t c = 0; c < count; ++c) {
      auto& column = columns_.emplace_back(Column{.name = numbered(c)});
      if (!of_table) {
        const auto names = learned.is_object() ? learned.value("id2label", json::object()) : json::object();
        column.name = names.value(std::to_string(c), column.name);
        continue;
      }
      const auto& target = learned.at("targets").at(c);
      column = {.name = target.at("column"),
                .values = target.value("classes", column.values),
                .mean = target.value("mean", 0.0),
                .scale = target.value("scale", 1.0)};
    }
  }
  constexpr int64_t listed_of_others = 5;
  const int64_t wanted = listed.value_or(of_table ? 0 : listed_of_others);
  listed_ = wanted == 0 ? count : std::min(count, static_cast<size_t>(wanted));
}

void LabelAnswers::add(ordered_json& line, std::span<const float> outputs) const {
  if (!std::ranges::all_of(outputs, [](float value) { return std::isfinite(value); }))
    throw environment_error(
        "the model's output for {} is not a finite number: its weights are damaged, or the input has "
        "values far from those of training",
        line.dump());
  if (task_.classifies()) return add_class(line, outputs);
  task_.regresses() ? add_numbers(line, outputs) : add_labels(line, outputs);
}

void LabelAnswers::add_class(ordered_json& line, std::span<const float> outputs) const {
  const auto shares = softmax(outputs);
  std::vector<size_t> order(shares.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto best = static_cast<size_t>(std::ranges::max_element(shares) - shares.begin());
  if (listed_ < order.size()) {
    std::ranges::stable_sort(order, std::greater<>(), [&](size_t c) { return shares[c]; });
    order.resize(listed_);
  }
  line["label"] = classes_[best];
  auto& probabilities = line["probabilities"] = ordered_json::object();
  for (const size_t c : order) probabilities[classes_[c]] = shares[c];
}

void LabelAnswers::add_labels(ordered_json& line, std::span<const float> outputs) const {
  std::vector<double> shares;
  for (const double logit : outputs) shares.push_back(1 / (1 + std::exp(-logit)));
  const auto value = [&](size_t c) { return columns_[c].values.at(shares[c] > 0.5 ? 1 : 0); };
  if (shares.size() == 1) {
    line["label"] = value(0);
    line["probabilities"] = {{columns_[0].values.at(0), 1 - shares[0]}, {columns_[0].values.at(1), shares[0]}};
    return;
  }
  line["labels"] = ordered_json::object();
  line["probabilities"] = ordered_json::object();
  for (size_t c = 0; c < shares.size(); ++c) {
    line["labels"][columns_[c].name] = value(c);
    line["probabilities"][columns_[c].name] = shares[c];
  }
}

void LabelAnswers::add_numbers(ordered_json& line, std::span<const float> outputs) const {
  const auto value = [&](size_t c) { return columns_[c].mean + columns_[c].scale * outputs[c]; };
  if (outputs.size() == 1) {
    line["value"] = value(0);
    return;
  }
  auto& values = line["values"] = ordered_json::object();
  for (size_t c = 0; c < outputs.size(); ++c) values[columns_[c].name] = value(c);
}

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
  try {
    return predict_files(request, std::move(stored), files, events);
  } catch (const DamagedImage& error) {
    throw Error(error.code(), files.shown(damaged_inputs(files.paths(), error.what())));
  } catch (const Error& error) {
    throw Error(error.code(), files.shown(error.what()));
  }
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
  for (const auto& note : evaluation_notes(settings, stored.learned)) log::warning("{}", note);
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
  model.warn_not_finite("the loss", sums[0]);
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
