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
  at::set_num_threads(1);  // nothing is computed
  // Code of plug-ins may write to stdout.
  const Descriptor answers(::dup(STDOUT_FILENO));
  ::dup2(STDERR_FILENO, STDOUT_FILENO);
  std::string line;
  while (std::getline(std::cin, line)) {
    nlohmann::json answer;
    try {
      const auto asked = nlohmann::json::parse(line);
      answer = {
          {"profiles", to_json(record_profiles(source_from(asked.at("source")), question_from(asked.at("question"))))}};
    } catch (const std::exception& error) {
      answer = {{"error", error.what()}};
    }
    const auto text = answer.dump() + "\n";
    for (size_t sent = 0; sent < text.size();) {
      const auto count = ::write(answers.get(), text.data() + sent, text.size() - sent);
      if (count <= 0) return static_cast<int>(ExitCode::run_failed);
      sent += static_cast<size_t>(count);
    }
  }
  return 0;
}

}  // namespace runner
