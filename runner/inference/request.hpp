// The request of `runner` to its worker about a trained model: one JSON object in a file that only the two have.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runner/base/descriptor.hpp"
#include "runner/checkpoint/stored_model.hpp"
#include "runner/inference/generation_settings.hpp"

namespace runner {

/// How a model is loaded.
struct LoadRequest {
  std::string folder = {}, run_dir = {}, checkpoint = {}, name = {};  ///< ModelPlace
  std::string base = {};                                              ///< of an adapter
  int64_t step = 0;
  std::string cache_dir = {};       ///< of trained tokenizers
  std::string dtype = "auto";       ///< f32, bf16, or auto: that of the stored weights
  std::string accelerator = "cpu";  ///< LibTorch's name of the device type
  int64_t threads = 1;

  void set(const ModelPlace& place);
  ModelPlace place() const;
};

/// Where prompts come from: `texts`, or a file; "-" is standard input.
struct PromptsRequest {
  std::vector<std::string> texts = {};
  std::string file = {};
  bool records = false;  ///< the file has one JSON object on each line, with `prompt` or `messages`
  bool chat = false;     ///< texts are messages of a user, for the chat template
  std::string system = {};
  std::string chat_template = {};  ///< a name or a file; empty: the model's
};

struct InferenceRequest {
  std::string verb;  ///< generate, chat, evaluate, predict or embed
  LoadRequest load = {};
  PromptsRequest prompts = {};
  GenerationRequest generation = {};
  int input = -1;  ///< a descriptor that the worker reads as standard input; -1: its own
  int64_t seed = 0, num_samples = 1, batch_size = 1;
  bool json = false, echo = false;
  std::string output = {};              ///< the file of results; empty: standard output
  std::vector<std::string> files = {};  ///< predict: the inputs
  std::string scratch = {};             ///< predict: a folder that the supervisor removes, for rows from standard input
  // evaluate
  std::string task = {}, data = {};
  int64_t limit = 0;    ///< the number of batches or records; 0: all
  int64_t context = 0;  ///< rolling perplexity: tokens in front of the first one that a window predicts; 0: 1
  // embed
  std::string pooling = {};    ///< mean, cls or last; empty: that of the folder, otherwise by the kind of model
  std::string normalize = {};  ///< yes or no; empty: that of the folder, otherwise no
  int64_t max_seq_length = 0;  ///< longer texts are cut; 0: that of the folder, or of the model
};

InferenceRequest inference_request(const std::string& text);
/// Throws Error(usage) for a text that is not UTF-8.
std::string to_text(const InferenceRequest& request);

/// A file in memory with the request, which may be longer than an argument of a command. A child that inherits the descriptor reads it.
Descriptor request_file(const InferenceRequest& request);
/// The request in a file of request_file(), by the number of its descriptor.
InferenceRequest request_in(int descriptor);

/// A message of the data's reader with the options of the command in the place of recipe keys that the user has not written:
/// "data.validation: there is no file x" becomes "--data: there is no file x", and of the files of `runner predict` "there is no file x".
std::string with_options_for_keys(const InferenceRequest& request, std::string message);

}  // namespace runner
