#include "runner/config/contradictions.hpp"

#include <algorithm>
#include <set>

#include "runner/base/metric_names.hpp"
#include "runner/base/other_devices.hpp"
#include "runner/base/text.hpp"
#include "runner/config/config.hpp"
#include "runner/config/divisors.hpp"
#include "runner/config/group_optimizer.hpp"
#include "runner/config/key_table.hpp"
#include "runner/config/mesh_sizes.hpp"
#include "runner/config/model_families.hpp"
#include "runner/config/recipe_builder.hpp"
#include "runner/config/schedule.hpp"

namespace runner {

namespace {

class Finder {
 public:
  Finder(const Recipe& recipe, std::vector<Diagnostic>& diagnostics) : recipe_(recipe), diagnostics_(diagnostics) {
    for (const auto& diagnostic : diagnostics) {
      unsound_.insert(diagnostic.section);
      if (!diagnostic.section.empty() && !find_section(diagnostic.section)) doubt_absent_sections();
    }
  }

  void all() {
    if (!sound("")) return;
    run();
    if (sound("model") && is_language_model(recipe_.model.name)) model();
    data();
    optimizer();
    train();
    loss();
    devices();
    for (const auto& [key, message, other] : plugin_conflicts(recipe_)) report(key, message, other, "it is set here");
    if (sound("devices") && sound("strategy")) find_mesh_mistakes(recipe_, diagnostics_);
    family();
    objective();
    fine_tune();
    for (const auto& [key, message, other] : streaming_conflicts(recipe_))
      report(key, message, other, "streaming is set here");
    needs();
  }

 private:
  /// A section with an unknown name may be a misspelling of any absent section.
  void doubt_absent_sections() {
    for (const auto& section : sections()) {
      auto first = recipe_.origins.lower_bound(section.name + ".");
      bool there = first != recipe_.origins.end() && first->first.starts_with(section.name + ".");
      if (!there) unsound_.insert(section.name);
    }
  }
  bool given(const std::string& key) const { return recipe_.origins.contains(key); }
  bool sound(const std::string& key) const { return !unsound_.contains(key.substr(0, key.find('.'))); }

  void report(const std::string& at, const std::string& message, const std::string& other = "",
              const std::string& other_message = "", std::vector<std::string> allowed = {}) {
    if (sound(at) && (other.empty() || sound(other))) tell(at, message, other, other_message, std::move(allowed));
  }

  void tell(const std::string& at, const std::string& message, const std::string& other,
            const std::string& other_message, std::vector<std::string> allowed) {
    Diagnostic diagnostic{.place = recipe_.origin(at),
                          .code = "contradiction",
                          .message = message,
                          .allowed = std::move(allowed),
                          .other_message = other_message};
    if (!other.empty() && given(other))
      diagnostic.other = recipe_.origin(other);
    else if (const auto value = other.empty() ? nlohmann::json() : find_key(other)->get(recipe_); !value.is_null())
      diagnostic.other_message = fmt::format("{} = {} is the default", other, toml_value(value));
    else
      diagnostic.other_message.clear();
    diagnostics_.push_back(diagnostic);
  }

  /// The first 16 divisors, for a message.
  static std::vector<std::string> divisors_of(int64_t n) {
    std::vector<std::string> list;
    for (int64_t d : divisors(n, 1 << 20))
      if (list.size() < 16) list.push_back(std::to_string(d));
    return list;
  }

  void run() {
    if (recipe_.run.name == "last")
      report("run.name", "a run cannot be named `last`, which means the newest run; set run.name to another name");
    for (const auto& tag : recipe_.run.tags)
      if (tag.empty() || tag == "none")
        report("run.tags", fmt::format("a tag cannot be \"{}\": the filter tag:none finds runs without tags", tag));
    if (recipe_.run.group == "none")
      report("run.group", "a group cannot be \"none\": the filter group:none finds runs without a group");
    if (recipe_.run.profiler == "trace" && recipe_.run.fast_dev_run > 0)
      report("run.profiler",
             "fast_dev_run keeps no files, so it cannot keep a trace; profiler = \"simple\" prints a table",
             "run.fast_dev_run", "it is set here");
  }

