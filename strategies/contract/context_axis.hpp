// The ranks that share the tokens of each row, as the blocks of a model use them. Everything but attention works on this rank's tokens.
// Source: context_division.hpp.
#pragma once
#include <vector>

#include "strategies/collective/channel.hpp"
#include "strategies/collective/libtorch.hpp"
#include "strategies/collective/world.hpp"
#include "strategies/contract/context_division.hpp"
#include "strategies/contract/module.hpp"

namespace runner {

/// Channels to the next rank of the axis and from the one before it; the ranks are a ring. Only ContextForm::ring needs them.
struct ContextRing {
  Channel to_next, from_previous;
};

class ContextAxis {
 public:
  ContextAxis(ProcessGroup group, ContextDivision division, ContextRing ring = {});

  const ContextDivision& division() const { return division_; }
  int rank() const { return division_.rank; }
  int size() const { return division_.ranks; }

 private:
  ProcessGroup group_;
  ContextDivision division_;
  ContextRing ring_;
};

/// This rank's tokens of a micro-batch. `fields`: complete rows in host memory, as ModelSpec::batch lists them. Sets host_fields,
/// padded_tokens and all_positions of the result. Padding at the end of a row has no effect on other tokens, and does not count in the
/// loss.
MicroBatch cut_tokens(const std::vector<torch::Tensor>& fields, const ContextDivision& division);

}  // namespace runner
