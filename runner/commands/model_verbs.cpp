// Verbs that use a trained model: `runner generate`, `chat`, `evaluate`, `predict` and `embed`.
#include <unistd.h>

#include <memory>

#include "runner/base/log.hpp"
#include "runner/commands/command.hpp"
#include "runner/commands/inference_run.hpp"
#include "runner/commands/shared_options.hpp"
#include "runner/inference/generation_settings.hpp"
#include "runner/inference/text_records.hpp"

namespace runner {

namespace {

/// The options of one of these verbs.
struct VerbOptions {
  ModelOptions model;
  InferenceRequest request;
};

/// The positional `model`, --checkpoint, --step, --best, --dtype, --threads and --accelerator.
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
  app.add_option("--threads", options.threads, "CPU threads; default: all cores")->check(at_least_one());
  app.add_option("--accelerator", options.accelerator, "The device to compute on; auto: a CUDA device if there is one")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
}

/// --max-new-tokens, --temperature, --top-k, --top-p, --min-p, --repetition-penalty, --stop, --ignore-eos, --seed. `most_tokens`: the
/// verb's default of the first one.
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

/// --batch-size, with the default of verbs that read many inputs.
void add_batch_option(CLI::App& app, InferenceRequest& request) {
  request.batch_size = 8;
  app.add_option("--batch-size", request.batch_size, "Inputs that are computed at once")
      ->check(at_least_one())
      ->capture_default_str();
}

/// --output, --batch-size and --json.
void add_line_options(CLI::App& app, InferenceRequest& request) {
  app.add_option("-o,--output", request.output,
                 "The file to write, which appears when it is complete; default: standard output");
  add_batch_option(app, request);
  add_json_option(app, request.json);
}

/// --system and --chat-template; with `optional`, also --chat.
void add_chat_options(CLI::App& app, PromptsRequest& request, bool optional) {
  if (optional) app.add_flag("--chat", request.chat, "Prompts are messages of a user, for the chat template");
  app.add_option("--system", request.system, "A system message in front of the messages");
  app.add_option("--chat-template", request.chat_template,
                 "A built-in template (chatml, llama3 ...) or a file; default: the model's");
}

/// The options of a verb, with those that all have.
std::shared_ptr<VerbOptions> verb_options(CLI::App& app, const char* verb) {
  auto options = std::make_shared<VerbOptions>(VerbOptions{.model = {}, .request = {.verb = verb}});
  add_model_options(app, options->model, options->request);
  return options;
}

ExitCode generate_text(VerbOptions& options) {
  auto& prompts = options.request.prompts;
  if (prompts.file.empty() && prompts.texts.empty()) {
    if (::isatty(STDIN_FILENO))
      throw usage_error("there is no prompt: write it after the model, name a file with --file, or pipe it in");
    prompts.file = "-";
  }
  prompts.records = prompts.records || has_records(prompts.file);
  find_model(options.model, options.request);
  become_worker(options.request);
}

ExitCode evaluate(VerbOptions& options) {
  const auto result = run_inference(options.model, options.request);
  print_result(options.request, result);
  log::info("recorded as run {}", result.run);
  return ExitCode::done;
}

}  // namespace

Action setup_generate(CLI::App& app) {
  const auto options = verb_options(app, "generate");
  auto& request = options->request;
  app.add_option("prompt", request.prompts.texts, "The text to continue; default: standard input");
  app.add_option(
      "--file", request.prompts.file,
      "A file that is the prompt, or - for standard input. JSON, CSV and Parquet files (.jsonl, .json, .csv, "
      ".tsv, .parquet) have records with `prompt` or `messages`, whose last answer is left out");
  app.add_flag("--jsonl", request.prompts.records, "Standard input, or the file, has one record on each line");
  add_chat_options(app, request.prompts, /*optional=*/true);
  add_generation_options(app, request, generate_new_tokens);
  app.add_option("--num-samples", request.num_samples, "Texts for each prompt")
      ->check(at_least_one())
      ->capture_default_str();
  app.add_option("--batch-size", request.batch_size,
                 "Texts that are generated at once. With 1, a text is printed as it appears")
      ->check(at_least_one())
      ->capture_default_str();
  app.add_flag("--echo", request.echo, "Print the prompt in front of the text");
  app.add_flag("--json", request.json, "Print one JSON object for each text");
  return [options] { return generate_text(*options); };
}

