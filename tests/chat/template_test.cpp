// The template engine: every construct once.
#include <catch2/catch_test_macros.hpp>

#include "runner/chat/template.hpp"

using namespace runner;
using namespace runner::jinja;

TEST_CASE("text and output", "[jinja]") {
  CHECK(Template("t", "a {{ 1 + 2 }} b").render(nlohmann::ordered_json::object()).text == "a 3 b");
}
