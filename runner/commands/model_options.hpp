// Options of the verbs that run a trained model, and the worker that does it.
#pragma once
#include <CLI/CLI.hpp>
#include <string>

#include "runner/commands/checkpoint_choice.hpp"
#include "runner/inference/request.hpp"

namespace runner {

/// The model on the command line, as the user writes it.
struct ModelOptions {
  std::string model = {};
  CheckpointChoice choice = {};
  std::optional<int64_t> threads = {};
  std::string accelerator = "auto";
};

/// The positional `model`, --checkpoint, --step, --best, --dtype, --threads and --accelerator.
void add_model_options(CLI::App& app, ModelOptions& options, InferenceRequest& request);
/// `most_tokens`: the verb's default of the first one. --max-new-tokens, --temperature, --top-k, --top-p, --min-p, --repetition-penalty, --stop, --ignore-eos, --seed.
void add_generation_options(CLI::App& app, InferenceRequest& request, int64_t most_tokens);

/// --batch-size, with the default of verbs that read many inputs.
void add_batch_option(CLI::App& app, InferenceRequest& request);
/// --output, --batch-size and --json.
void add_line_options(CLI::App& app, InferenceRequest& request);

/// --system and --chat-template; with `optional`, also --chat.
void add_chat_options(CLI::App& app, PromptsRequest& request, bool optional);

/// Fills in `request.load`: finds the run, the checkpoint or the folder. Throws Error(usage) with the nearest names.
void find_model(const ModelOptions& options, InferenceRequest& request);

/// Replaces this process by the worker, which reads from and writes to the terminal itself.
[[noreturn]] void become_worker(const InferenceRequest& request);

}  // namespace runner
