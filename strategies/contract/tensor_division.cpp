#include "strategies/contract/tensor_division.hpp"

#include <algorithm>

#include "runner/base/error.hpp"
#include "strategies/contract/model_spec.hpp"

namespace runner {

std::pair<int64_t, int64_t> share_of(int64_t units, int ranks, int rank) {
  if (units < ranks) {
    RUNNER_CHECK(units > 0 && ranks % units == 0, "{} units for {} ranks", units, ranks);
    const int64_t unit = rank / (ranks / units);
    return {unit, unit + 1};
  }
  const int64_t each = units / ranks, larger = units % ranks;
  const int64_t begin = rank * each + std::min<int64_t>(rank, larger);
  return {begin, begin + each + (rank < larger ? 1 : 0)};
}

void divide(ParameterSpec& parameter, const TensorDivision& division) {
  if (!division.divides()) return;
  TensorPart part{.whole_shape = parameter.shape, .boxes = {}};
  if (!parameter.split) {
    part.boxes = {{}};
    part.replicas = division.ranks;
    part.replica = division.rank;
    part.sums_replicas = parameter.whole_use == WholeUse::columns || division.sequence_parallel;
    parameter.part = std::move(part);
    return;
  }
  const auto& [dim, parts, unit] = *parameter.split;
  const auto d = static_cast<size_t>(dim);
  int64_t begin = 0, size = 0;
  for (const int64_t extent : parts.empty() ? std::vector{parameter.shape[d]} : parts) {
    RUNNER_CHECK(extent % unit == 0, "`{}`: {} indices are not units of {}", parameter.name, extent, unit);
    const int64_t units = extent / unit;
    const auto [first, last] = share_of(units, division.ranks, division.rank);
    if (units < division.ranks) {
      part.replicas = division.ranks / static_cast<int>(units);
      part.replica = division.rank % part.replicas;
      part.sums_replicas = true;
    }
    TensorSlice box{.start = std::vector<int64_t>(parameter.shape.size(), 0), .size = parameter.shape};
    box.start[d] = begin + first * unit;
    box.size[d] = (last - first) * unit;
    size += box.size[d];
    begin += extent;
    part.boxes.push_back(std::move(box));
  }
  RUNNER_CHECK(begin == parameter.shape[d], "the parts of `{}` have {} of {} indices", parameter.name, begin,
               parameter.shape[d]);
  parameter.shape[d] = size;
  parameter.part = std::move(part);
}

void for_each_run(const ParameterSpec& parameter, int64_t begin, int64_t end,
                  const std::function<void(int64_t, int64_t, int64_t)>& run) {
  if (!parameter.part) {
    if (begin < end) run(begin, begin, end - begin);
    return;
  }
  const auto& shape = parameter.part->whole_shape;
  const SlicePart whole{.slice = {}, .begin = 0, .end = slice_numel({}, shape)};
  int64_t before = 0;  // elements of earlier boxes
  for (const auto& box : parameter.part->boxes) {
    const int64_t count = slice_numel(box, shape);
    const SlicePart part{.slice = box,
                         .begin = std::clamp<int64_t>(begin - before, 0, count),
                         .end = std::clamp<int64_t>(end - before, 0, count)};
    for_each_common(shape, whole, part, [&](int64_t in_whole, int64_t in_box, int64_t elements) {
      run(in_whole, before + in_box, elements);
    });
    before += count;
  }
}

}  // namespace runner
