// The progress bar and the plain lines, with a clock that the test sets.
#include "runner/report/progress.hpp"
#include "runner/base/metric_names.hpp"

#include <catch2/catch_test_macros.hpp>
#include <limits>

#include "capture.hpp"
#include "runner/base/log.hpp"
#include "runner/report/quantity.hpp"
#include "runner/report/terminal.hpp"

using namespace runner;

namespace {

StepReport report_at(int64_t step) {
  StepReport report;
  report.step = step;
  report.loss = 2.5;
  report.lr = 1e-3;
  report.tokens_per_s = 12345;
  report.memory_bytes = 3LL << 29;
  return report;
}

ProgressState state_at(int64_t step) { return {report_at(step), 200, 200.0}; }

struct Shown {
  double now = 100;
  Progress::Options options;
  std::optional<Capture> capture;
  std::optional<Progress> progress;
  explicit Shown(bool terminal, int64_t every = 1) {
    options.total_steps = 200;
    options.print_every_n_steps = every;
    options.terminal = terminal;
    options.width = 80;
    options.clock = [this] { return now; };
    capture.emplace(STDERR_FILENO);
    progress.emplace(options);
  }
  std::string text() {
    progress.reset();
    return capture->text();
  }
};

/// The text that a terminal shows at the end. A redrawn line has only its last content.
std::string on_screen(const std::string& text) {
  std::string out, line;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 4, "\r\x1b[K") == 0) {
      line.clear();
      i += 3;
    } else if (text[i] == '\n') {
      out += line + '\n';
      line.clear();
    } else {
      line += text[i];
    }
  }
  return out + line;
}

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

const std::string bar_25 = "step  50/200  =====---------------  loss 2.5000  12.3 k tokens/s  mem 1.50 GiB  eta 3m 20s";

}  // namespace

TEST_CASE("values of metrics keep digits when they are small, and NaN has no sign") {
  CHECK(metric_text(2.34561) == "2.3456");
  CHECK(metric_text(0) == "0.0000");
  CHECK(metric_text(2.25e-6) == "2.250e-06");
  CHECK(metric_text(-123456) == "-1.235e+05");
  CHECK(metric_text(-std::numeric_limits<double>::quiet_NaN()) == "nan");
  CHECK(metric_text(-std::numeric_limits<double>::infinity()) == "-inf");
}

TEST_CASE(
    "expectation 22: a bar line has step, loss, tokens/s, memory and ETA, and drops the least important parts first") {
  CHECK(bar_line(state_at(50), {91, false, false}) == bar_25);
  CHECK(bar_line(state_at(50), {80, false, false}) ==
        "step  50/200  ==-------  loss 2.5000  12.3 k tokens/s  mem 1.50 GiB  eta 3m 20s");
  CHECK(bar_line(state_at(50), {65, false, false}) ==
        "step  50/200  ==------  loss 2.5000  12.3 k tokens/s  eta 3m 20s");
  CHECK(bar_line(state_at(50), {60, false, false}) == "step  50/200  =====---------------  loss 2.5000  eta 3m 20s");
  CHECK(bar_line(state_at(50), {42, false, false}) == "step  50/200  loss 2.5000  eta 3m 20s");
  CHECK(bar_line(state_at(50), {30, false, false}) == "step  50/200  loss 2.5000");
  Variable ascii("LC_ALL", "C");
  CHECK(bar_line(state_at(50), {20, false, false}) == "step  50/200  loss~");
  for (int width = 20; width < 150; ++width) CHECK(display_width(bar_line(state_at(50), {width, true, false})) < width);
}

TEST_CASE("a bar is full at the end, has colour only on request, and is omitted if the end is unknown") {
  CHECK(bar_line(state_at(200), {42 + 16, true, false}).find("200/200  ━━━━━━━━━━━━━━━━━━  loss") != std::string::npos);
  CHECK(bar_line(state_at(50), {42 + 16, true, true}).find("\x1b[32m━━━━\x1b[0m──") != std::string::npos);
  CHECK(bar_line(state_at(200), {42 + 16, true, true}).find("━\x1b[0m  loss") != std::string::npos);
  ProgressState endless{report_at(50), 0, std::nullopt};
  CHECK(bar_line(endless, {80, true, false}) == "step 50  loss 2.5000  12.3 k tokens/s  mem 1.50 GiB");
}

TEST_CASE("a plain line also has the learning rate, the gradient norm and the wait for data") {
  CHECK(plain_line(state_at(50)) ==
        "step  50/200  loss 2.5000  lr 1.00e-03  12.3 k tokens/s  mem 1.50 GiB  eta 3m 20s");
  ProgressState state = state_at(7);
  state.report.grad_norm = 0.25;
  state.report.data_wait_share = 0.5;
  state.report.loss = 1.25e-5;
  state.eta_seconds.reset();
  CHECK(plain_line(state) ==
        "step   7/200  loss 1.250e-05  lr 1.00e-03  grad norm 0.2500  12.3 k tokens/s  mem 1.50 GiB  50 % of the step "
        "waiting for data");
}