  void model() {
    const auto& model = recipe_.model;
    if (family_kind(model.name) == "plugin") return;
    if (model.dim % model.n_heads != 0 && !model.head_dim)
      report("model.n_heads", fmt::format("n_heads = {} does not divide dim = {}", model.n_heads, model.dim),
             "model.dim", "dim is set here", divisors_of(model.dim));
    else if (model.name != "gpt" && !model.head_dim && model.dim / model.n_heads % 2 != 0)
      report("model.n_heads",
             fmt::format("rotary positions need an even head width, but dim / n_heads = {}", model.dim / model.n_heads),
             "model.dim", "dim is set here");
    if (model.n_kv_heads && model.n_heads % *model.n_kv_heads != 0)
      report("model.n_kv_heads",
             fmt::format("n_kv_heads = {} does not divide n_heads = {}", *model.n_kv_heads, model.n_heads),
             "model.n_heads", "n_heads is set here", divisors_of(model.n_heads));
  }

  void data() {
    const auto& data = recipe_.data;
    if (data.train.empty() && data.sources.empty()) report("data.train", "data.train names no files");
    sources();
    if (!data.validation.empty() && data.validation_fraction)
      report("data.validation_fraction",
             "validation data are given twice: as files and as a fraction of the training data", "data.validation",
             "the files are named here");
    const bool trains_tokenizer = data.tokenizer == "sentencepiece" && (data.format == "text" || data.has_records());
    if (trains_tokenizer && !data.tokenizer_vocab_size)
      report("data.tokenizer", "tokenizer = \"sentencepiece\" trains a model and needs tokenizer_vocab_size");
    if (trains_tokenizer && data.masks_tokens())
      report("data.tokenizer",
             "tokenizer = \"sentencepiece\" trains a model without a mask token; for masked_lm, name the file of a "
             "tokenizer",
             "data.objective", "objective is set here");
    if (data.is_table() || (data.format == "csv" && reads_rows())) table();
    if (data.is_images() || (data.has_rows() && reads_rows())) rows();
    if (data.has_token_ids() && given("data.tokenizer"))
      report("data.tokenizer",
             fmt::format("{} tokenized already",
                         data.is_plugin() ? "the samples of the plug-in are" : "data of format \"bin\" are"),
             "data.format", "format is set here");
    if (data.is_plugin() && !data.plugin)
      report("data.format", "format = \"plugin\" needs data.plugin, the library that reads the data");
  }

  /// Whether the model has no tokens.
  bool reads_rows() const { return !recipe_.model.name.empty() && !is_language_model(recipe_.model.name); }

  void rows() {
    static const Recipe defaults;
    for (const auto& key : key_table())  // the records of older runs have defaults of keys that do not apply
      if (key.tokens && key.needs_met(recipe_) && given(key.dotted()) &&
          (key.name == "tokenizer" || key.get(recipe_) != key.get(defaults)))
        report(key.dotted(), fmt::format("{} is for text; tables and images have no tokens", key.dotted()),
               "data.format", "format is set here");
    if (recipe_.data.is_images() && recipe_.train.loss.value_or("cross_entropy") != "cross_entropy")
      report("train.loss", "images have classes: the loss is cross_entropy", "data.format", "format is set here");
  }

  void table() {
    const auto& data = recipe_.data;
    if (data.target.empty())
      report("data.format", "tables need data.target: the column that the model predicts, or a list of columns");
    if (data.format == "jsonl" && reads_rows())
      report("data.format", fmt::format("{} reads tables from csv or parquet files", recipe_.model.name), "model.name",
             "the family is set here", {"csv", "parquet"});
    if (data.target.size() > 1 && data.target_type == "class")
      report("data.target",
             "classes have one target column; several columns of two values are labels: train.loss = \"bce\"",
             "train.loss", "the loss is set here");
    for (const auto* list : {&data.drop, &data.categorical})
      for (const auto& column : *list)
        if (std::ranges::find(data.target, column) != data.target.end())
          report(list == &data.drop ? "data.drop" : "data.categorical", fmt::format("`{}` is the target", column),
                 "data.target", "the target is named here");
  }

