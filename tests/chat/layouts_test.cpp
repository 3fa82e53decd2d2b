// Layouts of records: detection, normal form, and errors with JSON pointers.
#include "runner/chat/layouts.hpp"

#include "support.hpp"

using namespace runner;
using namespace runner::testing;
using namespace runner::chat;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

namespace {
Conversation read(const std::string& record, const Columns& columns = {}) {
  auto json = Json::parse(record);
  return RecordReader::detect(json, columns).read(json);
}
std::string record_error(const std::string& record, const Columns& columns = {}) {
  return error_of([&] { read(record, columns); });
}
}  // namespace

TEST_CASE("every layout gives the same conversation", "[chat]") {
  auto expected = Json::parse(
      R"([{"role": "system", "content": "S"}, {"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}])");
  CHECK(
      read(
          R"({"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": [{"type": "text", "text": "Q"}]}, {"role": "assistant", "content": "A"}]})")
          .messages == expected);
  CHECK(
      read(
          R"({"conversations": [{"from": "system", "value": "S"}, {"from": "human", "value": "Q"}, {"from": "gpt", "value": "A"}]})")
          .messages == expected);
  CHECK(read(R"({"system": "S", "conversations": [{"from": "human", "value": "Q"}, {"from": "gpt", "value": "A"}]})")
            .messages == expected);
  CHECK(
      read(
          R"({"conversations": [{"role": "system", "content": "S"}, {"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}]})")
          .messages == expected);
  CHECK(read(R"({"instruction": "Q", "input": "", "output": "A", "system": "S"})").messages == expected);
  auto pair = read(
      R"({"prompt": [{"role": "system", "content": "S"}, {"role": "user", "content": "Q"}], "completion": [{"role": "assistant", "content": "A"}]})");
  CHECK(pair.messages == expected);
  CHECK(pair.prompt_messages == 2);
}

TEST_CASE("texts, history and inputs", "[chat]") {
  CHECK(read(R"({"text": "abc"})").form == Conversation::Form::text);
  auto pair = read(R"({"prompt": "P", "completion": "C"})");
  CHECK(pair.form == Conversation::Form::pair);
  CHECK(pair.completion == "C");
  auto alpaca = read(R"({"instruction": "I", "input": "X", "output": "O", "history": [["q", "a"]]})");
  REQUIRE(alpaca.messages.size() == 4);
  CHECK(alpaca.messages[2]["content"] == "I\nX");
  CHECK(alpaca.messages[2]["input"] == "X");
}

TEST_CASE("tools and tool calls", "[chat]") {
  auto record = read(R"({"tools": "[{\"name\": \"f\"}]", "messages": [{"role": "user", "content": "Q"},
      {"role": "assistant", "content": null, "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}}]}]})");
  CHECK(record.tools == Json::parse(R"([{"name": "f"}])"));
  CHECK(record.messages[1]["content"].is_null());
  CHECK(record.messages[1]["tool_calls"][0]["function"]["arguments"] == Json::parse(R"({"x": 1})"));
  auto sharegpt = read(
      R"({"conversations": [{"from": "human", "value": "Q"}, {"from": "function_call", "value": "{\"name\": \"f\", \"arguments\": {\"x\": 1}}"}, {"from": "observation", "value": "7"}]})");
  CHECK(sharegpt.messages[1]["tool_calls"][0]["function"]["name"] == "f");
  CHECK(sharegpt.messages[2]["role"] == "tool");
}

TEST_CASE("columns can have other names", "[chat]") {
  Columns columns = {{"prompt", "question"}, {"completion", "answer"}};
  CHECK(read(R"({"question": "P", "answer": "C"})", columns).prompt == "P");
  CHECK_THAT(error_of([] {
               RecordReader(Layout::alpaca, {{"instructions", "x"}});
             }),
             ContainsSubstring("has no field instructions (did you mean instruction?)"));
  CHECK_THAT(error_of([] { layout_of_name("shargpt"); }), ContainsSubstring("did you mean sharegpt?"));
}

TEST_CASE("bad records are named by a JSON pointer", "[chat]") {
  struct Example {
    const char *record, *message;
  };
  for (auto& [record, message] :
       {Example{R"({"messages": [{"role": "user", "content": "a"}, {"role": "asistant", "content": "b"}]})",
                "/messages/1/role: unknown role \"asistant\", did you mean assistant?; allowed: system"},
        {R"({"messages": [{"role": "user"}]})", "/messages/0/content: is missing"},
        {R"({"messages": []})", "/messages: has no messages"},
        {R"({"messages": "x"})", "/messages: must be a list of messages, not a text"},
        {R"({"messages": [3]})", "/messages/0: a message must be an object"},
        {R"({"messages": [{"content": "a"}]})", "/messages/0/role: is missing"},
        {R"({"messages": [{"role": "user", "content": [{"type": "image"}]}]})",
         "/messages/0/content/0/type: only parts of type \"text\" can be used, not \"image\""},
        {R"({"messages": [{"role": "user", "content": 7}]})", "/messages/0/content: content must be a text"},
        {R"({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}]})",
         "/messages/0/tool_calls/0/function/arguments: this text is not the JSON of an object"},
        {R"({"messages": [{"role": "user", "content": "a"}], "tools": 3})", "/tools: must be a list of tools"},
        {R"({"conversations": [{"from": "humann", "value": "a"}]})",
         "/conversations/0/from: unknown role \"humann\", did you mean human?"},
        {R"({"conversations": [{"from": "human"}]})", "/conversations/0/value: is missing"},
        {R"({"prompt": "a", "completion": []})", "/prompt: prompt and completion must both be texts or both be lists"},
        {R"({"instruction": "a", "output": 3})", "/output: must be a text, not a number"},
        {R"({"instruction": "a", "output": "b", "history": [["x"]]})", "/history/0: must be a pair of texts"},
        {R"({"message": []})", "no layout has the keys message (is message a column messages?)"},
        {R"({"messages": [], "prompt": "a", "completion": "b"})",
         "the keys fit the layouts messages and prompt_completion"},
        {R"([1])", "a record must be an object, not a list"}}) {
    INFO(record);
    CHECK_THAT(record_error(record), StartsWith(message));
  }
  auto reader = RecordReader(Layout::prompt_completion, {{"prompt", "a/b"}});
  CHECK_THAT(error_of([&] { reader.read(Json::parse(R"({"completion": "x"})")); }),
             StartsWith("/a~1b: is missing; the layout prompt_completion needs it"));
}
