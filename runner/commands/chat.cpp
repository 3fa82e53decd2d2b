// `runner chat`: a conversation with a trained model.
#include <memory>

#include "runner/commands/command.hpp"
#include "runner/commands/model_options.hpp"
#include "runner/inference/generation_settings.hpp"

namespace runner {

namespace {

struct ChatOptions {
  ModelOptions model;
  InferenceRequest request{.verb = "chat"};
};

}  // namespace

Action setup_chat(CLI::App& app) {
  auto options = std::make_shared<ChatOptions>();
  auto& request = options->request;
  add_model_options(app, options->model, request);
  add_chat_options(app, request.prompts, /*optional=*/false);
  add_generation_options(app, request, chat_new_tokens);
  app.add_flag("--json", request.json, "Print one JSON object for each answer");
  app.footer(
      "Each line of standard input is a message. /reset begins a new conversation, /exit ends. Keys and values of the "
      "conversation are kept between answers.");
  return [options]() -> ExitCode {
    find_model(options->model, options->request);
    become_worker(options->request);
  };
}

}  // namespace runner
