// `runner init`.
#include <memory>

#include "runner/base/files.hpp"
#include "runner/base/log.hpp"
#include "runner/base/own_program.hpp"
#include "runner/base/quoting.hpp"
#include "runner/checkpoint/hf.hpp"
#include "runner/commands/command.hpp"
#include "runner/commands/shared_options.hpp"
#include "runner/config/config.hpp"
#include "runner/config/model_families.hpp"
#include "runner/data/data.hpp"
#include "runner/lua/shipped.hpp"
#include "runner/pretrained/gguf_file.hpp"
#include "runner/pretrained/model_files.hpp"

namespace runner {

namespace {

/// Arguments: {0} the file, {1} [model], {2} [data] and [fine_tune], {3} the learning rate, {4} what a batch consists of.
const char* starter =
    R"(# A recipe for runner. Every key: runner help recipe. Check it: runner check {0}. Train it: runner run {0}.

{1}
{2}
[optimizer]
name = "adamw"
lr = {3}

[lr_scheduler]
name = "cosine"
warmup_steps = 20

[train]
max_steps = 1000
global_batch_size = 16           # {4} of one optimizer step, over all ranks
gradient_clip_val = 1.0

[checkpoint]
every_n_steps = 100
)";

const char* starter_model = R"([model]
name = "gpt"                     # or "llama"
n_layers = 6
dim = 256
n_heads = 8
max_seq_len = 256
)";

const char* starter_data = R"([data]
format = "text"                  # or "bin": pre-tokenized ids
train = ["data.txt"]             # relative to this file; patterns such as "data/*.txt" work, too
validation_fraction = 0.05
tokenizer = "bytes"              # or tokenizer.json, a SentencePiece model, or "sentencepiece" with tokenizer_vocab_size
)";

const char* chat_data = R"([data]
format = "jsonl"
train = ["data.jsonl"]           # relative to this file; a line: {"messages": [{"role": "user", "content": ".."}, ..]}
validation_fraction = 0.05
tokenizer = "bytes"              # or tokenizer.json, or a folder with one
chat_template = "chatml"
)";

const char* table_model = R"([model]
name = "mlp"
hidden_sizes = [64, 64]          # [] is a linear model
)";

const char* table_data = R"([data]
format = "csv"                   # the first line names the columns
train = ["data.csv"]             # relative to this file
validation_fraction = 0.2
target = "label"                 # the column to predict: texts are classes, numbers are a regression
)";

const char* image_model = R"([model]
name = "resnet"                  # or "vit"
image_size = 224                 # images are resized to it
embedding_size = 64              # these are the sizes of ResNet-18
hidden_sizes = [64, 128, 256, 512]
depths = [2, 2, 2, 2]
layer_type = "basic"
)";

const char* image_data = R"([data]
format = "images"                # JPEG and PNG files, in a folder for each class
train = ["images/train"]         # relative to this file
validation = ["images/validation"] # if there is no such folder: validation_fraction = 0.2
)";

const char* adapter_section = R"(
[fine_tune]
method = "lora"                  # low-rank adapters; "full" trains all parameters, with a smaller lr
rank = 8
alpha = 16
)";

/// The line that names the JSON schema for editors: the schema installed with this program, or that of the source tree.
/// The path is absolute, so that the recipe can be moved. Empty if no schema is found.
std::string schema_line() {
  const fs::path folder = own_program().parent_path();
  for (const char* place : {"../share/runner/schemas", "../../schemas"}) {
    const fs::path file = (folder / place / "recipe.schema.json").lexically_normal();
    if (!fs::exists(file)) continue;
    std::string url = "file://";
    for (const char c : file.string()) url += c == ' ' ? "%20" : c == '%' ? "%25" : std::string(1, c);
    return "#:schema " + url + "\n";
  }
  return "";
}

/// Fine-tuning needs a small rate: 1e-3 would destroy trained weights.
constexpr const char *first_rate = "1e-3", *fine_tuning_rate = "2e-5", *adapter_rate = "2e-4";
/// Samples of a generated recipe are at most this long, because activation memory grows with the length.
constexpr int64_t longest_sample = 2048;

/// A Hugging Face folder or GGUF file that a recipe starts from.
struct HfStart {
  fs::path folder;
  Recipe::Model model;

  explicit HfStart(const std::string& given) : folder(fs::absolute(given).lexically_normal()) {
    model = model_of_hf_folder(folder);
    model.init_from = folder.string();
  }

  std::string model_section() const {
    Recipe recipe;
    recipe.model = model;
    auto printed = print_recipe(recipe);
    auto begin = printed.find("[model]");
    return printed.substr(begin, printed.find("\n[", begin) + 1 - begin);
  }

