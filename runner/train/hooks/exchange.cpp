#include "runner/train/hooks/exchange.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "runner/base/hash.hpp"
#include "runner/base/text.hpp"
#include "runner/lua/error.hpp"
#include "runner/train/hooks/hook_requests.hpp"
#include "runner/train/scripts/tensor.hpp"
#include "strategies/collective/gathered_rows.hpp"

namespace runner {

namespace {

constexpr size_t text_bytes = 2000, purpose_bytes = 200;
constexpr size_t carried = call_end_words;  ///< values sent together with the hash of the call's purpose
const char* const the_end = "the end of the call";

/// Returns text such as "ranks 0, 2 are at all_reduce (sum), rank 1 at the end of the call".
std::string describe_places(const std::vector<std::string>& places) {
  std::vector<std::string> parts;
  std::vector<bool> told(places.size());
  for (size_t first = 0; first < places.size(); ++first) {
    if (told[first]) continue;
    std::vector<int> ranks;
    for (size_t rank = first; rank < places.size(); ++rank)
      if (places[rank] == places[first]) {
        told[rank] = true;
        ranks.push_back(static_cast<int>(rank));
      }
    const char* verb = !parts.empty() ? "" : ranks.size() == 1 ? "is " : "are ";
    parts.push_back(fmt::format("{} {}at {}", describe_ranks(ranks), verb, places[first]));
  }
  return join(parts, ", ");
}

}  // namespace

double reduced(const std::vector<double>& values, const std::string& operation) {
  if (operation == "min") return *std::min_element(values.begin(), values.end());
  if (operation == "max") return *std::max_element(values.begin(), values.end());
  double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return operation == "mean" ? sum / static_cast<double>(values.size()) : sum;
}

std::vector<double> HookExchange::column(const Rows& rows, size_t index) {
  std::vector<double> values;
  for (const auto& row : rows) values.push_back(row.at(index));
  return values;
}

double HookExchange::all_reduce(double value, const std::string& operation) {
  return reduced(column(meet("all_reduce (" + operation + ")", {value}), 0), operation);
}

std::vector<double> HookExchange::all_gather(double value) { return column(meet("all_gather", {value}), 0); }

lua::Value HookExchange::all_gather(const lua::Value& rows, bool sync_grads) {
  const auto* tensor = script_tensor(*rows.object);
  if (!tensor || tensor->part || tensor->values.dim() != 2)
    throw lua::ScriptMistake("all_gather: argument 1 must be a number, or a tensor of `loss`");
  const auto& values = tensor->values;
  // Backward is a collective if a rank's rows have a gradient, so all ranks must have one.
  const auto what = fmt::format("all_gather of [rows, {}] of {}{}", values.size(1), c10::toString(values.scalar_type()),
                                !sync_grads              ? ""
                                : values.requires_grad() ? " with sync_grads"
                                                         : " with sync_grads, of rows without a gradient");
  std::vector<int64_t> counts;
  for (const double count : column(meet(what, {static_cast<double>(values.size(0))}), 0))
    counts.push_back(static_cast<int64_t>(count));
  return made_tensor(*tensor, gathered_rows(sync_grads ? values : values.detach(), world_.group, counts));
}

double HookExchange::broadcast(double value, int root) {
  return meet(fmt::format("broadcast from rank {}", root), {value}).at(static_cast<size_t>(root)).at(0);
}

double hash_of(const std::string& text) { return static_cast<double>(fnv1a(text) >> 12); }

HookExchange::Rows HookExchange::gather(const std::vector<double>& values) {
  Rows rows(static_cast<size_t>(world_.size), values);
  if (world_.size == 1 || values.empty()) return rows;
  auto mine = torch::tensor(values, torch::kFloat64);
  auto all = torch::empty({world_.size * mine.numel()}, torch::kFloat64);
  world_.control->_allgather_base(all, mine)->wait();
  const double* from = all.data_ptr<double>();
  for (size_t rank = 0; rank < rows.size(); ++rank)
    rows[rank].assign(from + rank * values.size(), from + (rank + 1) * values.size());
  return rows;
}

std::vector<std::string> gather_texts(World& world, const std::string& mine, size_t bytes) {
  std::vector<std::string> all(static_cast<size_t>(world.size), mine);
  if (world.size == 1) return all;
  auto row = torch::zeros({static_cast<int64_t>(bytes)}, torch::kUInt8);
  std::memcpy(row.data_ptr(), mine.data(), std::min(mine.size(), bytes));
  if (world.control == world.group) row = row.to(world.device);
  auto rows = torch::empty({world.size * row.numel()}, row.options());
  world.control->_allgather_base(rows, row)->wait();
  rows = rows.to(torch::kCPU);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const auto* from = static_cast<const char*>(rows.data_ptr()) + rank * bytes;
    all[rank].assign(from, ::strnlen(from, bytes));
  }
  return all;
}

std::optional<HookExchange::Rows> HookExchange::try_meeting(const std::string& what,
                                                            const std::vector<double>& values) {
  if (world_.size == 1) return Rows{values};
  std::vector<double> row{hash_of(what)};
  const bool fits = values.size() <= carried;
  if (fits) row.insert(row.end(), values.begin(), values.end());
  row.resize(1 + carried);
  Rows rows = gather(row);
  for (const auto& other : rows)
    if (other[0] != rows[0][0]) return {};
  if (!fits) return gather(values);
  for (auto& other : rows) {
    other.erase(other.begin());
    other.resize(values.size());
  }
  return rows;
}

HookExchange::Rows HookExchange::meet(const std::string& what, const std::vector<double>& values) {
  if (closed_) throw lua::ScriptMistake(what + ": " + *closed_);
  if (alone_) throw lua::ScriptMistake(what + ": other ranks do not take part in on_exception");
  if (auto rows = try_meeting(what, values)) return *rows;
  throw lua::ScriptMistake(fmt::format("{}: every rank must call it, in the same order: {}", what,
                                       describe_places(gather_texts(world_, what, purpose_bytes))));
}

HookExchange::Rows HookExchange::end(const std::vector<double>& values) {
  if (alone_) return {values};
  while (true) {
    if (auto rows = try_meeting(the_end, values)) return *rows;
    gather_texts(world_, the_end, purpose_bytes);  // ranks at other calls need this text for their error message
  }
}

std::vector<std::string> HookExchange::texts(const std::string& mine) {
  if (alone_) return {mine};
  return gather_texts(world_, mine, text_bytes);
}

}  // namespace runner
