// `runner generate`: continues prompts with a trained model.
#include <unistd.h>

#include <memory>

#include "runner/commands/command.hpp"
#include "runner/commands/model_options.hpp"
#include "runner/inference/generation_settings.hpp"
#include "runner/inference/text_records.hpp"

namespace runner {

namespace {

struct GenerateOptions {
  ModelOptions model;
  InferenceRequest request{.verb = "generate"};
  std::vector<std::string> prompts;
};

ExitCode generate_text(GenerateOptions& options) {
  auto& prompts = options.request.prompts;
  prompts.texts = options.prompts;
  if (prompts.file.empty() && prompts.texts.empty()) {
    if (::isatty(STDIN_FILENO))
      throw usage_error("there is no prompt: write it after the model, name a file with --file, or pipe it in");
    prompts.file = "-";
  }
  prompts.records = prompts.records || has_records(prompts.file);
  find_model(options.model, options.request);
  become_worker(options.request);
}

}  // namespace

Action setup_generate(CLI::App& app) {
  auto options = std::make_shared<GenerateOptions>();
  auto& request = options->request;
  add_model_options(app, options->model, request);
  app.add_option("prompt", options->prompts, "The text to continue; default: standard input");
  app.add_option(
      "--file", request.prompts.file,
      "A file that is the prompt, or - for standard input. JSON, CSV and Parquet files (.jsonl, .json, .csv, "
      ".tsv, .parquet) have records with `prompt` or `messages`");
  app.add_flag("--jsonl", request.prompts.records, "Standard input, or the file, has one record on each line");
  add_chat_options(app, request.prompts, /*optional=*/true);
  add_generation_options(app, request, generate_new_tokens);
  app.add_option("--num-samples", request.num_samples, "Texts for each prompt")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--batch-size", request.batch_size,
                 "Texts that are generated at once. With 1, a text is printed as it appears")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_flag("--echo", request.echo, "Print the prompt in front of the text");
  app.add_flag("--json", request.json, "Print one JSON object for each text");
  return [options] { return generate_text(*options); };
}

}  // namespace runner
