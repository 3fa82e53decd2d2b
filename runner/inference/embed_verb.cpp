// `runner embed`: a vector for each text of a file, from the hidden states of its tokens.
#include <algorithm>
#include <cmath>
#include <numeric>

#include <nlohmann/json.hpp>

#include "runner/base/error.hpp"
#include "runner/base/foreign_json.hpp"
#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/config/model_families.hpp"
#include "runner/data/data.hpp"
#include "runner/inference/loaded_model.hpp"
#include "runner/inference/text_records.hpp"
#include "runner/inference/verbs.hpp"
#include "runner/models/models.hpp"
#include "runner/models/pooling.hpp"
#include "runner/tokenizers/unicode.hpp"
#include "strategies/engine/token_batch.hpp"

namespace runner {

namespace {

// How a folder of sentence-transformers makes embeddings of texts: modules.json and the files that it names.

struct SentenceSettings {
  std::string pooling = "";                    ///< mean, cls or last; empty: the folder does not say it
  bool normalize = false;                      ///< to length 1
  std::optional<int64_t> max_seq_length = {};  ///< in tokens
  bool lower_case = false;                     ///< texts become lower case before the tokenizer
  std::string prompt = "";                     ///< is put before each text
};

using nlohmann::json;

json read_json(const fs::path& file) {
  auto parsed = foreign_json(read_file(file));
  if (parsed.is_discarded()) throw usage_error("{} is not JSON", file.string());
  return parsed;
}

/// sentence_transformers/models/Pooling.py: a switch for each mode, or "pooling_mode".
std::string pooling_of(const fs::path& file) {
  const auto config = read_json(file);
  std::vector<std::string> modes;
  if (config.contains("pooling_mode") && config.at("pooling_mode").is_string())
    modes.push_back(config.at("pooling_mode").get<std::string>());
  for (const auto& [key, value] : config.items())
    if (const std::string prefix = "pooling_mode_"; key.starts_with(prefix) && value == true)
      modes.push_back(key.substr(prefix.size()));
  if (modes.size() == 1 && (modes[0] == "mean_tokens" || modes[0] == "mean")) return "mean";
  if (modes.size() == 1 && (modes[0] == "cls_token" || modes[0] == "cls")) return "cls";
  if (modes.size() == 1 && modes[0] == "lasttoken") return "last";
  throw usage_error(
      "{}: the pooling {} is not supported; mean_tokens, cls_token and lasttoken are, and --pooling chooses one",
      file.string(), modes.empty() ? "is missing, and none" : join(modes, " with "));
}

/// sentence_transformers/SentenceTransformer.py: prompts, and the name of that which is used if none is asked for.
std::string default_prompt(const fs::path& file) {
  const auto config = read_json(file);
  const auto name = config.value("default_prompt_name", json());
  if (!name.is_string()) return "";
  const auto prompts = config.value("prompts", json::object());
  if (!prompts.contains(name.get<std::string>()) || !prompts.at(name.get<std::string>()).is_string())
    throw usage_error("{}: default_prompt_name = {} is not one of the prompts", file.string(), name.dump());
  return prompts.at(name.get<std::string>());
}

/// Reads modules.json, with `reads_pooling` the config.json of its pooling, sentence_bert_config.json, and the default prompt in
/// config_sentence_transformers.json. Without modules.json, the defaults. Throws
/// Error(usage) with the file for a pooling or module that is not supported.
SentenceSettings sentence_settings(const fs::path& folder, bool reads_pooling) {
  SentenceSettings settings;
  if (folder.empty() || !fs::is_regular_file(folder / "modules.json")) return settings;
  const auto file = folder / "modules.json";
  const auto modules = read_json(file);
  if (!modules.is_array()) throw usage_error("{} is not a list of modules", file.string());
  for (const auto& module : modules) {
    const auto type = module.value("type", ""), kind = type.substr(type.rfind('.') + 1);
    if (kind == "Pooling" && reads_pooling)
      settings.pooling = pooling_of(folder / module.value("path", "") / "config.json");
    if (kind == "Normalize") settings.normalize = true;
    if (kind != "Pooling" && kind != "Normalize" && kind != "Transformer")
      throw usage_error("{}: the module {} is not supported; Transformer, Pooling and Normalize are", file.string(),
                        type);
  }
  if (const auto lengths = folder / "sentence_bert_config.json"; fs::is_regular_file(lengths)) {
    const auto config = read_json(lengths);
    if (config.contains("max_seq_length") && config.at("max_seq_length").is_number_integer())
      settings.max_seq_length = config.at("max_seq_length").get<int64_t>();
    if (settings.max_seq_length.value_or(1) < 1)
      throw usage_error("{}: max_seq_length = {} must be at least 1", lengths.string(), *settings.max_seq_length);
    settings.lower_case = config.value("do_lower_case", false);
  }
  if (const auto prompts = folder / "config_sentence_transformers.json"; fs::is_regular_file(prompts))
    settings.prompt = default_prompt(prompts);
  return settings;
}

/// The settings of the folder, and those of the user in their place.
SentenceSettings settings_of(const InferenceRequest& request, const StoredModel& stored) {
  auto settings =
      sentence_settings(request.load.place().of_run() ? fs::path() : stored.folder, request.pooling.empty());
  if (!request.pooling.empty()) settings.pooling = request.pooling;
  const bool sees_all = family_kind(stored.recipe.model.name) == "encoder";
  if (settings.pooling.empty()) settings.pooling = sees_all ? "mean" : "last";
  if (!request.normalize.empty()) settings.normalize = request.normalize == "yes";
  const int64_t most = stored.recipe.model.max_seq_len;
  if (request.max_seq_length > most)
    throw usage_error("--max-seq-length {}: the model reads at most {} tokens", request.max_seq_length, most);
  settings.max_seq_length =
      std::min(most, request.max_seq_length > 0 ? request.max_seq_length : settings.max_seq_length.value_or(most));
  return settings;
}

std::string lower_case(const std::string& text) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const auto [first, second] = unicode::lower(unicode::next(text, at));
    unicode::append(result, first);
    if (second) unicode::append(result, second);
  }
  return result;
}

