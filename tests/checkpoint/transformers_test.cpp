// Hugging Face's transformers reads exported folders and writes folders to import. Needs a Python with transformers:
// RUNNER_TEST_PYTHON, or the system's with the packages of scripts/setup --tests.
#include <cstdlib>
#include <map>

#include "support.hpp"
#include "tests/models/recipes.hpp"
#include "tiny_models.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

/// A Python with transformers; skips the test without one.
std::string python_with_transformers() {
  const char* chosen = std::getenv("RUNNER_TEST_PYTHON");
  std::string python = chosen ? chosen : "PYTHONPATH=" RUNNER_SOURCE_DIR "/.deps/transformers /usr/bin/python3";
  std::string probe =
      python +
      R"sh( -c "import sys, importlib.util as u; sys.exit(any(u.find_spec(m) is None for m in ('torch', 'transformers')))" 2>/dev/null)sh";
  if (std::system(probe.c_str()) != 0) SKIP(python << " has no torch and transformers");
  return python;
}

/// Whether the Python's transformers has a class for the model type.
bool has_class(const std::string& python, const std::string& type) {
  auto probe =
      python + " -c \"import sys; from transformers import CONFIG_MAPPING as m; sys.exit('" + type + "' not in m)\"";
  return std::system(probe.c_str()) == 0;
}

/// The bytes of every tensor in a folder, by name.
std::map<std::string, std::string> tensor_bytes(const fs::path& folder) {
  std::map<std::string, std::string> bytes;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    SafetensorsFile file(entry.path());
    for (const auto& tensor : file.tensors()) {
      const auto data = file.data(tensor);
      bytes[tensor.name] = tensor.dtype + std::string(reinterpret_cast<const char*>(data.data()), data.size());
    }
  }
  return bytes;
}

}  // namespace

TEST_CASE("transformers opens exported folders, and its folders are read back", "[transformers]") {
  const auto python = python_with_transformers();
  for (auto model : {tiny_gpt(), tiny_llama()})
    for (bool tied : {true, false})
      for (const char* dtype : {"F32", "BF16"}) {
        Folder folder;
        model.tie_embeddings = tied;
        auto spec = make_spec(model, tiny_vocab, 8);
        WeightsFolder options;
        options.dtype = dtype;
        options.shard_bytes_max = tied ? 20'000 : 5'000'000'000;
        export_weights(folder / "ours", model, spec, parameter_values, options);
        auto command = python + " " RUNNER_SOURCE_DIR "/tests/checkpoint/check_transformers.py " +
                       (folder / "ours").string() + " " + (folder / "theirs").string();
        INFO(command);
        REQUIRE(std::system(command.c_str()) == 0);
        CHECK(wrong_values(HfSource(folder / "theirs", model, spec), spec) == 0);
      }
}

TEST_CASE(
    "every family's folder is opened by transformers, and its folder is imported and exported with the same bytes",
    "[transformers]") {
  const auto python = python_with_transformers();
  const bool recent = has_class(python, "qwen3") && has_class(python, "smollm3");
  Folder folder;
  std::vector<Recipe::Model> models;
  auto command = python + " " RUNNER_SOURCE_DIR "/tests/checkpoint/check_transformers.py";
  for (const auto& name : language_model_names()) {
    const bool newer = name == "qwen3" || name == "gemma3" || name == "smollm3";
    if (name == "gpt" || name == "llama" || (newer && !recent)) continue;
    auto model = family_recipe(name);
    if (name == "qwen2" || name == "granite" || name == "smollm3") model.head_dim = {};  // as in their classes
    WeightsFolder options;
    options.dtype = name < "m" ? "F32" : "BF16";
    export_weights(folder / (name + "-ours"), model, make_spec(model, tiny_vocab, 8), parameter_values, options);
    command += " " + (folder / (name + "-ours")).string() + " " + (folder / (name + "-theirs")).string();
    models.push_back(model);
  }
  INFO(command);
  REQUIRE(std::system(command.c_str()) == 0);
  for (const auto& model : models) {
    CAPTURE(model.name);
    const auto spec = make_spec(model, tiny_vocab, 8);
    const auto theirs = folder / (model.name + "-theirs"), again = folder / (model.name + "-again");
    const HfSource source(theirs, model, spec);
    CHECK(wrong_values(source, spec) == 0);
    WeightsFolder options;
    options.dtype = model.name < "m" ? "F32" : "BF16";
    export_weights(
        again, model, spec, [&](size_t slot, int64_t offset, std::span<float> out) { source.read(slot, offset, out); },
        options);
    CHECK(tensor_bytes(again) == tensor_bytes(theirs));
  }
}