  void loss() {
    const auto& train = recipe_.train;
    const bool tokens = predicts_tokens(recipe_);
    const bool has_rows = recipe_.data.has_rows() || recipe_.data.labels_texts();
    // The kind of data that a plug-in gives is known when its library has been asked.
    const bool open = recipe_.data.is_plugin() && recipe_.data.plugin_gives == "auto";
    if (tokens && recipe_.data.is_table())
      report("data.objective",
             fmt::format("objective = \"{}\" predicts tokens, and not data.target; \"classification\" predicts it",
                         recipe_.data.objective),
             "data.target", "the target is named here");
    else if (!recipe_.model.name.empty() && sound("model") && !recipe_.data.format.empty() && !open &&
             tokens == has_rows)
      report("model.name",
             fmt::format("{} predicts {}, and data of format \"{}\" have {}", recipe_.model.name,
                         tokens ? "tokens" : "labels or numbers of rows", recipe_.data.format,
                         tokens ? "labels or numbers of rows" : "tokens"),
             "data.format", "the format is set here");
    if (tokens && train.loss.value_or("cross_entropy") != "cross_entropy")
      report("train.loss", fmt::format("{} predicts tokens: its loss is cross_entropy", recipe_.model.name),
             "model.name", "the family is set here");
    const auto& type = recipe_.data.target_type;
    if (train.loss && type != "auto" && type != target_of_loss(*train.loss))
      report(
          "train.loss",
          fmt::format("the loss {} is for targets of type {}, not {}", *train.loss, target_of_loss(*train.loss), type),
          "data.target_type", "the type is set here");
    if (tokens && train.label_smoothing > 0)
      report("train.label_smoothing", "label_smoothing is for models with classes; language models do not have it",
             "model.name", "the family is set here");
    if (!tokens && train.label_smoothing > 0 && train.loss && *train.loss != "cross_entropy")
      report("train.label_smoothing", fmt::format("label_smoothing is for cross_entropy, not for {}", *train.loss),
             "train.loss", "the loss is set here");
  }

  void sources() {
    const auto& sources = recipe_.data.sources;
    std::set<std::string> names;
    if (recipe_.data.order && !sources.empty())
      report("data.order", "data.order is for data without sources: the shares of sources decide the order",
             "data.sources", "several sources are given");
    const auto weighted = std::ranges::count_if(sources, [](const auto& source) { return source.weight.has_value(); });
    for (const auto& source : sources) {
      if (!names.insert(source.name).second)
        report("data.sources", fmt::format("two sources have the name \"{}\"", source.name));
      if (source.train.empty()) report("data.sources", fmt::format("source \"{}\" names no files", source.name));
      if (weighted > 0 && !source.weight)
        report("data.sources",
               fmt::format("source \"{}\" has no weight, but others have one: give all sources a weight, or none",
                           source.name));
      if (source.weight && source.epochs)
        report(
            "data.sources",
            fmt::format("source \"{}\" has weight and epochs; both say how often it is taken: use one", source.name));
      const auto& format = recipe_.data.format;
      if (source.format && format != "jsonl" && format != "csv" && format != "parquet" && !format.empty())
        report("data.sources",
               fmt::format(
                   "source \"{}\" has the format \"{}\", and data.format is \"{}\": sources may have several formats "
                   "of records",
                   source.name, *source.format, format),
               "data.format", "data.format is set here", {"jsonl", "csv", "parquet"});
    }
    if (weighted > 0 && recipe_.data.temperature != 1)
      report("data.temperature", "temperature determines the shares of sources without weights", "data.sources",
             "the weights are given here");
  }

