#include "runner/models/plugin/spec.hpp"

#include <map>
#include <mutex>

#include "runner/base/error.hpp"
#include "runner/base/xxh3.hpp"
#include "runner/models/family.hpp"
#include "runner/models/spec_parts.hpp"
#include "runner/plugins/ask_worker.hpp"
#include "strategies/engine/token_batch.hpp"

namespace runner {

namespace {

using nlohmann::json;

struct Kept {
  std::mutex mutex;
  fs::path folder;
  std::map<std::string, json> descriptions;  ///< by key
};

Kept& kept() {
  static Kept kept;
  return kept;
}

std::string digest_of(const std::string& library) {
  if (!fs::is_regular_file(library)) throw usage_error("model.plugin: there is no file {}", library);
  return xxh3_hex(MappedFile(library).bytes());
}

json description_of_plugin(const json& request) {
  // The worker measures, so its descriptions belong to it.
  const std::string key = xxh3_hex(request.dump() + worker_identity() + digest_of(request.at("plugin")));
  auto& memory = kept();
  const std::lock_guard lock(memory.mutex);
  if (const auto found = memory.descriptions.find(key); found != memory.descriptions.end()) return found->second;
  const auto file = memory.folder / ("plugin-" + key + ".json");
  json description;
  if (!memory.folder.empty() && fs::exists(file)) {
    description = json::parse(read_file(file));
  } else {
    description = ask_worker("--describe-plugin", request, "model.plugin");
    if (!memory.folder.empty()) {
      fs::create_directories(memory.folder);
      write_file_atomic(file, description.dump(1) + "\n");
    }
  }
  return memory.descriptions.emplace(key, std::move(description)).first->second;
}

[[noreturn]] void refuse_hugging_face() {
  throw usage_error(
      "the model of a plug-in has no Hugging Face class; the checkpoints' safetensors files have its parameters by "
      "name");
}

BlockSpec block_of(const json& from) {
  BlockSpec block{.name = from.at("name"), .shared = from.at("shared").get<std::vector<std::string>>()};
  for (const auto& parameter : from.at("parameters"))
    block.parameters.push_back(
        {.name = parameter.at("name"),
         .shape = parameter.at("shape").get<std::vector<int64_t>>(),
         .init = {static_cast<Init::Kind>(parameter.at("init").get<int>()), parameter.at("scale")}});
  const double flops = from.at("flops_per_token");
  block.forward_flops_per_token = flops > 0 ? flops : matrix_flops_per_token(block.parameters);
  block.output_elements_per_token = from.at("output");
  return block;
}

}  // namespace

void keep_plugin_descriptions(const fs::path& folder) {
  const std::lock_guard lock(kept().mutex);
  kept().folder = folder;
}

ModelSpec plugin_spec_of(const json& description, int64_t vocab_size, int64_t seq_len) {
  ModelSpec spec;
  spec.family = "plugin";
  spec.vocab_size = vocab_size;
  spec.seq_len = seq_len;
  for (const auto& field : description.at("batch"))
    spec.batch.push_back({.name = field.at("name"),
                          .type = element_type_named(field.at("type")),
                          .row = field.at("row").get<std::vector<int64_t>>(),
                          .padding = field.at("padding")});
  if (spec.batch.empty()) spec.batch = token_fields(seq_len);
  for (const auto& block : description.at("blocks")) {
    spec.blocks.push_back(block_of(block));
    spec.blocks.back().variant = std::ssize(spec.blocks);  // code of their own
  }
  spec.blocks.front().kind = BlockKind::embedding;
  spec.blocks.back().kind = BlockKind::head;
  spec.dim = static_cast<int64_t>(spec.blocks.front().output_elements_per_token);
  return spec;
}

const Family plugin_family = {
    .make_spec =
        [](const Recipe::Model& model, int64_t vocab_size, int64_t seq_len, RowKind rows, const TensorDivision&,
           const ContextDivision&) {
          if (rows == RowKind::packed)
            throw usage_error(
                "data.packing = \"best_fit\": a plug-in does not know which sequences of a row do not see each other");
          return plugin_spec(model, vocab_size, seq_len);
        },
    .settings =
        [](const Recipe::Model& model) {
          return json{{"plugin", fs::path(model.plugin.value_or("")).filename().string()}, {"options", model.options}};
        },
    .hf_tensor = [](const Recipe::Model&, const std::string& name) { return HfTensor{.name = name}; },
    .hf_ignorable = [](const Recipe::Model&, const std::string&) { return false; },
    .model_from_hf_config = [](const json&) -> Recipe::Model { refuse_hugging_face(); },
    .hf_config = [](const Recipe::Model&, const ModelSpec&) -> json { refuse_hugging_face(); }};

std::string plugin_digest(const Recipe::Model& model) {
  return model.name == "plugin" && model.plugin ? digest_of(*model.plugin) : "";
}

ModelSpec plugin_spec(const Recipe::Model& model, int64_t vocab_size, int64_t seq_len) {
  if (!model.plugin) throw usage_error("model.name = \"plugin\" needs model.plugin, the library of the model");
  const json request = {
      {"plugin", *model.plugin}, {"options", model.options}, {"vocab_size", vocab_size}, {"seq_len", seq_len}};
  return plugin_spec_of(description_of_plugin(request), vocab_size, seq_len);
}

}  // namespace runner
