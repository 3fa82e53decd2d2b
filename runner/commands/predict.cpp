// `runner predict`: a model's answer to each record of a file.
#include <memory>

#include "runner/base/log.hpp"
#include "runner/commands/command.hpp"
#include "runner/commands/inference_run.hpp"
#include "runner/commands/model_options.hpp"
#include "runner/commands/shared_options.hpp"

namespace runner {

namespace {

struct PredictOptions {
  ModelOptions model;
  InferenceRequest request{.verb = "predict"};
};

ExitCode predict(PredictOptions& options) {
  auto& request = options.request;
  if (request.json && request.output.empty())
    throw usage_error("--json prints the summary on stdout, so the predictions need --output FILE");
  find_model(options.model, request);
  for (auto* file : {&request.prompts.file, &request.output})
    if (!file->empty()) *file = fs::absolute(*file).lexically_normal().string();
  const auto result = run_inference(request);
  if (request.json) print_result(request, result);
  log::info("{} predictions; recorded as run {}", result.metrics.at("records").get<int64_t>(), result.run);
  return ExitCode::done;
}

}  // namespace

Action setup_predict(CLI::App& app) {
  auto options = std::make_shared<PredictOptions>();
  auto& request = options->request;
  request.batch_size = 8;
  request.prompts.records = true;
  add_model_options(app, options->model, request);
  app.add_option("data", request.prompts.file,
                 "A file with a JSON object on each line: `prompt` (a text) or `messages` (for the chat template), and "
                 "perhaps `id`")
      ->required();
  app.add_option("--output", request.output, "The file to write; default: standard output");
  add_chat_options(app, request.prompts, /*optional=*/true);
  add_generation_options(app, request);
  app.add_option("--batch-size", request.batch_size, "Records that are computed at once")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  add_json_option(app, request.json);
  app.footer(
      "Each line of the output is {id, prompt, prediction, finish_reason, tokens}, in the order of the records.");
  return [options] { return predict(*options); };
}

}  // namespace runner
