#include "runner/models/profile_question.hpp"

#include <algorithm>
#include <set>

#include "runner/config/key_table.hpp"

namespace runner {

namespace {

using nlohmann::json;

/// Whether the memory of blocks depends on the key. It does not depend on where initial values come from.
bool counts(const Key& key) {
  static const std::set<std::string> others{"model.init_from", "model.init_std", "fine_tune.adapter",
                                            "fine_tune.lora_plus_ratio"};
  return (key.section == "model" || key.section == "fine_tune") && !others.contains(key.dotted());
}

json values_of(const Recipe& recipe) {
  json values = json::object();
  for (const auto& key : key_table())
    if (counts(key))
      if (auto value = key.get(recipe); !value.is_null()) values[key.dotted()] = std::move(value);
  return values;
}

Recipe recipe_from(const json& values) {
  Recipe recipe;  // without the defaults of a family: values that are not set are not written
  for (const auto& key : key_table()) {
    if (!counts(key)) continue;
    const auto value = values.find(key.dotted());
    if (value != values.end()) key.set(recipe, *value);
  }
  return recipe;
}

json optional_json(const std::optional<double>& number) { return number ? json(*number) : json(); }
std::optional<double> optional_from(const json& number) {
  return number.is_null() ? std::nullopt : std::optional(number.get<double>());
}

json moments_json(const std::vector<BackwardMoment>& moments) {
  json list = json::array();
  for (const auto& moment : moments)
    list.push_back({moment.peak, moment.level, moment.gradient, moment.parameter ? json(*moment.parameter) : json()});
  return list;
}

std::vector<BackwardMoment> moments_from(const json& list) {
  std::vector<BackwardMoment> moments;
  for (const auto& one : list) {
    BackwardMoment moment{.peak = one.at(0), .level = one.at(1), .gradient = one.at(2)};
    if (!one.at(3).is_null()) moment.parameter = one.at(3).get<size_t>();
    moments.push_back(moment);
  }
  return moments;
}

json pass_json(const BlockProfile::Pass& pass) {
  return {pass.forward_peak,     pass.saved,  moments_json(pass.backward), moments_json(pass.weight),
          pass.kept_for_weights, pass.waiting};
}

BlockProfile::Pass pass_from(const json& list) {
  return {.forward_peak = list.at(0),
          .saved = list.at(1),
          .backward = moments_from(list.at(2)),
          .weight = moments_from(list.at(3)),
          .kept_for_weights = list.at(4),
          .waiting = list.at(5)};
}

json profile_json(const BlockProfile& profile) {
  return {profile.input,
          profile.output,
          profile.trains_without_graph,
          profile.validates_without_graph,
          pass_json(profile.plain),
          pass_json(profile.recomputed)};
}

BlockProfile profile_from(const json& list) {
  return {.input = list.at(0),
          .output = list.at(1),
          .trains_without_graph = list.at(2),
          .validates_without_graph = list.at(3),
          .plain = pass_from(list.at(4)),
          .recomputed = pass_from(list.at(5))};
}

}  // namespace

ProfileQuestion question_about(const Job& job, DType leaf) {
  ProfileQuestion question{.micro_batch_size = job.micro_batch_size,
                           .loss_chunk_tokens = job.model->loss_chunk_tokens,
                           .precision = job.precision,
                           .leaf = leaf,
                           .host_kernels = job.accelerator.host_kernels,
                           .own_loss = job.own_loss};
  const auto& stage = job.model->stage;
  if (!stage) return question;
  question.schedule = job.pipeline.schedule;
  question.stage = {.blocks = stage->blocks, .ranks = stage->ranks, .rank = stage->rank};
  return question;
}

Job job_of(const ProfileQuestion& question, const ModelSpec& model) {
  Job job;
  job.model = &model;
  job.precision = question.precision;
  job.accelerator.host_kernels = question.host_kernels;
  job.micro_batch_size = question.micro_batch_size;
  job.own_loss = question.own_loss;
  job.pipeline.schedule = question.schedule;
  return job;
}

json to_json(const ModelSource& source) {
  const auto& converted = source.recipe.plugins.converted;
  return {{"recipe", values_of(source.recipe)},
          {"converted",
           {converted.patterns, converted.matrices_only, optional_json(converted.kept_bytes),
            optional_json(converted.working_bytes)}},
          {"rows", source.rows},
          {"task",
           {source.task.loss, source.task.outputs, source.task.label_smoothing, source.task.huber_delta,
            source.task.mixes_labels}},
          {"vocab_size", source.vocab_size},
          {"seq_len", source.seq_len},
          {"threads", source.threads},
          {"code", source.code},
          {"tensor", {source.division.ranks, source.division.rank, source.division.sequence_parallel}},
          {"context", {source.context.ranks, source.context.rank, source.context.form}}};
}

ModelSource source_from(const json& from) {
  ModelSource source{.recipe = recipe_from(from.at("recipe")),
                     .rows = from.at("rows"),
                     .vocab_size = from.at("vocab_size"),
                     .seq_len = from.at("seq_len"),
                     .threads = from.at("threads"),
                     .code = from.at("code")};
  const auto &converted = from.at("converted"), &task = from.at("task"), &tensor = from.at("tensor"),
             &context = from.at("context");
  source.recipe.plugins.converted = {.patterns = converted.at(0).get<std::vector<std::string>>(),
                                     .matrices_only = converted.at(1),
                                     .kept_bytes = optional_from(converted.at(2)),
                                     .working_bytes = optional_from(converted.at(3))};
  source.task = {.loss = task.at(0),
                 .outputs = task.at(1),
                 .label_smoothing = task.at(2),
                 .huber_delta = task.at(3),
                 .mixes_labels = task.at(4)};
  source.division = {.ranks = tensor.at(0), .rank = tensor.at(1), .sequence_parallel = tensor.at(2)};
  source.context = {.ranks = context.at(0), .rank = context.at(1), .form = context.at(2)};
  return source;
}

json to_json(const ProfileQuestion& question) {
  const auto& stage = question.stage;
  return {{"micro_batch_size", question.micro_batch_size},
          {"loss_chunk_tokens", question.loss_chunk_tokens},
          {"precision", {question.precision.parameter, question.precision.compute}},
          {"leaf", question.leaf},
          {"host_kernels", question.host_kernels},
          {"own_loss", question.own_loss},
          {"schedule", question.schedule},
          {"stage", stage ? json{stage->blocks, stage->ranks, stage->rank} : json()}};
}

ProfileQuestion question_from(const json& from) {
  ProfileQuestion question{
      .micro_batch_size = from.at("micro_batch_size"),
      .loss_chunk_tokens = from.at("loss_chunk_tokens"),
      .precision = {.parameter = from.at("precision").at(0), .compute = from.at("precision").at(1)},
      .leaf = from.at("leaf"),
      .host_kernels = from.at("host_kernels"),
      .own_loss = from.at("own_loss"),
      .schedule = from.at("schedule")};
  if (const auto& stage = from.at("stage"); !stage.is_null())
    question.stage = {
        .blocks = stage.at(0).get<StageBlocks>(), .ranks = stage.at(1).get<int>(), .rank = stage.at(2).get<int>()};
  return question;
}

/// Layers that are alike have equal profiles, which are written once.
json to_json(const BlockProfiles& profiles) {
  std::vector<BlockProfile> kinds;
  json list = json::array(), of = json::array();
  for (const auto& profile : profiles) {
    const auto found = std::ranges::find(kinds, profile);
    of.push_back(found - kinds.begin());
    if (found != kinds.end()) continue;
    kinds.push_back(profile);
    list.push_back(profile_json(profile));
  }
  return {{"kinds", list}, {"of", of}};
}

BlockProfiles profiles_from(const json& from) {
  BlockProfiles kinds, profiles;
  for (const auto& kind : from.at("kinds")) kinds.push_back(profile_from(kind));
  for (const auto& kind : from.at("of")) profiles.push_back(kinds.at(kind.get<size_t>()));
  return profiles;
}

}  // namespace runner
