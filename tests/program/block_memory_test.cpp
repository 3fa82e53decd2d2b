// The memory that is claimed for single blocks.
#include "strategies/program/block_memory.hpp"

#include <catch2/catch_test_macros.hpp>

#include "runner/models/models.hpp"

using namespace runner;

TEST_CASE("the forward of a frozen embedding has its output, and the output's cast or the mask of dropout") {
  struct Row {
    std::string precision;
    DType table;
    double dropout;
    int64_t bytes;  ///< per element of the output; the mask has one byte, and its copy in the dtype of the table
  };
  for (const auto& row :
       {Row{"32-true", DType::float32, 0, 4}, Row{"32-true", DType::float32, 0.1, 4 + 4 + 1},
        Row{"bf16-mixed", DType::float32, 0, 4 + 2}, Row{"bf16-mixed", DType::float32, 0.1, 4 + 4 + 1},
        Row{"bf16-true", DType::bfloat16, 0, 2}, Row{"bf16-true", DType::bfloat16, 0.1, 2 + 2 + 1}}) {
    INFO(row.precision << " " << row.dropout);
    Recipe::Model model;
    model.name = "gpt";
    model.n_layers = 2;
    model.dim = 32;
    model.n_heads = 4;
    model.max_seq_len = 16;
    model.dropout = row.dropout;
    const ModelSpec spec = make_spec(model, /*vocab_size=*/61, /*seq_len=*/16);
    Job job;
    job.model = &spec;
    job.precision = precision_policy(row.precision);
    job.micro_batch_size = 3;
    CHECK(BlockMemory(job, row.table).forward_without_graph(0, true) == 3 * 16 * 32 * row.bytes);
  }
}
