// What the loss is computed on.
#include "runner/chat/loss_spans.hpp"

#include "runner/base/foreign_json.hpp"
#include "runner/chat/layouts.hpp"
#include "support.hpp"

using namespace runner;
using namespace runner::testing;
using namespace runner::chat;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

namespace {
/// The text with the supervised parts in brackets.
std::string marked(const ChatTemplate& chat_template, const Conversation& conversation, const TrainOn& train_on = {},
                   std::string_view end = {}) {
  auto found = supervised_text(chat_template, conversation, train_on, {}, end);
  std::string text;
  size_t at = 0;
  for (auto span : found.spans) {
    REQUIRE(span.begin >= at);
    text += found.text.substr(at, span.begin - at) + "[" + found.text.substr(span.begin, span.end - span.begin) + "]";
    at = span.end;
  }
  return text + found.text.substr(at);
}

Conversation conversation(const std::string& messages) { return {.messages = Json::parse(messages)}; }
const auto four = conversation(
    R"([{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}, {"role": "user", "content": "R"}, {"role": "assistant", "content": "B"}])");
const char* plain =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}{% if add_generation_prompt %}<assistant>{% "
    "endif %}";
const char* with_blocks =
    "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}{{ m.content }}</>{% "
    "endgeneration %}{% else %}{{ m.content }}</>{% endif %}{% endfor %}";
TrainOn roles_of(std::vector<std::string> names) { return TrainOn::from_names(names); }
}  // namespace

TEST_CASE("assistant messages with their end are supervised, with and without generation blocks", "[chat]") {
  for (auto text : {plain, with_blocks}) {
    auto chat_template = ChatTemplate::from_text("t", text);
    CHECK(marked(chat_template, four) == "<user>Q</><assistant>[A</>]<user>R</><assistant>[B</>]");
    CHECK(marked(chat_template, four, roles_of({"last"})) == "<user>Q</><assistant>A</><user>R</><assistant>[B</>]");
    CHECK(marked(chat_template, four, roles_of({"all"})) == "[<user>Q</><assistant>A</><user>R</><assistant>B</>]");
  }
  auto chat_template = ChatTemplate::from_text("t", plain);
  CHECK(marked(chat_template, four, roles_of({"user"})) == "[<user>Q</>]<assistant>A</>[<user>R</>]<assistant>B</>");
  CHECK(marked(chat_template, four, roles_of({"user", "assistant"})) ==
        "[<user>Q</>]<assistant>[A</><user>R</>]<assistant>[B</>]");
}

TEST_CASE("with train_on_input all messages are supervised", "[chat]") {
  auto chat_template = ChatTemplate::from_text("t", plain);
  TrainOn train_on;
  train_on.input = true;
  CHECK(marked(chat_template, four, train_on) == "[<user>Q</><assistant>A</><user>R</><assistant>B</>]");
}

TEST_CASE("calls of tools that the template does not write are refused with their place", "[chat]") {
  const auto with_call = conversation(
      R"([{"role": "user", "content": "Q"}, {"role": "assistant", "content": null, "tool_calls":
          [{"type": "function", "function": {"name": "f", "arguments": {}}}]}])");
  CHECK_THROWS_WITH(supervised_text(ChatTemplate::from_text("t", plain), with_call),
                    "/messages/1/tool_calls: the template t does not write calls of tools, so this message would lose "
                    "them. Set data.chat_template to a template that writes `tool_calls`");
  const std::string writes = std::string(
      "{% for m in messages %}{% if m.tool_calls %}{{ m.tool_calls[0].function.name }}{% endif %}{% endfor "
      "%}");
  CHECK(supervised_text(ChatTemplate::from_text("t", writes), with_call).text == "f");
}

TEST_CASE("the content null beside calls of tools stays null, and prints as nothing", "[chat]") {
  const auto asked = [](const char* content) {
    const auto record = Json::parse(
        fmt::format(R"({{"messages": [{{"role": "user", "content": "Q"}}, {{"role": "assistant", {}"tool_calls":
            [{{"type": "function", "function": {{"name": "weather", "arguments": {{"city": "Z"}}}}}}]}},
            {{"role": "tool", "content": "yes"}}, {{"role": "assistant", "content": "It rains."}}]}})",
                    content));
    return RecordReader::detect(record, {}).read(record);
  };
  const std::string calls = "{% for c in m.tool_calls %}<call>{{ c.function.name }}</call>{% endfor %}";
  for (const char* test : {"m.content is none", "m.content == none", "m.get('content') is none",
                           "m.content is not string", "m.content is defined and m.content is none"}) {
    INFO(test);
    const auto with_none = ChatTemplate::from_text(
        "t", "{% for m in messages %}{% if m.role == 'assistant' and " + std::string(test) + " %}<A>" + calls +
                 "<E>{% elif m.role == 'assistant' %}<A>{{ m.content }}<E>{% else %}<U>{{ m.content }}{% endif %}{% "
                 "endfor %}");
    for (const char* none : {"", "\"content\": null, "})
      CHECK(supervised_text(with_none, asked(none)).text == "<U>Q<A><call>weather</call><E><U>yes<A>It rains.<E>");
    CHECK_THAT(error_of([&] { supervised_text(with_none, asked("\"content\": \"\", ")); }),
               StartsWith("/messages/1/tool_calls: the template t does not write calls of tools"));
  }
  for (const char* content : {"{{ m.content }}", "{{ '' + m.content }}", "{{ m.content ~ '' }}",
                              "{{ m.content.strip() }}", "{{ m.content | trim }}"})
    CHECK(supervised_text(
              ChatTemplate::from_text("t", "{% for m in messages %}<" + std::string(content) + calls + ">{% endfor %}"),
              asked("\"content\": null, "))
              .text == "<Q><<call>weather</call>><yes><It rains.>");
  // The name is in the text for another reason.
  auto with_tools = asked("\"content\": null, ");
  with_tools.tools = Json::parse(R"([{"name": "weather"}])");
  CHECK_THAT(error_of([&] {
               supervised_text(ChatTemplate::from_text("t",
                                                       "{{ tools }}{% for m in messages %}{{ m.content }}{% "
                                                       "if false %}{{ m.tool_calls }}{% endif %}{% endfor %}"),
                               with_tools);
             }),
             StartsWith("/messages/1/tool_calls: "));
}

