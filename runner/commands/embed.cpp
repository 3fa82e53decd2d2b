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
      ->check(CLI::PositiveNumber);
  app.footer(
      "Each line of the output is {id, embedding}, in the order of the texts. The model is an encoder (bert, "
      "roberta) or a language model (llama, qwen3 and others), whose states are those behind its final norm. "
      "A folder of sentence-transformers says how its vectors are made.");
  return [options] { return write_lines_of(options->model, options->request, "embeddings"); };
}

}  // namespace runner
