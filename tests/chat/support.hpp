// Helpers of the tests of chat templates.
#pragma once
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fstream>
#include <string>

#include "runner/base/scratch_folder.hpp"
#include "runner/chat/chat_template.hpp"

namespace runner::testing {

using Json = nlohmann::ordered_json;

inline std::string rendered(std::string_view text, const std::string& variables = "{}") {
  return jinja::Template("test.jinja", text).render(Json::parse(variables)).text;
}

/// The message of the Error that `function` throws.
template <typename Function>
std::string error_of(Function&& function) {
  try {
    function();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "(no error)";
}

inline std::string rendering_error(std::string_view text, const std::string& variables = "{}") {
  return error_of([&] { rendered(text, variables); });
}

}  // namespace runner::testing
