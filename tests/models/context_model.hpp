// A model of which ranks divide the tokens of rows, and on each of them other ranks the matrices.
#pragma once
#include "divided_model.hpp"
#include "strategies/contract/context_axis.hpp"

namespace runner::testing {

/// The ranks of `divided` are those of the tensor axis. They are neighbours.
struct ContextRun {
  DividedRun divided;
  int ranks = 2;
  ContextForm form = ContextForm::gather;

  int tensor_ranks() const { return divided.ranks; }
  int world() const { return ranks * divided.ranks; }
  ContextDivision context(int rank) const { return {.ranks = ranks, .rank = rank / divided.ranks, .form = form}; }
  TensorDivision division(int rank) const {
    return {.ranks = divided.ranks, .rank = rank % divided.ranks, .sequence_parallel = divided.sequence_parallel};
  }
  ModelSpec spec(int rank) const { return spec_of(divided, division(rank), context(rank)); }
};

inline std::string describe(const ContextRun& run) {
  const auto& [recipe, divided] = std::pair(run.divided.recipe, run.divided);
  return fmt::format(
      "{} of {} heads and {} key heads, {} on {} ranks, {} tensor ranks, sequence parallel {}, {}, dropout {}, "
      "recomputes {}, dtype {}",
      recipe.name, recipe.n_heads, recipe.n_kv_heads.value_or(recipe.n_heads), name_of(run.form), run.ranks,
      divided.ranks, divided.sequence_parallel, divided.rows == RowKind::packed ? "packed" : "one sequence",
      recipe.dropout, divided.recomputes, c10::toString(divided.dtype));
}

/// Channels around the ring of the ranks first, first + stride, ... All ranks of the world call it for all rings.
inline ContextRing make_ring(const World& world, const std::string& name, int first, int stride, int ranks) {
  ContextRing ring;
  for (int r = 0; r < ranks; ++r) {
    const int from = first + r * stride, to = first + (r + 1) % ranks * stride;
    auto channel = make_channel(world, name, from, to);
    if (world.rank == from) ring.to_next = channel;
    if (world.rank == to) ring.from_previous = channel;
  }
  return ring;
}

/// The axes of one rank.
struct RankAxes {
  RankAxes(const ContextRun& run, const World& world) {
    ProcessGroup of_context, of_tensor;
    ContextRing ring;
    const int t = run.tensor_ranks();
    for (int first = 0; first < t; ++first) {
      std::vector<int> ranks;
      for (int r = 0; r < run.ranks; ++r) ranks.push_back(first + r * t);
      auto group = world.make_subgroup(ranks, fmt::format("context {}", first));
      auto channels = make_ring(world, "keys", first, t, run.ranks);
      if (world.rank % t == first) of_context = group, ring = channels;
    }
    context.emplace(of_context, run.context(world.rank), ring);
    for (int first = 0; t > 1 && first < run.world(); first += t) {
      std::vector<int> ranks;
      for (int r = 0; r < t; ++r) ranks.push_back(first + r);
      auto group = world.make_subgroup(ranks, fmt::format("tensor {}", first));
      if (world.rank / t == first / t) tensor.emplace(group, run.division(world.rank));
    }
  }
  const TensorAxis* tensor_axis() const { return tensor ? &*tensor : nullptr; }
  std::optional<ContextAxis> context;
  std::optional<TensorAxis> tensor;
};

/// The outcome of each rank, with gradients of its parts, of its tokens.
inline std::vector<Outcome> outcomes_on_ranks(const ContextRun& run) {
  std::vector<Outcome> outcomes(static_cast<size_t>(run.world()));
  run_ranks(run.world(), [&](World& world) {
    const RankAxes axes(run, world);
    auto batch = cut_tokens(run.divided.batch.fields, run.context(world.rank));
    batch.fields = batch.host_fields;
    outcomes[static_cast<size_t>(world.rank)] =
        outcome_of(*filled_model(run.divided, run.spec(world.rank)), run.divided,
                   {.batch = &batch,
                    .dropout_key = 3,
                    .first_row = 2,
                    .token_loss = run.divided.token_loss,
                    .tensor_axis = axes.tensor_axis(),
                    .context_axis = &*axes.context});
  });
  return outcomes;
}

/// Calls body(run) for each form that `run.divided` can have on `ranks` ranks.
template <class Body>
void for_each_form(const DividedRun& divided, int ranks, const Body& body) {
  for (auto form : {ContextForm::gather, ContextForm::ring, ContextForm::ulysses})
    if (form != ContextForm::ulysses || divided.recipe.n_heads % (ranks * divided.ranks) == 0)
      body(ContextRun{.divided = divided, .ranks = ranks, .form = form});
}

}  // namespace runner::testing
