// Bars that the page draws with HTML, as files: the same values drawn by ECharts, and as a table.
import { h } from "./dom.js";
import { axis, colour, grid, linear, look } from "./echarts.js";
import { exportMenu } from "./exports.js";

/** `rows`: [{name, parts: [{name, value, colour: name of a colour}]}], the parts stacked in a horizontal bar. */
function barsOption(rows, unit) {
  const style = look(), names = rows.map((row) => row.name);
  const { text, ...ends } = linear([[0], rows.map((row) => row.parts.reduce((sum, part) => sum + part.value, 0))], unit);
  const series = rows.flatMap((row, i) =>
    row.parts.map((part) => ({
      name: part.name,
      type: "bar",
      stack: "all",
      barMaxWidth: 28,
      itemStyle: { color: colour(part.colour) },
      data: names.map((_, k) => (k === i ? part.value : null)),
    }))
  );
  const legend = [...new Set(series.map((one) => one.name))];
  return {
    legend: legend.length > 1
      ? { bottom: 4, left: 12, itemWidth: 10, itemHeight: 10, textStyle: { color: style.text, ...style.font }, data: legend }
      : { show: false },
    grid: { ...grid(false), left: 16, right: 24, bottom: legend.length > 1 ? 44 : 8 },
    xAxis: axis("value", style, { ...ends, axisLabel: { color: style.text, ...style.font, formatter: text, hideOverlap: true } }),
    yAxis: axis("category", style, { data: names, inverse: true, splitLine: { show: false } }),
    series,
  };
}

/** The button that saves the bars. `unit`: as of unitOf() in format.js. */
export function exportBars(title, rows, unit) {
  const button = h("button.quiet.small", {
    type: "button",
    "aria-label": `Export ${title}`,
    "aria-haspopup": "true",
    onclick: () =>
      exportMenu(
        button,
        title,
        760,
        100 + 36 * rows.length,
        () => barsOption(rows, unit),
        () => [["bar", "part", unit || "value"], ...rows.flatMap((row) => row.parts.map((part) => [row.name, part.name, part.value]))],
      ),
  }, "Export");
  return button;
}
