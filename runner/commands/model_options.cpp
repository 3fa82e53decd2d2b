#include "runner/commands/model_options.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "runner/base/error.hpp"
#include "runner/base/exec.hpp"
#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/checkpoint/adapter_model.hpp"
#include "runner/checkpoint/checkpoint.hpp"
#include "runner/commands/preflight.hpp"
#include "runner/commands/run.hpp"
#include "runner/commands/shared_options.hpp"
#include "runner/devices/devices.hpp"
#include "runner/ledger/ledger.hpp"
#include "runner/pretrained/model_files.hpp"

namespace runner {

void add_model_options(CLI::App& app, ModelOptions& options, InferenceRequest& request) {
  app.add_option("model", options.model,
                 "A run (its id, part of it, its name, or last), a checkpoint's folder, a Hugging Face folder or GGUF "
                 "file, or a folder with an adapter of PEFT")
      ->required();
  add_checkpoint_options(app, options.choice);
  app.add_option(
      "--base", request.load.base,
      "The base model of an adapter: a folder or GGUF file. Default: the one that adapter_config.json names");
  app.add_option("--dtype", request.load.dtype, "Data type of the weights in memory; auto: that of the stored weights")
      ->check(CLI::IsMember({"auto", "f32", "bf16"}))
      ->capture_default_str();
  app.add_option("--threads", options.threads, "CPU threads; default: all cores")->check(CLI::PositiveNumber);
  app.add_option("--accelerator", options.accelerator, "The device to compute on; auto: a CUDA device if there is one")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
}

void add_generation_options(CLI::App& app, InferenceRequest& request, int64_t most_tokens) {
  auto& generation = request.generation;
  const auto with_default = [](const std::string& text, const std::string& value) {
    return fmt::format("{}. Default: that of generation_config.json in the model's folder, otherwise {}", text, value);
  };
  app.add_option("--max-new-tokens", generation.max_new_tokens,
                 with_default("The most tokens of a text", std::to_string(most_tokens)));
  app.add_option("--temperature", generation.temperature,
                 with_default("0: the most probable token; otherwise tokens are drawn",
                              "0, or 1 with another option for drawing"));
  app.add_option("--top-k", generation.top_k, with_default("Draw from the k most probable tokens; 0: from all", "0"));
  app.add_option("--top-p", generation.top_p,
                 with_default("Draw from the most probable tokens that together have this probability", "1"));
  app.add_option("--min-p", generation.min_p,
                 with_default("Draw from tokens with this share of the greatest probability", "0"));
  app.add_option("--repetition-penalty", generation.repetition_penalty,
                 with_default("Above 1: tokens that the text already has are less probable", "1"));
  app.add_option("--stop", generation.stop, "A text before which generation ends; may be repeated")
      ->allow_extra_args(false);
  app.add_flag("--ignore-eos", generation.ignore_eos, "Do not end at the model's end tokens");
  app.add_option("--seed", request.seed, "Decides what is drawn")->capture_default_str();
}

void add_batch_option(CLI::App& app, InferenceRequest& request) {
  request.batch_size = 8;
  app.add_option("--batch-size", request.batch_size, "Inputs that are computed at once")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
}

void add_line_options(CLI::App& app, InferenceRequest& request) {
  app.add_option("-o,--output", request.output,
                 "The file to write, which appears when it is complete; default: standard output");
  add_batch_option(app, request);
  add_json_option(app, request.json);
}

void add_chat_options(CLI::App& app, PromptsRequest& request, bool optional) {
  if (optional) app.add_flag("--chat", request.chat, "Prompts are messages of a user, for the chat template");
  app.add_option("--system", request.system, "A system message in front of the messages");
  app.add_option("--chat-template", request.chat_template,
                 "A built-in template (chatml, llama3 ...) or a file; default: the model's");
}

namespace {

ModelPlace checkpoint_of(const ModelOptions& options, const std::string& run, const fs::path& run_dir,
                         const Ledger* ledger) {
  auto place = *place_at(chosen_checkpoint(options.choice, run, run_dir, ledger));
  place.name = run;
  return place;
}

/// A place that is no run of the ledger. --step, --checkpoint and --best choose a checkpoint if it is a run's folder.
std::optional<ModelPlace> place_of_path(const ModelOptions& options) {
  const auto option = options.choice.option();
  if (option.empty()) return place_at(options.model);
  const fs::path path = options.model;
  const bool checkpoint = fs::is_regular_file(path / "manifest.json");
  if (!checkpoint && fs::is_regular_file(path / "resolved.toml"))
    return checkpoint_of(options, options.model, fs::absolute(path).lexically_normal(), nullptr);
  const bool folder = fs::is_regular_file(path / "config.json") || is_adapter_folder(path);
  const bool model = fs::is_directory(path) ? folder : is_model_folder(path);
  if (checkpoint || model)
    throw usage_error("{} chooses one of the checkpoints of a run, and {} is {}: name a run, or leave out {}", option,
                      options.model, checkpoint ? "one checkpoint already" : "a model, which has one set of weights",
                      option);
  return std::nullopt;
}

ModelPlace find_place(const ModelOptions& options) {
  std::optional<Error> no_model;  // a folder that is none; a run may have its name
  try {
    if (const auto place = place_of_path(options)) return *place;
  } catch (const Error& error) {
    if (options.model.find('/') != std::string::npos || !fs::is_directory(options.model)) throw;
    no_model.emplace(error);
  }
  const Ledger ledger(ledger_home(), Ledger::Mode::read);
  std::string run;
  try {
    run = run_with_checkpoint(ledger, options.model, options.choice);
  } catch (const Error& error) {
    if (no_model) throw *no_model;
    throw Error(error.code(), fmt::format("{}; {} is not a folder either", error.what(), options.model));
  }
  return checkpoint_of(options, run, ledger.run_dir(run), &ledger);
}

}  // namespace

void find_model(const ModelOptions& options, InferenceRequest& request) {
  const auto place = find_place(options);
  auto& base = request.load.base;
  if (!base.empty() && (place.of_run() || !is_adapter_folder(place.folder)))
    throw usage_error("--base is for a folder with an adapter (adapter_config.json), and {} is none", options.model);
  if (!base.empty()) base = fs::absolute(base).lexically_normal().string();
  request.load.set(place);
  bool cuda = options.accelerator == "cuda";
  if (options.accelerator == "auto") {
    const Facts facts = read_facts();
    cuda = facts.cuda_module && !facts.devices.empty();
  }
  request.load.accelerator = cuda ? "cuda" : "cpu";
  request.load.cache_dir = data_cache();
  request.load.threads = options.threads.value_or(std::max(1u, std::thread::hardware_concurrency()));
}

void become_worker(const InferenceRequest& request) {
  const auto program = worker_binary();
  const auto file = request_file(request);
  std::vector<std::string> words{program, "--infer", std::to_string(file.get())};
  auto argv = exec_words(words);
  ::setenv("OMP_WAIT_POLICY", "passive", /*overwrite=*/0);
  ::execv(program.c_str(), argv.data());
  throw environment_error("cannot start {}: {}", program, std::strerror(errno));
}

}  // namespace runner
