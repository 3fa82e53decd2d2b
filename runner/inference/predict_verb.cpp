// `runner predict` with a language model: one JSON line for each record of a file, in its order.
#include "runner/inference/prompted_generation.hpp"

namespace runner {

ExitCode predict_texts(InferenceJob& job) {
  PromptedGeneration generation(job, predict_new_tokens);
  LineOutput lines(job.request.output);
  TextListener listener;
  listener.ended = [&](const WantedText& wanted, const GeneratedText& text, const GenerationTimes&) {
    lines.add({{"id", wanted.prompt->id},
               {"prompt", wanted.prompt->text},
               {"prediction", text.text},
               {"finish_reason", text.finish},
               {"tokens", text.tokens.size()}});
  };
  const auto times = generation.run(listener);
  lines.finish();
  job.events.emit(
      "result",
      {{"metrics",
        {{"records", generation.prompts()},
         {"prompt_tokens", times.prompt_tokens},
         {"tokens_per_s", times.tokens > 0 ? static_cast<double>(times.tokens) / times.token_seconds : 0.0}}}});
  return ExitCode::done;
}

}  // namespace runner
