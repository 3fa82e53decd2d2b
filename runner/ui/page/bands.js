// Quantile bands: where the middle of many curves is, and how far they are apart.

/** The value below which the share `q` of the ascending values is, interpolated linearly (as numpy.quantile does by default). */
export function quantile(ascending, q) {
  const at = q * (ascending.length - 1), below = Math.floor(at), part = at - below;
  return part ? ascending[below] + part * (ascending[below + 1] - ascending[below]) : ascending[below];
}

/** Of each column of the range, the mean of the curve's points in it; between points the curve is straight, beyond its ends undefined. */
function columnValues(xs, ys, low, high, columns) {
  const list = new Array(columns).fill(undefined), width = (high - low) / columns;
  if (!xs.length) return list;
  let next = 0;
  for (let column = 0; column < columns; ++column) {
    const end = column === columns - 1 ? Infinity : low + (column + 1) * width, middle = low + (column + 0.5) * width;
    let sum = 0, count = 0;
    for (; next < xs.length && xs[next] < end; ++next, ++count) sum += ys[next];
    if (count) list[column] = sum / count;
    else if (next > 0 && next < xs.length) {
      list[column] = ys[next - 1] + ((ys[next] - ys[next - 1]) * (middle - xs[next - 1])) / (xs[next] - xs[next - 1]);
    }
  }
  return list;
}

/** The 10th, 50th and 90th percentile of the curves {x, y} in each column that has any: [{x, low, middle, high}]. */
export function bandOf(curves, [low, high], columns = 120) {
  const values = curves.map(({ x, y }) => columnValues(x, y, low, high, columns)), band = [];
  for (let column = 0; column < columns; ++column) {
    const list = values.map((one) => one[column]).filter((value) => value !== undefined).sort((a, b) => a - b);
    if (list.length) {
      band.push({
        x: low + ((column + 0.5) * (high - low)) / columns,
        low: quantile(list, 0.1),
        middle: quantile(list, 0.5),
        high: quantile(list, 0.9),
      });
    }
  }
  return band;
}