  void optimizer() {
    const auto& optimizer = recipe_.optimizer;
    if (find_key("optimizer.nesterov")->needs_met(recipe_) && optimizer.nesterov && optimizer.momentum == 0)
      report("optimizer.nesterov", "nesterov = true needs momentum above 0", "optimizer.momentum",
             "momentum is set here");
    for (const char* key : {"adascale_scale", "adascale_smoothing"})
      if (!optimizer.adascale && given(fmt::format("optimizer.{}", key)))
        report(fmt::format("optimizer.{}", key), fmt::format("{} is for adascale = true", key));
    if (const auto* kind = find_optimizer(optimizer.name); kind && kind->averages && optimizer.betas.at(0) == 0)
      report("optimizer.betas",
             fmt::format("{} needs a first value of betas above 0: it is the share of the average in the point at "
                         "which gradients are computed",
                         optimizer.name));
    for (const auto& group : optimizer.groups)
      for (const auto& [why, allowed] : group_conflicts(optimizer, group))
        report("optimizer.groups", fmt::format("the group `{}` {}", join(group.patterns(), ", "), why), "", "",
               allowed);
  }

  void train() {
    const auto& train = recipe_.train;
    if (!train.max_steps && !train.max_epochs && !train.max_time && recipe_.run.fast_dev_run == 0)
      report("train", "[train] needs an end: max_steps, max_epochs or max_time");
    if (train.global_batch_size && train.accumulate_grad_batches)
      report("train.accumulate_grad_batches",
             "global_batch_size and accumulate_grad_batches are both given; one follows from the other",
             "train.global_batch_size", "global_batch_size is set here");
    if (train.global_batch_size && train.micro_batch_size.value_or(Recipe::automatic) != Recipe::automatic &&
        *train.global_batch_size % *train.micro_batch_size != 0)
      report("train.micro_batch_size",
             fmt::format("micro_batch_size = {} does not divide global_batch_size = {}", *train.micro_batch_size,
                         *train.global_batch_size),
             "train.global_batch_size", "global_batch_size is set here", divisors_of(*train.global_batch_size));
    if (recipe_.lr_scheduler.warmup == "log" && recipe_.lr_scheduler.warmup_steps == 0)
      report("lr_scheduler.warmup", "warmup = \"log\" needs warmup_steps");
    const auto& schedule = recipe_.lr_scheduler.name;
    if (needs_end(recipe_.lr_scheduler) && !train.max_steps && !train.max_epochs)
      report("lr_scheduler.name",
             fmt::format("schedule \"{}\" depends on the end: set train.max_steps or train.max_epochs", schedule),
             "train.max_steps");
    if (schedule == "step" && !recipe_.lr_scheduler.step_size)
      report("lr_scheduler.name", "schedule \"step\" needs lr_scheduler.step_size");
    if (schedule == "one_cycle" && recipe_.lr_scheduler.warmup_steps > 0)
      report("lr_scheduler.warmup_steps",
             "schedule \"one_cycle\" begins with a warm-up of its own: pct_start is its share of the steps",
             "lr_scheduler.name", "the schedule is set here");
    if (given("train.gradient_clip_algorithm") && !train.gradient_clip_val)
      report("train.gradient_clip_algorithm", "gradient_clip_algorithm is given without gradient_clip_val");
    const bool validates = recipe_.data.validates();
    for (const char* key : {"val_check_interval", "limit_val_batches"})
      if (given(std::string("train.") + key) && !validates && sound("data"))
        report(std::string("train.") + key, fmt::format("{} is given, but there are no validation data", key));
    const auto& monitor = recipe_.checkpoint.monitor;
    if (recipe_.checkpoint.save_top_k > 0 && monitor != metric::loss && !validates && sound("data"))
      report("checkpoint.save_top_k", fmt::format("save_top_k watches {}, but there are no validation data", monitor),
             "checkpoint.monitor", "monitor is set here");
    auto measured = validation_metrics(recipe_);
    measured.insert(measured.begin(), {metric::val_loss, metric::loss});
    if (std::ranges::find(measured, monitor) == measured.end())
      report("checkpoint.monitor", fmt::format("the training does not measure {}", monitor),
             recipe_.train.loss ? "train.loss" : "model.name", "this decides what is measured", measured);
    if (train.early_stopping && train.early_stopping->monitor == metric::val_loss && !validates && sound("data"))
      report("train.early_stopping", "early_stopping watches val_loss, but there are no validation data");
    if (recipe_.activation_checkpointing.mode == "named" && recipe_.activation_checkpointing.blocks.empty())
      report("activation_checkpointing.mode", "mode = \"named\" needs blocks");
  }