  /// The tokenizer of the folder.
  struct OwnTokenizer {
    fs::path file;
    int64_t tokens = 0;
    std::string mistake;  ///< why it cannot be read; empty: it can
  };
  /// The first of the folder's tokenizers that can be read, otherwise the first one; nothing if there is none.
  std::optional<OwnTokenizer> own_tokenizer() const {
    std::optional<OwnTokenizer> unreadable;
    for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
      Recipe::Data data;
      data.format = "text";
      if (!has_model_file(folder / name)) continue;
      data.tokenizer = (is_gguf(folder) ? folder : folder / name).string();
      try {
        return OwnTokenizer{data.tokenizer, make_tokenizer(data, "")->vocab_size(), ""};
      } catch (const Error& error) {
        if (!unreadable) unreadable = OwnTokenizer{data.tokenizer, 0, error.what()};
      }
    }
    return unreadable;
  }

  /// Whether the model reads tokens, no file of the folder is a tokenizer, and bytes are not its tokens.
  bool lacks_tokenizer() const {
    return is_language_model(model.name) && !labels_texts(model) && model.vocab_size != 256 && !own_tokenizer() &&
           hf_tokenizer_file(folder).empty();
  }

  std::string token_dtype() const { return model.vocab_size.value_or(0) <= 65536 ? "uint16" : "uint32"; }

  /// Why the folder's tokenizer cannot be used.
  std::string unusable_tokenizer() const {
    if (auto own = own_tokenizer(); own && own->mistake.empty())
      return fmt::format("{} has {} pieces, more than the {} tokens of the model's vocabulary", own->file.string(),
                         own->tokens, model.vocab_size.value_or(0));
    else if (own)
      return fmt::format("{} is a tokenizer that runner cannot read ({})", own->file.string(), own->mistake);
    if (auto file = hf_tokenizer_file(folder); !file.empty())
      return fmt::format("{} is a tokenizer that runner cannot read", file.string());
    return fmt::format("{} has no tokenizer that fits its vocabulary of {} tokens", folder.string(),
                       model.vocab_size.value_or(0));
  }

  /// Throws Error(usage): another tokenizer than the model's own would give other token ids than those that the weights
  /// were trained with.
  [[noreturn]] void refuse_text(const std::string& file) const {
    throw usage_error(
        "{}. Instead, encode the text with the model's own tokenizer, write the ids one after another as {} "
        "(numpy: ids.astype(\"{}\").tofile(\"train.bin\")), and write a recipe for them with\n"
        "  runner init {} --from-hf {} --format bin",
        unusable_tokenizer(), token_dtype(), token_dtype(), file, folder.string());
  }

  /// The keys for the files of texts.
  const char* text_files(const std::string& format, bool labels) const {
    if (format == "csv" && labels)
      return "format = \"csv\"                   # the first line names the columns: text,label\n"
             "train = [\"data.csv\"]             # relative to this file\ntarget = \"label\"\n";
    if (labels)
      return "format = \"jsonl\"                 # lines {\"text\": \"...\", \"label\": \"...\"}\n"
             "train = [\"data.jsonl\"]           # relative to this file\ntarget = \"label\"\n";
    if (format == "csv")
      return "format = \"csv\"                   # the first line names the columns: text\n"
             "train = [\"data.csv\"]             # relative to this file\n";
    if (format == "jsonl")
      return "format = \"jsonl\"\ntrain = [\"data.jsonl\"]           # relative to this file; a line: {\"messages\": "
             "[{\"role\": \"user\", \"content\": \"..\"}, ..]}\n";
    return "format = \"text\"\ntrain = [\"data.txt\"]             # relative to this file\n";
  }

  std::string data_section(const std::string& file, const std::string& format) const {
    if (format == "images") return image_data;
    std::string text;
    const bool labels = labels_texts(model) || (family_kind(model.name) == "encoder" && format == "csv");
    if (format == "bin" && !labels) {
      text = fmt::format(
          "[data]\nformat = \"bin\"                   # ids encoded with the model's own tokenizer\n"
          "train = [\"train.bin\"]            # relative to this file\ntoken_dtype = \"{}\"\nvalidation_fraction = "
          "0.05\n",
          token_dtype());
    } else {
      std::string tokenizer;
      if (auto own = own_tokenizer(); own && own->mistake.empty() && own->tokens <= model.vocab_size)
        tokenizer = own->file.string();
      else if (model.vocab_size == 256 && !has_model_file(folder / "tokenizer.json"))
        tokenizer = "bytes";
      if (tokenizer.empty()) refuse_text(file);
      text = fmt::format("[data]\n{}validation_fraction = 0.05\ntokenizer = {}\n", text_files(format, labels),
                         toml_value(tokenizer));
    }
    if (family_kind(model.name) == "encoder" && !labels) text += "objective = \"masked_lm\"\n";
    if (model.max_seq_len > longest_sample)
      text += fmt::format("seq_len = {}                   # tokens of a sample; the model allows up to {}\n",
                          longest_sample, model.max_seq_len);
    return text;
  }
};

