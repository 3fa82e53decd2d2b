#include "runner/models/record_profiles.hpp"

#include "runner/models/module.hpp"
#include "strategies/executor/block_recorder.hpp"

namespace runner {

namespace {

/// Calls change(a, b) for each number of bytes in both, which have the same form.
template <class Change>
void for_each_number(BlockProfile& a, const BlockProfile& b, const Change& change) {
  for (auto number : {&BlockProfile::input, &BlockProfile::output, &BlockProfile::trains_without_graph,
                      &BlockProfile::validates_without_graph})
    change(a.*number, b.*number);
  using Pass = BlockProfile::Pass;
  for (auto pass : {&BlockProfile::plain, &BlockProfile::recomputed}) {
    for (auto number : {&Pass::forward_peak, &Pass::saved, &Pass::kept_for_weights, &Pass::waiting})
      change(a.*pass.*number, b.*pass.*number);
    for (auto moments : {&Pass::backward, &Pass::weight})
      for (size_t i = 0; i < (a.*pass.*moments).size(); ++i)
        for (auto number : {&BackwardMoment::peak, &BackwardMoment::level, &BackwardMoment::gradient})
          change((a.*pass.*moments)[i].*number, (b.*pass.*moments).at(i).*number);
  }
}

/// The profiles of `rows` rows, after those of one row and of two rows: what a block allocates is fixed, or for each row.
BlockProfiles extrapolated(BlockProfiles one, const BlockProfiles& two, int64_t rows) {
  for (size_t b = 0; b < one.size(); ++b)
    for_each_number(one[b], two.at(b),
                    [&](int64_t& of_one, int64_t of_two) { of_one += (of_two - of_one) * (rows - 1); });
  return one;
}

/// Computes with values, because a plug-in may have an operator that tensors without values do not have.
BlockProfiles record_computed(Model& model, Job job, DType leaf) {
  const int64_t rows = job.micro_batch_size;
  const auto of = [&](int64_t count) {
    job.micro_batch_size = count;
    return record_blocks(model, job, leaf, torch::kCPU);
  };
  return rows <= 2 ? of(rows) : extrapolated(of(1), of(2), rows);
}

}  // namespace

BlockProfiles record_model(Model& model, const Job& job, DType leaf) {
  try {
    return record_blocks(model, job, leaf);
  } catch (const std::exception&) {
    if (model.spec.family != "plugin") throw;
    return record_computed(model, job, leaf);
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
