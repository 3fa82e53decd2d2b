// The keys of [optimizer] and [lr_scheduler]: how a step changes the parameters.
#include <algorithm>
#include <map>

#include "runner/base/text.hpp"
#include "runner/config/key_adder.hpp"
#include "runner/config/schedule.hpp"
#include "strategies/optimizer/optimizer_spec.hpp"

// The rows of the tables are wrapped by hand.
// clang-format off

namespace runner::keys {

using nlohmann::json;

namespace {

/// For a key that only some optimizers read.
Facts read_by(const std::string& key) {
  return {.needs = {"optimizer.name", optimizer_names([&](const OptimizerSpec& spec) {
                      return std::find(spec.keys.begin(), spec.keys.end(), key) != spec.keys.end();
                    })}};
}

/// For a key that only these schedules read.
Facts read_by_schedules(std::vector<std::string> names) { return {.needs = {"lr_scheduler.name", std::move(names)}}; }

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const auto& shape : schedule_shapes()) names.push_back(shape.name);
  return names;
}

/// Optimizers of other tools that have no counterpart here.
std::string refused_optimizer(const json& value) {
  static const std::map<std::string, const char*> near = {
      {"lion_8bit", "lion"}, {"adamw_torch_xla", "adamw"}, {"adamw_torch_npu_fused", "adamw"}, {"adamw_torch_4bit", "adamw_8bit"},
      {"adamw_torch_8bit", "adamw_8bit"}, {"adam_8bit", "adamw_8bit"}, {"lamb", "adamw"}, {"adagrad", "adamw"}, {"rmsprop", "adamw"},
      {"schedule_free_sgd", "schedule_free_adamw"}, {"schedule_free_radam", "schedule_free_adamw"}};
  static const std::map<std::string, const char*> paged = {
      {"paged_adamw", "adamw"}, {"paged_adamw_32bit", "adamw"}, {"paged_adamw_8bit", "adamw_8bit"}, {"paged_lion", "lion"},
      {"paged_lion_32bit", "lion"}, {"paged_lion_8bit", "lion"}};
  const std::string name = value.is_string() ? lower(value.get<std::string>()) : "";
  if (const auto found = paged.find(name); found != paged.end())
    return fmt::format("`{}` is not implemented: states are not paged; use \"{}\", and to keep its states in host memory a strategy "
                       "with offload (deepspeed_stage_2_offload)", name, found->second);
  const auto found = near.find(name);
  return found == near.end() ? "" : fmt::format("`{}` is not implemented; the nearest is \"{}\"", name, found->second);
}

/// Schedules of other tools that have no counterpart here.
std::string refused_schedule(const json& value) {
  const std::string name = value.is_string() ? value.get<std::string>() : "";
  if (name == "reduce_lr_on_plateau" || name == "ReduceLROnPlateau")
    return fmt::format("`{}` is not implemented: every schedule here is a function of the step, so that a resumed run repeats it; a "
                       "hook can change the rate after a validation", name);
  return "";
}

/// Adds `name` and the options of optimizers, which are in `keys`, to those of a group.
void add_own_optimizer(OptionTable<Recipe::Optimizer::Group>& groups, const std::vector<Key>& keys) {
  for (const auto& key : keys) {
    const auto reads = [&](const OptimizerSpec& spec) { return std::ranges::find(spec.keys, key.name) != spec.keys.end(); };
    if (key.section != "optimizer" || (key.name != "name" && std::ranges::none_of(optimizers(), reads))) continue;
    groups.add(key, [name = key.name](auto& group, const json& value) { group.own[name] = value; },
               [name = key.name](const auto& group) { return group.own.value(name, json()); });
  }
}

/// The mistake in a list of groups. Wrong types are found elsewhere.
std::optional<std::string> group_problem(const json& list) {
  for (const auto& group : list) {
    const bool several = group.contains("params"), one = group.contains("pattern");
    if (!several && !one) return "";
    const auto name = group.at(several ? "params" : "pattern").dump();
    if (several && one) return fmt::format("the group {} has params and a pattern: use one of them", name);
    if (several && group["params"].empty()) return "a group of `groups` has no params";
    if (group.contains("lr") && group.contains("lr_factor"))
      return fmt::format("the group {} has lr and lr_factor: use one of them", name);
    if (group.size() == 1)
      return fmt::format("the group {} sets none of lr, lr_factor, weight_decay, name and the options of an optimizer", name);
  }
  return std::nullopt;
}

}  // namespace