/// Turns texts into tokens. Of a text that is too long, the beginning is kept, with the special token that ends it.
class TextEncoder {
 public:
  TextEncoder(const Tokenizer& tokenizer, const SentenceSettings& settings)
      : tokenizer_(tokenizer), settings_(settings) {}

  std::vector<int32_t> encode(const TextRecord& record) {
    const auto text = settings_.prompt + record.text;
    auto tokens = tokenizer_.encode(settings_.lower_case ? lower_case(text) : text, /*add_special_tokens=*/true);
    if (tokens.empty()) throw usage_error("{}: the text has no tokens, so it has no embedding", record.place);
    const auto most = static_cast<size_t>(*settings_.max_seq_length);
    if (tokens.size() <= most) return tokens;
    ++cut_;
    const int32_t last = tokens.back();
    tokens.resize(most);
    if (most > 1 && tokenizer_.is_special(last)) tokens.back() = last;
    return tokens;
  }
  int64_t cut() const { return cut_; }

 private:
  const Tokenizer& tokenizer_;
  SentenceSettings settings_;
  int64_t cut_ = 0;
};

/// Rows that are padded on the right; padding is a sequence of its own. A model of pairs reads a text as the first of two.
HostBatch padded(const std::vector<std::vector<int32_t>>& texts) {
  size_t longest = 0;
  for (const auto& tokens : texts) longest = std::max(longest, tokens.size());
  const auto length = static_cast<int64_t>(longest);
  auto fields = packed_fields(length);
  fields.push_back({.name = token_field::types_name, .row = {length}, .padding_row = {1}});
  HostBatch batch(std::ssize(texts), std::move(fields));
  for (size_t row = 0; row < texts.size(); ++row) {
    const auto at = static_cast<int64_t>(row);
    std::ranges::copy(texts[row], batch.row<int64_t>(token_field::inputs, at).begin());
    write_padding(write_sequence(batch.row<int64_t>(token_field::positions, at), texts[row].size()));
  }
  return batch;
}

