#include "strategies/collective/gathered_rows.hpp"

#include <algorithm>

namespace runner {

namespace {

using torch::Tensor, torch::autograd::AutogradContext, torch::autograd::variable_list;

/// Each rank sends as many rows as the rank with the most; a rank with fewer adds zeros.
class GatheredRows : public torch::autograd::Function<GatheredRows> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& rows, const ProcessGroup& group,
                        const std::vector<int64_t>& counts) {
    context->saved_data["group"] = group;
    context->saved_data["counts"] = counts;
    const int64_t most = std::ranges::max(counts), columns = rows.size(1);
    auto own = rows.new_zeros({most, columns}), all = rows.new_empty({std::ssize(counts) * most, columns});
    own.narrow(0, 0, rows.size(0)).copy_(rows);
    if (most > 0) group->_allgather_base(all, own)->wait();
    std::vector<Tensor> parts;
    for (size_t rank = 0; rank < counts.size(); ++rank)
      parts.push_back(all.narrow(0, static_cast<int64_t>(rank) * most, counts[rank]));
    return at::cat(parts);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto group = context->saved_data["group"].toCustomClass<c10d::ProcessGroup>();
    const auto counts = context->saved_data["counts"].toIntVector();
    const int64_t most = std::ranges::max(counts), columns = gradients[0].size(1);
    auto own = gradients[0].new_zeros({most, columns}),
         all = gradients[0].new_zeros({std::ssize(counts) * most, columns});
    int64_t first = 0;
    for (size_t rank = 0; rank < counts.size(); first += counts[rank++])
      all.narrow(0, static_cast<int64_t>(rank) * most, counts[rank]).copy_(gradients[0].narrow(0, first, counts[rank]));
    if (most > 0) group->_reduce_scatter_base(own, all)->wait();
    return {own.narrow(0, 0, counts[static_cast<size_t>(group->getRank())]), Tensor(), Tensor()};
  }
};

}  // namespace

torch::Tensor gathered_rows(const torch::Tensor& rows, const ProcessGroup& group, const std::vector<int64_t>& counts) {
  return counts.size() == 1 ? rows : GatheredRows::apply(rows, group, counts);
}

}  // namespace runner