void add_optimizer(std::vector<Key>& keys) {
  Adder add(keys, "optimizer", &Recipe::optimizer);
  using O = Recipe::Optimizer;
  add({.name = "name", .type = T::choice, .help = "Optimizer.", .choices = optimizer_names([](const auto&) { return true; }),
       .spellings = {{"adamw_torch", "adamw"}, {"adamw_torch_fused", "adamw"}, {"adamw_hf", "adamw"}, {"adamw_apex_fused", "adamw"},
                     {"lion_32bit", "lion"}, {"lionw", "lion"}, {"adamw_bnb_8bit", "adamw_8bit"}, {"adamw8bit", "adamw_8bit"},
                     {"adamwschedulefree", "schedule_free_adamw"}},
       .refuses = refused_optimizer}, &O::name);
  add({.name = "lr", .type = T::number, .help = "Peak learning rate.", .minimum = 0}, &O::lr);
  add({.name = "weight_decay", .type = T::number,
       .help = "Weight decay. It applies to matrices only, see decay_norms_and_biases.",
       .minimum = 0}, &O::weight_decay);
  add({.name = "betas", .type = T::pair, .help = "Decay rates of the averages. Default of lion: [0.9, 0.99].", .minimum = 0,
       .maximum = 0.9999999}, &O::betas, read_by("betas"));
  add({.name = "eps", .type = T::number, .help = "Adam's epsilon.", .minimum = 0, .above_minimum = true},
      &O::eps, read_by("eps"));
  add({.name = "momentum", .type = T::number, .help = "sgd, muon: momentum. Default of muon: 0.95.", .minimum = 0,
       .maximum = 0.9999999}, &O::momentum, read_by("momentum"));
  add({.name = "nesterov", .type = T::boolean, .help = "sgd, muon: Nesterov momentum. Default of muon: true."}, &O::nesterov,
      read_by("nesterov"));
  add({.name = "ns_steps", .type = T::integer, .help = "muon: number of Newton-Schulz iterations.", .minimum = 1, .maximum = 99},
      &O::ns_steps, read_by("ns_steps"));
  add({.name = "adjust_lr", .type = T::choice,
       .help = "muon: factor on the learning rate of a matrix. match_rms_adamw: 0.2 * sqrt(larger side), so that lr and weight_decay "
               "of AdamW fit. original: sqrt(max(1, rows / columns)).",
       .choices = {"match_rms_adamw", "original"}}, &O::adjust_lr, read_by("adjust_lr"));
  add({.name = "decay_rate", .type = T::number,
       .help = "adafactor: at step t, the average of squares keeps 1 - t^-decay_rate of its value. Transformers writes it with a minus sign.",
       .minimum = 0, .maximum = 1, .above_minimum = true}, &O::decay_rate, read_by("decay_rate"));
  add({.name = "clip_threshold", .type = T::number,
       .help = "adafactor: an update with a larger root mean square is scaled down to this one.", .minimum = 0, .above_minimum = true},
      &O::clip_threshold, read_by("clip_threshold"));
  add({.name = "scale_parameter", .type = T::boolean,
       .help = "adafactor: multiply the learning rate of a parameter by its root mean square."},
      &O::scale_parameter, read_by("scale_parameter"));
  add({.name = "decay_norms_and_biases", .type = T::boolean,
       .help = "Apply weight decay to 1-d parameters too."}, &O::decay_norms_and_biases);
  using Group = O::Group;
  OptionTable<Group> groups;
  groups.add({.name = "params", .type = T::texts}, &Group::params)
      .add({.name = "pattern", .type = T::text}, &Group::pattern)
      .add({.name = "lr", .type = T::number, .minimum = 0}, &Group::lr)
      .add({.name = "lr_factor", .type = T::number, .minimum = 0}, &Group::lr_factor)
      .add({.name = "weight_decay", .type = T::number, .minimum = 0}, &Group::weight_decay);
  add_own_optimizer(groups, keys);
  add({.name = "groups", .type = T::tables,
       .help = "[[optimizer.groups]] params (globs over parameter names, or `pattern` for a single one), lr or lr_factor (of optimizer.lr), "
               "weight_decay, and `name` and options of an optimizer of its own. The first group that matches a parameter applies.",
       .wanted = "a list of tables with params or a pattern", .fits = group_problem}, &O::groups, groups);
  add({.name = "layer_decay", .type = T::number,
       .help = "The learning rate of each layer, relative to that of the layer above it: the head has lr, the last layer lr * "
               "layer_decay, and the embedding the lowest rate (BEiT, timm).", .minimum = 0, .maximum = 1, .above_minimum = true},
      &O::layer_decay);
  add({.name = "adascale", .type = T::boolean,
       .help = "AdaScale: an update of several ranks multiplies the learning rate by a gain, which is larger the more their gradients "
               "differ, and counts as that many steps of the schedule and of train.max_steps."}, &O::adascale);
  add({.name = "adascale_scale", .type = T::number,
       .help = "adascale: the largest gain. Default: the number of gradients, one for each rank and reduction.",
       .minimum = 1}, &O::adascale_scale);
  add({.name = "adascale_smoothing", .type = T::number,
       .help = "adascale: weight of earlier steps in the moving averages. Default: 1 - N / 1000, at least 0, for N gradients.",
       .minimum = 0, .maximum = 0.9999999}, &O::adascale_smoothing);
}