TEST_CASE("arguments are objects, or the texts of the record where a template joins them", "[chat]") {
  const auto read = [](const std::string& line) {
    const auto record = foreign_json<Json>(line, nullptr, /*all_digits=*/true);
    return RecordReader::detect(record, {}).read(record);
  };
  const auto call = [](const std::string& arguments) {
    return R"({"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": null, "tool_calls": [{"type":
        "function", "function": {"name": "f", "arguments": )" +
           arguments + "}}]}]}";
  };
  const auto writes = [](const char* arguments) {
    return ChatTemplate::from_text("t", "{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.name }}" +
                                            std::string(arguments) + "{% endfor %}{% endfor %}");
  };
  const auto joined = writes("{{ '(' + c.function.arguments + ')' }}"),
             as_json = writes("{{ c.function.arguments | tojson }}");
  const std::string text = R"("{\"n\":  12345678901234567890123, \"x\": 2.50}")";
  CHECK(supervised_text(joined, read(call(text))).text == R"(f({"n":  12345678901234567890123, "x": 2.50}))");
  CHECK(supervised_text(as_json, read(call(text))).text == R"(f{"n": 12345678901234567890123, "x": 2.5})");
  const std::string object = R"({"n": [12345678901234567890123, -12345678901234567890123, 18446744073709551615]})";
  CHECK(supervised_text(as_json, read(call(object))).text == "f" + object);
  CHECK(supervised_text(writes("{{ c.function.arguments.n }}"), read(call(object))).text ==
        "f[12345678901234567890123, -12345678901234567890123, 18446744073709551615]");
  CHECK_THAT(error_of([&] { supervised_text(joined, read(call(object))); }),
             ContainsSubstring("unsupported operand types for +: 'str' and 'dict'"));
  CHECK_THAT(error_of([&] { supervised_text(writes("{{ c.function.arguments.n[0] + 1 }}"), read(call(object))); }),
             ContainsSubstring("the result is no integer of 64 bits"));
}

TEST_CASE("an end-of-text token behind the last message does not matter", "[chat]") {
  auto chat_template =
      ChatTemplate::from_text("t", std::string(plain) + "{% if not add_generation_prompt %}{{ eos_token }}{% endif %}",
                              Json{{"eos_token", "<|end|>"}});
  CHECK(marked(chat_template, four) == "<user>Q</><assistant>[A</>]<user>R</><assistant>[B</><|end|>]");
}

TEST_CASE("a template that rewrites earlier messages is refused by name", "[chat]") {
  auto rewriting = ChatTemplate::from_text(
      "qwen.jinja",
      "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' and loop.last %}(thinks){% endif %}{{ "
      "m.content }}</>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}");
  auto error = error_of([&] { supervised_text(rewriting, four); });
  CHECK_THAT(error,
             ContainsSubstring("/messages/1: the template qwen.jinja writes this message otherwise when more follow") &&
                 ContainsSubstring("train_on = \"last\""));
  CHECK(marked(rewriting, four, roles_of({"last"})) == "<user>Q</><assistant>A</><user>R</><assistant>[(thinks)B</>]");
}

TEST_CASE("prompt and completion", "[chat]") {
  auto chat_template = ChatTemplate::from_text("t", plain);
  Conversation pair{.form = Conversation::Form::pair, .prompt = "1+1=", .completion = "2"};
  CHECK(marked(chat_template, pair) == "1+1=[2]");
  CHECK(marked(chat_template, pair, {}, "</s>") == "1+1=[2</s>]");
  CHECK(marked(chat_template, pair, {.input = true}) == "[1+1=2]");
  auto messages = four;
  messages.prompt_messages = 1;
  CHECK(marked(chat_template, messages) == "<user>Q</><assistant>[A</><user>R</><assistant>B</>]");
  Conversation text{.form = Conversation::Form::text, .text = "abc"};
  CHECK(marked(chat_template, text, {}, "</s>") == "[abc</s>]");
}

TEST_CASE("a template that loses its generation block is refused", "[chat]") {
  auto losing =
      ChatTemplate::from_text("t", "{% set x | upper %}{% generation %}a{% endgeneration %}{% endset %}{{ x }}");
  CHECK_THAT(error_of([&] { supervised_text(losing, four); }),
             ContainsSubstring("changes the text of a generation block"));
}

TEST_CASE("train_on names roles", "[chat]") {
  CHECK_THAT(error_of([] { TrainOn::from_names({"assistent"}); }), ContainsSubstring("did you mean assistant?"));
  CHECK_THAT(error_of([] { TrainOn::from_names({}); }), ContainsSubstring("train_on is empty"));
  CHECK(TrainOn::from_names({"user", "tool"}).roles.size() == 2);
}
