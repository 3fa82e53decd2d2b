#include "runner/checkpoint/stored_model.hpp"

#include <algorithm>

#include "runner/base/error.hpp"
#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/checkpoint/adapter_files.hpp"
#include "runner/checkpoint/adapter_model.hpp"
#include "runner/checkpoint/fit.hpp"
#include "runner/checkpoint/label_folder.hpp"
#include "runner/checkpoint/run_weights.hpp"
#include "runner/config/config.hpp"
#include "runner/config/model_families.hpp"
#include "runner/pretrained/model_files.hpp"

namespace runner {

using namespace nlohmann::literals;

namespace {

/// The dtype of the parameter with the most elements.
std::string main_dtype(const ModelSpec& spec, const std::function<std::string(size_t slot)>& dtype_of) {
  const auto parameters = spec.parameters();
  size_t largest = 0;
  for (size_t slot = 0; slot < parameters.size(); ++slot)
    if (parameters[slot]->numel() > parameters[largest]->numel()) largest = slot;
  return dtype_of(largest);
}

StoredModel open_folder(const ModelPlace& place) {
  const fs::path folder = place.folder;
  StoredModel model{.folder = folder};
  auto& recipe = model.recipe;
  recipe.model = model_of_hf_folder(folder);
  const auto& settings = recipe.model;
  if (labels_texts(settings)) {
    recipe.data.tokenizer = folder.string();
    model.learned = take_label_folder(folder, read_hf_config(folder), recipe);
    model.spec = make_spec(recipe, settings.vocab_size.value(), settings.max_seq_len);
  } else if (is_language_model(settings.name)) {
    recipe.data.tokenizer = folder.string();
    recipe.data.format = "text";
    if (family_kind(settings.name) == "encoder") recipe.data.objective = "masked_lm";
    model.spec = make_spec(recipe, settings.vocab_size.value(), settings.max_seq_len);
  } else {
    model.learned = take_label_folder(folder, read_hf_config(folder), recipe);
    model.spec = make_spec(recipe, settings.num_labels.value(), /*seq_len=*/1);
  }
  const auto source = std::make_shared<HfSource>(folder, settings, model.spec);
  model.has = [source](size_t slot) { return source->has(slot); };
  model.read = [source](size_t slot, int64_t offset, std::span<float> out) { source->read(slot, offset, out); };
  model.stored = [source](size_t slot) { return source->stored(slot); };
  model.dtype = main_dtype(model.spec,
                           [&](size_t slot) { return source->has(slot) ? source->stored(slot).dtype : std::string(); });
  return model;
}

/// The folder with the companions of a run's model: of its tokenizer if it has any, otherwise of its base.
fs::path companion_folder(const Recipe& recipe) {
  const fs::path tokenizer = recipe.data.tokenizer;
  const bool given = recipe.data.tokenizer != "bytes" && recipe.data.tokenizer != "sentencepiece";
  if (given && is_model_folder(tokenizer)) return tokenizer;
  if (given && fs::is_regular_file(tokenizer)) return tokenizer.parent_path();
  return recipe.model.init_from ? fs::path(*recipe.model.init_from) : fs::path();
}

}  // namespace

void use_kept_tokenizer(Recipe::Data& data, const fs::path& run_dir) {
  const auto kept = run_dir / kept_tokenizer;
  if (data.tokenizer == "sentencepiece" && fs::exists(kept)) data.tokenizer = kept.string();
}

void keep_trained_tokenizer(Recipe::Data& data, const fs::path& run_dir) {
  if (fs::exists(run_dir / kept_tokenizer)) data.trained_tokenizer = (run_dir / kept_tokenizer).string();
}

namespace {

StoredModel open_checkpoint(const ModelPlace& place) {
  const Checkpoint checkpoint(place.checkpoint, /*verify=*/false);
  StoredModel model{.recipe = load_recipe((fs::path(place.run_dir) / "resolved.toml").string())};
  model.recipe.data.mixup = model.recipe.data.cutmix = 0;  // of training only
  use_kept_tokenizer(model.recipe.data, place.run_dir);
  const Recipe& recipe = model.recipe;
  const ModelSpec trained = spec_of(recipe, checkpoint);
  if (auto other = other_model(checkpoint, recipe.model, trained.vocab_size); !other.empty())
    throw usage_error("{} is of another model than {}:\n  {}", place.checkpoint, place.run_dir, join(other, "\n  "));
  if (is_language_model(recipe.model.name)) model.recipe.model.vocab_size = trained.vocab_size;
  model.tokenizer_digest = checkpoint.state().value("/data/meaning/data.tokenizer/xxh3"_json_pointer, std::string());
  model.learned = checkpoint.state().value("/data/learned"_json_pointer, nlohmann::json());
  model.spec = make_base_spec(recipe, trained.vocab_size, trained.seq_len);
  const auto base = base_reader(recipe, trained, model.spec, checkpoint);
  model.read = merged_reader(trained, model.spec, model_reader(recipe, checkpoint, trained, base));
  model.dtype = "F32";
  if (std::ranges::none_of(trained.parameters(), &ParameterSpec::of_base))
    model.dtype =
        main_dtype(trained, [&](size_t slot) { return checkpoint.dtype("param/" + trained.parameters()[slot]->name); });
  model.stored = [dtype = model.dtype](size_t) { return HfSource::Stored{.dtype = dtype}; };
  model.has = [](size_t) { return true; };
  model.folder = companion_folder(recipe);
  return model;
}

bool is_checkpoint(const fs::path& folder) { return fs::is_regular_file(folder / "manifest.json"); }

ModelPlace checkpoint_place(const fs::path& checkpoint, const fs::path& run_dir, const std::string& name) {
  if (!fs::is_regular_file(run_dir / "resolved.toml"))
    throw usage_error(
        "{} is a checkpoint, but {} has no resolved.toml, which says what its model is: leave checkpoints in the "
        "folder "
        "of their run, or write them as a folder for other programs with `runner export`",
        checkpoint.string(), run_dir.string());
  return {.run_dir = fs::absolute(run_dir).lexically_normal().string(),
          .checkpoint = fs::absolute(checkpoint).lexically_normal().string(),
          .name = name,
          .step = Checkpoint(checkpoint, /*verify=*/false).step()};
}

}  // namespace

StoredModel open_stored_model(const ModelPlace& place) {
  if (place.of_run()) return open_checkpoint(place);
  return is_adapter_folder(place.folder) ? open_adapter_model(place) : open_folder(place);
}

ModelPlace place_of_run(const std::string& run, const fs::path& run_dir, const Attempts& attempts) {
  if (!fs::is_directory(run_dir))
    throw usage_error("run {} has no weights: its folder {} was moved or deleted", run, run_dir.string());
  const auto skip = [](const std::string& text) { log::warning("{}", text); };
  const auto newest = newest_good_checkpoint(run_dir / "checkpoints", attempts, skip);
  if (!newest)
    throw usage_error("run {} has no {}checkpoint in {}", run,
                      list_checkpoints(run_dir / "checkpoints").empty() ? "" : "good ",
                      (run_dir / "checkpoints").string());
  return checkpoint_place(*newest, run_dir, run);
}

std::optional<ModelPlace> place_at(const fs::path& path) {
  const ModelPlace here{.folder = fs::absolute(path).lexically_normal().string(), .name = path.string()};
  if (!fs::is_directory(path)) return is_model_folder(path) ? std::optional(here) : std::nullopt;
  if (is_checkpoint(path)) {
    const auto folder = fs::absolute(path / "").lexically_normal().parent_path();
    return checkpoint_place(path, folder.parent_path().parent_path(), path.string());
  }
  if (fs::is_regular_file(path / "resolved.toml")) return place_of_run(path.string(), path, {});
  if (fs::is_regular_file(path / "config.json") || is_adapter_folder(path)) return here;
  throw usage_error(
      "{} is neither a Hugging Face folder (it has no config.json) nor a checkpoint (no manifest.json) nor the folder "
      "of a run (no resolved.toml)",
      path.string());
}

}  // namespace runner
