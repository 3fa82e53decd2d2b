// A question about the memory of a model's blocks, which a process with LibTorch answers (record_profiles.hpp), and its form as
// JSON. Torch-free.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>

#include "runner/config/recipe.hpp"
#include "runner/models/models.hpp"
#include "strategies/contract/block_profile.hpp"
#include "strategies/contract/entry.hpp"

namespace runner {

/// The source that a spec was made from.
struct ModelSource {
  Recipe recipe = {};  ///< only [model], [fine_tune] and plugins.converted count
  RowKind rows = RowKind::one_sequence;
  TaskSpec task = {};  ///< of models that predict labels or numbers
  int64_t vocab_size = 0, seq_len = 0;
  TensorDivision division = {};
  ContextDivision context = {};
  int threads = 1;        ///< of a rank: operators of the CPU have scratch memory for each
  std::string code = "";  ///< of model.plugin: the digest of the library
};
ModelSource source_of(const Recipe& recipe, int64_t vocab_size, int64_t seq_len, const TensorDivision& division,
                      const ContextDivision& context);
ModelSpec make_spec(const ModelSource& source);

/// The blocks of one rank of a pipeline, as in stage_spec().
struct StageQuestion {
  StageBlocks blocks;
  int ranks = 1, rank = 0;
};

/// The facts that recorded memory depends on, besides the source.
struct ProfileQuestion {
  int64_t micro_batch_size = 1, loss_chunk_tokens = 0;
  PrecisionPolicy precision = {};
  DType leaf = DType::float32;
  bool host_kernels = true, own_loss = false;
  PipelineSchedule schedule = PipelineSchedule::one_f_one_b;  ///< of a stage
  std::optional<StageQuestion> stage = {};
};
ProfileQuestion question_about(const Job& job, DType leaf);

/// A job with `model` that has what the question names.
Job job_of(const ProfileQuestion& question, const ModelSpec& model);

nlohmann::json to_json(const ModelSource& source);
nlohmann::json to_json(const ProfileQuestion& question);
nlohmann::json to_json(const BlockProfiles& profiles);
ModelSource source_from(const nlohmann::json& json);
ProfileQuestion question_from(const nlohmann::json& json);
BlockProfiles profiles_from(const nlohmann::json& json);

}  // namespace runner