  /// On CPU, both keys are the number of ranks. cpu_processes = 1 is the default, which a printed recipe contains.
  void devices() {
    for (const auto& [key, message, other] : node_conflicts(recipe_))
      report(key, message, other, other + " is set here");
    const auto& devices = recipe_.devices;
    const auto& kind = devices.accelerator;
    const bool other = !devices.simulate && std::ranges::find(other_devices(), kind) != other_devices().end();
    const bool plugged = kind == "tpu" && recipe_.strategy.options.contains("plugin");
    if (other && kind == "tpu" && !plugged)
      report("devices.accelerator",
             fmt::format("accelerator \"tpu\" needs a PJRT plug-in for its devices: set {}"
                         "strategy.plugin = \"/path/to/libtpu.so\"; {}",
                         recipe_.strategy.name.find("xla") == std::string::npos ? "strategy.name = \"xla\" and " : "",
                         under_simulation));
    else if (other && !plugged)
      report("devices.accelerator",
             fmt::format("this program has no backend for accelerator \"{}\"; cpu and cuda have one, and {}", kind,
                         under_simulation));
    const auto& request = devices.devices;
    bool both = request.kind == DeviceRequest::Kind::count && request.count > 0 && devices.cpu_processes != 1;
    if (devices.accelerator != "cpu" || !both || request.count == devices.cpu_processes) return;
    report("devices.cpu_processes",
           fmt::format("on CPU, devices = {} and cpu_processes = {} are both the number of ranks, and they differ",
                       request.count, devices.cpu_processes),
           "devices.devices", "devices is set here");
  }

  /// Keys that the model family does not have.
  void family() {
    for (const auto& key : key_table())
      if (!key.in_family(recipe_.model.name) && given(key.dotted()) && !key.get(recipe_).is_null())
        if (recipe_.origin(key.dotted()).kind != Origin::Kind::default_value)
          report(key.dotted(),
                 fmt::format("`{}` is for {}, not for {}", key.name, key.family_text(), recipe_.model.name),
                 "model.name", "the family is set here");
  }

  /// Parts of [fine_tune] that need each other.
  void fine_tune() {
    if (recipe_.fine_tune.method == "freeze" && recipe_.fine_tune.trainable.empty())
      report("fine_tune.method", "method = \"freeze\" needs fine_tune.trainable, the parameters that are trained");
  }

  /// An encoder sees the next token, and other models do not see what follows a hidden one.
  void objective() {
    const bool encoder = family_kind(recipe_.model.name) == "encoder";
    const bool tokens = is_language_model(recipe_.model.name) && recipe_.model.name != "plugin";
    if (recipe_.data.labels_texts()) return labels(tokens);
    for (const char* key : {"model.num_labels", "model.labels"})
      if (tokens && given(key))
        report(key, "models that predict tokens have no labels: set data.target to the column with the labels of texts",
               "data.objective", "the objective is set here");
    if (encoder == recipe_.data.masks_tokens()) return;
    report("data.objective",
           fmt::format("objective = \"{}\" is not for {}: {}", recipe_.data.objective, recipe_.model.name,
                       encoder ? "its tokens see all others, also the next one; \"masked_lm\" is"
                               : "its tokens see only those before them; \"next_token\" is"),
           "model.name", "the family is set here");
  }