/// Embeddings [texts, dim], fp32 in host memory.
torch::Tensor embeddings_of(const LoadedModel& model, const std::vector<std::vector<int32_t>>& texts,
                            const SentenceSettings& settings) {
  const auto batch = model.micro_batch(padded(texts));
  const auto field = model.stored().spec.batch_field(token_field::positions_name);
  const TokenPositions positions{.on_device = batch.fields[field], .on_host = batch.host_fields[field]};
  const auto pooling = settings.pooling == "cls"    ? Pooling::cls
                       : settings.pooling == "last" ? Pooling::last
                                                    : Pooling::mean;
  auto embeddings = pooled(model.hidden_states(batch), positions, pooling);
  constexpr double smallest = 1e-12;  // as torch.nn.functional.normalize
  if (settings.normalize) embeddings = embeddings / embeddings.norm(2, {1}, /*keepdim=*/true).clamp_min(smallest);
  return embeddings.to(torch::kCPU).contiguous();
}

std::string line_of(const TextRecord& record, std::span<const float> embedding) {
  if (!std::ranges::all_of(embedding, [](float value) { return std::isfinite(value); }))
    throw environment_error("{}: the embedding is not finite: the model's weights are damaged", record.place);
  // The shortest digits that stand for the same fp32 number, which the JSON library writes for fp64 only.
  std::string line = fmt::format("{{\"id\":{},\"embedding\":[", record.id.dump());
  for (const float value : embedding) fmt::format_to(std::back_inserter(line), "{},", value);
  line.back() = ']';
  return line + "}\n";
}

/// Makes a model of rows with padding: what follows a text is another sequence.
void pad_rows(StoredModel& stored) {
  auto& recipe = stored.recipe;
  if (recipe.data.packs_sequences() || labels_texts(recipe.model)) return;
  recipe.data.packing = "best_fit";
  stored.spec = make_base_spec(recipe, stored.spec.vocab_size, stored.spec.seq_len);
}

}  // namespace

ExitCode embed_texts(const InferenceRequest& request, StoredModel stored, EventSink& events) {
  const auto& recipe = stored.recipe;
  if (!is_language_model(recipe.model.name) || recipe.model.name == "plugin")
    throw usage_error(
        "{} has a model of the family {}: embeddings are made by models that read tokens, such as bert and llama",
        request.load.name, recipe.model.name);
  pad_rows(stored);
  const auto settings = settings_of(request, stored);
  const auto tokenizer = open_model_tokenizer(stored, request.load.cache_dir);
  const auto records =
      read_texts(request.prompts.file, request.prompts.records, {"text", "sentence", "input", "prompt"});
  const torch::InferenceMode inference;
  const LoadedModel model(request.load, std::move(stored), LoadedModel::Head::left_out);
  TextEncoder encoder(*tokenizer, settings);
  LineOutput lines(request.output);
  // Texts of similar lengths are computed together, among as many as fit into memory easily.
  const auto batch_size = static_cast<size_t>(request.batch_size), group_size = 32 * batch_size;
  int64_t tokens = 0;
  for (size_t first = 0; first < records.size(); first += group_size) {
    const size_t count = std::min(group_size, records.size() - first);
    std::vector<std::vector<int32_t>> texts;
    for (size_t i = 0; i < count; ++i) tokens += std::ssize(texts.emplace_back(encoder.encode(records[first + i])));
    std::vector<size_t> order(count);
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, std::greater<>(), [&](size_t i) { return texts[i].size(); });
    std::vector<std::string> group(count);
    for (size_t begin = 0; begin < count; begin += batch_size) {
      const std::span part(order.begin() + static_cast<ptrdiff_t>(begin), std::min(batch_size, count - begin));
      std::vector<std::vector<int32_t>> batch;
      for (const size_t i : part) batch.push_back(std::move(texts[i]));
      const auto embeddings = embeddings_of(model, batch, settings);
      const auto dim = static_cast<size_t>(embeddings.size(1));
      for (size_t row = 0; row < part.size(); ++row)
        group[part[row]] = line_of(records[first + part[row]], {embeddings.data_ptr<float>() + row * dim, dim});
      report_progress(events, static_cast<int64_t>(first + begin + part.size()), std::ssize(records));
    }
    for (const auto& line : group) lines.add(line);
  }
  lines.finish();
  if (encoder.cut() > 0)
    log::warning("{} longer than {} tokens: the ends are left out",
                 encoder.cut() == 1 ? "1 text is" : fmt::format("{} texts are", encoder.cut()),
                 *settings.max_seq_length);
  events.emit("result",
              {{"metrics", {{"records", records.size()}, {"tokens", tokens}, {"dim", model.settings().dim}}}});
  return ExitCode::done;
}

}  // namespace runner
