// `runner export`: writes the weights of a run's checkpoint, the points of runs, or whole records for other programs and ledgers.
#include <algorithm>
#include <array>
#include <map>
#include <memory>

#include "runner/base/files.hpp"
#include "runner/base/log.hpp"
#include "runner/base/quoting.hpp"
#include "runner/base/text.hpp"
#include "runner/base/xxh3.hpp"
#include "runner/checkpoint/adapter_files.hpp"
#include "runner/checkpoint/checkpoint.hpp"
#include "runner/checkpoint/fit.hpp"
#include "runner/checkpoint/run_weights.hpp"
#include "runner/checkpoint/stored_model.hpp"
#include "runner/commands/checkpoint_choice.hpp"
#include "runner/commands/command.hpp"
#include "runner/commands/preflight.hpp"
#include "runner/commands/run_choice.hpp"
#include "runner/commands/run_folder.hpp"
#include "runner/commands/shared_options.hpp"
#include "runner/config/config.hpp"
#include "runner/config/model_families.hpp"
#include "runner/data/data.hpp"
#include "runner/data/image_processor.hpp"
#include "runner/exchange/export_metrics.hpp"
#include "runner/ledger/bundle.hpp"
#include "runner/ledger/ledger.hpp"
#include "runner/models/adapters.hpp"
#include "runner/pretrained/gguf_file.hpp"
#include "runner/pretrained/model_files.hpp"

