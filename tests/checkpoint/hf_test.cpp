// Hugging Face folders: written and read back in every form. Folders of other models are refused, with the names of
// tensors.
#include "runner/checkpoint/hf.hpp"

#include <algorithm>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstring>
#include <functional>
#include <random>

#include "support.hpp"
#include "tests/models/recipes.hpp"
#include "tiny_models.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

struct Exported {
  Folder folder;
  Recipe::Model model;
  ModelSpec spec;
  fs::path path = folder / "out";

  explicit Exported(Recipe::Model recipe, const WeightsFolder& options = {})
      : model(std::move(recipe)), spec(make_spec(model, tiny_vocab, 8)) {
    export_weights(path, model, spec, parameter_values, options);
  }
  /// Replaces the tensors of model.safetensors by the result of `edit`.
  void edit(const std::function<void(std::vector<TensorToWrite>&)>& edit) {
    auto file = std::make_unique<SafetensorsFile>(path / "model.safetensors");
    std::vector<TensorToWrite> tensors;
    for (const auto& tensor : file->tensors())
      tensors.push_back({tensor.name, tensor.dtype, tensor.shape, file->data(tensor)});
    edit(tensors);
    write_safetensors(path / "new", tensors);
    fs::rename(path / "new", path / "model.safetensors");
  }
  std::string open_message(const Recipe::Model& other) const {
    auto message = message_of([&] { HfSource source(path, other, make_spec(other, tiny_vocab, 8)); });
    return message.starts_with(path.string()) ? message.substr(path.string().size()) : message;
  }
  std::string open_message() const { return open_message(model); }
};

TensorToWrite& named(std::vector<TensorToWrite>& tensors, const std::string& name) {
  for (auto& tensor : tensors)
    if (tensor.name == name) return tensor;
  FAIL("no tensor " << name);
  return tensors.front();
}

}  // namespace

TEST_CASE("an export is read back in every dtype, in one file and in shards") {
  for (const auto& model : {tiny_gpt(), tiny_llama()})
    for (const char* dtype : {"F32", "BF16", "F16"})
      for (int64_t shard_bytes_max : {int64_t{5'000'000'000}, int64_t{10'000}, int64_t{1}}) {
        if (shard_bytes_max == 1 && std::string(dtype) != "BF16")
          continue;  // one file per tensor is slow, so only for one dtype
        WeightsFolder options;
        options.dtype = dtype;
        options.shard_bytes_max = shard_bytes_max;
        Exported exported(model, options);
        INFO(model.name << " " << dtype << " " << shard_bytes_max);
        CHECK(wrong_values(HfSource(exported.path, model, exported.spec), exported.spec) == 0);
        auto names = names_in(exported.path);
        if (shard_bytes_max > 1'000'000) {
          CHECK(names == std::vector<std::string>{"config.json", "model.safetensors"});
        } else {
          auto index = nlohmann::json::parse(read_file(exported.path / "model.safetensors.index.json"));
          CHECK(index["metadata"]["total_size"] == exported.spec.parameter_count() * dtype_bytes(dtype));
          CHECK(index["weight_map"].size() == exported.spec.parameters().size());
          CHECK(names.size() > 3);
          if (shard_bytes_max == 1) CHECK(names.size() == exported.spec.parameters().size() + 2);
          auto last = fmt::format("model-{0:05d}-of-{0:05d}.safetensors", names.size() - 2);
          CHECK(fs::exists(exported.path / last));
        }
        CHECK(names_in(exported.folder.path) == std::vector<std::string>{"out"});
      }
}

TEST_CASE("each batch norm is written with a number of batches, which PyTorch's has, too") {
  auto model = family_defaults("resnet");
  model.embedding_size = 4;
  model.hidden_sizes = {4, 8};
  model.depths = {1, 1};
  model.layer_type = "basic";
  Exported exported(model);
  SafetensorsFile file(exported.path / "model.safetensors");
  int norms = 0, counts = 0;
  for (const auto& tensor : file.tensors()) {
    norms += tensor.name.ends_with(".running_var");
    if (!tensor.name.ends_with(".num_batches_tracked")) continue;
    ++counts;
    CHECK(file.find(tensor.name.substr(0, tensor.name.rfind('.')) + ".running_var"));
    CHECK(tensor.dtype == "I64");
    CHECK(tensor.shape.empty());
    CHECK(std::ranges::all_of(file.data(tensor), [](std::byte byte) { return byte == std::byte{0}; }));
  }
  CHECK(norms == 6);  // of the stem, of two convolutions in each stage, and of the shortcut of the second one
  CHECK(counts == norms);
  CHECK(wrong_values(HfSource(exported.path, model, exported.spec), exported.spec) == 0);
}

