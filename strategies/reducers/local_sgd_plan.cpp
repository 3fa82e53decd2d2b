#include "strategies/reducers/local_sgd_plan.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runner/base/text.hpp"

namespace runner {

using nlohmann::json;

namespace {

/// Checks the table `period_group_size_dict`.
std::optional<std::string> check_periods(nlohmann::json& value) {
  if (value.is_null()) return std::nullopt;
  if (!value.is_object() || value.empty()) return "";
  for (const auto& [period, size] : value.items())
    if (parse_number<int64_t>(period).value_or(0) < 1 || std::to_string(*parse_number<int64_t>(period)) != period ||
        !size.is_number_integer() || size < 2)
      return "";
  return std::nullopt;
}

std::optional<std::string> refuse_local_sgd(const Job& job, const json& given) {
  const auto options = local_sgd_options().read(given);
  if (options.model_averaging_period && options.period_group_size_dict.is_object())
    return "`model_averaging_period` and `period_group_size_dict` both say when parameters are averaged: keep one";
  const int64_t ranks = job.world_size(), group = gradient_group(options, job);
  const auto list = averagings(options, job.world_size());
  if (list.empty())
    return "post_localSGD_hook needs `model_averaging_period`, the number of steps between two averages of the "
           "parameters, or `period_group_size_dict` in its options";
  if (ranks == 1) return std::nullopt;
  if (ranks % group != 0) return fmt::format("`subgroup_size` = {} does not divide {}", group, counted(ranks, "rank"));
  int64_t before = 1;
  for (const auto& [period, size] : list) {
    if (ranks % size != 0)
      return fmt::format("`period_group_size_dict`: groups of {} ranks do not divide {}", size, counted(ranks, "rank"));
    if (size < before)
      return fmt::format(
          "`period_group_size_dict`: the group of period {} has {} ranks, fewer than that of a shorter "
          "period",
          period, size);
    before = size;
  }
  if (list.back().group_size != ranks)
    return fmt::format("`period_group_size_dict`: the longest period needs a group of all {}", counted(ranks, "rank"));
  return std::nullopt;
}

/// After start_localSGD_iter, as an average over steps: sums of gradients in subgroups, and averages of parameters.
std::vector<Traffic> traffic_of_local_sgd(const Job& job, const ParallelPlan& plan) {
  const auto options = local_sgd_options().read(plan.reducer.options);
  const auto buckets = buckets_of(job, plan);
  const int64_t elements = elements_of(buckets), calls = std::ssize(buckets);
  std::vector<Traffic> list;
  if (const int64_t group = gradient_group(options, job); group > 1) {
    list.push_back(make_traffic(Collective::all_reduce, static_cast<int>(group),
                                calls + 1,  // one for its part of the batch
                                elements * bytes_of(plan.reducer.wire) + bytes_of(DType::float64)));
  }
  // The longest one of all periods that divide a step is averaged.
  const auto periods = averagings(options, job.world_size());
  for (size_t i = 0; i < periods.size(); ++i) {
    double part = 1.0 / static_cast<double>(periods[i].period);
    if (i + 1 < periods.size() && periods[i + 1].period % periods[i].period == 0)
      part -= 1.0 / static_cast<double>(periods[i + 1].period);
    const auto times = [&](int64_t count) { return static_cast<int64_t>(part * static_cast<double>(count)); };
    if (periods[i].group_size > 1)
      list.push_back(make_traffic(Collective::all_reduce, static_cast<int>(periods[i].group_size),
                                  std::max<int64_t>(1, times(calls)), times(elements * wide_bytes(plan))));
  }
  return list;
}

}  // namespace

BuiltInReducer post_local_sgd() {
  BuiltInReducer hook{
      .name = "post_localSGD_hook", .other_names = {"post_localsgd", "post_local_sgd"}, .replicas_differ = true};
  hook.about =
      "Local SGD after some steps: each rank or subgroup trains a replica, and replicas are averaged every few "
      "steps (Lin et al., ICLR 2020).";
  hook.options = local_sgd_options().options();
  hook.late_start = {.option = "start_localSGD_iter", .does = "trains replicas", .first_step = [](const auto& given) {
                       return local_sgd_options().read(given).start_localSGD_iter + 1;
                     }};
  hook.bytes = [](const Job&, const ParallelPlan& plan, const FlatLayout& bucket) {
    const bool copies = bytes_of(plan.master) < bytes_of(DType::float32);
    return ReducerPlan::Bytes{.held = cast_bytes(bucket, plan),
                              .after_update = copies ? bucket.total * bytes_of(DType::float32) : 0};
  };
  hook.traffic = traffic_of_local_sgd;
  hook.refuse = refuse_local_sgd;
  return hook;
}

const OptionTable<LocalSgdOptions>& local_sgd_options() {
  using Type = Option::Type;
  using Options = LocalSgdOptions;
  static const auto table =
      OptionTable<Options>()
          .add({.name = "start_localSGD_iter",
                .help = "Steps with an all-reduce over all ranks, before ranks train replicas of their own.",
                .minimum = 0},
               &Options::start_localSGD_iter)
          .add({.name = "post_local_gradient_allreduce",
                .help = "After these steps, gradients are still reduced within each subgroup."},
               &Options::post_local_gradient_allreduce)
          .add({.name = "subgroup_size",
                .help = "Neighbouring ranks in a subgroup; unset: the ranks of a node.",
                .minimum = 1},
               &Options::subgroup_size)
          .add({.name = "period_group_size_dict",
                .type = Type::other,
                .help = "Hierarchical averaging of parameters: { \"2\" = 4, \"8\" = 16 } averages over groups of 4 "
                        "ranks after every second step, and over all 16 ranks after every eighth.",
                .wanted = "a table of periods and group sizes of 2 and more, such as { \"2\" = 4, \"8\" = 16 }",
                .fits = check_periods},
               &Options::period_group_size_dict)
          .add({.name = "model_averaging_period", .help = "The same as `model_averaging_period` of ddp.", .minimum = 1},
               &Options::model_averaging_period);
  return table;
}

std::vector<Averaging> averagings(const LocalSgdOptions& options, int world_size) {
  std::vector<Averaging> list;
  if (options.period_group_size_dict.is_object()) {
    for (const auto& [period, size] : options.period_group_size_dict.items())
      list.push_back({.period = *parse_number<int64_t>(period), .group_size = size.get<int64_t>()});
    std::ranges::sort(list, {}, &Averaging::period);
  } else if (options.model_averaging_period) {
    list.push_back({.period = *options.model_averaging_period, .group_size = world_size});
  }
  return list;
}

int64_t gradient_group(const LocalSgdOptions& options, const Job& job) {
  return options.post_local_gradient_allreduce ? options.subgroup_size.value_or(job.local_size) : 1;
}

}  // namespace runner
