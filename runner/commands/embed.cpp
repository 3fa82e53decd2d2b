// `runner embed`: a vector for each text of a file.
#include <memory>

#include "runner/commands/command.hpp"
#include "runner/commands/inference_run.hpp"
#include "runner/commands/shared_options.hpp"

namespace runner {

namespace {

struct EmbedOptions {
  ModelOptions model;
  InferenceRequest request{.verb = "embed"};
};

}  // namespace

Action setup_embed(CLI::App& app) {
  auto options = std::make_shared<EmbedOptions>();
  auto& request = options->request;
  add_model_options(app, options->model, request);
  app.add_option(
         "file", request.prompts.file,
         "A file with a text on each line; JSON, CSV and Parquet files (.jsonl, .json, .csv, .tsv, .parquet) have "
         "records with `text`, and perhaps `id`. - is standard input")
      ->required();
  app.add_flag("--jsonl", request.prompts.records, "Standard input, or the file, has one JSON object on each line");
  add_line_options(app, request);
  app.add_option(
         "--pooling", request.pooling,
         "mean: of the states of all tokens; cls: the state of the first one; last: that of the last one. Default: "
         "that of the folder's modules.json; without it mean for encoders, and last for all others")
      ->check(CLI::IsMember({"mean", "cls", "last"}));
  auto* normalize = app.add_flag_callback(
      "--normalize", [options] { options->request.normalize = "yes"; },
      "Vectors have length 1. Default: that of the folder's modules.json, or not");
  app.add_flag_callback(
         "--no-normalize", [options] { options->request.normalize = "no"; }, "They keep their length")
      ->excludes(normalize);
  app.add_option("--max-seq-length", request.max_seq_length,
                 "Tokens of a text; the end of a longer one is left out. Default: that of the folder, or of the model")
      ->check(CLI::PositiveNumber);
  app.footer(
      "Each line of the output is {id, embedding}, in the order of the texts. The model is an encoder (bert, "
      "roberta) or a language model (llama, qwen3 and others), whose states are those behind its final norm. "
      "A folder of sentence-transformers says how its vectors are made.");
  return [options] { return write_lines_of(options->model, options->request, "embeddings"); };
}

}  // namespace runner
