// Elements without a framework.

/** h("button.quiet", {onclick, title}, "text", child ...): class names after dots; null children are left out. */
export function h(name, attributes, ...children) {
  const [tag, ...classes] = name.split(".");
  const element = document.createElement(tag || "div");
  if (classes.length) element.className = classes.join(" ");
  if (attributes && (attributes instanceof Node || typeof attributes !== "object" || Array.isArray(attributes))) {
    children.unshift(attributes);
    attributes = null;
  }
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "style") Object.assign(element.style, value);
    else if (key === "vars") { for (const [name, one] of Object.entries(value)) element.style.setProperty(name, one); }
    else if (key === "data") Object.assign(element.dataset, value);
    else if (key in element && typeof value !== "string") element[key] = value;
    else element.setAttribute(key, value === true ? "" : value);
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(element, child);
    else element.append(child);
  }
}

/** Elements of SVG: s("path", {d: "..."}). */
export function s(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes ?? {})) if (value !== undefined && value !== null) element.setAttribute(key, value);
  append(element, children);
  return element;
}

export const $ = (selector, root = document) => root.querySelector(selector);
export const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

export function replace(element, ...children) {
  element.replaceChildren();
  append(element, children);
}

/** Calls `work` once, `milliseconds` after the last call. */
export function debounce(work, milliseconds) {
  let timer;
  const later = (...values) => {
    clearTimeout(timer);
    timer = setTimeout(work, milliseconds, ...values);
  };
  later.cancel = () => clearTimeout(timer);
  return later;
}

/** Calls `work` once in each `milliseconds` in which it was asked for. Unlike debounce, it goes on while it is asked for all the time. */
export function paced(work, milliseconds) {
  let timer = null;
  const later = () => {
    timer ??= setTimeout(() => {
      timer = null;
      work();
    }, milliseconds);
  };
  later.cancel = () => clearTimeout(timer);
  return later;
}

const paths = {
  running: ["circle", { cx: 8, cy: 8, r: 4 }],
  finished: ["path", { d: "M3.5 8.5l3 3 6-7" }],
  failed: ["path", { d: "M4 4l8 8M12 4l-8 8" }],
  interrupted: ["path", { d: "M5.5 4v8M10.5 4v8" }],
  preempted: ["path", { d: "M8 3.5l5 9H3z" }],
  lost: ["path", { d: "M8 3l6 10H2zM8 7v2.5M8 11.3v.1" }],
  pruned: ["path", { d: "M3.5 8h9" }],
};

/** A status as a shape and a colour; its word is for screen readers, or beside it. */
export function statusMark(status, word = false) {
  const [tag, shape] = paths[status] ?? paths.pruned;
  return h(
    `span.status.${status}`,
    { title: status },
    s("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" }, s(tag, shape)),
    h(word ? "span" : "span.sr", status),
  );
}

export function icon(d, viewBox = "0 0 20 20") {
  return s("svg", { viewBox, "aria-hidden": "true", class: "glyph" }, s("path", { d }));
}

/** A message that disappears by itself. */
export function toast(text, kind = "info") {
  const box = h(`div.toast.${kind}`, text);
  $("#toasts").append(box);
  setTimeout(() => box.remove(), kind === "error" ? 9000 : 3500);
}

export async function copy(text, what = "copied") {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = h("textarea.sr", { value: text });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  toast(what);
}

/** Says what there is not, and what to do next. */
export function empty(title, text, ...more) {
  return h("div.empty", h("p.empty-title", title), text ? h("p", text) : null, ...more);
}

export function command(text) {
  return h(
    "div.command",
    h("code", text),
    h("button.quiet", { type: "button", onclick: () => copy(text, "command copied"), "aria-label": "Copy the command" }, "Copy"),
  );
}

/** Asks for a text below a button; `done` gets it if it is not empty. */
export function askText(button, label, done, value = "") {
  const field = h("input", { type: "text", placeholder: label, "aria-label": label, value });
  const form = h("form", {
    onsubmit: (event) => {
      event.preventDefault();
      close();
      if (field.value.trim()) done(field.value.trim());
    },
  }, field);
  const close = popover(button, form, { label });
  field.select();
}

/** A menu or panel that opens below a button, and closes on Escape or a click elsewhere. */
export function popover(button, content, options = {}) {
  const panel = h("div.popover", { role: "dialog", "aria-label": options.label ?? button.textContent }, content);
  const close = () => {
    if (panel.contains(document.activeElement)) button.focus();
    panel.remove();
    document.removeEventListener("pointerdown", outside, true);
    button.setAttribute("aria-expanded", "false");
    options.onclose?.();
  };
  const outside = (event) => {
    if (!panel.contains(event.target) && !button.contains(event.target)) close();
  };
  panel.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      event.stopPropagation();
      close();
    } else if (event.key === "Tab") { // the focus stays in the panel until it is closed
      const all = [...panel.querySelectorAll("input, button, select, textarea, a[href]")].filter((one) =>
        one.checkVisibility() && !one.disabled
      );
      const end = event.shiftKey ? all[0] : all.at(-1);
      if (document.activeElement !== end && all.length) return;
      event.preventDefault();
      (event.shiftKey ? all.at(-1) : all[0])?.focus();
    }
  });
  document.body.append(panel);
  const at = button.getBoundingClientRect();
  const left = Math.max(8, Math.min(at.left, innerWidth - panel.offsetWidth - 8));
  panel.style.left = `${left}px`;
  panel.style.top = `${Math.max(8, Math.min(at.bottom + 4, innerHeight - panel.offsetHeight - 8))}px`;
  button.setAttribute("aria-expanded", "true");
  document.addEventListener("pointerdown", outside, true);
  (panel.querySelector("input, button") ?? panel).focus();
  return close;
}
