#include "runner/inference/request.hpp"

namespace runner {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(LoadRequest, folder, run_dir, checkpoint, name, step, cache_dir, dtype,
                                                accelerator, threads)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(PromptsRequest, texts, file, records, chat, system, chat_template)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(InferenceRequest, verb, load, prompts, generation, seed, num_samples,
                                                batch_size, json, echo, output, task, data, limit, context)

void LoadRequest::set(const ModelPlace& place) {
  folder = place.folder;
  run_dir = place.run_dir;
  checkpoint = place.checkpoint;
  name = place.name;
  step = place.step;
}

ModelPlace LoadRequest::place() const {
  return {.folder = folder, .run_dir = run_dir, .checkpoint = checkpoint, .name = name, .step = step};
}

InferenceRequest inference_request(const std::string& text) {
  return nlohmann::json::parse(text).get<InferenceRequest>();
}

std::string to_text(const InferenceRequest& request) { return nlohmann::json(request).dump(); }

}  // namespace runner