/// Refuses a format that the model of `folder` cannot read; without a folder, one that needs a model's tokenizer.
void check_format(const std::string& format, const std::string& folder, const std::optional<HfStart>& start) {
  if (!start) {
    if (format == "bin")
      throw usage_error("--format {} needs a model's own tokenizer: name its folder with --from-hf", format);
    return;
  }
  if (format == "bin" && labels_texts(start->model))
    throw usage_error("--format bin: {} is a classifier of texts, whose labels are in records: take jsonl or csv",
                      folder);
  const auto kind = family_kind(start->model.name);
  const bool reads = kind == "mlp"                       ? format == "csv"
                     : kind == "vit" || kind == "resnet" ? format == "images"
                                                         : format != "images";
  if (!reads)
    throw usage_error("--format {}: {} is a {}, which does not read such data", format, folder, start->model.name);
}

/// The text of a recipe, without the line of the schema.
std::string recipe_text(const std::string& file, const std::optional<HfStart>& start, const std::string& format) {
  const auto filled = [&](const std::string& model, const std::string& data, const char* rate, const char* rows) {
    return fmt::format(fmt::runtime(starter), file, model, data, rate, rows);
  };
  const bool adapts = format == "jsonl";
  if (start)
    return filled(start->model_section(), start->data_section(file, format) + (adapts ? adapter_section : ""),
                  adapts ? adapter_rate : fine_tuning_rate, format == "images" ? "images" : "sequences");
  if (format == "csv") return filled(table_model, table_data, first_rate, "rows");
  if (format == "images") return filled(image_model, image_data, first_rate, "images");
  if (format == "jsonl") return filled(starter_model, chat_data, first_rate, "sequences");
  return filled(starter_model, starter_data, first_rate, "sequences");
}

/// `format`: empty: text; token ids for a model whose folder has no tokenizer, as for planning.
void write_recipe(const std::string& file, const std::string& folder, std::string format) {
  if (auto name = fs::path(file); name.extension() != ".toml")
    throw usage_error("a recipe that init writes is TOML, so its name ends in .toml: runner init {}",
                      shell_word(name.replace_extension(".toml").string()));
  if (fs::exists(file)) throw usage_error("{} exists already; name another file", file);
  const auto start = folder.empty() ? std::optional<HfStart>() : std::optional<HfStart>(std::in_place, folder);
  const bool ids = format.empty() && start && start->lacks_tokenizer();
  if (format.empty()) format = ids ? "bin" : "text";
  check_format(format, folder, start);
  write_file_atomic(file, schema_line() + recipe_text(file, start, format));
  if (start && is_language_model(start->model.name) && start->model.max_seq_len > longest_sample)
    log::info("note: samples have {} tokens (data.seq_len), although the model allows {}: longer ones need more memory",
              longest_sample, start->model.max_seq_len);
  if (ids)
    log::info(
        "note: {}, so the recipe trains on token ids: encode the text with the model's own tokenizer as {}, or put "
        "its tokenizer.json into the folder and write the recipe again; `runner recommend {}` needs neither",
        start->unusable_tokenizer(), start->token_dtype(), shell_word(file));
  log::info("wrote {}; check it with: runner check {}", file, shell_word(file));
}

/// Writes .luarc.json and the definitions that it refers to, for the Lua language server.
void write_lua_support() {
  const char *settings = ".luarc.json", *folder = ".luals";
  if (fs::exists(settings))
    throw usage_error("{} exists already; add \"workspace.library\": [\"{}\"] to it, or remove it", settings, folder);
  fs::create_directories(folder);
  write_file_atomic(fs::path(folder) / "runner.lua", lua::stubs_text);
  nlohmann::json rc = {{"runtime.version", "Lua 5.4"}, {"workspace.library", {folder}}};
  write_file_atomic(settings, rc.dump(2) + "\n");
  log::info("wrote {} and {}/runner.lua; editors with the Lua language server read them", settings, folder);
}

}  // namespace

Action setup_init(CLI::App& app) {
  auto file = std::make_shared<std::string>("recipe.toml"), folder = std::make_shared<std::string>(),
       format = std::make_shared<std::string>();
  auto* recipe = app.add_option("file,-o,--output", *file, "The recipe to write")->capture_default_str();
  auto* from_hf = app.add_option("--from-hf,--from-gguf", *folder,
                                 "A Hugging Face folder or a GGUF file with the model's settings and initial weights");
  app.add_option(
         "--format", *format,
         "The format of the data. csv: tables; with --from-hf and a model that reads texts: texts, with labels for an "
         "encoder or a classifier. images: folders of images. With --from-hf also jsonl: records such as "
         "conversations, for a training of low-rank adapters; bin: "
         "token ids")
      ->check(CLI::IsMember({"text", "jsonl", "bin", "csv", "images"}))
      ->default_str("text");
  auto lua = std::make_shared<bool>(false);
  app.add_flag("--lua", *lua, "Instead of a recipe: write files for editing hooks and recipes in Lua")
      ->excludes(recipe)
      ->excludes(from_hf);
  auto json = std::make_shared<bool>(false);
  add_json_option(app, *json);
  return [=] {
    if (*lua)
      write_lua_support();
    else
      write_recipe(*file, *folder, *format);
    if (*json) print_output(*lua ? ".luals/runner.lua" : *file, *json);
    return ExitCode::done;
  };
}

}  // namespace runner
