#include "runner/inference/request.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <fmt/format.h>

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

std::string with_options_for_keys(const InferenceRequest& request, std::string message) {
  const auto replace = [&](const std::string& from, const std::string& to) {
    if (const auto at = message.find(from); at != std::string::npos) message.replace(at, from.size(), to);
  };
  const bool given = !request.data.empty() || !request.files.empty();  // the data are those that the user names
  if (given) {
    for (const char* key : {"data.validation: ", "data.train: ", "data.target: "})
      replace(key, request.data.empty() ? "" : "--data: ");
    replace("; data.missing = \"drop\" leaves such rows out", "");
    replace("; instead of it, data.validation_fraction = 0.2 takes a part of the images of data.train", "");
    replace(": set data.chat_template", "");
    for (const char* value : {"error", "drop", "mean"})
      for (const char* link : {": ", ", and "}) replace(fmt::format("{}data.missing is \"{}\"", link, value), "");
  }
  replace("data.chat_template: ", "--chat-template: ");
  if (!request.load.place().of_run()) replace("data.tokenizer: ", "");
  if (given) replace(": data.columns = { text = \"COLUMN\" } names it", ", and the model was trained on this column");
  return message;
}

}  // namespace runner
