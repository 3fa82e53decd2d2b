#include "strategies/program/tensor_sum.hpp"

namespace runner {

TensorSum tensor_sum(const ModelSpec& model, const FlatLayout& layout) {
  TensorSum sum{.parts = {}};
  if (layout.summed == 0) return sum;
  const int ranks = model.division.ranks;
  const auto parameters = model.parameters();
  for (size_t i = 0; i < layout.items.size() && layout.items[i].offset < layout.summed; ++i) {
    const auto& part = *parameters[layout.items[i].slot]->part;
    sum.in_place = sum.in_place && part.replicas == ranks;
    sum.parts.push_back({.item = i, .begin = 0});
  }
  for (auto& [item, begin] : sum.parts) {
    const auto& place = layout.items[item];
    const int replicas = parameters[place.slot]->part->replicas;
    begin = sum.in_place ? place.offset : sum.elements + model.division.rank / replicas * place.numel;
    sum.elements += ranks / replicas * place.numel;
  }
  if (sum.in_place) sum.elements = layout.summed;
  return sum;
}

}  // namespace runner
