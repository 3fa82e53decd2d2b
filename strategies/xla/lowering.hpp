// The operators of LibTorch in StableHLO. Variants that write to an argument (add_, mm.out) have the lowering of the plain form.
#pragma once
#include <string>
#include <unordered_map>
#include <vector>

#include "strategies/xla/call.hpp"

namespace runner::xla {

struct Lowering {
  void (*write)(Call& call) = nullptr;
  /// LibTorch does not know the shapes of the results without computing them, so the lowering makes them.
  bool makes_results = false;
};

/// By name: "aten::mm", or with the overload, "aten::max.dim" and "aten::max.", which has none.
using Lowerings = std::unordered_map<std::string, Lowering>;

/// Null: there is none.
const Lowerings::value_type* find_lowering(const c10::OperatorName& name);
/// The names in the table, sorted.
std::vector<std::string> lowered_operators();

// ---- the parts of the table, by what they compute
void add_elementwise(Lowerings& table);
void add_reductions(Lowerings& table);
void add_indexing(Lowerings& table);
void add_activations(Lowerings& table);
void add_new_tensors(Lowerings& table);
void add_losses(Lowerings& table);
void add_norms(Lowerings& table);
void add_images(Lowerings& table);
void add_dropout(Lowerings& table);

}  // namespace runner::xla
