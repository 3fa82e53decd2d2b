// `runner import`.
#include <cstdio>
#include <memory>

#include "runner/base/files.hpp"
#include "runner/commands/command.hpp"
#include "runner/config/config.hpp"
#include "runner/import/deepspeed_config.hpp"
#include "runner/selection/strategy_options.hpp"

namespace runner {

namespace {

/// Explains why this format, which users may expect, cannot be imported.
std::string refuse_checkpoint(const std::string& format) {
  if (format == "deepspeed-checkpoint")
    throw usage_error(
        "DeepSpeed's checkpoints are Python pickles, which only Python can read; write the weights from there as "
        "Hugging Face safetensors (save_pretrained) and start from that folder with model.init_from");
  return "";
}

}  // namespace

Action setup_import(CLI::App& app) {
  auto format = std::make_shared<std::string>(), file = std::make_shared<std::string>();
  app.add_option("format", *format, "Source format")
      ->required()
      ->check(refuse_checkpoint)
      ->check(CLI::IsMember({"deepspeed"}));
  app.add_option("file", *file, "The configuration, a JSON file")->required();
  return [=] {
    if (!fs::is_regular_file(*file)) throw usage_error("there is no file {}", *file);
    const RecipeCheck check = [](const Recipe& recipe, std::vector<Diagnostic>& found) {
      resolve_strategy(recipe, found);
    };
    std::printf("%s", deepspeed_as_recipe(parse_located_json(read_file(*file), *file), check).c_str());
    return ExitCode::done;
  };
}

}  // namespace runner
