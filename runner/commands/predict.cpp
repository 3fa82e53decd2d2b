// `runner predict`: a model's answer to each record, row or image.
#include <memory>

#include "runner/commands/command.hpp"
#include "runner/commands/inference_run.hpp"
#include "runner/commands/shared_options.hpp"
#include "runner/inference/generation_settings.hpp"

namespace runner {

namespace {

struct PredictOptions {
  ModelOptions model;
  InferenceRequest request{.verb = "predict"};
};

}  // namespace

Action setup_predict(CLI::App& app) {
  auto options = std::make_shared<PredictOptions>();
  auto& request = options->request;
  request.prompts.records = true;
  add_model_options(app, options->model, request);
  app.add_option(
         "data", request.files,
         "Language models: a file of records, `prompt` (a text) or `messages` (for the chat template), and "
         "perhaps `id`: JSON, CSV or Parquet; - is standard input, with a JSON object on each line. Models of "
         "texts with labels: files of records with the text columns of the training data. Tables: CSV, "
         "Parquet or JSON lines files with the columns of the training data; for texts and tables, - is standard "
         "input, with JSON or CSV. Images: files and folders")
      ->required();
  add_line_options(app, request);
  add_chat_options(app, request.prompts, /*optional=*/true);
  add_generation_options(app, request, predict_new_tokens);
  app.footer(
      "Each line of the output is a JSON object, in the order of the inputs. Language models: {id, prompt, prediction, "
      "finish_reason, tokens}. Classes: {id, label, probabilities}, of images also file; --top-k says how many classes "
      "are listed, by default all of a table or of texts and 5 of images. Numbers: {id, value}.");
  return [options] { return write_lines_of(options->model, options->request, "predictions"); };
}

}  // namespace runner