void add_lr_scheduler(std::vector<Key>& keys) {
  Adder add(keys, "lr_scheduler", &Recipe::lr_scheduler);
  using L = Recipe::LrScheduler;
  add({.name = "name", .type = T::choice, .help = "Shape of the learning rate schedule after warm-up.",
       .choices = schedule_names(),
       .spellings = {{"constant_with_warmup", "constant"}, {"warmup_stable_decay", "wsd"}, {"cosine_with_min_lr", "cosine"},
                     {"cosineannealinglr", "cosine"}, {"cosineannealingwarmrestarts", "cosine_with_restarts"},
                     {"cosine_with_hard_restarts", "cosine_with_restarts"}, {"onecyclelr", "one_cycle"}, {"steplr", "step"},
                     {"polynomiallr", "polynomial"}, {"linearlr", "linear"}, {"constantlr", "constant"},
                     {"warmup_stable_decay_lr", "wsd"}},
       .refuses = refused_schedule}, &L::name);
  add({.name = "warmup_steps", .type = T::integer, .help = "Number of warm-up steps.",
       .minimum = 0}, &L::warmup_steps);
  add({.name = "warmup", .type = T::choice,
       .help = "Shape of the warm-up. linear: equal increments. log: logarithmic in the step, which is "
               "DeepSpeed's default.", .choices = {"linear", "log"}}, &L::warmup);
  add({.name = "min_lr_ratio", .type = T::number, .help = "Final learning rate, relative to lr.", .minimum = 0,
       .maximum = 1}, &L::min_lr_ratio, read_by_schedules({"linear", "cosine", "cosine_with_restarts", "polynomial", "wsd"}));
  add({.name = "decay_steps", .type = T::integer,
       .help = "wsd: number of decay steps. Default: a tenth of max_steps.", .minimum = 1},
      &L::decay_steps, read_by_schedules({"wsd"}));
  add({.name = "decay_type", .type = T::choice,
       .help = "wsd: shape of the decay. 1-sqrt: one minus the square root of the share of the decay that is done.",
       .choices = {"linear", "cosine", "1-sqrt"}, .spellings = {{"sqrt", "1-sqrt"}}}, &L::decay_type, read_by_schedules({"wsd"}));
  add({.name = "power", .type = T::number, .help = "polynomial: exponent of the share of the steps that is left.", .minimum = 0,
       .above_minimum = true}, &L::power, read_by_schedules({"polynomial"}));
  add({.name = "timescale", .type = T::integer,
       .help = "inverse_sqrt: steps after warm-up until the rate is lr / sqrt(2). Default: warmup_steps, or 10000 without warm-up.",
       .minimum = 1}, &L::timescale, read_by_schedules({"inverse_sqrt"}));
  add({.name = "cycle_steps", .type = T::integer,
       .help = "cosine_with_restarts: steps of the first cycle (T_0 of PyTorch). Default: all steps after warm-up.", .minimum = 1},
      &L::cycle_steps, read_by_schedules({"cosine_with_restarts"}));
  add({.name = "cycle_factor", .type = T::integer,
       .help = "cosine_with_restarts: each cycle is this many times as long as the one before it (T_mult of PyTorch).",
       .minimum = 1}, &L::cycle_factor, read_by_schedules({"cosine_with_restarts"}));
  add({.name = "pct_start", .type = T::number, .help = "one_cycle: share of the steps in which the rate rises to lr.",
       .minimum = 0, .maximum = 1}, &L::pct_start, read_by_schedules({"one_cycle"}));
  add({.name = "div_factor", .type = T::number, .help = "one_cycle: the first rate is lr / div_factor.", .minimum = 0,
       .above_minimum = true}, &L::div_factor, read_by_schedules({"one_cycle"}));
  add({.name = "final_div_factor", .type = T::number,
       .help = "one_cycle: the last rate is the first rate / final_div_factor.", .minimum = 0, .above_minimum = true},
      &L::final_div_factor, read_by_schedules({"one_cycle"}));
  add({.name = "anneal_strategy", .type = T::choice, .help = "one_cycle: shape of both parts.", .choices = {"cos", "linear"}},
      &L::anneal_strategy, read_by_schedules({"one_cycle"}));
  add({.name = "step_size", .type = T::integer, .help = "step: number of steps between reductions.",
       .minimum = 1}, &L::step_size, read_by_schedules({"step"}));
  add({.name = "gamma", .type = T::number, .help = "step: factor of each reduction.", .minimum = 0,
       .above_minimum = true}, &L::gamma, read_by_schedules({"step"}));
}

}  // namespace runner::keys
