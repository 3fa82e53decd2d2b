// `runner init`.
#include <memory>

#include "runner/base/files.hpp"
#include "runner/base/log.hpp"
#include "runner/commands/command.hpp"
#include "runner/config/config.hpp"
#include "runner/lua/shipped.hpp"
#include "runner/models/models.hpp"

namespace runner {

namespace {

const char* starter =
    R"(# A recipe for runner. Every key: runner help recipe. Check it: runner check {0}. Train it: runner run {0}.

{1}
[data]
format = "text"                  # or "bin": pre-tokenized ids
train = ["data.txt"]             # relative to this file
validation_fraction = 0.05
tokenizer = "bytes"              # or a SentencePiece model, or "sentencepiece" with tokenizer_vocab_size

[optimizer]
name = "adamw"
lr = 1e-3

[lr_scheduler]
name = "cosine"
warmup_steps = 20

[train]
max_steps = 1000
global_batch_size = 16           # sequences of one optimizer step, over all ranks
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

/// The [model] section of a Hugging Face folder, starting from its weights.
std::string model_section(const fs::path& folder) {
  auto text = read_file(folder / "config.json");
  auto config = nlohmann::json::parse(text, nullptr, false);
  if (config.is_discarded()) throw usage_error("{} is no JSON", (folder / "config.json").string());
  Recipe recipe;
  recipe.model = model_from_hf_config(config);
  recipe.model.init_from = fs::absolute(folder).lexically_normal().string();
  auto printed = print_recipe(recipe);
  auto begin = printed.find("[model]");
  return printed.substr(begin, printed.find("\n[", begin) + 1 - begin);
}

/// .luarc.json and the definitions that it names, for the Lua language server.
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
  auto file = std::make_shared<std::string>("recipe.toml"), folder = std::make_shared<std::string>();
  app.add_option("file", *file, "The recipe to write")->capture_default_str();
  app.add_option("--from-hf", *folder,
                 "A Hugging Face folder: its config.json gives [model], its weights are the start");
  auto lua = std::make_shared<bool>(false);
  app.add_flag("--lua", *lua, "Instead of a recipe: what editors need for hooks and recipes in Lua");
  return [=] {
    if (*lua) {
      write_lua_support();
      return ExitCode::done;
    }
    if (fs::exists(*file)) throw usage_error("{} exists already; name another file", *file);
    write_file_atomic(
        *file, fmt::format(fmt::runtime(starter), *file, folder->empty() ? starter_model : model_section(*folder)));
    log::info("wrote {}; check it with: runner check {}", *file, *file);
    return ExitCode::done;
  };
}

}  // namespace runner
