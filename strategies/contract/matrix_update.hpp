// Updates that need sums over a whole parameter, or all of a matrix: Adafactor and Muon. A rank may have a part of the parameter.
#pragma once
#include <vector>

#include "strategies/contract/optimizer.hpp"

namespace runner {

/// A parameter, and this rank's part of it. All tensors are 1-d; undefined if the rank has no part.
struct MatrixPart {
  std::vector<int64_t> shape;
  GroupSettings group = {};
  bool shared = false;  ///< other ranks have the other parts
  int64_t offset = 0;   ///< of the part in the flattened parameter
  torch::Tensor parameter = {}, gradient = {};
  std::vector<torch::Tensor> states = {};
  torch::Device device = torch::kCPU;  ///< of the tensors; set also without a part, because sums over the ranks need it

  int64_t rows() const { return shape.front(); }
  int64_t columns() const { return shape.back(); }
  int64_t numel() const { return c10::multiply_integers(shape); }
};

/// Factored second moments without a first one; parameters that are not matrices have an unfactored one. Two sums over the ranks, for
/// all shared parameters together: of rows and columns, and of the squares of updates (adafactor_sums()).
/// Source: Shazeer and Stern, Adafactor (ICML 2018); Transformers (optimization.py) with relative_step = False.
void adafactor_update(const OptimizerConfig& config, const Optimizer::Update& update, std::vector<MatrixPart>& parts,
                      const ShardGroup& group);

/// Momentum whose matrix is made nearly orthogonal by Newton-Schulz iterations in bfloat16. Of the matrices that are shared, each is
/// computed by one rank (matrix_rounds.hpp): it gets the matrix by a sum of bytes, in which every rank has zeros outside of its part,
/// and sends the result to all.
/// Source: Jordan et al., Muon (2024); Liu et al., Muon is Scalable for LLM Training (arXiv:2502.16982); torch.optim.Muon.
void muon_update(const OptimizerConfig& config, const Optimizer::Update& update, std::vector<MatrixPart>& parts,
                 const ShardGroup& group);

}  // namespace runner
