#include "runner/train/profile_answers.hpp"

#include <unistd.h>

#include <cstdio>
#include <iostream>

#include "runner/base/descriptor.hpp"
#include "runner/base/error.hpp"
#include "runner/models/plugin/spec.hpp"
#include "runner/models/record_profiles.hpp"

namespace runner {

int answer_profile_questions(const std::string& folder) {
  keep_plugin_descriptions(folder);
  // Code of plug-ins may write to stdout.
  const Descriptor answers(::dup(STDOUT_FILENO));
  ::dup2(STDERR_FILENO, STDOUT_FILENO);
  std::string line;
  while (std::getline(std::cin, line)) {
    nlohmann::json answer;
    try {
      const auto asked = nlohmann::json::parse(line);
      const auto source = source_from(asked.at("source"));
      at::set_num_threads(source.threads);
      answer = {{"profiles", to_json(record_profiles(source, question_from(asked.at("question"))))}};
    } catch (const Error& error) {
      answer = {{"error", error.what()}, {"code", error.code()}};
    } catch (const std::exception& error) {
      answer = {{"error", error.what()}, {"code", ExitCode::usage}};
    }
    const auto text = answer.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    for (size_t sent = 0; sent < text.size();) {
      const auto count = ::write(answers.get(), text.data() + sent, text.size() - sent);
      if (count <= 0) return static_cast<int>(ExitCode::run_failed);
      sent += static_cast<size_t>(count);
    }
  }
  return 0;
}

}  // namespace runner