TEST_CASE("a GPT-2 linear layer is stored transposed, and any range of it is read in our layout") {
  Exported exported(tiny_gpt());
  auto slot = exported.spec.slot("blocks.1.mlp.up.weight");
  SafetensorsFile file(exported.path / "model.safetensors");
  const auto* stored = file.find("transformer.h.1.mlp.c_fc.weight");
  REQUIRE(stored);
  CHECK(stored->shape == std::vector<int64_t>{24, 96});
  float value = 0;
  std::memcpy(&value, file.data(*stored).data() + (5 * 96 + 70) * 4, 4);
  CHECK(value == parameter_value(slot, 70 * 24 + 5));
  CHECK(file.metadata().at("format") == "pt");

  HfSource source(exported.path, exported.model, exported.spec);
  std::mt19937 random(3);
  for (int i = 0; i < 300; ++i) {
    auto begin = static_cast<int64_t>(random() % (24 * 96 + 1)), end = static_cast<int64_t>(random() % (24 * 96 + 1));
    if (begin > end) std::swap(begin, end);
    std::vector<float> values(static_cast<size_t>(end - begin)), expected(values.size());
    source.read(slot, begin, values);
    parameter_values(slot, begin, expected);
    REQUIRE(values == expected);
  }
}

TEST_CASE("transposed parameters with more rows than a block are read correctly") {
  auto model = tiny_gpt();
  model.dim = 96;
  model.n_heads = 4;
  Exported exported(model);
  CHECK(wrong_values(HfSource(exported.path, model, exported.spec), exported.spec) == 0);
}

TEST_CASE("double precision, names without a prefix and buffers without parameters are read") {
  Exported exported(tiny_gpt());
  std::vector<std::vector<double>> storage;
  std::vector<float> mask(16);
  exported.edit([&](auto& tensors) {
    storage.reserve(tensors.size());
    for (auto& tensor : tensors) {
      std::vector<float> values(tensor.data.size() / 4);
      std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
      tensor = {tensor.name.substr(std::string("transformer.").size()), "F64", tensor.shape,
                bytes_of(storage.emplace_back(values.begin(), values.end()))};
    }
    tensors.push_back({"h.0.attn.bias", "F32", {1, 1, 4, 4}, bytes_of(mask)});
  });
  CHECK(wrong_values(HfSource(exported.path, exported.model, exported.spec), exported.spec) == 0);
}

TEST_CASE("of a tied model, the file may have the output layer for the embedding or equal to it, but not another one") {
  for (const auto& [name, embedding, head] :
       {std::tuple("llama", "model.embed_tokens.weight", "lm_head.weight"),
        std::tuple("gpt", "transformer.wte.weight", "lm_head.weight"),
        std::tuple("gpt_neox", "gpt_neox.embed_in.weight", "embed_out.weight"),
        std::tuple("bert", "bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight")}) {
    CAPTURE(name);
    auto model = family_recipe(name);
    if (std::string(name) != "bert") model.tie_embeddings = true;
    Exported exported(model);
    std::vector<std::byte> other;
    exported.edit([&](auto& tensors) {
      auto copy = named(tensors, embedding);
      copy.name = head;
      tensors.push_back(copy);
    });
    CHECK(wrong_values(HfSource(exported.path, exported.model, exported.spec), exported.spec) == 0);
    exported.edit([&](auto& tensors) {
      auto& copy = named(tensors, head);
      other.assign(copy.data.begin(), copy.data.end());
      other.back() ^= std::byte{1};
      copy.data = other;
    });
    CHECK_THAT(exported.open_message(),
               Catch::Matchers::StartsWith(fmt::format(
                   ": `{}` differs from `{}`, and config.json says that they are one weight", head, embedding)));
    exported.edit([&](auto& tensors) { named(tensors, head).dtype = "I32"; });
    CHECK(exported.open_message() == fmt::format(": {} is I32 instead of F32, BF16, F16 or F64", head));
    if (std::string(name) == "bert") continue;
    exported.edit([&](auto& tensors) {
      std::erase_if(tensors, [&](const auto& tensor) { return tensor.name == head; });
      named(tensors, embedding).name = head;
    });
    CHECK(wrong_values(HfSource(exported.path, exported.model, exported.spec), exported.spec) == 0);
  }
}