  /// Texts with labels.
  void labels(bool tokens) {
    const auto& data = recipe_.data;
    const auto refuse = [&](const char* key, const std::string& message) {
      const bool named = !given("data.objective");
      report(key, message, named ? "data.target" : "data.objective",
             named ? "the target is named here" : "the objective is set here");
    };
    if (!tokens)
      return report(given("data.objective") ? "data.objective" : "data.target",
                    fmt::format("labels of texts are for models that read tokens, such as bert and llama, not for {}",
                                recipe_.model.name),
                    "model.name", "the family is set here");
    if (data.target.empty())
      refuse("data.objective", "objective = \"classification\" needs data.target: the column with the labels");
    if (!data.has_records() && !data.format.empty())
      report("data.format", fmt::format("format = \"{}\" has no columns for a text and its label", data.format),
             "data.target", "the column of the labels is named here", {"jsonl", "csv", "parquet"});
    const auto refuse_layout = [&](const char* key, const std::string& layout) {
      if (layout != "auto" && layout != "text")
        refuse(key, fmt::format("texts with labels have the layout \"text\", not \"{}\"", layout));
    };
    refuse_layout("data.layout", data.layout);
    for (const auto& source : data.sources) refuse_layout("data.sources", source.layout.value_or("auto"));
    if (data.packing && *data.packing != "none")
      refuse("data.packing", "texts with labels are not packed: each is a row of a batch; packing = \"none\"");
    if (data.too_long == "split")
      refuse("data.too_long", "a part of a text has no label of its own; use truncate, drop or error");
    if (data.standardize_target.value_or(false))
      refuse("data.standardize_target",
             "numbers of texts are not standardized, so that an exported model predicts them");
    for (const auto* list : {&data.drop, &data.categorical})
      if (!list->empty()) refuse(list == &data.drop ? "data.drop" : "data.categorical", "this key is for tables");
    const auto& model = recipe_.model;
    if (model.num_labels && !model.labels.empty() && *model.num_labels != std::ssize(model.labels))
      report("model.labels",
             fmt::format("{} are named, and num_labels = {}", counted(std::ssize(model.labels), "label"),
                         *model.num_labels),
             "model.num_labels", "num_labels is set here");
    std::set<std::string> names;
    for (const auto& name : model.labels)
      if (!names.insert(name).second) refuse("model.labels", fmt::format("the label \"{}\" is named twice", name));
    const auto refuse_columns = [&](const char* key, const std::optional<Recipe::Data::Columns>& columns) {
      for (const auto& [field, column] : columns.value_or(Recipe::Data::Columns()))
        if (field != "text" && field != "text_pair")
          refuse(key, fmt::format("`{}` is no column of texts with labels: allowed are text and text_pair", field));
    };
    refuse_columns("data.columns", data.columns);
    for (const auto& source : data.sources) refuse_columns("data.sources", source.columns);
  }

  /// Keys that do not apply because of the value of another key. A mistake in a third key of the section does not hide them.
  void needs() {
    for (const auto& key : key_table()) {
      if (key.needs_met(recipe_) || !given(key.dotted())) continue;
      const auto& other = key.needs.key;
      const bool apart = other.starts_with(key.section + ".") && !in_doubt(recipe_, key.dotted(), diagnostics_) &&
                         !in_doubt(recipe_, other, diagnostics_);
      if (apart || (sound(key.dotted()) && sound(other)))
        tell(key.dotted(), fmt::format("{} is for {}", key.name, key.needs_text()), other, other + " is set here", {});
    }
  }

  const Recipe& recipe_;
  std::vector<Diagnostic>& diagnostics_;
  std::set<std::string> unsound_;  ///< sections with a mistake; "": a mistake belongs to no section
};

}  // namespace

void find_contradictions(const Recipe& recipe, std::vector<Diagnostic>& diagnostics) {
  Finder(recipe, diagnostics).all();
}

}  // namespace runner
