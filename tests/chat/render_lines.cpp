// Renders templates for compare_jinja.py: one JSON object per line of stdin, {"template", "variables"}, gives one per line of stdout,
// {"text", "generated"} or {"error", "message"}.
#include <iostream>
#include <map>

#include "runner/base/json_text.hpp"
#include "runner/chat/template.hpp"

using namespace runner;

int main() {
  std::ios::sync_with_stdio(false);
  std::map<std::string, jinja::Template> templates;
  for (std::string line; std::getline(std::cin, line);) {
    nlohmann::json answer;
    try {
      auto task = nlohmann::ordered_json::parse(line);
      auto text = task["template"].get<std::string>();
      auto found = templates.find(text);
      if (found == templates.end()) found = templates.emplace(text, jinja::Template("template", text)).first;
      auto rendered = found->second.render(task["variables"]);
      answer["text"] = rendered.text;
      answer["generated"] = nlohmann::json::array();
      for (auto span : rendered.generated) answer["generated"].push_back({span.begin, span.end});
      if (rendered.lost_generation) answer["lost"] = true;
    } catch (const jinja::RaisedByTemplate& error) {
      answer = {{"error", "raised"}, {"message", error.message()}};
    } catch (const std::exception& error) {
      answer = {{"error", "failed"}, {"message", error.what()}};
    }
    std::cout << json_text(answer) << '\n';
  }
}
