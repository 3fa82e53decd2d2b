#include "runner/models/models.hpp"

#include <algorithm>

#include "runner/base/error.hpp"
#include "runner/base/glob.hpp"
#include "runner/base/text.hpp"
#include "runner/config/key_table.hpp"
#include "runner/config/model_families.hpp"
#include "runner/models/adapters.hpp"
#include "runner/models/decoder/decoder.hpp"
#include "runner/models/decoder/hf_config.hpp"
#include "runner/models/family.hpp"
#include "runner/models/gpt/gpt.hpp"
#include "runner/models/plugin/spec.hpp"
#include "runner/models/profiler.hpp"
#include "runner/models/spec_parts.hpp"
#include "strategies/engine/row_batch.hpp"

namespace runner {

namespace {

/// Why `ranks` ranks cannot divide the `units` units of a key, without which a rank would have none; nullopt if they can.
std::optional<std::string> refuse_few(const char* key, int64_t units, int ranks) {
  if (units >= ranks) return std::nullopt;
  return fmt::format("{} ranks cannot share {} = {}: each needs at least 1", ranks, key, units);
}

/// Whether the model is a gpt or a decoder that predicts tokens.
bool predicts_next_tokens(const Recipe::Model& model) {
  return (family_kind(model.name) == "decoder" || model.name == "gpt") && !labels_texts(model);
}
/// The model in messages of what it cannot do.
std::string words_for(const Recipe::Model& model) {
  return labels_texts(model) ? "models with model.num_labels" : model.name;
}

/// Why [fine_tune] needs complete matrices; nullopt if it does not.
std::optional<std::string> refuse_divided_adapters(const Recipe::FineTune& settings) {
  if (settings.adapts() && settings.has_magnitudes())
    return "fine_tune.method = \"dora\" needs the norms of complete rows, of which each rank has a part; allowed: "
           "\"lora\", \"freeze\" and \"full\"";
  if (settings.quantizes())
    return fmt::format(
        "fine_tune.quantization = \"{}\" has blocks of values of complete matrices, of which each rank has a part; "
        "allowed: \"none\"",
        settings.quantization);
  return std::nullopt;
}

const Family& family_named(const std::string& name) {
  if (name == "gpt") return gpt_family;
  if (name == "mlp") return mlp_family;
  if (name == "vit") return vit_family;
  if (name == "resnet") return resnet_family;
  if (name == "plugin") return plugin_family;
  if (family_kind(name) == "encoder") return encoder_family;
  if (std::ranges::find(model_families(), name) != model_families().end()) return decoder_family;
  auto close = nearest(name, model_families());
  throw usage_error("model.name = \"{}\": no such family; allowed: {}{}", name, join_or(model_families()),
                    close ? fmt::format(" (did you mean \"{}\"?)", *close) : "");
}

/// By model_type of a config.json.
const Family& family_of_hf_type(const nlohmann::json& config) {
  const auto found = config.is_object() ? config.value("model_type", nlohmann::json()) : nlohmann::json();
  const auto type = found.is_string() ? found.get<std::string>() : "";
  std::vector<std::pair<std::string, const Family*>> families = {
      {"gpt2", &gpt_family}, {"bert", &encoder_family},  {"roberta", &encoder_family},
      {"vit", &vit_family},  {"resnet", &resnet_family}, {"mlp", &mlp_family}};
  for (const auto& decoder : decoder::hf_families()) families.emplace_back(decoder.type, &decoder_family);
  std::vector<std::string> known;
  for (const auto& [name, family] : families) {
    if (name == type) return *family;
    known.push_back(name);
  }
  const auto close = nearest(type, known);
  throw usage_error("config.json: model_type = \"{}\" is not supported; allowed: {}{}", type, join_or(known),
                    type == "gemma3"
                        ? " (\"gemma3\" is a model of images and text; its language model is \"gemma3_text\")"
                    : close ? fmt::format(" (did you mean \"{}\"?)", *close)
                            : "");
}

/// Throws Error(usage) for a number of a config.json that a recipe cannot have.
void check_numbers_of_config(const Recipe::Model& model) {
  Recipe recipe;
  recipe.model = model;
  for (const auto& key : key_table()) {
    if (key.section != "model" || !key.in_family(model.name)) continue;
    auto value = key.get(recipe);
    const bool numbers = value.is_number() || (value.is_array() && !value.empty() && value[0].is_number());
    if (const auto problem = numbers && value != key.default_value ? check_option(key, value) : std::nullopt)
      throw usage_error("config.json: as keys of [model], {}", problem->message);
  }
}

/// The spec before mark_layers().
ModelSpec unmarked_spec(const Recipe::Model& model, int64_t vocab_size, int64_t seq_len, RowKind rows,
                        const TensorDivision& division, const ContextDivision& context, TaskSpec task = {}) {
  const auto& family = family_named(model.name);
  const bool own = family_kind(model.name) == "plugin", tokens = !own && is_language_model(model.name);
  if (tokens) check_shape(model, vocab_size, seq_len);
  const bool labels = !own && labels_texts(model);
  if (labels && rows == RowKind::one_sequence) rows = RowKind::text;
  if (division.divides())
    if (const auto refused = refuse_few("model.vocab_size", vocab_size, division.ranks))
      throw usage_error("{}", *refused);
  ModelSpec spec = family.make_spec(model, vocab_size, seq_len, rows, division, context);
  spec.division = division;
  spec.family = model.name;
  spec.vocab_size = vocab_size;
  spec.context = context;
  if (spec.seq_len == 0) spec.seq_len = context.own(seq_len);  // images have as many tokens as patches
  if (tokens) {
    spec.dim = model.dim;
    spec.loss_chunk_tokens = model.loss_chunk_tokens;
  }
  if (labels || (!tokens && !own)) {
    task.outputs = labels ? *model.num_labels : vocab_size;
    spec.task = task;
    const bool has_types = family_kind(model.name) == "encoder";
    if (labels) spec.batch = text_fields(seq_len, has_types && rows == RowKind::text_pair);
    spec.batch.push_back(task.classifies() ? labels_field() : targets_field(task.outputs));
    if (task.mixes_labels) spec.batch.insert(spec.batch.end(), {partner_labels_field(), label_share_field()});
  }
  if (!model.frozen.empty())
    train_only(spec, [&](const ParameterSpec& parameter, size_t) {
      return std::ranges::none_of(model.frozen,
                                  [&](const auto& pattern) { return glob_matches(pattern, parameter.name); });
    });
  return spec;
}

RowKind rows_of(const Recipe& recipe) {
  if (recipe.data.labels_texts()) return recipe.data.has_text_pairs() ? RowKind::text_pair : RowKind::text;
  return recipe.data.packs_sequences() ? RowKind::packed : RowKind::one_sequence;
}

TaskSpec task_of(const Recipe& recipe) {
  const auto& train = recipe.train;
  TaskSpec task{.label_smoothing = train.label_smoothing,
                .huber_delta = train.huber_delta,
                .mixes_labels = recipe.data.mixes_images()};
  const auto loss = train.loss.value_or("cross_entropy");
  task.loss = loss == "bce"     ? TaskSpec::Loss::bce
              : loss == "mse"   ? TaskSpec::Loss::mse
              : loss == "l1"    ? TaskSpec::Loss::l1
              : loss == "huber" ? TaskSpec::Loss::huber
                                : TaskSpec::Loss::cross_entropy;
  return task;
}

/// Attention has a backward if the gradient of the block's input is needed, or those of parameters between the input and attention.
void leave_out_attention_backward(ModelSpec& spec) {
  const auto before_attention = [](const ParameterSpec& parameter) {
    const std::string_view name = parameter.name;
    const auto has = [&](const char* part) { return name.find(part) != name.npos; };
    return has(".attention") && !has(".attention.out.") && !has(".attention.wo.") && !has(".attention_post_norm.");
  };
  for (size_t b = 0; b < spec.blocks.size(); ++b) {
    auto& block = spec.blocks[b];
    const bool needed = spec.passes_gradient(b) || std::ranges::any_of(block.parameters, [&](const auto& parameter) {
                          return parameter.trainable && before_attention(parameter);
                        });
    if (!needed) block.over_context_axis.backward.clear();
  }
}

void mark_converted(ModelSpec& spec, const ConvertedParameters& converted) {
  for (auto& block : spec.blocks)
    for (auto& parameter : block.parameters) {
      if (converted.matrices_only && parameter.shape.size() < 2) continue;
      if (std::ranges::any_of(converted.patterns,
                              [&](const auto& pattern) { return glob_matches(pattern, parameter.name); }))
        parameter.converted = {.kept = converted.kept_bytes, .working = converted.working_bytes};
    }
}

void mark_layers(ModelSpec& spec) {
  leave_out_attention_backward(spec);
  int64_t above = 0;
  for (size_t b = spec.blocks.size(); b-- > 0;) {
    for (auto& parameter : spec.blocks[b].parameters) {
      parameter.of_layer = spec.blocks[b].kind == BlockKind::transformer;
      parameter.layers_above = above;
    }
    if (!spec.continues_layer(b)) ++above;
  }
}

}  // namespace

std::optional<std::string> refuse_division(const Recipe& recipe, int ranks) {
  const auto& model = recipe.model;
  if (ranks == 1) return std::nullopt;
  if (!predicts_next_tokens(model))
    return fmt::format(
        "the matrices of {} cannot be divided: tensor parallelism is for gpt and decoders that predict tokens",
        words_for(model));
  const auto kind = family_kind(model.name);
  if (const auto refused = refuse_divided_adapters(recipe.fine_tune)) return refused;
  const int64_t heads = model.n_heads, keys = kind == "decoder" ? decoder::n_kv_heads(model) : heads;
  const auto works = [&](int64_t t) { return heads % t == 0 && (keys % t == 0 || t % keys == 0); };
  if (works(ranks)) {
    const int64_t hidden = kind == "decoder" ? decoder::hidden_dim(model) : gpt::hidden_dim(model);
    if (const auto refused = refuse_few("model.hidden_dim", hidden, ranks)) return refused;
    return refuse_few("model.vocab_size", model.vocab_size.value_or(ranks), ranks);
  }
  std::vector<std::string> sizes;
  for (int64_t t = 1; t <= heads; ++t)
    if (works(t)) sizes.push_back(std::to_string(t));
  return fmt::format("{} ranks cannot share {} heads with {} key heads; sizes that work: {}", ranks, heads, keys,
                     join(sizes, ", "));
}

std::optional<std::string> refuse_context(const Recipe& recipe, int ranks, ContextForm form, int tensor_ranks) {
  const auto& model = recipe.model;
  if (ranks == 1) return std::nullopt;
  if (!predicts_next_tokens(model))
    return fmt::format(
        "the tokens of {} cannot be divided: context parallelism is for gpt and decoders that predict tokens",
        words_for(model));
  const int64_t heads = model.n_heads, both = int64_t{ranks} * tensor_ranks;
  if (form != ContextForm::ulysses || heads % both == 0) return std::nullopt;
  std::vector<std::string> sizes;
  for (int64_t c = 1; c * tensor_ranks <= heads; ++c)
    if (heads % (c * tensor_ranks) == 0) sizes.push_back(std::to_string(c));
  const auto of_tensor = tensor_ranks > 1 ? fmt::format(" that {} tensor ranks have divided", tensor_ranks) : "";
  return fmt::format("{} ranks cannot share {} heads{}, as the form \"ulysses\" does; sizes that work: {}", ranks,
                     heads, of_tensor, join(sizes, ", "));
}

std::optional<std::string> refuse_stages(const Recipe& recipe) {
  if (predicts_next_tokens(recipe.model)) return std::nullopt;
  return fmt::format(
      "the blocks of {} cannot be divided into stages: pipelines are for gpt and decoders that predict tokens",
      words_for(recipe.model));
}

std::vector<std::string> parameter_names(const ModelSpec& model) {
  std::vector<std::string> names;
  int64_t layers = 0;
  for (size_t b = 0; b < model.blocks.size(); ++b) {
    const auto& block = model.blocks[b];
    const bool transformer = block.kind == BlockKind::transformer;
    if (transformer && !model.continues_layer(b)) ++layers;
    if (!transformer || layers == 1)
      for (const auto& parameter : block.parameters) names.push_back(parameter.name);
  }
  return names;
}

const std::vector<std::string>& model_families() { return model_family_names(); }

ModelSource source_of(const Recipe& recipe, int64_t vocab_size, int64_t seq_len, const TensorDivision& division,
                      const ContextDivision& context) {
  auto code = plugin_digest(recipe.model);
  ModelSource source{.rows = rows_of(recipe),
                     .task = task_of(recipe),
                     .vocab_size = vocab_size,
                     .seq_len = seq_len,
                     .division = division,
                     .context = context,
                     .threads = static_cast<int>(recipe.devices.threads_per_rank.value_or(1)),
                     .code = std::move(code)};
  source.recipe.model = recipe.model;
  source.recipe.fine_tune = recipe.fine_tune;
  source.recipe.plugins.converted = recipe.plugins.converted;
  return source;
}

ModelSpec make_spec(const ModelSource& source) {
  const Recipe& recipe = source.recipe;
  auto spec = unmarked_spec(recipe.model, source.vocab_size, source.seq_len, source.rows, source.division,
                            source.context, source.task);
  if (spec.family == "plugin" && recipe.fine_tune.adapts())
    throw usage_error("fine_tune.method: the matrices of a plug-in have no adapters");
  fine_tune(spec, recipe);
  mark_converted(spec, recipe.plugins.converted);
  mark_layers(spec);
  spec.profiler = make_profiler(source);
  return spec;
}

ModelSpec make_spec(const Recipe& recipe, int64_t vocab_size, int64_t seq_len, const TensorDivision& division,
                    const ContextDivision& context) {
  return make_spec(source_of(recipe, vocab_size, seq_len, division, context));
}

ModelSpec make_base_spec(const Recipe& recipe, int64_t vocab_size, int64_t seq_len) {
  auto spec = unmarked_spec(recipe.model, vocab_size, seq_len, rows_of(recipe), {}, {}, task_of(recipe));
  return spec;
}

ModelSpec make_spec(const Recipe::Model& model, int64_t vocab_size, int64_t seq_len, RowKind rows,
                    const TensorDivision& division, const ContextDivision& context) {
  ModelSource source{
      .rows = rows, .vocab_size = vocab_size, .seq_len = seq_len, .division = division, .context = context};
  source.recipe.model = model;
  return make_spec(source);
}

nlohmann::json model_settings(const Recipe::Model& model, int64_t vocab_size) {
  nlohmann::json values = {{"name", model.name}};
  const bool own = family_kind(model.name) == "plugin";
  values[is_language_model(model.name) ? "vocab_size" : "num_labels"] = vocab_size;
  if (!own && is_language_model(model.name))
    values.update({{"n_layers", model.n_layers},
                   {"dim", model.dim},
                   {"n_heads", model.n_heads},
                   {"norm_eps", model.norm_eps},
                   {"tie_embeddings", model.tie_embeddings}});
  if (labels_texts(model)) values.update({{"num_labels", *model.num_labels}, {"labels", model.labels}});
  values.update(family_named(model.name).settings(model));
  nlohmann::json settings = nlohmann::json::object();
  for (const auto& [key, value] : values.items()) settings["model." + key] = value;
  return settings;
}

std::vector<HfTensor> hf_names(const Recipe::Model& model, const ModelSpec& spec) {
  std::vector<HfTensor> names;
  for (const auto* parameter : spec.stored())
    names.push_back(family_named(model.name).hf_tensor(model, parameter->name));
  return names;
}

bool hf_ignorable(const Recipe::Model& model, const std::string& tensor_name) {
  return family_named(model.name).hf_ignorable(model, tensor_name);
}

Recipe::Model model_from_hf_config(const nlohmann::json& config) {
  auto model = family_of_hf_type(config).model_from_hf_config(config);
  check_numbers_of_config(model);
  return model;
}

nlohmann::json hf_config(const Recipe::Model& model, const ModelSpec& spec) {
  return family_named(model.name).hf_config(model, spec);
}

}  // namespace runner
