// `runner data`: the samples of a recipe as a training sees them.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>

#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/commands/command.hpp"
#include "runner/commands/preflight.hpp"
#include "runner/commands/shared_options.hpp"
#include "runner/config/model_families.hpp"
#include "runner/data/data.hpp"
#include "runner/data/data_check.hpp"
#include "runner/data/order.hpp"
#include "runner/data/table_schema.hpp"
#include "runner/report/table.hpp"
#include "strategies/engine/row_batch.hpp"

namespace runner {

namespace {

/// A sample, or one sequence of a packed sample.
struct Sample {
  int64_t index;
  bool masked;  ///< the target of a token is the token itself, and not the next one
  std::vector<int64_t> inputs, targets;
  std::vector<int64_t> positions;  ///< empty: the sample is one sequence
  int64_t supervised() const {
    return std::ranges::count_if(targets, [](int64_t target) { return target != ignored_target; });
  }
};

Sample read_sample(const Dataset& data, int64_t index, const Recipe& recipe) {
  HostBatch batch(1, data.fields_of(std::span(&index, 1)));
  data.draw(index, batch, 0, {.epoch = 0, .seed = recipe.run.seed});
  auto values = [&](size_t field) {
    const auto row = batch.row<int64_t>(field, 0);
    return std::vector<int64_t>(row.begin(), row.end());
  };
  Sample sample{.index = index,
                .masked = recipe.data.masks_tokens(),
                .inputs = values(token_field::inputs),
                .targets = values(token_field::targets),
                .positions = {}};
  if (batch.fields.size() > token_field::positions) sample.positions = values(token_field::positions);
  return sample;
}

/// The sequences of a packed sample, or the sample itself.
std::vector<Sample> sequences_in(const Sample& sample) {
  if (sample.positions.empty()) return {sample};
  std::vector<Sample> sequences;
  for (size_t t = 0; t < sample.inputs.size(); ++t) {
    if (sample.positions[t] == 0)
      sequences.push_back(
          {.index = sample.index, .masked = sample.masked, .inputs = {}, .targets = {}, .positions = {}});
    sequences.back().inputs.push_back(sample.inputs[t]);
    sequences.back().targets.push_back(sample.targets[t]);
  }
  // Each sequence has a target. The padding has none.
  if (sequences.back().supervised() == 0) sequences.pop_back();
  return sequences;
}

/// The text of a sample. Supervised parts are green in a terminal, and between ⟦ and ⟧ elsewhere.
std::string marked_text(const Sample& sample, const Tokenizer& tokenizer) {
  const bool color = ::isatty(STDOUT_FILENO) == 1 && !std::getenv("NO_COLOR");
  std::string text;
  std::vector<int32_t> run;  // tokens are decoded together, because one can be a part of a character
  bool marked = false;
  auto flush = [&] {
    if (run.empty()) return;
    const auto part = tokenizer.decode(run);
    text += !marked ? part : color ? "\033[32m" + part + "\033[0m" : "⟦" + part + "⟧";
    run.clear();
  };
  // The first token is no target. The padding at the end is left out.
  size_t length = sample.inputs.size();
  while (length > 0 && sample.targets[length - 1] == ignored_target && sample.inputs[length - 1] == 0) --length;
  for (size_t t = 0; t <= length; ++t) {
    const size_t place = sample.masked ? t : t - 1;  // of the token as a target
    const bool supervised = place < sample.targets.size() && sample.targets[place] != ignored_target;
    if (t == length && (sample.masked || !supervised)) break;
    if (supervised != marked) flush();
    marked = supervised;
    // Behind the last input there is padding, and the last target.
    run.push_back(static_cast<int32_t>(supervised && !sample.masked ? sample.targets[place] : sample.inputs[t]));
  }
  flush();
  return text;
}

/// The texts of a sample's sequences, with a line between them.
std::string marked_texts(const Sample& sample, const Tokenizer& tokenizer) {
  std::string text;
  for (const auto& sequence : sequences_in(sample)) {
    if (!text.empty()) text += "\n--- next sequence of this row ---\n";
    text += marked_text(sequence, tokenizer);
  }
  return text;
}

struct Options {
  std::string file;
  std::vector<std::string> overrides;
  int64_t samples = 1;
  int64_t first = 0;
  bool validation = false, json = false;
};

/// A line for each feature of a table, and one for all those of a column of categories: "kind = a". Without names of features, none.
std::vector<std::string> feature_lines(const nlohmann::json& learned, const nlohmann::json& values) {
  std::vector<std::string> lines;
  if (!learned.is_object()) return lines;
  size_t at = 0;
  const auto next = [&] { return at < values.size() ? values[at++] : nlohmann::json(); };
  for (const auto& feature : learned.value("features", nlohmann::json::array())) {
    const auto column = feature.at("column").get<std::string>();
    if (feature.contains("categories")) {
      std::vector<std::string> set;
      for (const auto& category : feature.at("categories"))
        if (next() == 1.0) set.push_back(category == "" ? "(missing)" : category.get<std::string>());
      lines.push_back(column + " = " + (set.empty() ? "none of its categories" : join(set, ", ")));
      continue;
    }
    lines.push_back(column + " = " + next().dump());
    if (feature.at("marks_missing")) lines.push_back(column + " is missing = " + next().dump());
  }
  return lines;
}

/// The values of a row's field.
nlohmann::json values_of(const HostBatch& batch, size_t field) {
  if (batch.fields[field].spec.type == ElementType::float32) {
    const auto values = batch.row<float>(field, 0);
    return std::vector<float>(values.begin(), values.end());
  }
  const auto values = batch.row<int64_t>(field, 0);
  return std::vector<int64_t>(values.begin(), values.end());
}

/// The columns of a table, as a table.
void print_columns(const std::vector<ColumnSummary>& columns) {
  std::vector<std::vector<std::string>> rows;
  const auto number = [](const std::optional<double>& value) { return value ? fmt::format("{:.6g}", *value) : ""; };
  for (const auto& column : columns)
    rows.push_back({column.name, column.kind, column.features > 0 ? std::to_string(column.features) : "",
                    column.missing > 0 ? std::to_string(column.missing) : "", number(column.mean), number(column.std),
                    join(column.examples, ", ")});
  const auto text = format_table({{.title = "COLUMN", .may_shrink = true},
                                  {.title = "KIND"},
                                  {.title = "FEATURES", .right = true},
                                  {.title = "MISSING", .right = true},
                                  {.title = "MEAN", .right = true},
                                  {.title = "STD", .right = true},
                                  {.title = "EXAMPLES", .may_shrink = true}},
                                 rows);
  std::printf("%s\n", text.c_str());
}

nlohmann::json columns_json(const std::vector<ColumnSummary>& columns) {
  auto list = nlohmann::json::array();
  for (const auto& column : columns)
    list.push_back({{"column", column.name},
                    {"kind", column.kind},
                    {"features", column.features},
                    {"missing", column.missing},
                    {"mean", column.mean ? nlohmann::json(*column.mean) : nullptr},
                    {"std", column.std ? nlohmann::json(*column.std) : nullptr},
                    {"examples", column.examples}});
  return list;
}

/// "species = setosa": the name of a target and its value in words, where `learned` knows them.
std::string target_text(const nlohmann::json& learned, const std::string& field, size_t i,
                        const nlohmann::json& value) {
  if (!learned.is_object() || (field != row_field::labels_name && field != row_field::targets_name))
    return field + " = " + value.dump();
  const auto names = learned.value("id2label", nlohmann::json::object());
  if (const auto name = names.find(value.dump()); name != names.end()) return field + " = " + name->get<std::string>();
  const auto targets = learned.value("targets", nlohmann::json::array());
  if (i >= targets.size()) return field + " = " + value.dump();
  const auto classes = targets[i].value("classes", std::vector<std::string>());
  const bool known = value.is_number() && value.get<double>() >= 0 && value.get<double>() < std::ssize(classes);
  return targets[i].at("column").get<std::string>() + " = " + (known ? classes[value.get<size_t>()] : value.dump());
}

/// The values of a field, one in each line; of very many, only their extent.
void print_field(const nlohmann::json& learned, const std::string& field, const nlohmann::json& values) {
  constexpr size_t printed_most = 1000;
  auto lines = field == "features" ? feature_lines(learned, values) : std::vector<std::string>();
  if (lines.empty() && values.size() <= printed_most)
    for (size_t i = 0; i < values.size(); ++i) lines.push_back(target_text(learned, field, i, values[i]));
  if (lines.size() <= printed_most) {
    for (const auto& line : lines) std::printf("%s\n", line.c_str());
    if (!lines.empty() || values.empty()) return;
  }
  const auto numbers = values.get<std::vector<double>>();
  std::printf("%s = %zu values from %.4g to %.4g, mean %.4g\n", field.c_str(), numbers.size(),
              *std::ranges::min_element(numbers), *std::ranges::max_element(numbers),
              std::accumulate(numbers.begin(), numbers.end(), 0.0) / static_cast<double>(numbers.size()));
}

/// Samples without tokens: the numbers that the model gets.
ExitCode show_rows(const Options& options, const Recipe& recipe, const Dataset& data) {
  const SampleOrderOptions order{.shuffle = recipe.data.shuffle && !options.validation, .seed = recipe.run.seed};
  const int64_t end = std::min(data.size(), options.first + options.samples);
  const auto learned = data.learned();
  const auto columns = recipe.data.is_table() ? table_summary(recipe.data) : std::vector<ColumnSummary>();
  if (!options.json) log::info("{}", data.describe());
  if (!options.json && !columns.empty()) print_columns(columns);
  auto list = nlohmann::json::array();
  for (int64_t position = options.first; position < end; ++position) {
    const int64_t index = data.sample_at(0, position, order);
    HostBatch batch(1, data.fields());
    data.read(index, batch, 0);
    nlohmann::json sample = {{"sample", index}};
    for (size_t field = 0; field < batch.fields.size(); ++field)
      sample[batch.fields[field].spec.name] = values_of(batch, field);
    list.push_back(sample);
    if (options.json) continue;
    log::info("sample {} at position {}", index, position);
    for (const auto& [field, values] : sample.items())
      if (values.is_array()) print_field(learned, field, values);
  }
  if (options.json) {
    nlohmann::json shown = {
        {"schema", 1}, {"data", data.describe()}, {"size", data.size()}, {"learned", learned}, {"samples", list}};
    if (!columns.empty()) shown["columns"] = columns_json(columns);
    print_json(shown);
  }
  return ExitCode::done;
}

/// Texts with their labels: the tokens that the model gets, as text.
ExitCode show_texts(const Options& options, const Recipe& recipe, const Dataset& data, const Tokenizer& tokenizer,
                    const SampleOrderOptions& order) {
  const int64_t end = std::min(data.size(), options.first + options.samples);
  auto list = nlohmann::json::array();
  for (int64_t position = options.first; position < end; ++position) {
    const int64_t index = data.sample_at(0, position, order);
    HostBatch batch(1, data.fields_of(std::span(&index, 1)));
    data.read(index, batch, 0);
    const auto inputs = batch.row<int64_t>(0, 0), positions = batch.row<int64_t>(1, 0);
    size_t length = 1;  // behind it, the padding begins at position 0
    while (length < positions.size() && positions[length] != 0) ++length;
    const std::vector<int32_t> ids(inputs.begin(), inputs.begin() + static_cast<ptrdiff_t>(length));
    const auto& target = batch.fields.back().spec;
    auto values = values_of(batch, batch.fields.size() - 1);
    auto label = target.name == row_field::labels_name
                     ? nlohmann::json(recipe.model.labels.at(values.at(0).get<size_t>()))
                     : values;
    const auto text = tokenizer.decode(ids);
    if (options.json) {
      list.push_back({{"sample", index}, {"inputs", ids}, {"text", text}, {"target", label}, {target.name, values}});
      continue;
    }
    log::info("sample {} at position {}: {}", index, position, counted(std::ssize(ids), "token"));
    std::printf("%s = %s\n%s\n", join(recipe.data.target, ", ").c_str(),
                label.is_string() ? label.get<std::string>().c_str() : label.dump().c_str(), text.c_str());
  }
  if (options.json)
    print_json(nlohmann::json{{"schema", 1},
                              {"data", data.describe()},
                              {"size", data.size()},
                              {"labels", recipe.model.labels},
                              {"samples", list}});
  return ExitCode::done;
}

ExitCode show_data(const Options& options) {
  Recipe recipe = with_data_facts(load_ready_recipe(options.file, options.overrides));
  for (const auto& note : data_notes(recipe.data)) log::info("note: {}", note);
  const auto cache = data_cache();
  if (!is_language_model(recipe.model.name)) {
    const auto rows = open_dataset(recipe.data, options.validation ? Split::validation : Split::train, 1,
                                   outputs_of(recipe.model).value_or(1), cache);
    if (!rows) throw usage_error("{} has no validation data", options.file);
    return show_rows(options, recipe, *rows);
  }
  if (needs_tokenizing(recipe.data)) prepare_data(recipe.data, cache);
  const auto vocab = recipe.model.vocab_size ? recipe.model.vocab_size : tokenizer_vocab_size(recipe.data, cache);
  const auto seq_len = recipe.data.seq_len.value_or(recipe.model.max_seq_len);
  auto data = open_dataset(recipe.data, options.validation ? Split::validation : Split::train, seq_len, *vocab, cache);
  if (!data) throw usage_error("{} has no validation data", options.file);
  if (!options.validation) data = with_scripted_order(std::move(data), recipe);
  const auto tokenizer = recipe.data.has_token_ids() ? nullptr : make_tokenizer(recipe.data, cache);
  const SampleOrderOptions order{.shuffle = recipe.data.shuffle && !options.validation, .seed = recipe.run.seed};
  const int64_t end = std::min(data->size(), options.first + options.samples);

  if (!options.json) log::info("{}", data->describe());
  if (recipe.data.labels_texts()) return show_texts(options, recipe, *data, *tokenizer, order);
  auto list = nlohmann::json::array();
  for (int64_t position = options.first; position < end; ++position) {
    const auto sample = read_sample(*data, data->sample_at(0, position, order), recipe);
    if (options.json) {
      list.push_back({{"sample", sample.index}, {"inputs", sample.inputs}, {"targets", sample.targets}});
      if (!sample.positions.empty()) list.back()["positions"] = sample.positions;
      if (tokenizer) list.back()["text"] = marked_texts(sample, *tokenizer);
      continue;
    }
    const auto sequences = std::ssize(sequences_in(sample));
    log::info("sample {} at position {}: {}{}, {} supervised", sample.index, position,
              sample.positions.empty() ? "" : counted(sequences, "sequence") + ", ",
              counted(std::ssize(sample.inputs), "token"), sample.supervised());
    if (tokenizer) std::printf("%s\n", marked_texts(sample, *tokenizer).c_str());
  }
  if (options.json)
    print_json(nlohmann::json{{"schema", 1}, {"data", data->describe()}, {"size", data->size()}, {"samples", list}});
  return ExitCode::done;
}

}  // namespace

Action setup_data(CLI::App& app) {
  auto options = std::make_shared<Options>();
  add_recipe_option(app, options->file);
  add_overrides(app, options->overrides);
  app.add_option("--samples", options->samples, "How many samples")->check(at_least_one())->capture_default_str();
  app.add_option("--first", options->first, "The position of the first one in epoch 0")
      ->check(at_least(0))
      ->capture_default_str();
  app.add_flag("--validation", options->validation, "Show the validation data");
  add_json_option(app, options->json);
  return [options] { return show_data(*options); };
}

}  // namespace runner
