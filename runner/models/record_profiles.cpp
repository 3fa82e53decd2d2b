#include "runner/models/record_profiles.hpp"

#include "runner/models/module.hpp"
#include "strategies/executor/block_recorder.hpp"

namespace runner {

BlockProfiles record_model(Model& model, const Job& job, DType leaf) {
  try {
    return record_blocks(model, job, leaf);
  } catch (const std::exception&) {
    if (model.spec.family != "plugin") throw;
    return record_blocks(model, job, leaf, torch::kCPU);
  }
}

namespace {

/// The model that was recorded last: questions about one model follow each other, and a deep one takes longer to build than to record.
struct LastModel {
  std::string source;
  std::unique_ptr<Model> model;
};

}  // namespace

BlockProfiles record_profiles(const ModelSource& source, const ProfileQuestion& question) {
  static thread_local LastModel last;
  auto text = to_json(source).dump() + std::to_string(question.loss_chunk_tokens);
  if (!last.model || last.source != text || question.stage) {
    ModelSpec whole = make_spec(source);
    whole.loss_chunk_tokens = question.loss_chunk_tokens;
    auto model = build_model(source.recipe.model, whole);
    if (const auto& stage = question.stage) {
      model = stage_of(std::move(model), stage_spec(whole, stage->blocks, stage->ranks, stage->rank));
      return record_model(*model, job_of(question, model->spec), question.leaf);
    }
    last = {.source = std::move(text), .model = std::move(model)};
  }
  return record_model(*last.model, job_of(question, last.model->spec), question.leaf);
}

}  // namespace runner
