// The plan: a recipe in which every `auto` has become a value, with the reasons. Pure: recipe and facts in, plan or
// located errors out.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "runner/config/diagnostics.hpp"
#include "runner/config/recipe.hpp"
#include "strategies/catalog.hpp"

namespace runner {

/// The hardware a plan is made for. The device room makes it from this machine; tests and predictions make their own.
struct Topology {
  bool cuda = false;
  bool bf16 = false;         ///< every CUDA device has bf16
  int devices_per_node = 1;  ///< ranks per node
  int num_nodes = 1;
  bool supervisor_each_rank = false;  ///< a launcher starts them; else one for all ranks of a node
  std::string device_reason;          ///< why this accelerator and count, one sentence
  std::vector<int> cuda_indices;
  int cores = 1;  ///< of this node
  int world_size() const { return devices_per_node * num_nodes; }
};

struct Plan {
  Recipe recipe;  ///< resolved; print_recipe() of it is resolved.toml
  const Entry* entry = nullptr;
  std::string rule;    ///< which row of the documented rules, or "named"
  std::string reason;  ///< one sentence
  std::vector<std::string> notes;
  std::shared_ptr<ModelSpec> model;
  Job job;  ///< of the first epoch; points into `model`
  MemoryParts memory;
  std::vector<Traffic> traffic;
  int64_t vocab_size = 0, seq_len = 0;

  /// Tensor bytes of the device that one rank takes at most: the step's peak, and on CPU the snapshot that a checkpoint
  /// is written from while steps go on.
  int64_t memory_bytes() const { return memory.total() + snapshot_bytes(); }
  int64_t snapshot_bytes() const;
  nlohmann::json to_json() const;
};

/// `tokenizer_vocab_size`: the tokenizer's, if the data have one. Throws RecipeError with every mistake that needs the
/// catalog, the topology or the vocabulary to be seen.
Plan make_plan(const Recipe& recipe, const Topology& topology, std::optional<int64_t> tokenizer_vocab_size);

/// The Job of a resolved recipe: what the worker builds its strategy from. `epoch` picks the accumulation factor.
Job make_job(const Recipe& resolved, const ModelSpec& model, const Topology& topology, int64_t epoch = 0);

/// Sequences of one optimizer step in `epoch`.
int64_t global_batch_size(const Recipe& resolved, int world_size, int64_t epoch);
int64_t accumulation(const Recipe& resolved, int world_size, int64_t epoch);

}  // namespace runner