namespace runner {

namespace {

using namespace nlohmann::literals;

// `runner export --bundle` and `--metrics`: the record of runs, for another ledger or another program.

struct RecordExport {
  bool bundle = false;
  std::string files;    ///< what a bundle has of the runs' folders
  std::string metrics;  ///< the format of the points; empty: not asked for
  bool asked() const { return bundle || !metrics.empty(); }
};

BundledFiles bundled_files(const std::string& word) {
  static const std::map<std::string, BundledFiles> words = {{"", BundledFiles::settings},
                                                            {"settings", BundledFiles::settings},
                                                            {"logs", BundledFiles::logs},
                                                            {"checkpoints", BundledFiles::checkpoints},
                                                            {"all", BundledFiles::all}};
  return words.at(word);
}

void check_output(const std::string& output, const std::string& what) {
  if (output.empty()) throw usage_error("{} needs -o FILE", what);
  std::error_code error;
  if (fs::exists(fs::symlink_status(output, error)))
    throw usage_error("{} exists: remove it, or name another file", output);
  const fs::path folder = fs::absolute(output).parent_path();
  if (!fs::is_directory(folder)) throw usage_error("there is no folder {}", folder.string());
}

ExitCode export_bundle(const RecordExport& record, const std::vector<std::string>& runs, const std::string& output,
                       bool json) {
  check_output(output, "--bundle");
  const auto written = write_bundle(ledger_home(), runs, output, bundled_files(record.files));
  log::info("{} with {} of their folders ({}); `runner import {}` adds them to another ledger",
            counted(written.runs, "run"), counted(written.files, "file"), format_bytes(written.bytes),
            shell_word(output));
  if (!written.withheld.empty())
    log::info(
        "note: the bundle does not have the secrets in the recipe of {}: recipe.toml is left out, and \"***\" "
        "stands for them in resolved.toml",
        join(written.withheld, ", "));
  if (!written.newer_left.empty())
    log::info("note: left out, because the run went on while the bundle was written: {}",
              join(written.newer_left, ", "));
  if (written.log_files > 0)
    log::info("note: {} copied as they are: if a program has printed a secret, it is in the bundle",
              written.log_files == 1 ? "1 file of logs is" : fmt::format("{} files of logs are", written.log_files));
  if (!written.links_left.empty())
    log::info("note: left out, because they are links: {}", join(written.links_left, ", "));
  print_output(output, json, {{"runs", runs}, {"files", written.files}, {"bytes", written.bytes}});
  return ExitCode::done;
}

ExitCode export_points(const RecordExport& record, const std::vector<std::string>& runs, const std::string& output,
                       bool json) {
  if (json && output.empty()) throw usage_error("--json says what was written, so it needs -o FILE");
  const MetricFormat format = metric_format(record.metrics);
  if (!format.is_text || !output.empty()) check_output(output, "--metrics " + record.metrics);
  const auto written = export_metrics(Ledger(ledger_home(), Ledger::Mode::read), runs, record.metrics, output);
  log::info("{} of {} of {}", counted(written.points, "point"), counted(written.metrics, "metric"),
            counted(written.runs, "run"));
  if (record.metrics == "mlflow")
    log::info(
        "MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri {} shows them; `mlflow migrate-filestore` "
        "copies them to a database",
        shell_word(output));
  if (!output.empty()) print_output(output, json, {{"runs", runs}, {"points", written.points}});
  return ExitCode::done;
}

void add_record_options(CLI::App& app, RecordExport& record) {
  auto* bundle = app.add_flag("--bundle", record.bundle,
                              "The whole record of the runs, as one file for `runner import` on another machine");
  app.add_option("--files", record.files,
                 "More files of the runs' folders for a bundle, which always has the settings: logs; checkpoints (and "
                 "artifacts); all")
      ->check(CLI::IsMember({"settings", "logs", "checkpoints", "all"}))
      ->needs(bundle);
  app.add_option("--metrics", record.metrics,
                 "The points of the runs instead of weights: csv, jsonl, parquet, tensorboard or mlflow")
      ->type_name("TEXT:{csv,jsonl,parquet,tensorboard,mlflow}")
      ->excludes(bundle);
}

/// `words`: runs, or a filter. `output`: the file or folder; may be empty for formats that are text. With `json`, prints what was written.
ExitCode export_records(const RecordExport& record, const std::vector<std::string>& words, std::string output,
                        bool json) {
  while (output.size() > 1 && output.ends_with('/')) output.pop_back();
  const auto runs = chosen_runs(Ledger(ledger_home(), Ledger::Mode::read), words);
  return record.bundle ? export_bundle(record, runs, output, json) : export_points(record, runs, output, json);
}

struct ExportOptions {
  std::vector<std::string> runs;
  std::string format = "hf", output, dtype = "f32", weights = "model";
  CheckpointChoice choice = {};
  bool adapter = false, json = false;
  RecordExport record = {};
};

/// The prefix of the requested tensors in a checkpoint: the model's parameters, or a table of tensors in a hook's
/// state.
std::string place_of_weights(const std::string& weights, const Checkpoint& checkpoint) {
  if (weights == "model") return "param/";
  const std::string hooks = "hook/";
  std::vector<std::string> known{"model"};
  for (const auto& name : checkpoint.tensors()) {
    if (!name.starts_with(hooks)) continue;
    auto table = name.substr(hooks.size(), name.rfind('/') - hooks.size());
    if (table == weights) return hooks + table + "/";
    if (std::find(known.begin(), known.end(), table) == known.end()) known.push_back(table);
  }
  auto near = nearest(weights, known);
  throw usage_error("--weights {}: {} has no such weights; it has {}{}", weights, checkpoint.path().string(),
                    join(known, ", "), near ? "; did you mean `" + *near + "`?" : "");
}

/// tokenizer_config.json for a SentencePiece model, which does not say by itself how transformers reads it. null: its first tokens are
/// not those of Llama's tokenizer, which is the class of transformers for such files.
nlohmann::json sentencepiece_config(const Tokenizer& tokenizer) {
  const std::array<const char*, 3> special = {"<unk>", "<s>", "</s>"};
  for (size_t id = 0; id < special.size(); ++id)
    if (tokenizer.id_to_token(static_cast<int32_t>(id)) != special[id]) return nullptr;
  const auto first = tokenizer.encode("a");
  const bool adds_space = !first.empty() && tokenizer.id_to_token(first.front()).value_or("").starts_with("\u2581");
  return {{"tokenizer_class", "LlamaTokenizer"},
          {"legacy", true},
          {"add_prefix_space", adds_space},
          {"add_bos_token", false},
          {"add_eos_token", false},
          {"unk_token", special[0]},
          {"bos_token", special[1]},
          {"eos_token", special[2]},
          {"clean_up_tokenization_spaces", false}};
}

/// The tokenizer that the run trained with, if it was not that of model.init_from.
void add_own_tokenizer(const Recipe& recipe, const Checkpoint& checkpoint, WeightsFolder& folder) {
  if (recipe.data.has_token_ids() || recipe.data.tokenizer == "bytes")
    return log::info("the export has no tokenizer: {}",
                     recipe.data.has_token_ids()
                         ? fmt::format("the run trained on tokens (data.format = \"{}\")", recipe.data.format)
                         : "the run trained on bytes, so the bytes of UTF-8 are the tokens");
  try {
    const auto files = tokenizer_files(recipe.data, data_cache());
    const fs::path file = files.front().path;
    const auto trained_with = checkpoint.state().value("/data/meaning/data.tokenizer/xxh3"_json_pointer, "");
    if (!trained_with.empty() && xxh3_hex(read_model_file(file)) != trained_with)
      return log::warning("the export has no tokenizer: {} has changed since the run trained with it", file.string());
    folder.tokenizer = files;
    if (files.front().name == "tokenizer.model") {
      folder.tokenizer_config = sentencepiece_config(*make_tokenizer(recipe.data, data_cache()));
      return log::info("tokenizer.model is the run's SentencePiece model; the run trained without special tokens{}",
                       folder.tokenizer_config.is_null()
                           ? ". The export has no tokenizer_config.json: transformers has no class for its first tokens"
                           : "");
    }
    log::info("{} is the run's tokenizer; the run trained without special tokens", files.front().name);
    const auto roles = make_tokenizer(recipe.data, data_cache())->special_tokens();
    for (const auto& [key, id] : {std::pair("bos_token_id", roles.bos), std::pair("eos_token_id", roles.eos),
                                  std::pair("pad_token_id", roles.pad)})
      if (id) folder.config_entries[key] = *id;
  } catch (const Error& error) {
    log::warning("the export has no tokenizer: {}", error.what());
  }
}

/// Adds what programs need in addition to the weights: the names of classes and columns, the tokenizer, and the special tokens of
/// model.init_from.
void add_companions(const Recipe& recipe, const Checkpoint& checkpoint, WeightsFolder& folder) {
  if (!is_language_model(recipe.model.name) || labels_texts(recipe.model))
    folder.config_entries =
        label_folder_config(recipe, checkpoint.state().value("/data/learned"_json_pointer, nlohmann::json()));
  if (recipe.data.is_images()) folder.preprocessor = image_processor(recipe.data);
  if (!is_language_model(recipe.model.name)) return;
  if (!recipe.model.init_from) return add_own_tokenizer(recipe, checkpoint, folder);
  if (folder.naming != WeightsFolder::Naming::hugging_face) return;
  if (auto tokenizer = unused_tokenizer(*recipe.model.init_from, recipe.data); !tokenizer.empty()) {
    log::warning(
        "the export does not have the tokenizer and the special tokens of model.init_from: the run did not train with "
        "{}, but with data.tokenizer = {}",
        tokenizer.string(), toml_value(recipe.data.tokenizer));
    return add_own_tokenizer(recipe, checkpoint, folder);
  }
  try {
    take_companions(*recipe.model.init_from, folder);
  } catch (const Error& error) {
    log::warning("the export has no tokenizer and no ids of special tokens: {}", error.what());
  }
}

/// transformers takes the state of the last token that is not the pad token, so decoders with labels need one.
void add_pad_token(const Recipe& recipe, WeightsFolder& folder) {
  if (!labels_texts(recipe.model) || family_kind(recipe.model.name) == "encoder") return;
  if (folder.config_entries.contains("pad_token_id")) return;
  const auto tokenizer = make_tokenizer(recipe.data, data_cache());
  const auto roles = tokenizer->special_tokens();
  if (const auto id = roles.pad ? roles.pad : roles.eos) {
    folder.config_entries["pad_token_id"] = *id;
    if (const auto frame = tokenizer->frame(recipe.data.has_text_pairs());
        frame.back().kind == FramePart::Kind::token && frame.back().id == *id)
      log::warning(
          "the tokenizer ends each text with {}, which is also its pad token: transformers reads the token before it, "
          "and this model was trained to read it",
          tokenizer->id_to_token(*id).value_or(std::to_string(*id)));
    return;
  }
  log::warning(
      "the tokenizer has neither a pad token nor an end token, so transformers reads single texts only with this "
      "model: set pad_token_id in config.json to a token that ends no text");
}

ExitCode export_run(const ExportOptions& options) {
  if (options.record.asked()) return export_records(options.record, options.runs, options.output, options.json);
  if (options.output.empty()) throw usage_error("export needs --output FOLDER for the weights");
  if (options.runs.size() > 1)
    throw usage_error("the weights of one run are exported at a time, not of {}", options.runs.size());
  Ledger ledger(ledger_home(), Ledger::Mode::read);
  const auto run = run_with_checkpoint(ledger, options.runs.front(), options.choice);
  const fs::path run_dir = needed_folder(ledger, run, "exported");
  Checkpoint checkpoint(chosen_checkpoint(options.choice, run, run_dir, &ledger));
  Recipe recipe = load_recipe((run_dir / "resolved.toml").string());
  use_kept_tokenizer(recipe.data, run_dir);
  ModelSpec spec = spec_of(recipe, checkpoint);
  if (auto other = other_model(checkpoint, recipe.model, spec.vocab_size); !other.empty())
    throw usage_error("{} is of another model than run {}:\n  {}", checkpoint.path().string(), run,
                      join(other, "\n  "));

  const auto place = place_of_weights(options.weights, checkpoint);
  const auto reader = [&](const ParameterReader& base_of) {
    return options.weights == "model" ? model_reader(recipe, checkpoint, spec, base_of)
                                      : parameter_reader(checkpoint, spec, place, base_of);
  };
  if (options.adapter) {
    if (!recipe.fine_tune.adapts())
      throw usage_error("--adapter: run {} has no adapter: fine_tune.method is \"{}\"", run, recipe.fine_tune.method);
    export_adapter(options.output, recipe, spec, reader({}));
    log::info("the adapter of {} at step {}, for PEFT", run, checkpoint.step());
    if (recipe.model.init_from && is_gguf(*recipe.model.init_from))
      log::info(
          "note: adapter_config.json names the base {}, a GGUF file, which PEFT does not open by its name: load it "
          "with AutoModelForCausalLM.from_pretrained(FOLDER, gguf_file=NAME) and add the adapter with "
          "PeftModel.from_pretrained, or export the merged model, without --adapter",
          *recipe.model.init_from);
    print_output(options.output, options.json, {{"run", run}, {"step", checkpoint.step()}});
    return ExitCode::done;
  }

  const ModelSpec base = make_base_spec(recipe, spec.vocab_size, spec.seq_len);
  WeightsFolder folder;
  folder.naming = options.format == "hf" ? WeightsFolder::Naming::hugging_face : WeightsFolder::Naming::runner;
  folder.dtype = options.dtype == "f32" ? "F32" : options.dtype == "bf16" ? "BF16" : "F16";
  add_companions(recipe, checkpoint, folder);
  if (options.format == "hf") add_pad_token(recipe, folder);
  const auto read = reader(base_reader(recipe, spec, base, checkpoint));
  export_weights(options.output, recipe.model, base, merged_reader(spec, base, read), folder);
  log::info("{} parameters of {}{} at step {}{}, as {}", format_parameters(base.parameter_count()), run,
            options.weights == "model" ? "" : " (" + options.weights + ")", checkpoint.step(),
            spec.adapter ? " with the adapter merged" : "", options.dtype);
  print_output(options.output, options.json, {{"run", run}, {"step", checkpoint.step()}});
  return ExitCode::done;
}

}  // namespace

Action setup_export(CLI::App& app) {
  auto options = std::make_shared<ExportOptions>();
  app.add_option("run", options->runs,
                 "A run: its id, part of it, its name, or last; with --bundle and --metrics several, or a filter")
      ->required()
      ->type_name("RUN");
  app.add_option("-o,--output", options->output,
                 "The folder of weights, or the file; it must not exist, or be an empty folder");
  add_record_options(app, options->record);
  add_json_option(app, options->json);
  app.add_option("--format", options->format,
                 "hf: for from_pretrained of transformers; safetensors: names and layout of runner")
      ->check(CLI::IsMember({"hf", "safetensors"}))
      ->capture_default_str();
  add_checkpoint_options(app, options->choice);
  app.add_option("--weights", options->weights,
                 "model, or averages in a hook's state, as HOOK/TABLE: ema/average, swa/mean")
      ->capture_default_str();
  app.add_option("--dtype", options->dtype, "Data type of the written weights")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}))
      ->capture_default_str();
  app.add_flag("--adapter", options->adapter,
               "The adapter alone, as PEFT reads it; otherwise it is merged into the weights");
  app.footer(
      "  runner export last --output model               weights, for transformers\n"
      "  runner export last --metrics csv                 points, on stdout\n"
      "  runner export --bundle status:finished -o a.bundle  records, for runner import");
  return [options] { return export_run(*options); };
}

}  // namespace runner
