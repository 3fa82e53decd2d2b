#include "strategies/pipeline/picture.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "runner/base/text.hpp"

namespace runner {

namespace {

bool is_computation(const PlayedAction& one) { return !is_transfer(one.action.kind) && one.end > one.start; }

template <typename F>
void for_each_computation(const PipelineSimulation& simulation, F&& f) {
  for (size_t rank = 0; rank < simulation.ranks.size(); ++rank)
    for (const auto& one : simulation.ranks[rank])
      if (is_computation(one)) f(rank, one);
}

/// Columns for the time of a step, at most `most`. If possible, the shortest computation has a whole number of columns and room for names.
int columns_of_time(const PipelineShape& shape, const PipelineSimulation& simulation, int most) {
  double shortest = simulation.end;
  size_t name = 1;
  for_each_computation(simulation, [&](size_t, const PlayedAction& one) {
    shortest = std::min(shortest, one.end - one.start);
    name = std::max(name, to_text(one.action, shape).size());
  });
  if (!(shortest > 0)) return most;
  const double slots = simulation.end / shortest, cells = std::floor(most / slots);
  return cells < 1 ? most : static_cast<int>(std::round(slots * std::min(cells, static_cast<double>(name))));
}

/// The part of an action's name that fits.
std::string short_name(PipelineAction action, PipelineShape shape, size_t cells) {
  auto name = to_text(action, shape);
  if (name.size() > cells) {
    shape.virtual_stages = 1;
    name = to_text(action, shape);
  }
  return name.substr(0, name.size() > cells ? 1 : cells);
}

std::string explanation(const PipelineShape& shape, const PipelineSimulation& simulation) {
  std::vector<std::string> parts;
  for (const auto& [kind, text] :
       {std::pair{ActionKind::forward, "F forward"}, std::pair{ActionKind::backward, "B backward"},
        std::pair{ActionKind::backward_input, "I backward, input part"},
        std::pair{ActionKind::backward_weight, "W weight part"}}) {
    bool occurs = false;
    for_each_computation(simulation, [&, kind = kind](size_t, const auto& one) { occurs |= one.action.kind == kind; });
    if (occurs) parts.emplace_back(text);
  }
  if (shape.virtual_stages > 1) parts.emplace_back("a, b, .. virtual stages of a rank");
  parts.emplace_back("'.' idle");
  return join(parts, "; ");
}

}  // namespace

std::string draw(const PipelineShape& shape, const PipelineSimulation& simulation, int columns) {
  const int digits = static_cast<int>(std::to_string(simulation.ranks.size() - 1).size());
  const int width = columns_of_time(shape, simulation, std::max(10, columns - digits - 6));
  const auto column = [&](double time) {
    return simulation.end > 0 ? static_cast<size_t>(std::llround(time / simulation.end * width)) : 0;
  };
  std::vector<std::string> rows(simulation.ranks.size(), std::string(width, '.'));
  for_each_computation(simulation, [&](size_t rank, const PlayedAction& one) {
    const size_t first = column(one.start), cells = column(one.end) - first;
    auto text = short_name(one.action, shape, cells);
    text.resize(cells, '-');
    rows[rank].replace(first, cells, text);
  });
  std::string picture;
  for (size_t rank = 0; rank < rows.size(); ++rank)
    picture += fmt::format("rank {:>{}} {}\n", rank, digits, rows[rank]);
  return picture + explanation(shape, simulation) + "\n";
}

nlohmann::ordered_json to_json(const PipelineSimulation& simulation) {
  auto list = nlohmann::ordered_json::array();
  for_each_computation(simulation, [&](size_t rank, const PlayedAction& one) {
    list.push_back({{"rank", rank},
                    {"kind", name_of(one.action.kind)},
                    {"stage", one.action.stage},
                    {"micro_batch", one.action.micro_batch},
                    {"start", one.start},
                    {"end", one.end}});
  });
  return list;
}

}  // namespace runner
