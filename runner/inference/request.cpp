#include "runner/inference/request.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "runner/base/error.hpp"

namespace runner {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(LoadRequest, folder, run_dir, checkpoint, name, base, step, cache_dir,
                                                dtype, accelerator, threads)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(PromptsRequest, texts, file, records, chat, system, chat_template)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(InferenceRequest, verb, load, prompts, generation, input, seed,
                                                num_samples, batch_size, json, echo, output, files, scratch, task, data,
                                                limit, context, pooling, normalize, max_seq_length)

void LoadRequest::set(const ModelPlace& place) {
  folder = place.folder;
  run_dir = place.run_dir;
  checkpoint = place.checkpoint;
  name = place.name;
  step = place.step;
}

ModelPlace LoadRequest::place() const {
  return {.folder = folder, .run_dir = run_dir, .checkpoint = checkpoint, .name = name, .base = base, .step = step};
}

InferenceRequest inference_request(const std::string& text) {
  return nlohmann::json::parse(text).get<InferenceRequest>();
}

std::string to_text(const InferenceRequest& request) { return nlohmann::json(request).dump(); }

Descriptor request_file(const InferenceRequest& request) {
  const auto text = to_text(request);
  Descriptor file(::memfd_create("request", 0));
  if (!file.is_open() || ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    throw environment_error("cannot pass the request to the worker: {}", std::strerror(errno));
  return file;
}

InferenceRequest request_in(int descriptor) {
  return inference_request(read_file("/proc/self/fd/" + std::to_string(descriptor)));
}

}  // namespace runner
