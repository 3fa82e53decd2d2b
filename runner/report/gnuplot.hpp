// Writes charts as SVG or PNG with gnuplot, which runs as a child process.
#pragma once
#include <string>

#include "runner/report/chart.hpp"

namespace runner {

struct ImageSize {
  int width = 1000, height = 600;  ///< pixels
};

/// The script that gnuplot runs. `terminal`: "svg" or "pngcairo".
std::string gnuplot_script(const Chart& chart, const std::string& terminal, const std::string& output, ImageSize size);
std::string gnuplot_script(const BarChart& chart, const std::string& terminal, const std::string& output,
                           ImageSize size);

/// The names of files that can be written: they end in ".svg" or ".png". Throws Error(usage).
void check_image_name(const std::string& file);

/// Writes the whole file or nothing; its name ends in ".svg" or ".png". Raw points of a smoothed line are faint. Throws
/// Error(environment) if there is no gnuplot, or if it fails.
void write_image(const Chart& chart, const std::string& file, ImageSize size);
void write_image(const BarChart& chart, const std::string& file, ImageSize size);

}  // namespace runner
