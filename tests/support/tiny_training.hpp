// A few steps of a tiny model under any strategy, with threads as ranks. Tests of parity, traffic and memory use it.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runner/base/hash.hpp"
#include "runner/config/model_families.hpp"
#include "runner/models/models.hpp"
#include "runner/models/module.hpp"
#include "runner/selection/recompute.hpp"
#include "strategies/catalog.hpp"
#include "strategies/collective/libtorch.hpp"
#include "strategies/contract/initialize.hpp"
#include "strategies/contract/stage_spec.hpp"
#include "strategies/contract/strategy.hpp"
#include "strategies/engine/row_batch.hpp"
#include "strategies/engine/token_batch.hpp"
#include "tests/support/hashed_weights.hpp"
#include "tests/support/thread_world.hpp"

namespace runner::testing {

/// A global batch that is not the usual one.
struct TinyBatch {
  int64_t rows = 12;
  int64_t ignored_from = 0, ignored_to = 0;  ///< places of rows whose targets do not count
  int64_t first = 0;                         ///< the row of the data at place 0
  bool only_padding = false;                 ///< the ignored rows have no tokens

  bool ignores(int64_t place) const { return ignored_from <= place && place < ignored_to; }
};

struct TinyRun {
  std::string family = "gpt";
  std::string strategy = "single";
  nlohmann::json options = nlohmann::json::object();
  int world_size = 1;
  int local_size = 0;  ///< ranks of a node; 0: all
  int tensor = 1;      ///< ranks that share each matrix; the others have different data
  bool sequence_parallel = true;
  int context = 1;  ///< ranks that share each row
  ContextForm context_form = ContextForm::gather;
  int pipeline = 1;  ///< ranks with different blocks
  int virtual_stages = 1;
  PipelineSchedule schedule = PipelineSchedule::one_f_one_b;
  int64_t accumulation = 1;
  int64_t global_batch = 12;
  int64_t steps = 5;
  std::optional<double> clip_norm, clip_value;
  bool skip_nonfinite = false;
  bool recompute = false;                              ///< of every transformer block
  Recipe::ActivationCheckpointing checkpointing = {};  ///< as in a recipe; `recompute` overrides its mode
  bool tied = true;
  bool packed = false;                   ///< rows contain several sequences (tiny_position())
  int64_t labels = 0;                    ///< > 0: rows are texts with one of so many labels, and padding
  bool pairs = false;                    ///< with `labels`: two texts
  std::vector<std::string> frozen = {};  ///< model.frozen
  Recipe::FineTune fine_tune = {};
  double dropout = 0.0;
  std::string precision = "32-true";
  OptimizerConfig optimizer = {.lr = 1e-2, .groups = {}};
  int64_t dim = 32, n_layers = 3, n_heads = 4, seq_len = 16, vocab = 61, loss_chunk_tokens = 40;
  /// Makes the strategy. If empty, the strategy is made by name.
  std::function<std::unique_ptr<Strategy>(StrategySetup)> make;
  /// The parameters that are converted, and by what, which each rank makes.
  ConvertedParameters converted = {};
  std::function<std::shared_ptr<Conversion>()> conversion = {};
  /// Changes the source of initial values.
  std::function<ParameterSource(const ModelSpec&, ParameterSource)> change_source;
  TokenLoss token_loss = {};            ///< replaces cross entropy, as a hook's loss does
  bool validates = false;               ///< in measurements of memory, and in predictions
  int64_t short_last = 0;               ///< > 0: number of rows in the global batch of the last step
  std::vector<TinyBatch> batches = {};  ///< of each step, instead of `global_batch` rows
  std::string loss = "cross_entropy";   ///< of models without tokens, which have `vocab` outputs
  int64_t features = 20;
  std::string layer_type = "basic";  ///< resnet
  bool sync_batchnorm = false;       ///< resnet
  bool mixes = false;                ///< vit and resnet: rows have two classes
  bool has_tokens() const { return is_language_model(family); }
  int64_t length() const { return has_tokens() ? seq_len : 1; }
  int64_t weight_of_row() const { return labels > 0 ? 1 : length(); }
};

struct TinyResult {
  std::vector<double> losses, norms;
  std::map<std::string, std::vector<float>> state;  ///< every tensor of the training state, unsharded
};

inline Recipe::Model tiny_model(const TinyRun& run) {
  Recipe::Model model = family_defaults(run.family);
  model.hidden_sizes.assign(static_cast<size_t>(run.n_layers), run.dim);
  model.num_features = run.features;
  if (!run.has_tokens()) model.num_labels = run.vocab;
  if (run.labels > 0) model.num_labels = run.labels;
  model.image_size = 16;
  model.patch_size = 4;
  model.embedding_size = 8;
  model.layer_type = run.layer_type;
  model.sync_batchnorm = run.sync_batchnorm;
  if (run.family == "resnet") {
    model.hidden_sizes = {16, 32};
    model.depths = {1, 2};
  }
  model.n_layers = run.n_layers;
  model.dim = run.dim;
  model.n_heads = run.n_heads;
  if (run.family != "gpt_neox" && family_kind(run.family) == "decoder")
    model.n_kv_heads = run.n_heads % 2 == 0 ? run.n_heads / 2 : run.n_heads;
  if (model.sliding_window > 0) model.sliding_window = run.seq_len / 4;
  if (model.layer_types.size() > 2) model.layer_types = {"sliding_attention", "full_attention"};
  if (run.family == "granite") model.residual_multiplier = 0.5;
  model.multiple_of = 16;
  model.max_seq_len = run.seq_len;
  model.tie_embeddings = run.tied;
  model.dropout = run.dropout;
  model.frozen = run.frozen;
  model.loss_chunk_tokens = run.loss_chunk_tokens;
  return model;
}

inline Mesh tiny_mesh(const TinyRun& run) {
  return {run.world_size,
          {{.axis = Axis::pipeline, .size = run.pipeline},
           {.axis = Axis::data, .size = run.world_size / run.tensor / run.context / run.pipeline},
           {.axis = Axis::context, .size = run.context},
           {.axis = Axis::tensor, .size = run.tensor}}};
}

/// What one of the ranks that share each matrix and each row has; without divisions the whole model.
inline ModelSpec tiny_spec(const TinyRun& run, const TensorDivision& division = {},
                           const ContextDivision& context = {}) {
  Recipe recipe;
  recipe.model = tiny_model(run);
  recipe.fine_tune = run.fine_tune;
  recipe.plugins.converted = run.converted;
  recipe.train.loss = run.loss;
  if (run.packed) recipe.data.packing = "best_fit";
  if (run.mixes) recipe.data.format = "images", recipe.data.mixup = 1;
  if (run.labels > 0) recipe.data.objective = "classification";
  if (run.pairs) recipe.data.columns = Recipe::Data::Columns{{"text_pair", "text_pair"}};
  return make_spec(recipe, run.vocab, run.length(), division, context);
}

/// The part of the matrices and of the rows that a rank has, of all blocks.
inline ModelSpec tiny_divided_spec(const TinyRun& run, int rank) {
  const Mesh mesh = tiny_mesh(run);
  return tiny_spec(
      run,
      {.ranks = run.tensor, .rank = mesh.coordinate(rank, Axis::tensor), .sequence_parallel = run.sequence_parallel},
      {.ranks = run.context, .rank = mesh.coordinate(rank, Axis::context), .form = run.context_form});
}

/// The blocks of a rank's stages. Each stage has about as many blocks.
inline ModelSpec tiny_stage_spec(const TinyRun& run, const ModelSpec& divided, int rank) {
  if (run.pipeline == 1) return divided;
  const int stages = run.pipeline * run.virtual_stages;
  StageBlocks blocks;
  for (int stage = 0; stage < stages; ++stage) {
    const auto [begin, end] = share_of(std::ssize(divided.blocks), stages, stage);
    blocks.push_back(static_cast<int>(end - begin));
  }
  return stage_spec(divided, blocks, run.pipeline, tiny_mesh(run).coordinate(rank, Axis::pipeline));
}

inline ModelSpec tiny_spec_of_rank(const TinyRun& run, int rank) {
  return tiny_stage_spec(run, tiny_divided_spec(run, rank), rank);
}

/// The rank with the same blocks and data that plans for all of them: the first one of the context axis and of the tensor axis, which
/// has the largest part.
inline int planning_rank(const TinyRun& run, int rank) {
  const Mesh mesh = tiny_mesh(run);
  for (const Axis axis : {Axis::context, Axis::tensor}) rank -= mesh.coordinate(rank, axis) * mesh.stride(axis);
  return rank;
}

/// The position of token t of packed row `k` in its sequence. Sequences begin at other places in each row.
inline int64_t tiny_position(const TinyRun& run, int64_t k, int64_t t) {
  const int64_t length = 3 + k % 5;
  return run.seq_len / 2 <= t ? t - run.seq_len / 2 : t % length;
}

/// Writes row `k` of the data to row `row` of a batch of tokens.
inline void tiny_row(const TinyRun& run, int64_t k, HostBatch& batch, int64_t row) {
  const auto inputs = batch.row<int64_t>(token_field::inputs, row);
  const auto targets = batch.row<int64_t>(token_field::targets, row);
  for (int64_t t = 0; t < run.seq_len; ++t) {
    inputs[static_cast<size_t>(t)] = hashed_token(k * run.seq_len + t, run.vocab);
    targets[static_cast<size_t>(t)] = hashed_token(k * run.seq_len + t + 1, run.vocab);
  }
  if (!run.packed) return;
  const auto positions = batch.row<int64_t>(token_field::positions, row);
  for (int64_t t = 0; t < run.seq_len; ++t) positions[static_cast<size_t>(t)] = tiny_position(run, k, t);
}

/// The same for a model without tokens.
inline HostBatch tiny_rows(const TinyRun& run, int64_t first_row, int64_t rows) {
  const auto fields = tiny_spec(run).batch;
  HostBatch batch(rows, fields);
  const auto number = [](int64_t i) { return static_cast<float>(hashed_token(i, 2001) - 1000) / 500.0f; };
  for (size_t field = 0; field < fields.size(); ++field) {
    const int64_t elements = fields[field].row_elements();
    const bool label = field + 1 == fields.size() && run.loss == "bce";
    const bool share = fields[field].name == row_field::label_share_name;
    for (int64_t i = 0; i < rows * elements; ++i) {
      const int64_t at = first_row * elements + i;
      const auto place = static_cast<size_t>(i);
      if (fields[field].type == ElementType::float32)
        batch.values<float>(field)[place] = label   ? static_cast<float>(number(at) > 0)
                                            : share ? (number(at) + 2) / 4
                                                    : number(at);
      else
        batch.values<int64_t>(field)[place] = hashed_token(at, run.vocab);
    }
  }
  return batch;
}

/// The same for texts with labels or numbers: row k has 3 + k % seq_len tokens, at most seq_len.
inline HostBatch tiny_texts(const TinyRun& run, int64_t first_row, int64_t rows) {
  auto batch = tiny_rows(run, first_row, rows);
  for (int64_t r = 0; r < rows; ++r)
    for (size_t field = 0; field < batch.fields.size(); ++field) {
      const auto& name = batch.fields[field].spec.name;
      if (name == "targets") continue;
      const auto values = batch.row<int64_t>(field, r);
      for (size_t t = 0; t < values.size(); ++t) {
        const int64_t at = static_cast<int64_t>(t), text = 3 + (first_row + r) % run.seq_len;
        if (name == token_field::positions_name) values[t] = at < text ? at : at - text;
        if (name == token_field::types_name) values[t] = at > text / 2;
        if (name == "labels") values[t] %= run.labels;
      }
    }
  return batch;
}

inline HostBatch tiny_batch(const TinyRun& run, int64_t first_row, int64_t rows) {
  if (run.labels > 0) return tiny_texts(run, first_row, rows);
  if (!run.has_tokens()) return tiny_rows(run, first_row, rows);
  HostBatch batch(rows, run.packed ? packed_fields(run.seq_len) : token_fields(run.seq_len));
  for (int64_t r = 0; r < rows; ++r) tiny_row(run, first_row + r, batch, r);
  return batch;
}

/// Makes row `row` one that does not count.
inline void ignore_row(HostBatch& batch, int64_t row, bool only_padding) {
  for (size_t field = 0; field < batch.fields.size(); ++field) {
    const auto& spec = batch.fields[field].spec;
    const bool target = spec.name == row_field::targets_name || spec.name == row_field::labels_name ||
                        spec.name == row_field::partner_labels_name;
    if (!target && !(only_padding && spec.name == token_field::inputs_name)) continue;
    if (spec.type == ElementType::float32)
      std::ranges::fill(batch.row<float>(field, row), static_cast<float>(spec.padding));
    else
      std::ranges::fill(batch.row<int64_t>(field, row), static_cast<int64_t>(spec.padding));
    if (only_padding)
      if (const auto positions = std::ranges::find(batch.fields, std::string(token_field::positions_name),
                                                   [](const auto& one) { return one.spec.name; });
          positions != batch.fields.end())
        write_padding(batch.row<int64_t>(static_cast<size_t>(positions - batch.fields.begin()), row));
  }
}

/// The Job of a tiny run, as a strategy's entry receives it.
inline Job tiny_job(const TinyRun& run, const ModelSpec& spec) {
  Job job;
  job.model = &spec;
  job.precision = precision_policy(run.precision);
  job.mesh = tiny_mesh(run);
  job.pipeline = {.schedule = run.schedule, .ranks = run.pipeline, .virtual_stages = run.virtual_stages};
  job.local_size = run.local_size > 0 ? run.local_size : run.world_size;
  job.num_nodes = run.world_size / job.local_size;
  job.accumulation = run.accumulation;
  job.micro_batch_size = run.global_batch / job.data_ranks() / run.accumulation;
  job.optimizer = &run.optimizer.spec();
  job.optimizer_states = run.optimizer.states();
  job.ns_steps = run.optimizer.ns_steps;
  for (const auto& other : run.optimizer.others)
    job.group_optimizers.push_back({.spec = &other.spec(), .states = other.states(), .ns_steps = other.ns_steps});
  for (const auto& group : run.optimizer.groups) job.optimizer_patterns.emplace_back(group.pattern, group.optimizer);
  job.validates = run.validates;
  job.own_loss = static_cast<bool>(run.token_loss);
  auto checkpointing = run.checkpointing;
  if (run.recompute) checkpointing.mode = "all";
  job.options = with_defaults(find_strategy(run.strategy)->entry->options, run.options);
  set_recompute(job, checkpointing);
  // As for a device with memory separate from host memory.
  job.host_checkpoints = checkpointing.cpu_checkpointing;
  return job;
}

/// The input of step `step` for a rank. Rows are divided among ranks as the loader divides them.
inline StepInput tiny_input(const TinyRun& run, int rank, int64_t step) {
  TinyBatch whole{.rows = run.short_last > 0 && step + 1 == run.steps ? run.short_last : run.global_batch,
                  .first = step * run.global_batch};
  if (!run.batches.empty()) whole = run.batches.at(static_cast<size_t>(step));
  const int64_t rows = whole.rows;
  StepInput input;
  const Mesh mesh = tiny_mesh(run);
  const int64_t parts = mesh.data_ranks() * run.accumulation, data_rank = mesh.data_rank(rank);
  for (int64_t m = 0; m < run.accumulation; ++m) {
    int64_t part = data_rank * run.accumulation + m;
    int64_t begin = rows * part / parts, end = rows * (part + 1) / parts;
    auto& batch = input.micro_batches.emplace_back(tiny_batch(run, whole.first + begin, end - begin));
    for (int64_t place = begin; place < end; ++place)
      if (whole.ignores(place))
        ignore_row(batch, place - begin, whole.only_padding);
      else
        input.rank_weight += run.weight_of_row();
  }
  for (int64_t place = 0; place < rows; ++place) input.weight += whole.ignores(place) ? 0 : run.weight_of_row();
  input.first_row = rows * data_rank * run.accumulation / parts;
  input.dropout_key = mix64(static_cast<uint64_t>(step));
  return input;
}

/// Makes a new strategy on this rank and runs `body` with it.
inline void with_strategy(const TinyRun& run, World& world, const std::function<void(Strategy&)>& body) {
  const ModelSpec whole = tiny_spec(run);
  const ModelSpec divided = tiny_divided_spec(run, world.rank);
  auto model = build_model(tiny_model(run), divided);
  if (run.pipeline > 1) model = stage_of(std::move(model), tiny_stage_spec(run, divided, world.rank));
  auto specs = whole.stored();
  ParameterSource drawn = [&](size_t slot, int64_t offset, std::span<float> out) {
    initialize_slice(*specs[slot], 7, offset, out);
  };
  if (run.change_source) drawn = run.change_source(whole, drawn);
  const auto source = with_row_norms(whole, drawn);
  const ModelSpec largest = tiny_spec_of_rank(run, planning_rank(run, world.rank));
  Job job = tiny_job(run, largest);
  job.accelerator = world.accelerator;
  StrategySetup setup{world, *model, job, run.optimizer, source, run.clip_norm, run.clip_value, run.skip_nonfinite};
  if (run.conversion) setup.conversion = run.conversion();
  auto strategy = run.make ? run.make(std::move(setup)) : make_strategy(run.strategy, std::move(setup));
  strategy->module_to_device();
  strategy->use_loss(run.token_loss);
  body(*strategy);
  strategy->teardown();
}

/// Copies the pieces that this rank writes into unsharded tensors.
inline void collect_state(Strategy& strategy, std::map<std::string, std::vector<float>>& whole, std::mutex& mutex) {
  for (const auto& tensor : strategy.state()) {
    const int64_t numel = slice_numel({}, tensor.global_shape);
    auto piece =
        tensor.read(tensor.write_begin, tensor.write_end - tensor.write_begin).to(torch::kFloat32).contiguous();
    std::lock_guard lock(mutex);
    auto& target = whole[tensor.name];
    if (target.empty()) target.assign(static_cast<size_t>(numel), std::numeric_limits<float>::quiet_NaN());
    const SlicePart part{tensor.slice, tensor.offset + tensor.write_begin, tensor.offset + tensor.write_end};
    for_each_common(tensor.global_shape, {.begin = 0, .end = numel}, part,
                    [&](int64_t to, int64_t from, int64_t count) {
                      std::copy_n(piece.data_ptr<float>() + (from - part.begin), count, target.begin() + to);
                    });
  }
}

/// Runs a body once for each rank of a world of this size.
using Launch = std::function<void(int world_size, const std::function<void(World&)>& body)>;

inline void launch_threads(int world_size, const std::function<void(World&)>& body) { run_ranks(world_size, body); }

inline TinyResult train_tiny(const TinyRun& run, const Launch& launch = launch_threads) {
  TinyResult result;
  std::mutex mutex;
  launch(run.world_size, [&](World& world) {
    with_strategy(run, world, [&](Strategy& strategy) {
      for (int64_t step = 0; step < run.steps; ++step) {
        auto outcome = strategy.step(tiny_input(run, world.rank, step));
        if (world.rank != 0) continue;
        result.losses.push_back(outcome.loss);
        result.norms.push_back(outcome.grad_norm);
      }
      collect_state(strategy, result.state, mutex);
    });
  });
  return result;
}

}  // namespace runner::testing
