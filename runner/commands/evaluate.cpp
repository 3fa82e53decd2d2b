// `runner evaluate`: measures a trained model.
#include <memory>

#include "runner/base/log.hpp"
#include "runner/commands/command.hpp"
#include "runner/commands/inference_run.hpp"
#include "runner/commands/shared_options.hpp"

namespace runner {

namespace {

struct EvaluateOptions {
  ModelOptions model;
  InferenceRequest request{.verb = "evaluate"};
};

ExitCode evaluate(EvaluateOptions& options) {
  const auto result = run_inference(options.model, options.request);
  print_result(options.request, result);
  log::info("recorded as run {}", result.run);
  return ExitCode::done;
}

}  // namespace

Action setup_evaluate(CLI::App& app) {
  auto options = std::make_shared<EvaluateOptions>();
  auto& request = options->request;
  add_model_options(app, options->model, request);
  app.add_option(
      "--data", request.data,
      "The file to evaluate on. Its name says the format: .jsonl, .ndjson, .json, .csv, .tsv and .parquet have "
      "records. Other files are read as the training data were, and as text by a folder's language model. For "
      "images: a folder with a folder for each class. Default: the validation data of the run's recipe");
  app.add_option("--task", request.task,
                 "multiple_choice: lines {context, choices, label}, scored as lm-evaluation-harness does; rolling: the "
                 "perplexity of whole documents, each token predicted once. Default: the loss, as in training")
      ->check(CLI::IsMember({"multiple_choice", "rolling"}));
  add_batch_option(app, request);
  app.add_option("--limit", request.limit, "Only the first records or samples")->check(CLI::PositiveNumber);
  app.add_option(
         "--context", request.context,
         "With --task rolling: how many tokens are in front of the first token that a window predicts; default 1")
      ->check(CLI::PositiveNumber);
  app.add_option("-o,--output", request.output, "With --task multiple_choice: a file with a JSON line for each record");
  add_json_option(app, request.json);
  app.footer(
      "Language models: loss and perplexity are per token. word_perplexity, byte_perplexity and bits_per_byte are per "
      "word and per UTF-8 byte of the text, so models with different tokenizers can be compared. acc: the choice with "
      "the greatest log-probability; acc_norm: divided by its characters; acc_bytes: by its bytes; acc_tokens: by its "
      "tokens. Models of labels or numbers: loss and the metrics of validation (accuracy, f1, mae ...), per row.");
  return [options] { return evaluate(*options); };
}

}  // namespace runner
