// Charts as files: PNG, SVG and CSV.
import { h, popover, toast } from "./dom.js";
import { colour, loadECharts } from "./echarts.js";

export function download(name, url) {
  const link = h("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** A cell of CSV, as base/quoting.hpp writes it: a text that spreadsheets would compute gets an apostrophe. */
function cell(value) {
  const text = String(value ?? ""), number = Number(text.replace("Infinity", "1"));
  const computed = text.length > 1 && /^[=+\-@\t\r]/.test(text) && Number.isNaN(number);
  const safe = computed ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** Saves rows of values as CSV; the first one names them. */
export function saveTable(name, rows) {
  download(
    `${name}.csv`,
    URL.createObjectURL(new Blob([rows.map((row) => row.map(cell).join(",")).join("\n") + "\n"], { type: "text/csv" })),
  );
}

/** PNG, SVG and CSV of a chart. `option()`: its ECharts option; `table()`: rows of values, or a promise of them. */
export function exportMenu(button, name, width, height, option, table) {
  const file = name.replace(/[^\w.-]+/g, "_");
  const render = async (renderer) => {
    const echarts = await loadECharts();
    const whole = { ...option(), animation: false, backgroundColor: colour("bg") };
    if (renderer === "svg") {
      const chart = echarts.init(null, null, { renderer: "svg", ssr: true, width, height });
      chart.setOption(whole);
      const text = chart.renderToSVGString();
      chart.dispose();
      return URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
    }
    const box = h("div", { style: { width: `${width}px`, height: `${height}px` } });
    const chart = echarts.init(box, null, { width, height, devicePixelRatio: 2 });
    chart.setOption(whole);
    const url = chart.getDataURL({ pixelRatio: 2, backgroundColor: colour("bg") });
    chart.dispose();
    return url;
  };
  const close = popover(
    button,
    h(
      "div.menu",
      h(
        "button",
        { type: "button", data: { export: "png" }, onclick: async () => (close(), download(`${file}.png`, await render("png"))) },
        "PNG image",
      ),
      h(
        "button",
        { type: "button", data: { export: "svg" }, onclick: async () => (close(), download(`${file}.svg`, await render("svg"))) },
        "SVG image",
      ),
      h("button", {
        type: "button",
        data: { export: "csv" },
        onclick: async () => {
          close();
          try {
            saveTable(file, await table());
          } catch (error) {
            toast(error.message, "error");
          }
        },
      }, "CSV table"),
    ),
    { label: `Export ${name}` },
  );
}