TEST_CASE(
    "expectation 22: without a terminal there is a plain line every n steps, at most two per second, and the last "
    "one") {
  Shown shown(false, 2);
  shown.progress->phase("starting 2 workers");
  shown.progress->phase("starting 2 workers");
  for (int64_t step = 1; step <= 12; ++step) {
    shown.progress->step(report_at(step));
    shown.now += 0.25;
  }
  shown.progress->validation(12, "val_loss 2.2500");
  shown.progress->tick();
  const std::string tail = "  loss 2.5000  lr 1.00e-03  12.3 k tokens/s  mem 1.50 GiB";
  CHECK(shown.text() ==
        "starting 2 workers\n"
        "step   1/200" +
            tail +
            "\n"
            "step   3/200" +
            tail +
            "  eta 49.2 s\n"
            "step   5/200" +
            tail +
            "  eta 48.8 s\n"
            "step   7/200" +
            tail +
            "  eta 48.2 s\n"
            "step   9/200" +
            tail +
            "  eta 47.8 s\n"
            "step  11/200" +
            tail +
            "  eta 47.2 s\n"
            "step 12  val_loss 2.2500\n"
            "step  12/200" +
            tail + "\n");
}

TEST_CASE("the total number of steps may become known late") {
  Shown shown(false);
  shown.progress->set_total(50);
  shown.progress->step(report_at(1));
  CHECK(shown.text().starts_with("step  1/50  "));
}

TEST_CASE("on a terminal one line is redrawn at most ten times a second, and its last state stays") {
  Variable locale("LC_ALL", "C");
  Shown shown(true);
  for (int64_t step = 1; step <= 100; ++step) {
    shown.progress->step(report_at(step));
    shown.progress->tick();
    shown.now += 0.03125;
  }
  const std::string text = shown.text();
  CHECK(count(text, "\r") == 26);  // 3.1 s with one redraw per 0.125 s, and the last state
  CHECK(on_screen(text) == "step 100/200  ====-----  loss 2.5000  12.3 k tokens/s  mem 1.50 GiB  eta 3.09 s\n");
}

TEST_CASE("the phase shows its seconds until the first step replaces it") {
  Shown shown(true);
  shown.progress->phase("loading weights");
  shown.now += 3;
  shown.progress->tick();
  shown.now += 1;
  shown.progress->step(report_at(1));
  const std::string text = shown.text();
  CHECK(text.starts_with("\r\x1b[Kloading weights  0 s\r\x1b[Kloading weights  3 s\r\x1b[Kstep   1/200"));
}

TEST_CASE("a run without a step leaves no bar") {
  Shown shown(true);
  shown.progress->phase("starting 2 workers");
  CHECK(on_screen(shown.text()) == "");
}

TEST_CASE("lines and log messages appear above the bar") {
  Variable locale("LC_ALL", "C");
  Shown shown(true);
  shown.progress->step(report_at(50));
  shown.progress->line("note: a \x1b[31mremark");
  log::warning("the disk is nearly full");
  log::info("checkpoint published");
  const std::string screen = on_screen(shown.text());
  CHECK(screen.starts_with("note: a \\x1B[31mremark\n"));
  CHECK(screen.find("warning: the disk is nearly full\ncheckpoint published\nstep  50/200  ") != std::string::npos);
  CHECK(count(screen, "step") == 1);
}

TEST_CASE("a log message after the end of the display is printed normally") {
  { Shown shown(true); }
  Capture capture(STDERR_FILENO);
  log::info("done");
  CHECK(capture.text() == "done\n");
}

TEST_CASE("the ETA uses the steps of the last minute and starts again after a restart") {
  Shown shown(false);
  shown.progress->step(report_at(1));
  shown.now += 1000;  // the first step took long
  shown.progress->step(report_at(2));
  shown.now += 2;
  shown.progress->step(report_at(3));
  shown.now += 2;
  shown.progress->step(report_at(4));
  shown.now += 2;
  shown.progress->step(report_at(2));  // back to a checkpoint
  const std::string text = shown.text();
  CHECK(text.find("step   2/200  loss 2.5000  lr 1.00e-03  12.3 k tokens/s  mem 1.50 GiB  eta 2d") !=
        std::string::npos);
  CHECK(text.find("step   4/200  loss 2.5000  lr 1.00e-03  12.3 k tokens/s  mem 1.50 GiB  eta 6m 32s\n") !=
        std::string::npos);
  CHECK(text.ends_with("step   2/200  loss 2.5000  lr 1.00e-03  12.3 k tokens/s  mem 1.50 GiB\n"));
}
