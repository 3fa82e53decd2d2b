#include "strategies/mesh/mesh.hpp"

#include <algorithm>

#include "runner/base/error.hpp"

namespace runner {

namespace {

/// "replicate 2 x shard 4".
std::string list(const std::vector<MeshAxis>& axes) {
  std::string text;
  for (const auto& [axis, size] : axes) text += fmt::format("{}{} {}", text.empty() ? "" : " x ", name_of(axis), size);
  return text;
}

void check(const std::vector<MeshAxis>& axes, int ranks) {
  constexpr int64_t too_many = int64_t{1} << 31;
  int64_t product = 1;
  for (const auto& one : axes) {
    if (one.axis == Axis::none || one.size < 1) throw usage_error("a mesh cannot have {}", list({one}));
    if (std::ranges::count(axes, one.axis, &MeshAxis::axis) > 1)
      throw usage_error("the mesh {} has the axis {} twice", list(axes), name_of(one.axis));
    product = std::min(too_many, product * one.size);
  }
  if (product != ranks) throw usage_error("the mesh {} is for {} ranks, not for {}", list(axes), product, ranks);
}

bool divides_data(Axis axis) { return axis == Axis::data || axis == Axis::replicate || axis == Axis::shard; }

}  // namespace

const char* name_of(Axis axis) {
  static constexpr const char* names[] = {"none", "pipeline", "data", "replicate", "shard", "context", "tensor"};
  return names[static_cast<size_t>(axis)];
}

std::vector<int> RankGroup::ranks() const {
  std::vector<int> list;
  for (int i = 0; i < size; ++i) list.push_back(first + i * stride);
  return list;
}

Mesh::Mesh(int ranks, const std::vector<MeshAxis>& axes) {
  check(axes, ranks);
  std::ranges::copy_if(axes, std::back_inserter(axes_), [](const MeshAxis& one) { return one.size > 1; });
}

Mesh Mesh::split(Axis axis, const std::vector<MeshAxis>& parts) const {
  check(parts, size(axis));
  std::vector<MeshAxis> axes;
  for (const auto& one : axes_)
    if (one.axis == axis)
      axes.insert(axes.end(), parts.begin(), parts.end());
    else
      axes.push_back(one);
  return {ranks(), axes};
}

Mesh Mesh::joined(Axis outer, Axis inner) const {
  std::vector<MeshAxis> axes;
  for (const auto& one : axes_)
    if (one.axis != inner)
      axes.push_back(one);
    else if (size(outer) == 1)
      axes.push_back({.axis = outer, .size = one.size});
    else
      axes.back().size *= one.size;
  return {ranks(), axes};
}

int Mesh::ranks() const {
  int product = 1;
  for (const auto& one : axes_) product *= one.size;
  return product;
}

int Mesh::size(Axis axis) const {
  const auto found = std::ranges::find(axes_, axis, &MeshAxis::axis);
  return found == axes_.end() ? 1 : found->size;
}

int Mesh::stride(Axis axis) const {
  int product = 1;
  for (size_t i = axes_.size(); i-- > 0 && axes_[i].axis != axis;) product *= axes_[i].size;
  return size(axis) == 1 ? 1 : product;
}

int Mesh::coordinate(int rank, Axis axis) const { return rank / stride(axis) % size(axis); }

RankGroup Mesh::group(int rank, Axis axis) const {
  return {.first = rank - coordinate(rank, axis) * stride(axis), .stride = stride(axis), .size = size(axis)};
}

std::vector<RankGroup> Mesh::groups(Axis axis) const {
  std::vector<RankGroup> list;
  for (int rank = 0; rank < ranks(); ++rank)
    if (coordinate(rank, axis) == 0) list.push_back(group(rank, axis));
  return list;
}

bool Mesh::spans_nodes(Axis axis, int local_size) const {
  return std::ranges::any_of(groups(axis), [&](const RankGroup& group) { return group.spans_nodes(local_size); });
}

int Mesh::data_ranks() const {
  int product = 1;
  for (const auto& [axis, size] : axes_) product *= divides_data(axis) ? size : 1;
  return product;
}

int Mesh::data_rank(int rank) const {
  int index = 0;
  for (const auto& [axis, size] : axes_)
    if (divides_data(axis)) index = index * size + coordinate(rank, axis);
  return index;
}

Mesh data_mesh(int ranks) { return {ranks, {{.axis = Axis::data, .size = ranks}}}; }

std::string to_text(const Mesh& mesh) { return mesh.axes().empty() ? "one rank" : list(mesh.axes()); }

const std::vector<std::string>& context_form_names() {
  static const std::vector<std::string> names = {"gather", "ring", "ulysses"};
  return names;
}

const std::string& name_of(ContextForm form) { return context_form_names()[static_cast<size_t>(form)]; }

ContextForm context_form(const std::string& name) {
  const auto found = std::ranges::find(context_form_names(), name);
  RUNNER_CHECK(found != context_form_names().end(), "no form of a context axis is called `{}`", name);
  return static_cast<ContextForm>(found - context_form_names().begin());
}

}  // namespace runner
