#include "strategies/xla/lowering.hpp"

#include <algorithm>

namespace runner::xla {

namespace {

const Lowerings& table() {
  static const auto table = [] {
    Lowerings all;
    for (const auto& add : {add_elementwise, add_activations, add_new_tensors, add_reductions, add_losses, add_indexing,
                            add_norms, add_images, add_dropout})
      add(all);
    return all;
  }();
  return table;
}

}  // namespace

const Lowerings::value_type* find_lowering(const c10::OperatorName& name) {
  std::string plain = name.name;
  if (plain.ends_with("_") && !plain.ends_with("__")) plain.pop_back();
  for (const auto& key : {plain + "." + name.overload_name, plain})
    if (const auto found = table().find(key); found != table().end()) return &*found;
  return nullptr;
}

std::vector<std::string> lowered_operators() {
  std::vector<std::string> names;
  for (const auto& [name, lowering] : table()) names.push_back(name);
  std::ranges::sort(names);
  return names;
}

}  // namespace runner::xla