TEST_CASE("parameters that share a tensor are written into one and any range of them is read back") {
  for (const char* name : {"phi3", "gpt_neox"}) {
    Exported exported(family_recipe(name));
    CAPTURE(name);
    const HfSource source(exported.path, exported.model, exported.spec);
    CHECK(wrong_values(source, exported.spec) == 0);
    const auto slot = exported.spec.slot("blocks.1.attention.wk.weight");
    const auto numel = exported.spec.numel(slot);
    std::mt19937 random(3);
    for (int i = 0; i < 200; ++i) {
      auto begin = static_cast<int64_t>(random()) % (numel + 1), end = static_cast<int64_t>(random()) % (numel + 1);
      if (begin > end) std::swap(begin, end);
      std::vector<float> values(static_cast<size_t>(end - begin)), expected(values.size());
      source.read(slot, begin, values);
      parameter_values(slot, begin, expected);
      REQUIRE(values == expected);
    }
  }
  // The row of head 2's third key element in GPT-NeoX: after two heads of 24 rows and the head's 8 query rows.
  Exported exported(family_recipe("gpt_neox"));
  SafetensorsFile file(exported.path / "model.safetensors");
  const auto* stored = file.find("gpt_neox.layers.0.attention.query_key_value.weight");
  REQUIRE(stored);
  CHECK(stored->shape == std::vector<int64_t>{96, 32});
  float value = 0;
  std::memcpy(&value, file.data(*stored).data() + ((2 * 24 + 8 + 3) * 32 + 5) * 4, 4);
  CHECK(value == parameter_value(exported.spec.slot("blocks.0.attention.wk.weight"), (2 * 8 + 3) * 32 + 5));
}

TEST_CASE("missing, unknown and misshapen tensors are listed together") {
  Exported exported(tiny_llama());
  std::vector<float> values(32 * 32);
  exported.edit([&](auto& tensors) {
    std::erase_if(tensors, [](const auto& tensor) { return tensor.name == "model.norm.weight"; });
    named(tensors, "model.layers.1.mlp.up_proj.weight").name = "model.layers.1.mlp.up_project.weight";
    named(tensors, "model.layers.0.self_attn.k_proj.weight") = {
        "model.layers.0.self_attn.k_proj.weight", "F32", {32, 32}, bytes_of(values)};
    named(tensors, "lm_head.weight").dtype = "I32";
  });
  CHECK(exported.open_message() ==
        ": its tensors are not those of the model:\n"
        "  missing: model.layers.1.mlp.up_proj.weight (there is model.layers.1.mlp.up_project.weight), "
        "model.norm.weight\n"
        "  wrong: model.layers.0.self_attn.k_proj.weight is [32, 32] instead of [16, 32], "
        "lm_head.weight is I32 instead of F32, BF16, F16 or F64\n"
        "  not in the model: model.layers.1.mlp.up_project.weight");
}

TEST_CASE("a long list of tensors is shortened and ends with a count") {
  Exported exported(tiny_llama());
  exported.edit([](auto& tensors) { tensors.resize(2); });
  auto message = exported.open_message();
  CHECK(message.starts_with(": its tensors are not those of the model:\n  missing: "));
  CHECK(message.ends_with(fmt::format(" and {} more", exported.spec.parameters().size() - 2 - 10)));
}

TEST_CASE("settings that do not change any shape are compared with config.json") {
  Exported exported(tiny_llama());
  auto other = tiny_llama();
  other.n_heads = 8;
  other.n_kv_heads = 4;
  other.norm_eps = 1e-5;
  other.tie_embeddings = true;
  other.rope_theta = 10000;
  other.rope_scaling.reset();
  CHECK(exported.open_message(other) ==
        " contains a different model:\n"
        "  model.n_heads = 8 in the recipe, 4 in config.json\n"
        "  model.n_kv_heads = 4 in the recipe, 2 in config.json\n"
        "  model.norm_eps = 1e-05 in the recipe, 1e-06 in config.json\n"
        "  model.tie_embeddings = true in the recipe, false in config.json\n"
        "  model.rope_theta = 10000 in the recipe, 500000 in config.json\n"
        "  model.rope_scaling = unset in the recipe, {factor = 8, high_freq_factor = 4, low_freq_factor = 1, "
        "original_max_position_embeddings = 32} in config.json");
  CHECK(exported.open_message(tiny_gpt()) ==
        " contains a different model:\n  model.name = gpt in the recipe, llama in config.json");
  auto gpt = tiny_gpt();
  gpt.activation = "gelu";
  CHECK(Exported(tiny_gpt()).open_message(gpt) ==
        " contains a different model:\n  model.activation = gelu in the recipe, gelu_tanh in config.json");
  auto shorter = tiny_llama();
  shorter.max_seq_len = 8;
  shorter.dropout = 0.1;
  CHECK(exported.open_message(shorter) == "nothing was thrown");
}

