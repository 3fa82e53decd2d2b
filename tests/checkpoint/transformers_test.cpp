// Hugging Face's transformers reads exported folders and writes folders to import. Needs a Python with transformers:
// RUNNER_TEST_PYTHON, or the system's with the packages of scripts/setup --tests.
#include <cstdlib>

#include "support.hpp"
#include "tiny_models.hpp"

using namespace runner;
using namespace runner::testing;

TEST_CASE("transformers opens exported folders, and its folders are read back", "[transformers]") {
  const char* chosen = std::getenv("RUNNER_TEST_PYTHON");
  std::string python = chosen ? chosen : "PYTHONPATH=" RUNNER_SOURCE_DIR "/.deps/transformers /usr/bin/python3";
  std::string probe =
      python +
      R"sh( -c "import sys, importlib.util as u; sys.exit(any(u.find_spec(m) is None for m in ('torch', 'transformers')))" 2>/dev/null)sh";
  if (std::system(probe.c_str()) != 0) SKIP(python << " has no torch and transformers");
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
