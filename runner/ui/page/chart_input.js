// How a chart of curves is read and zoomed: mouse, fingers and keys.
import { hideReadout } from "./charts.js";

const moved = 6; // pixels from which on a press is a drag

/** Zooms so that what was below the two fingers at first is below them at the end. `first` and `last`: their [x, x] in pixels. */
function pinch(chart, first, last) {
  const log = chart.group.logX, scale = log ? Math.log : (x) => x, back = log ? Math.exp : (x) => x;
  const [a, b] = first.map((pixel) => scale(chart.toX(pixel))), [p, q] = last;
  const from = chart.chart.convertToPixel({ xAxisIndex: 0 }, chart.head.range[0]),
    to = chart.chart.convertToPixel({ xAxisIndex: 0 }, chart.head.range[1]);
  if (Math.abs(q - p) < 10 || Math.abs(first[0] - first[1]) < 10) return;
  const each = (b - a) / (q - p), low = a + (from - p) * each, high = a + (to - p) * each;
  if (each > 0 && Number.isFinite(high - low)) chart.group.zoom(back(low), back(high));
}

export function listenToPointer(chart) {
  const { plot } = chart, fingers = new Map(); // pointer -> {first, last}
  let start = null;
  const at = (event) => {
    const box = plot.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const toY = (pixel) => chart.chart.convertFromPixel({ yAxisIndex: 0 }, pixel);
  function showRange(x, y) {
    const vertical = start.shift,
      low = vertical ? Math.min(start.y, y) : Math.min(start.x, x),
      size = vertical ? Math.abs(y - start.y) : Math.abs(x - start.x);
    Object.assign(chart.range.style, {
      display: "block",
      left: vertical ? 0 : `${low}px`,
      width: vertical ? "100%" : `${size}px`,
      top: vertical ? `${low}px` : 0,
      height: vertical ? `${size}px` : "100%",
    });
    hideReadout();
  }

  plot.addEventListener("pointermove", (event) => {
    if (!chart.chart || !chart.head) return;
    const [x, y] = at(event);
    if (fingers.has(event.pointerId)) fingers.get(event.pointerId).last = x;
    if (fingers.size === 2) return hideReadout();
    if (start) return showRange(x, y);
    chart.group.point(chart.toX(x));
    chart.tell(event, chart.toX(x), toY(y));
  });
  plot.addEventListener("pointerleave", () => {
    chart.group.point(null);
    hideReadout();
  });
  plot.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || !chart.chart) return;
    const [x, y] = at(event);
    plot.setPointerCapture(event.pointerId);
    if (event.pointerType === "touch") fingers.set(event.pointerId, { first: x, last: x });
    else start = { x, y, shift: event.shiftKey };
  });
  plot.addEventListener("pointerup", (event) => {
    if (fingers.size === 2 && fingers.has(event.pointerId)) {
      const both = [...fingers.values()].sort((one, other) => one.first - other.first);
      fingers.clear();
      return pinch(chart, both.map((finger) => finger.first), both.map((finger) => finger.last));
    }
    fingers.delete(event.pointerId);
    if (!start) return;
    const [x, y] = at(event), from = start;
    start = null;
    chart.range.style.display = "none";
    if (from.shift && Math.abs(y - from.y) > moved) {
      chart.yRange = [from.y, y].map(toY).sort((a, b) => a - b);
      chart.draw();
    } else if (!from.shift && Math.abs(x - from.x) > moved) {
      const ends = [from.x, x].map((pixel) => chart.toX(pixel)).sort((a, b) => a - b);
      chart.group.zoom(ends[0], ends[1]);
    }
  });
  plot.addEventListener("pointercancel", (event) => {
    fingers.delete(event.pointerId);
    start = null;
    chart.range.style.display = "none";
  });
  plot.addEventListener("dblclick", () => chart.reset());
}

/** Arrows move the crosshair, + and - zoom around it, Escape shows all again. */
export function listenToKeys(chart) {
  chart.plot.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return chart.reset();
    if (!["ArrowLeft", "ArrowRight", "+", "-"].includes(event.key) || !chart.head?.range || !chart.chart) return;
    event.preventDefault();
    event.stopPropagation();
    const { group } = chart, [low, high] = chart.head.range;
    if (event.key === "+" || event.key === "-") {
      const middle = chart.cursor ?? (low + high) / 2, half = (high - low) * (event.key === "+" ? 0.25 : 1);
      return group.zoom(middle - half, middle + half);
    }
    chart.cursor = Math.min(high, Math.max(low, (chart.cursor ?? low) + ((event.key === "ArrowRight" ? 1 : -1) * (high - low)) / 50));
    group.point(chart.cursor);
    const box = chart.plot.getBoundingClientRect(), pixel = chart.chart.convertToPixel({ xAxisIndex: 0 }, chart.cursor);
    chart.tell({ clientX: box.left + pixel, clientY: box.top + 20 }, chart.cursor, chart.visible()[0]?.y[0] ?? 0);
  });
}