TEST_CASE("incomplete folders are refused with the missing files") {
  Exported exported(tiny_gpt());
  auto gone = exported.folder / "gone";
  CHECK(message_of([&] { HfSource source(gone, exported.model, exported.spec); }) ==
        gone.string() + ": there is no such folder");
  fs::rename(exported.path / "model.safetensors", exported.path / "elsewhere");
  CHECK(exported.open_message() == " has neither model.safetensors nor model.safetensors.index.json");
  write_text(exported.path / "pytorch_model.bin", "pickle");
  CHECK(exported.open_message() ==
        " has neither model.safetensors nor model.safetensors.index.json; pytorch_model.bin is a pickle, which is not "
        "read: "
        "save it with save_pretrained(safe_serialization=True)");
  write_text(exported.path / "model.safetensors.index.json",
             R"({"weight_map": {"a": "model-00001-of-00002.safetensors"}})");
  CHECK(exported.open_message() ==
        "/model-00001-of-00002.safetensors is missing, but model.safetensors.index.json names it");
  write_text(exported.path / "model.safetensors.index.json", R"({"weight_map": {"a": "../a.safetensors"}})");
  CHECK(exported.open_message() ==
        "/model.safetensors.index.json: `a` is in \"../a.safetensors\", which is not a file in the same folder");
  write_text(exported.path / "model.safetensors.index.json", "{}");
  CHECK(exported.open_message() == "/model.safetensors.index.json has no weight_map");
  write_text(exported.path / "config.json", "{");
  CHECK(exported.open_message() == "/config.json is not a JSON object");
  fs::remove(exported.path / "config.json");
  CHECK(exported.open_message() == " has no config.json");
}

TEST_CASE("a tensor in two shards is refused with both files") {
  WeightsFolder options;
  options.shard_bytes_max = 30'000;
  Exported exported(tiny_gpt(), options);
  auto index = nlohmann::json::parse(read_file(exported.path / "model.safetensors.index.json"));
  fs::copy_file(exported.path / index["weight_map"]["transformer.wte.weight"].get<std::string>(),
                exported.path / "zz.safetensors");
  index["weight_map"]["another"] = "zz.safetensors";
  write_text(exported.path / "model.safetensors.index.json", index.dump());
  auto message = exported.open_message();
  CHECK(message.find(" and in " + (exported.path / "zz.safetensors").string()) != std::string::npos);
}

TEST_CASE("an export never overwrites a file and leaves nothing when it fails") {
  Folder folder;
  auto model = tiny_gpt();
  auto spec = make_spec(model, tiny_vocab, 8);
  auto out = folder / "out";
  fs::create_directories(out);
  export_weights(out.string() + "/", model, spec, parameter_values);  // empty: allowed
  CHECK(message_of([&] { export_weights(out, model, spec, parameter_values); }) ==
        out.string() + " exists and is not an empty folder");
  write_text(folder / "file", "x");
  CHECK(message_of([&] { export_weights(folder / "file", model, spec, parameter_values); }) ==
        (folder / "file").string() + " exists and is not an empty folder");

  WeightsFolder half;
  half.dtype = "F16";
  auto large = [](size_t slot, int64_t, std::span<float> values) {
    std::fill(values.begin(), values.end(), slot == 3 ? 1e6f : 0.0f);
  };
  CHECK(message_of([&] { export_weights(folder / "half", model, spec, large, half); }) ==
        "transformer.h.0.ln_1.bias has values that F16 cannot represent: export it as bf16 or f32");
  CHECK_THROWS(export_weights(folder / "fails", model, spec,
                              [](size_t, int64_t, std::span<float>) { throw std::runtime_error("x"); }));
  auto no_bias = model;
  no_bias.bias = false;
  CHECK_THROWS_AS(export_weights(folder / "fails", no_bias, make_spec(no_bias, tiny_vocab, 8), parameter_values),
                  Error);
  CHECK(names_in(folder.path) == std::vector<std::string>{"file", "out"});
}

TEST_CASE("weights can be written with our names and layout") {
  WeightsFolder options;
  options.naming = WeightsFolder::Naming::runner;
  auto model = tiny_gpt();
  model.bias = false;  // Hugging Face has no counterpart
  Exported exported(model, options);
  CHECK(names_in(exported.path) == std::vector<std::string>{"model.safetensors"});
  SafetensorsFile file(exported.path / "model.safetensors");
  auto parameters = exported.spec.parameters();
  REQUIRE(file.tensors().size() == parameters.size());
  for (size_t slot = 0; slot < parameters.size(); ++slot) {
    CHECK(file.tensors()[slot].name == parameters[slot]->name);
    CHECK(file.tensors()[slot].shape == parameters[slot]->shape);
    std::vector<float> expected(static_cast<size_t>(parameters[slot]->numel()));
    parameter_values(slot, 0, expected);
    CHECK(std::memcmp(file.data(file.tensors()[slot]).data(), expected.data(), expected.size() * 4) == 0);
  }
}
