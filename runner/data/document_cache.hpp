// Tokenises files of records once, in parts on all cores, into files of the cache.
#pragma once
#include <string>
#include <vector>

#include "runner/data/record_reader.hpp"

namespace runner {

/// The cached documents of `files` of a format of records, in order; makes those that do not exist. Each part of a file is one file of
/// the cache, so that work that was interrupted continues with the parts that are missing. Memory is bounded by a part's marks on
/// each core.
/// Several processes may call this at once: each part is made by one of them. Throws Error(usage) for the first bad record.
std::vector<fs::path> document_files(const Recipe::Data& data, const std::vector<std::string>& files,
                                     const RecordReader& reader, const std::string& cache_dir);

}  // namespace runner
