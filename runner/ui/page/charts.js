// A chart in its frame, with a title, an export menu and the values below the pointer.
import { h, replace } from "./dom.js";
import { loadECharts, look } from "./echarts.js";
import { exportMenu } from "./exports.js";

const readout = h("div.readout", { hidden: true });

/** Shows values beside the pointer: `lines` are {colour, text, value}. */
export function showReadout(event, title, lines, more = "") {
  replace(
    readout,
    h("b", title),
    lines.map((line) => h("div", h("span.swatch", { vars: { "--colour": line.colour } }), h("span", line.text), h("span", line.value))),
    more ? h("span.faint", more) : null,
  );
  if (!readout.isConnected) document.body.append(readout);
  readout.hidden = false;
  const right = event.clientX + 16, left = right + readout.offsetWidth > innerWidth ? event.clientX - readout.offsetWidth - 16 : right;
  Object.assign(readout.style, {
    left: `${Math.max(4, left)}px`,
    top: `${Math.min(event.clientY + 12, innerHeight - readout.offsetHeight - 8)}px`,
  });
}
export function hideReadout() {
  readout.hidden = true;
}

/**
 * Any chart: `option(look)` makes its ECharts option, `table()` its values for CSV. `onpoint(event, x)` is called while the pointer is
 * above the value x of the horizontal axis.
 */
export function plainChart({ title, unit = "", className = "", label, option, table, onready, onpoint }) {
  const plot = h("div.plot", { role: "img", "aria-label": label ?? title }), canvas = h("div"), line = h("div.line");
  plot.append(canvas, h("div.over", line));
  const menu = h("button", {
    type: "button",
    "aria-label": `Export ${title}`,
    "aria-haspopup": "true",
    onclick: () => exportMenu(menu, title, plot.clientWidth, plot.clientHeight, () => option(look()), table),
  }, "Export");
  const box = h(
    `div.chart${className ? `.${className}` : ""}`,
    h("div.chart-head", h("h3", title, unit ? [" ", h("span.unit", unit)] : null), menu),
    plot,
  );
  let chart, disposed = false;
  const draw = async () => {
    const echarts = await loadECharts();
    if (!box.isConnected || disposed) return;
    chart ??= echarts.init(canvas);
    chart.setOption({ animation: false, ...option(look()) }, true);
    onready?.(chart);
  };
  const observer = new ResizeObserver(() => chart?.resize());
  observer.observe(plot);
  const redraw = () => draw().catch(() => {});
  addEventListener("themechange", redraw);
  requestAnimationFrame(redraw);
  if (onpoint) {
    plot.classList.add("pointed");
    plot.addEventListener("pointermove", (event) => {
      const box = plot.getBoundingClientRect(), pixel = event.clientX - box.left, point = [pixel, event.clientY - box.top];
      if (!chart?.containPixel("grid", point)) return leave();
      Object.assign(line.style, { display: "block", left: `${pixel}px`, top: "10px", bottom: "38px" });
      onpoint(event, chart.convertFromPixel({ xAxisIndex: 0 }, pixel));
    });
    plot.addEventListener("pointerleave", leave);
  }
  function leave() {
    line.style.display = "none";
    hideReadout();
  }
  return {
    box,
    plot,
    draw: redraw,
    dispose() {
      disposed = true;
      removeEventListener("themechange", redraw);
      observer.disconnect();
      hideReadout();
      chart?.dispose();
    },
  };
}
