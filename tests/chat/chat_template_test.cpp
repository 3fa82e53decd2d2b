// Chat templates from folders, and the built-in ones.
#include "support.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using chat::ChatTemplate;

namespace {
void write(const std::filesystem::path& path, std::string_view text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
}
const Json two_messages =
    Json::parse(R"([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}])");
}  // namespace

TEST_CASE("a folder's template is found where transformers looks", "[chat]") {
  ScratchFolder folder(std::filesystem::temp_directory_path());
  CHECK_THAT(error_of([&] { ChatTemplate::from_folder(folder.path()); }),
             ContainsSubstring("has no chat template") && ContainsSubstring("chatml"));
  CHECK_FALSE(ChatTemplate::folder_has_template(folder.path()));
  write(folder.path() / "tokenizer_config.json",
        R"({"bos_token": {"content": "<s>", "lstrip": false}, "eos_token": "</s>", "pad_token": null,
      "chat_template": [{"name": "default", "template": "D{{ bos_token }}{{ eos_token }}{{ pad_token }}"}, {"name": "tool_use", "template": "T{{ tools[0].name }}"}]})");
  auto loaded = ChatTemplate::from_folder(folder.path());
  CHECK(loaded.render(two_messages).text == "D<s></s>");
  chat::RenderRequest request;
  request.tools = Json::parse(R"([{"name": "f"}])");
  CHECK(loaded.render(two_messages, request).text == "Tf");
  CHECK(ChatTemplate::from_folder(folder.path(), "default").render(two_messages, request).text == "D<s></s>");
  CHECK_THAT(error_of([&] { ChatTemplate::from_folder(folder.path(), "tool_us"); }),
             ContainsSubstring("did you mean tool_use?"));

  write(folder.path() / "chat_template.jinja", "J{{ add_generation_prompt }}{{ tools }}{{ enable_thinking }}");
  write(folder.path() / "additional_chat_templates" / "rag.jinja", "R{{ documents[0].title }}");
  CHECK(ChatTemplate::from_folder(folder.path()).render(two_messages).text == "JFalseNone");
  request.variables = Json::parse(R"({"enable_thinking": true})");
  CHECK(ChatTemplate::from_folder(folder.path()).render(two_messages, request).text == "JFalse[{'name': 'f'}]True");
  request.documents = Json::parse(R"([{"title": "x"}])");
  CHECK(ChatTemplate::from_folder(folder.path(), "rag").render(two_messages, request).text == "Rx");

  write(folder.path() / "chat_template.jinja", "a\n{{ 1 +");
  CHECK_THAT(error_of([&] { ChatTemplate::from_folder(folder.path()); }),
             ContainsSubstring("chat_template.jinja:2:1: this output has no end"));
}

TEST_CASE("broken tokenizer_config.json is named", "[chat]") {
  ScratchFolder folder(std::filesystem::temp_directory_path());
  write(folder.path() / "tokenizer_config.json", "{");
  CHECK_THAT(error_of([&] { ChatTemplate::from_folder(folder.path()); }),
             ContainsSubstring("tokenizer_config.json: is not valid JSON"));
  write(folder.path() / "tokenizer_config.json", R"({"chat_template": 3})");
  CHECK_THAT(error_of([&] { ChatTemplate::from_folder(folder.path()); }),
             ContainsSubstring("chat_template must be a text or a list"));
}

TEST_CASE("built-in templates", "[chat]") {
  CHECK(ChatTemplate::built_in_names() == std::vector<std::string>{"alpaca", "chatml", "gemma", "llama2", "llama3",
                                                                   "mistral", "phi3", "vicuna", "zephyr"});
  CHECK_THAT(error_of([] { ChatTemplate::built_in("chatlm"); }), ContainsSubstring("did you mean chatml?"));
  auto parts = two_messages;
  parts[0]["content"] = Json::parse(R"([{"type": "text", "text": "H"}, {"type": "text", "text": "i"}])");
  for (auto& name : ChatTemplate::built_in_names()) {
    INFO(name);
    auto built_in = ChatTemplate::built_in(name);
    auto result = built_in.render(two_messages);
    CHECK(built_in.render(parts).text == result.text);
    REQUIRE(result.generated.size() == 1);
    auto span = result.generated[0];
    CHECK_THAT(result.text.substr(span.begin, span.end - span.begin), ContainsSubstring("Hello"));
    // The prompt is a prefix, so that generation continues where training began.
    chat::RenderRequest request;
    request.add_generation_prompt = true;
    CHECK(result.text.substr(0, span.begin) == built_in.render(Json::array({two_messages[0]}), request).text);
  }
  CHECK(ChatTemplate::built_in("llama3").render(two_messages).text ==
        "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_"
        "header_id|>\n\nHello<|eot_id|>");
  CHECK(ChatTemplate::built_in("zephyr", Json{{"eos_token", "<end>"}}).render(two_messages).text ==
        "<|user|>\nHi<end>\n<|assistant|>\nHello<end>\n");
  auto same_role = Json::array({two_messages[0], two_messages[0]});
  CHECK_THROWS_AS(ChatTemplate::built_in("gemma").render(same_role), jinja::RaisedByTemplate);
}