Action setup_chat(CLI::App& app) {
  const auto options = verb_options(app, "chat");
  auto& request = options->request;
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

Action setup_evaluate(CLI::App& app) {
  const auto options = verb_options(app, "evaluate");
  auto& request = options->request;
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
  app.add_option("--limit", request.limit, "Only the first records or samples")->check(at_least_one());
  app.add_option(
         "--context", request.context,
         "With --task rolling: how many tokens are in front of the first token that a window predicts; default 1")
      ->check(at_least_one());
  app.add_option("-o,--output", request.output, "With --task multiple_choice: a file with a JSON line for each record");
  add_json_option(app, request.json);
  app.footer(
      "Language models: loss and perplexity are per token. word_perplexity, byte_perplexity and bits_per_byte are per "
      "word and per UTF-8 byte of the text, so models with different tokenizers can be compared. acc: the choice with "
      "the greatest log-probability; acc_norm: divided by its characters; acc_bytes: by its bytes; acc_tokens: by its "
      "tokens. Models of labels or numbers: loss and the metrics of validation (accuracy, f1, mae ...), per row. "
      "The run's validation data, or data.train if they are a part of it (data.validation_fraction), are compared with "
      "the digests of the training: after a change, a warning, and changed_data in --json.");
  return [options] { return evaluate(*options); };
}

Action setup_predict(CLI::App& app) {
  const auto options = verb_options(app, "predict");
  auto& request = options->request;
  request.prompts.records = true;
  app.add_option(
         "data", request.files,
         "Language models: a file of records, `prompt` (a text) or `messages` (for the chat template; an answer of the "
         "assistant at their end is the reference, and is left out of the prompt), and perhaps `id`: JSON, CSV or "
         "Parquet; - is standard input, with a JSON object on each line. Models of "
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

Action setup_embed(CLI::App& app) {
  const auto options = verb_options(app, "embed");
  auto& request = options->request;
  app.add_option(
         "file", request.prompts.file,
         "A file with a text on each line; JSON, CSV and Parquet files (.jsonl, .json, .csv, .tsv, .parquet) have "
         "records with `text`, and perhaps `id`. - is standard input")
      ->required();
  app.add_flag("--jsonl", request.prompts.records, "Standard input, or the file, has one JSON object on each line");
  add_line_options(app, request);
  app.add_option(
         "--pooling", request.pooling,
         "How the states of a text's tokens become its vector. mean: their mean; cls: the first one; last: the last "
         "one. Default: what modules.json of the folder says, otherwise mean for encoders and last for other models")
      ->check(CLI::IsMember({"mean", "cls", "last"}));
  auto* normalize = app.add_flag_callback(
      "--normalize", [options] { options->request.normalize = "yes"; },
      "Scale each vector to length 1. Default: what modules.json of the folder says, otherwise not");
  app.add_flag_callback(
         "--no-normalize", [options] { options->request.normalize = "no"; }, "Do not scale the vectors")
      ->excludes(normalize);
  app.add_option("--max-seq-length", request.max_seq_length,
                 "Tokens of a text; the end of a longer one is left out. Default: that of the folder, or of the model")
      ->check(at_least_one());
  app.footer(
      "Each line of the output is {id, embedding}, in the order of the texts. The model is an encoder (bert, "
      "roberta) or a language model (llama, qwen3 and others), whose states are those behind its final norm. "
      "A folder of sentence-transformers says how its vectors are made.");
  return [options] { return write_lines_of(options->model, options->request, "embeddings"); };
}

}  // namespace runner
